//! Repairs and the log: a log is replayed, a damaged one up to the damage, and steps are written through the log.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use operations::repair::{Action, PAGE_BYTES, Staging, fits, make_plan, write_through_log};
use testkit::crash::write_image;
use vfs::{FileSystem, Ino, NewInode};
use xfs::format::address::{AgBlock, AgNumber, FsBlock};
use xfs::format::checksum;
use xfs::format::geometry::Geometry;
use xfs::format::superblock::{CRC_OFFSET, Superblock};
use xfs::repair::{Repair, open_log};
use xfs::{OpenOptions, Xfs};

use super::RepairSample;
use super::subject::repaired;
use crate::common::image::{device, golden};
use vfs::check::Silent;

/// Returns an image with a dirty log.
fn dirty() -> MemoryDevice {
    let device = Arc::new(device(&golden("default")));
    let fs = Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap();
    for nth in 0..200 {
        let name = format!("new {nth}");
        let ino = fs.create(fs.root(), name.as_bytes(), &NewInode::default()).unwrap();
        fs.write(ino, 0, name.as_bytes(), None).unwrap();
    }
    fs.sync().unwrap();
    let crashed = device.fork();
    drop(fs);
    crashed
}

fn log_bytes(device: &MemoryDevice) -> std::ops::Range<u64> {
    let mut sector = vec![0; 4096];
    device.read_at(0, &mut sector).unwrap();
    let sb = Superblock::parse(&sector, device.len()).unwrap();
    let geometry = Geometry::new(&sb);
    let start = geometry.byte_of(geometry.device_block(FsBlock(sb.raw.logstart.get())));
    start..start + (u64::from(sb.raw.logblocks.get()) << geometry.block_log)
}

fn judge(device: &MemoryDevice) -> Result<(), String> {
    testkit::show_image(device, testkit::xfs_repair_verdict)
}

/// Asserts that an image of [`dirty`] is repaired, and has all changes in its log.
#[track_caller]
fn assert_replayed(damaged: MemoryDevice) {
    let outcome = repaired(damaged).unwrap();
    assert!(outcome.left.is_empty() && outcome.is_complete, "{:?}", outcome.left);
    judge(&outcome.device).unwrap();
    let fs = Xfs::open(Arc::new(outcome.device), &OpenOptions::default()).unwrap();
    for nth in 0..200 {
        fs.lookup(fs.root(), format!("new {nth}").as_bytes()).unwrap();
    }
}

#[test]
fn logged_changes_are_replayed() {
    testkit::require!(Tool("xfs_repair"));
    assert_replayed(dirty());
}

/// The only remaining superblock has an invalid location of the log.
#[test]
fn a_log_is_found_by_its_records() {
    testkit::require!(Tool("xfs_repair"));
    const LOGSTART: usize = 48;
    let base = dirty();
    let mut sector = vec![0; 512];
    base.read_at(0, &mut sector).unwrap();
    let sb = Superblock::parse(&sector, base.len()).unwrap();
    let geometry = Geometry::new(&sb);
    let copy = geometry.byte_of(geometry.block_of(AgNumber(1), AgBlock(0)));
    // Outside of the image, and on another device.
    for logstart in [sb.raw.logstart.get() ^ 1 << 35, 0] {
        let damaged = base.fork();
        damaged.zero_range(0, 512).unwrap();
        damaged.read_at(copy, &mut sector).unwrap();
        sector[LOGSTART..LOGSTART + 8].copy_from_slice(&logstart.to_be_bytes());
        checksum::seal(&mut sector, CRC_OFFSET);
        damaged.write_at(copy, &sector).unwrap();
        assert_replayed(damaged);
    }
}

#[test]
fn any_damaged_log_is_repaired() {
    testkit::require!(Tool("xfs_repair"));
    let base = dirty();
    let log = log_bytes(&base);
    for seed in 0..testkit::effort(4, 20, 1000) {
        let mut random = fastrand::Rng::with_seed(seed);
        let damaged = base.fork();
        // Random positions in the written part, which may be damaged completely.
        for _ in 0..random.u32(1..4) {
            let noise: Vec<u8> = (0..512).map(|_| random.u8(..)).collect();
            let block = random.u64(..200);
            damaged.write_at(log.start + block * 512, &noise).unwrap();
        }
        let outcome = repaired(damaged).unwrap();
        if outcome.left.is_empty() && outcome.is_complete {
            judge(&outcome.device).unwrap_or_else(|what| panic!("{seed}: {what}"));
        } else {
            panic!("{seed}: {:#?}", outcome.left);
        }
    }
}

