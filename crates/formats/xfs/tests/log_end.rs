//! Finding the end of logs: of logs left by kernels, clean and dirty, and of garbage.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, FileDevice, MemoryDevice};
use testkit::{KernelMount, MkfsXfs, MountOptions, require, scratch};
use vfs::{Error, FileSystem};
use xfs::format::log::BLOCK_SIZE;
use xfs::format::superblock::Superblock;
use xfs::mkfs::{self, Options, PreviousContents};
use xfs::{LogEnd, OpenOptions, Xfs, log_end, log_is_clean};

const MIB: u64 = 1 << 20;

fn device(image: &Path) -> Arc<FileDevice> {
    Arc::new(FileDevice::new(fs::File::open(image).unwrap()).unwrap())
}

fn superblock(device: &dyn BlockDevice) -> Superblock {
    let mut sector = vec![0; 32 << 10];
    device.read_at(0, &mut sector).unwrap();
    Superblock::parse(&sector, device.len()).unwrap()
}

fn end_of(image: &Path) -> LogEnd {
    let device = device(image);
    log_end(&*device, &superblock(&*device)).unwrap().expect("a log")
}

/// Copies the image as after a crash at this moment: with everything flushed.
fn crashed(mount: &KernelMount, image: &Path, copy: &Path) {
    rustix::fs::syncfs(fs::File::open(mount.path()).unwrap()).unwrap();
    testkit::copy_image(image, copy);
}

/// Makes and removes files, to advance the log.
fn churn(directory: &Path, round: u32) {
    for at in 0..400 {
        let path = directory.join(format!("{round}-{at}"));
        fs::write(&path, vec![round as u8; 5000]).unwrap();
        if at % 3 != 0 {
            fs::remove_file(&path).unwrap();
        }
        if at % 5 == 0 {
            rustix::fs::syncfs(fs::File::open(directory).unwrap()).unwrap();
        }
    }
}

#[test]
fn kernels_logs_are_clean_after_unmount_only() {
    require!(Tool("mkfs.xfs"), Mount("xfs"));
    let home = scratch();
    let (image, copy) = (home.path().join("image"), home.path().join("copy"));
    // Minimum number of rounds, even if the log has wrapped around before.
    let rounds_min = testkit::effort(2, 4, 12);
    // Logs with records of minimum length, and with stripe units.
    for options in ["-l size=2001b", "-s size=4096", "-l su=64k"] {
        MkfsXfs::default().options(options).create(&image, 64 * MIB);
        assert!(end_of(&image).is_clean, "{options}: fresh");
        let mut cycles = Vec::new();
        for round in 0..12 {
            let mount = KernelMount::new(&image, &MountOptions::read_write("xfs"));
            churn(mount.path(), round);
            crashed(&mount, &image, &copy);
            mount.unmount();
            let (dirty, clean) = (end_of(&copy), end_of(&image));
            assert!(
                !dirty.is_clean && dirty.tail().is_some(),
                "{options}, round {round}: {dirty:?}"
            );
            assert!(clean.is_clean, "{options}, round {round}: {clean:?}");
            cycles.push(clean.last.unwrap().lsn.cycle);
            if round >= rounds_min && cycles.last() > cycles.first() {
                break;
            }
        }
        assert!(cycles.last() > cycles.first(), "the log never went round: {cycles:?}");
    }
}

#[test]
fn a_dirty_log_is_visible_unless_recovery_is_disabled() {
    require!(Tool("mkfs.xfs"), Mount("xfs"));
    let home = scratch();
    let (image, copy) = (home.path().join("image"), home.path().join("copy"));
    MkfsXfs::default().create(&image, 64 * MIB);
    let mount = KernelMount::new(&image, &MountOptions::read_write("xfs"));
    fs::write(mount.path().join("file"), b"contents").unwrap();
    crashed(&mount, &image, &copy);
    mount.unmount();
    let before = fs::read(&copy).unwrap();
    let norecovery = OpenOptions { norecovery: true, ..OpenOptions::default() };
    for (options, is_seen) in [(OpenOptions::default(), true), (norecovery, false)] {
        let fs = Xfs::open(device(&copy), &options).unwrap();
        assert_eq!(fs.lookup(fs.root(), b"file").is_ok(), is_seen);
        let refused = fs.mkdir(fs.root(), b"new", &Default::default());
        assert!(matches!(refused, Err(Error::ReadOnly(_))), "{refused:?}");
    }
    assert!(fs::read(&copy).unwrap() == before, "it was changed");
}

