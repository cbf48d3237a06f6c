//! Cost of a repair, in reads of the image.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use disk::{Access, BlockDevice, Fault, FaultyDevice, MemoryDevice, OverlayDevice};
use operations::repair::{Staging, fits, make_plan, write_through_log};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use vfs::check::{Options as CheckOptions, Silent};
use vfs::{FileSystem, Ino, NewInode};
use xfs::Xfs;
use xfs::format::address::FsBlock;
use xfs::format::geometry::Geometry;
use xfs::format::inode::{Inode, seal_slot};
use xfs::format::superblock::Superblock;
use xfs::mkfs::{self, Options, PreviousContents};
use xfs::repair::{Repair, keep_log, open_log};

use crate::common::layout::Layout;

const SIZE: u64 = 64 << 20;
const DIRECTORIES: u32 = 300;
/// Maximum number of bytes of a log that may be in flight.
const IN_FLIGHT_BYTES: u64 = 2 << 20;
/// Maximum number of bytes read to find the head by bisection.
const PROBED_BYTES: u64 = 64 << 10;

/// Returns the byte offset of an inode on the device.
fn slot_byte(geometry: &Geometry, ino: Ino) -> u64 {
    let (ag, ag_ino) = geometry.split_ino(ino).unwrap();
    let (block, at) = geometry.inode_place(ag_ino);
    geometry.byte_of(geometry.block_of(ag, block)) + at as u64
}

/// Returns an image with many directories, in which one file and one directory have a wrong link count.
fn miscounted() -> (Arc<FaultyDevice>, [Ino; 2]) {
    let options = Options { allow_small: true, ..Options::new(SIZE) };
    let device = Arc::new(MemoryDevice::new(SIZE));
    mkfs::format(&*device, &mkfs::plan(&options).unwrap(), PreviousContents::Zeros).unwrap();
    let fs = Xfs::open_in_progress(device.clone(), 16 << 20).unwrap();
    let new = NewInode { permissions: 0o755, ..NewInode::default() };
    let mut wrong = [fs.root(); 2];
    for number in 0..DIRECTORIES {
        let dir = fs.mkdir(fs.root(), format!("directory {number}").as_bytes(), &new).unwrap();
        wrong = [dir, dir];
        for file in 0..30 {
            let name = format!("a file with a name that needs a block {file}");
            wrong[1] = fs.create(dir, name.as_bytes(), &new).unwrap();
        }
    }
    fs.finish(None).unwrap();
    let mut bytes = vec![0; SIZE as usize];
    device.read_at(0, &mut bytes).unwrap();
    let geometry = Layout::of(&bytes).geometry;
    for ino in wrong {
        let byte = slot_byte(&geometry, ino);
        let mut inode = Inode::from_slot(&bytes[byte as usize..][..geometry.inode_size()]);
        inode.set_nlink(inode.nlink() + 1);
        seal_slot(inode.as_mut_bytes());
        device.write_at(byte, inode.as_bytes()).unwrap();
    }
    (Arc::new(FaultyDevice::new(device)), wrong)
}

/// Runs `work` on one processor, where checks use one thread: with more, scheduling decides which directories are read
/// before the last name is found.
fn on_one_processor(work: impl FnOnce() + Send) {
    let pinned = || {
        let allowed = sched_getaffinity(None).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap());
        sched_setaffinity(None, &one).unwrap();
        work();
    };
    thread::scope(|scope| scope.spawn(pinned).join()).unwrap();
}

/// A repair reads at most as much as two checks that find the damage: each check stops to look for names when it has
/// them. Reading ten thousand inodes one by one, or all names once more, would exceed that.
#[test]
fn wrong_link_counts_cost_at_most_two_checks() {
    on_one_processor(compare_reads);
}