/// Changes before the damage are present, those after it are not.
#[test]
fn a_damaged_log_is_replayed_up_to_the_damage() {
    testkit::require!(Tool("xfs_repair"));
    let device = Arc::new(device(&golden("default")));
    let fs = Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap();
    let name = |nth: u64| format!("new {nth}");
    for nth in 0..100 {
        let ino = fs.create(fs.root(), name(nth).as_bytes(), &NewInode::default()).unwrap();
        fs.write(ino, 0, name(nth).as_bytes(), None).unwrap();
        if nth % 2 == 1 {
            fs.sync().unwrap();
        }
    }
    let base = device.fork();
    drop(fs);
    let log = log_bytes(&base);
    let mut sector = vec![0; 4096];
    base.read_at(0, &mut sector).unwrap();
    let sb = Superblock::parse(&sector, base.len()).unwrap();
    let mut blocks = Vec::new();
    xfs::log_contents(&base, &sb, |record| {
        blocks.push(u64::from(record.record.lsn.block));
        Ok(())
    })
    .unwrap();
    assert!(blocks.len() > 40, "{}", blocks.len());
    let mut counts = Vec::new();
    for part in [1, 2, 3] {
        let damaged = base.fork();
        let record = blocks[blocks.len() * part / 4];
        damaged.write_at(log.start + record * 512 + 1024, &[0x5a; 512]).unwrap();
        let outcome = repaired(damaged).unwrap();
        assert!(outcome.codes.contains(&"xfs-log"), "{:?}", outcome.codes);
        assert!(outcome.left.is_empty() && outcome.is_complete, "{:?}", outcome.left);
        judge(&outcome.device).unwrap();
        let fs = Xfs::open(Arc::new(outcome.device), &OpenOptions::default()).unwrap();
        let has = |nth: &u64| {
            let found = fs.lookup(fs.root(), name(*nth).as_bytes());
            let mut bytes = vec![0; 100];
            found.is_ok_and(|ino| {
                let read = fs.read(ino, 0, &mut bytes).unwrap();
                assert_eq!(&bytes[..read], name(*nth).as_bytes());
                true
            })
        };
        let count = (0..100).filter(has).count();
        assert_eq!((0..100).take_while(has).count(), count, "an earlier state");
        counts.push(count);
    }
    assert!(counts.is_sorted() && counts[0] > 0 && counts[2] < 100, "{counts:?}");
}

/// After a crash at any moment, an image has all or none of a step; here, of the last one written.
#[test]
fn steps_are_written_through_the_log() {
    testkit::require!(Tool("xfs_repair"));
    let base = device(&golden("default"));
    // The AGF and the root of the first tree after the headers, of the second group.
    let mut sector = vec![0; 4096];
    base.read_at(0, &mut sector).unwrap();
    let sb = Superblock::parse(&sector, base.len()).unwrap();
    let start = u64::from(sb.raw.agblocks.get()) << sb.raw.blocklog;
    base.write_at(start + 512, &[0; 512]).unwrap();
    base.write_at(start + 4096, &[0; 4096]).unwrap();
    let staging = Arc::new(Staging::new(Arc::new(base.fork())));
    let plan = make_plan(&Repair::default(), &staging, &Silent).unwrap();
    assert!(plan.left.is_empty() && !plan.steps.is_empty());
    let written: Arc<MemoryDevice> = Arc::new(base.fork());
    let writer = open_log(written.clone()).unwrap().expect("a log to write through");
    write_through_log(written.clone(), writer, &plan.steps, &mut |_, _| true).unwrap();
    judge(&written).unwrap();
    // A crash before any write-back: the log contains the step.
    let crashed: Arc<MemoryDevice> = Arc::new(base.fork());
    let mut writer = open_log(crashed.clone()).unwrap().expect("a log to write through");
    let mut blocks = std::collections::BTreeMap::new();
    for step in &plan.steps {
        for (number, page) in &step.pages {
            assert_eq!(writer.block_size() as u64, PAGE_BYTES);
            blocks.insert(*number, page.to_vec());
        }
    }
    writer.write(&blocks).unwrap();
    let left = crashed.fork();
    drop(writer);
    let fs = Xfs::open_writable(Arc::new(left.fork()), &OpenOptions::default()).unwrap();
    fs.close().unwrap();
    let outcome = repaired(left).unwrap();
    assert!(outcome.codes.is_empty() && outcome.left.is_empty(), "{:?}", outcome.codes);
    judge(&outcome.device).unwrap();
}