#[test]
fn a_log_elsewhere_is_refused_with_advice() {
    require!(Tool("mkfs.xfs"));
    let home = scratch();
    let (image, log) = (home.path().join("image"), home.path().join("log"));
    fs::File::create(&log).unwrap().set_len(64 * MIB).unwrap();
    let place = format!("-l logdev={},size=64m", log.display());
    MkfsXfs::default().options(&place).create(&image, 300 * MIB);
    let refused = Xfs::open(device(&image), &OpenOptions::default()).err().unwrap();
    assert!(refused.to_string().contains("external log"), "{refused}");
    let norecovery = OpenOptions { norecovery: true, ..OpenOptions::default() };
    Xfs::open(device(&image), &norecovery).unwrap();
}

/// Returns a new image of 32 MiB, and the byte range of its log.
fn fresh() -> (MemoryDevice, Superblock, std::ops::Range<u64>) {
    let device = MemoryDevice::new(32 * MIB);
    let options = Options { allow_small: true, ..Options::new(32 * MIB) };
    mkfs::format(&device, &mkfs::plan(&options).unwrap(), PreviousContents::Zeros).unwrap();
    let sb = superblock(&device);
    let geometry = xfs::format::geometry::Geometry::new(&sb);
    let start = xfs::format::address::FsBlock(sb.raw.logstart.get());
    let start = geometry.byte_of(geometry.device_block(start));
    let len = u64::from(sb.raw.logblocks.get()) << sb.raw.blocklog;
    (device, sb, start..start + len)
}

#[test]
fn garbage_is_not_clean() {
    let mut random = fastrand::Rng::with_seed(4);
    for _ in 0..testkit::effort(50, 200, 2_000) {
        let (device, sb, log) = fresh();
        let mut bytes = vec![0; 4 << 10];
        random.fill(&mut bytes);
        // The start of the unmount record, and more.
        let (at, len) = (log.start + random.u64(0..8), random.usize(16..bytes.len()));
        device.write_at(at, &bytes[..len]).unwrap();
        assert!(!log_is_clean(&device, &sb).unwrap(), "{len} bytes at {at}");
    }
}

#[test]
fn scanning_a_random_log_ends() {
    let mut random = fastrand::Rng::with_seed(5);
    for round in 0..testkit::effort(10, 20, 1_000) {
        let (device, sb, log) = fresh();
        let mut bytes = vec![0; (log.end - log.start) as usize];
        random.fill(&mut bytes);
        for block in bytes.chunks_exact_mut(BLOCK_SIZE) {
            // Consistent cycles, and sometimes something like a header.
            block[..4].copy_from_slice(&[0, 0, 0, 1]);
            if random.u32(0..9) < round % 10 {
                block[..4].copy_from_slice(&0xfeed_babe_u32.to_be_bytes());
                block[4..12].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0, 2]);
            }
        }
        device.write_at(log.start, &bytes).unwrap();
        let end = log_end(&device, &sb).unwrap();
        assert!(!end.is_some_and(|end| end.is_clean), "{end:?}");
    }
}

#[test]
fn a_log_at_an_invalid_location_is_not_clean() {
    let (device, sb, _) = fresh();
    for (start, blocks) in [(u64::MAX, 2001), (1, u32::MAX), (1 << 40, 100), (70_000, 2001)] {
        let mut sb = sb.clone();
        sb.raw.logstart = start.into();
        sb.raw.logblocks = blocks.into();
        assert!(!log_is_clean(&device, &sb).unwrap(), "{blocks} blocks at {start}");
    }
}
