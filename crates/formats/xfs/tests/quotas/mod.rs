//! Quotas: usage stays right through all changes, crashes and recoveries, so that kernels need not count again. Limits
//! are enforced as kernels do.

pub(crate) mod guest;
mod limits;
mod made;
mod realtime;
pub(crate) mod run;
mod statfs;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use disk::{BlockDevice, MemoryDevice};
use testkit::crash::{CrashCase, CrashTarget, Judge, Options};
use testkit::operation::Mix;
use testkit::require;
use vfs::{ExtentPlace, FileSystem, Ino, InodeFlags};
use xfs::format::superblock::{RawSuperblock, Superblock};
use xfs::{OpenOptions, Xfs};
use zerocopy::FromBytes;

use crate::changing::judges::check_recovered;
use crate::changing::{SYNCING, TargetLayout, XfsTarget, assert_clean};
use crate::checking::{Sound, findings};
use crate::common::image::unpack_device;
use run::QuotaRun;

/// `sb_qflags`: accounted and counted for users, groups and projects.
const COUNTED: u16 = 0x1 | 0x4 | 0x40 | 0x100 | 0x8 | 0x400;

/// Usage by kind of quota and identifier: blocks, inodes, blocks of the realtime section.
pub(crate) type Usage = [BTreeMap<u32, (u64, u64, u64)>; 3];

fn open(device: &Arc<MemoryDevice>) -> Xfs {
    Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap()
}

fn superblock(device: &MemoryDevice) -> Superblock {
    let mut sector = vec![0; 4096];
    device.read_at(0, &mut sector).unwrap();
    Superblock::parse(&sector, device.len()).unwrap()
}

fn flags(device: &MemoryDevice) -> u16 {
    let mut sector = [0; 512];
    device.read_at(0, &mut sector).unwrap();
    RawSuperblock::read_from_prefix(&sector).unwrap().0.qflags.get()
}

/// Returns an image with quotas of Linux 7.2, recovered and without files.
fn image() -> MemoryDevice {
    static EMPTIED: LazyLock<MemoryDevice> = LazyLock::new(|| {
        let golden = unpack_device(include_bytes!("../golden/quota-log.img.gz.gz"));
        let device = Arc::new(golden);
        let fs = open(&device);
        remove_all(&fs, fs.root());
        fs.close().unwrap();
        assert_eq!(flags(&device) & COUNTED, COUNTED, "recovery keeps the counts");
        device.fork()
    });
    EMPTIED.fork()
}