fn compare_reads() {
    let (device, wrong) = miscounted();
    let reads = |run: &dyn Fn()| {
        device.set(Access::Read, Fault::Never);
        run();
        device.count(Access::Read)
    };
    let of_check = reads(&|| {
        xfs::check::check(Arc::clone(&device) as _, &CheckOptions::default(), &Silent).unwrap();
    });
    let of_plan = reads(&|| {
        let staging = Arc::new(Staging::new(keep_log(Arc::clone(&device) as _)));
        let plan = make_plan(&Repair::default(), &staging, &Silent).unwrap();
        assert!(plan.left.is_empty(), "{:?}", plan.left);
        let actions = plan.steps.iter().flat_map(|step| &step.actions);
        let mut repaired: Vec<Option<u64>> = actions.map(|action| action.place.inode).collect();
        repaired.sort_unstable();
        let mut expected = wrong.map(|ino| Some(ino.0));
        expected.sort_unstable();
        assert_eq!(repaired, expected);
    });
    assert!(of_plan <= 2 * of_check, "{of_plan} reads, {of_check} for a check");
}

/// Counts the bytes that are read, in a range and elsewhere.
struct Counted {
    below: Arc<dyn BlockDevice>,
    range: Range<u64>,
    within: AtomicU64,
    elsewhere: AtomicU64,
}

impl Counted {
    fn take(&self) -> (u64, u64) {
        (self.within.swap(0, Ordering::Relaxed), self.elsewhere.swap(0, Ordering::Relaxed))
    }
}

impl BlockDevice for Counted {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        let count = if self.range.contains(&offset) { &self.within } else { &self.elsewhere };
        count.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.below.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.below.write_at(offset, data)
    }

    fn zero_range(&self, offset: u64, len: u64) -> std::io::Result<()> {
        self.below.zero_range(offset, len)
    }

    fn flush(&self) -> std::io::Result<()> {
        self.below.flush()
    }
}

/// Each part of the log is read at most once for the plan, and once more after it was written.
#[test]
fn a_repair_reads_the_log_once() {
    let (device, _) = miscounted();
    let sb = {
        let mut sector = vec![0; 512];
        device.read_at(0, &mut sector).unwrap();
        Superblock::parse(&sector, SIZE).unwrap()
    };
    let geometry = Geometry::new(&sb);
    let start = geometry.byte_of(geometry.device_block(FsBlock(sb.raw.logstart.get())));
    let len = u64::from(sb.raw.logblocks.get()) << geometry.block_log;
    let (within, elsewhere) = Default::default();
    let counted = Arc::new(Counted { below: device, range: start..start + len, within, elsewhere });
    xfs::check::check(Arc::clone(&counted) as _, &CheckOptions::default(), &Silent).unwrap();
    let of_check = counted.take();
    let kept = keep_log(Arc::clone(&counted) as _);
    let staging = Arc::new(Staging::new(Arc::clone(&kept)));
    let plan = make_plan(&Repair::default(), &staging, &Silent).unwrap();
    let of_plan = counted.take();
    let tried = Arc::new(OverlayDevice::new(Arc::clone(&kept)));
    assert!(fits(&*open_log(tried).unwrap().unwrap(), &plan.steps));
    let writer = open_log(Arc::clone(&kept)).unwrap().unwrap();
    write_through_log(Arc::clone(&kept), writer, &plan.steps, &mut |_, _| true).unwrap();
    assert!(!xfs::tune::needs_recovery(&*kept).unwrap());
    let of_writing = counted.take();
    println!("log and rest: check {of_check:?}, plan {of_plan:?}, writing {of_writing:?}");
    // The plan also needs the part after the head. Single blocks are read as pages.
    let most = of_check.0 + IN_FLIGHT_BYTES + PROBED_BYTES;
    assert!(of_plan.0 <= most && of_writing.0 <= IN_FLIGHT_BYTES, "{of_plan:?} {of_writing:?}");
    let all = |(within, elsewhere): (u64, u64)| within + elsewhere;
    assert!(all(of_plan) <= 2 * all(of_check), "{of_plan:?}, {of_check:?} for a check");
}