/// A replay would skip a block whose LSN is after the head of the log. Other blocks are written through the log.
#[test]
fn a_change_of_a_block_after_the_head_is_not_logged() {
    const LSN: usize = 16;
    let image = RepairSample::new("default", golden("default"));
    let is_directory = |start: &usize| {
        [b"XDB3", b"XDD3"].iter().any(|magic| image.bytes[*start..].starts_with(*magic))
    };
    let mut starts = image.layout.structures.iter().map(|structure| structure.start);
    let start = starts.find(is_directory).expect("a directory block");
    let later = Arc::new(image.base.fork());
    later.write_at((start + LSN) as u64, &[0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    image.layout.seal(&*later, start + LSN..start + LSN + 8);
    let is_logged = |device: &Arc<MemoryDevice>, byte: usize| {
        let staging = Staging::new(Arc::clone(device) as _);
        staging.write_at(byte as u64, &[7; 8]).unwrap();
        staging.end_step(vec![Action::new("Some.")]).unwrap();
        let writer = open_log(Arc::clone(device) as _).unwrap().expect("a log to write through");
        fits(&*writer, &staging.steps())
    };
    assert!(!is_logged(&later, start + 100));
    assert!(is_logged(&later, start + PAGE_BYTES as usize));
    assert!(is_logged(&Arc::new(image.base.fork()), start + 100));
}

/// The kernel replays steps as they were written.
#[test]
fn a_kernel_replays_steps() {
    testkit::require!(Tool("xfs_repair"), Mount("xfs"));
    let base = device(&golden("default"));
    let mut sector = vec![0; 4096];
    base.read_at(0, &mut sector).unwrap();
    let sb = Superblock::parse(&sector, base.len()).unwrap();
    let start = u64::from(sb.raw.agblocks.get()) << sb.raw.blocklog;
    base.write_at(start + 512, &[0; 1024]).unwrap();
    base.write_at(start + 4096, &[0; 4096]).unwrap();
    let staging = Arc::new(Staging::new(Arc::new(base.fork())));
    let plan = make_plan(&Repair::default(), &staging, &Silent).unwrap();
    assert!(plan.left.is_empty() && !plan.steps.is_empty());
    let crashed: Arc<MemoryDevice> = Arc::new(base.fork());
    let mut writer = open_log(crashed.clone()).unwrap().expect("a log to write through");
    let pages = plan.steps.iter().flat_map(|step| &step.pages);
    writer.write(&pages.map(|(number, page)| (*number, page.to_vec())).collect()).unwrap();
    let left = crashed.fork();
    drop(writer);
    let home = testkit::scratch();
    let path = home.path().join("image");
    write_image(&left, &path).unwrap();
    let mounted = testkit::KernelMount::new(&path, &testkit::MountOptions::read_write("xfs"));
    mounted.unmount();
    testkit::xfs_repair(&path);
}

/// A damaged structure has a random LSN.
#[test]
fn a_new_log_begins_at_a_cycle_that_logs_reach() {
    testkit::require!(Tool("xfs_repair"));
    const DI_LSN: usize = 112;
    let base = dirty();
    let log = log_bytes(&base);
    let mut sector = vec![0; 4096];
    base.read_at(0, &mut sector).unwrap();
    let sb = Superblock::parse(&sector, base.len()).unwrap();
    let geometry = Geometry::new(&sb);
    let (ag, root) = geometry.split_ino(Ino(sb.raw.rootino.get())).unwrap();
    let (block, at) = geometry.inode_place(root);
    let root = geometry.byte_of(geometry.block_of(ag, block)) + at as u64;
    for (cycle, is_sealed) in [(0xc3a5_5a3c, true), (0xc3a5_5a3c, false), (u32::MAX - 1, true)] {
        let damaged = base.fork();
        damaged.write_at(log.start, &[0xa5; 200 * 512]).unwrap();
        let mut slot = vec![0; geometry.inode_size()];
        damaged.read_at(root, &mut slot).unwrap();
        slot[DI_LSN..DI_LSN + 4].copy_from_slice(&u32::to_be_bytes(cycle));
        if is_sealed {
            checksum::seal(&mut slot, xfs::format::inode::CRC_OFFSET);
        }
        damaged.write_at(root, &slot).unwrap();
        let outcome = repaired(damaged).unwrap();
        assert!(outcome.left.is_empty() && outcome.is_complete, "{cycle:#x}: {:?}", outcome.left);
        judge(&outcome.device).unwrap_or_else(|what| panic!("{cycle:#x}: {what}"));
        let last = xfs::log_end(&outcome.device, &sb).unwrap().unwrap().last.unwrap();
        assert!(last.lsn.cycle < 100, "{cycle:#x}: the log begins at {:?}", last.lsn);
    }
}