fn entries(fs: &Xfs, dir: Ino) -> Vec<(Vec<u8>, Ino)> {
    let mut all = Vec::new();
    fs.for_each_entry(dir, &mut |entry| {
        if !matches!(entry.name, b"." | b"..") {
            all.push((entry.name.to_vec(), entry.ino));
        }
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    all
}

fn is_dir(fs: &Xfs, ino: Ino) -> bool {
    fs.attributes(ino).unwrap().file_type == vfs::FileType::Directory
}

fn remove_all(fs: &Xfs, dir: Ino) {
    for (name, ino) in entries(fs, dir) {
        if is_dir(fs, ino) {
            remove_all(fs, ino);
            fs.rmdir(dir, &name, None).unwrap();
        } else {
            fs.unlink(dir, &name, None).unwrap();
        }
    }
}

fn mapped_bytes(fs: &Xfs, ino: Ino) -> u64 {
    let mut bytes = 0;
    fs.extent_map(ino, 0, i64::MAX as u64, &mut |run| {
        if run.place != ExtentPlace::Hole {
            bytes += run.len;
        }
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    bytes
}

/// Returns the usage of all inodes in directories, and of the two inodes of the realtime device.
pub(crate) fn usage(fs: &Xfs) -> Usage {
    let mut inodes = BTreeMap::from([(fs.root(), ())]);
    let mut dirs = vec![fs.root()];
    while let Some(dir) = dirs.pop() {
        for (_, ino) in entries(fs, dir) {
            if inodes.insert(ino, ()).is_none() && is_dir(fs, ino) {
                dirs.push(ino);
            }
        }
    }
    let raw = &fs.superblock().raw;
    let own = raw.realtime_inodes().into_iter().filter(|ino| *ino != 0);
    inodes.extend(own.map(|ino| (Ino(ino), ())));
    let mut usage = Usage::default();
    for ino in inodes.into_keys() {
        let found = fs.attributes(ino).unwrap();
        let others = fs.file_attributes(ino).unwrap();
        let block_size = u64::from(raw.blocksize.get());
        let realtime = match others.flags.contains(InodeFlags::REALTIME) {
            true => mapped_bytes(fs, ino) / block_size,
            false => 0,
        };
        for (kind, id) in usage.iter_mut().zip([found.uid, found.gid, others.project_id]) {
            let of = kind.entry(id).or_default();
            of.0 += found.blocks_512 * 512 / block_size - realtime;
            of.1 += 1;
            of.2 += realtime;
        }
    }
    usage
}

/// Asserts that an image says that usage was counted, and that it was.
#[track_caller]
fn assert_counted(device: &MemoryDevice) {
    assert_eq!(flags(device) & COUNTED, COUNTED);
    let found = findings(Arc::new(device.fork())).unwrap();
    assert!(found.is_empty(), "{found:#?}");
    assert_clean(device);
}

#[test]
fn usage_is_counted_through_all_changes() {
    require!(Tool("xfs_repair"));
    for seed in 0..testkit::effort(1, 3, 20) {
        let device = Arc::new(image());
        let mut run = QuotaRun::new(open(&device), seed);
        run.steps(700);
        run.fs.close().unwrap();
        assert_counted(&device);
    }
}

/// Records of many identifiers are in many blocks, for which the map of a quota file becomes a tree.
#[test]
fn identifiers_anywhere_get_records() {
    require!(Tool("xfs_repair"));
    let device = Arc::new(image());
    let fs = open(&device);
    let file = fs.create(fs.root(), b"file", &vfs::NewInode::default()).unwrap();
    for nth in 0..150_u32 {
        let id = Some(nth.wrapping_mul(40_000_003));
        let owner = vfs::SetAttributes { uid: id, gid: Some(u32::MAX), ..Default::default() };
        fs.set_attributes(file, &owner).unwrap();
    }
    fs.close().unwrap();
    assert_counted(&device);
}

/// A kernel counts again if the image does not say that usage was counted. It stays so.
#[test]
fn quotas_that_were_not_counted_stay_so() {
    let device = Arc::new(image());
    let not_counted = COUNTED & !0x4;
    crate::repair::quota_files::change_superblock(&device, |raw| raw.qflags = not_counted.into());
    let mut run = QuotaRun::new(open(&device), 1);
    run.steps(50);
    run.fs.close().unwrap();
    assert_eq!(flags(&device), not_counted);
    assert!(findings(device).unwrap().is_empty());
}

/// A record is missing or invalid, or its usage is too low: the kernel must count again.
#[test]
fn a_kind_with_wrong_records_is_given_up() {
    let made = image();
    let user_0 = limits::record_place(&made, 1, 0);
    for (at, bytes) in [(user_0 + 40, &[0; 16][..]), (user_0, &[0xee; 4])] {
        let device = Arc::new(made.fork());
        device.write_at(at, bytes).unwrap();
        if at != user_0 {
            limits::seal_record(&device, user_0);
        }
        let fs = open(&device);
        let file = fs.create(fs.root(), b"file", &vfs::NewInode::default()).unwrap();
        fs.write(file, 0, &[1; 100_000], None).unwrap();
        fs.sync().unwrap();
        remove_all(&fs, fs.root());
        let owner = vfs::SetAttributes { uid: Some(5), ..Default::default() };
        fs.set_attributes(fs.root(), &owner).unwrap();
        fs.close().unwrap();
        assert_eq!(flags(&device) & COUNTED, COUNTED & !0x4, "{at}");
        let found = findings(device).unwrap();
        assert!(found.iter().all(|f| f.code.name == "xfs-quota"), "{found:#?}");
    }
}

/// A judge: recovery does not make kernels count.
struct StaysCounted;

impl Judge for StaysCounted {
    fn name(&self) -> &str {
        "flags of quotas"
    }

    fn one_in(&self) -> u64 {
        1
    }

    fn judge(&self, case: &CrashCase<'_>) -> Result<(), String> {
        let found = flags(case.recovered);
        if found & COUNTED == COUNTED { Ok(()) } else { Err(format!("{found:#x}")) }
    }
}

#[test]
fn usage_is_right_after_a_crash_anywhere() {
    require!(Tool("xfs_repair"));
    let target = XfsTarget::with_images(
        TargetLayout::DEFAULT,
        crate::changing::target::Way::InPlace,
        vec![image()],
    );
    let repair = check_recovered(4);
    let judges: [&dyn Judge; 3] = [&StaysCounted, &Sound, &repair];
    let options = Options { mixes: vec![Mix::ALL, Mix::METADATA, SYNCING], ..Options::default() };
    let target: &dyn CrashTarget = &target;
    testkit::assert_survives(target, &judges, options, 300);
}
