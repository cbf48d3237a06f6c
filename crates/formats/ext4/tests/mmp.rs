//! Multiple mount protection: claims, refusals, and hosts that have crashed or lost the image. The kernel and e2fsprogs
//! judge the block.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use disk::{BlockDevice, FileDevice, MemoryDevice};
use ext4::format::mmp::{RawMmp, SEQUENCE_CHECK, SEQUENCE_CLEAN, SEQUENCE_MAX};
use ext4::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use ext4::mmp::{MmpOptions, claim_for_repair};
use ext4::resize::{SizeRequest, shrink};
use ext4::{Ext4, OpenOptions};
use tempfile::TempDir;
use testkit::{KernelMount, Mke2fs, MountOptions, effort, require, scratch};
use vfs::{Error, FileSystem, NewInode};
use zerocopy::IntoBytes;

/// Length of a second of the protocol. A claim of an image in use waits for 11 of them, and an update is due after 5.
const SECOND: Duration = Duration::from_millis(20);

/// An image with the feature in a temporary directory.
struct MmpImage {
    _folder: TempDir,
    path: PathBuf,
}

impl MmpImage {
    fn new(arguments: &[&str]) -> Self {
        let folder = scratch();
        let path = folder.path().join("image");
        Mke2fs::new("ext4").arguments(["-O", "mmp"]).arguments(arguments).create(&path, 16 << 20);
        Self { _folder: folder, path }
    }

    fn device(&self) -> Arc<dyn BlockDevice> {
        let file = File::options().read(true).write(true).open(&self.path).unwrap();
        Arc::new(FileDevice::new(file).unwrap())
    }

    /// Asserts that e2fsprogs find the image sound and unused.
    #[track_caller]
    fn judge(&self) {
        testkit::e2fsck(&self.path);
        let shown = testkit::command("dumpe2fs").arg("-m").arg(&self.path).output().unwrap();
        assert!(shown.status.success(), "{shown:?}");
    }
}

fn in_memory(path: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(MemoryDevice::from_bytes(&std::fs::read(path).unwrap()))
}

/// Opens an image as another host.
fn open(device: &Arc<dyn BlockDevice>, host: &str, second: Duration) -> Result<Ext4, Error> {
    let mmp = MmpOptions { second, ..MmpOptions::named(host.as_bytes(), b"disk") };
    Ext4::open_writable(device.clone(), &OpenOptions { mmp, ..OpenOptions::default() })
}

fn superblock(device: &Arc<dyn BlockDevice>) -> Superblock {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
    Superblock::parse(&bytes, device.len()).unwrap()
}

fn place(device: &Arc<dyn BlockDevice>) -> u64 {
    let sb = superblock(device);
    sb.raw.mmp_block.get() * u64::from(sb.block_size())
}

fn block(device: &Arc<dyn BlockDevice>) -> RawMmp {
    let mut bytes = [0; 1024];
    device.read_at(place(device), &mut bytes).unwrap();
    let sb = superblock(device);
    let seed = sb.features.metadata_csum().then_some(sb.checksum_seed);
    RawMmp::parse(&bytes, seed).unwrap()
}

fn set_sequence(device: &Arc<dyn BlockDevice>, sequence: u32) {
    let sb = superblock(device);
    let mut raw = block(device);
    raw.seq = sequence.into();
    raw.seal(sb.features.metadata_csum().then_some(sb.checksum_seed));
    device.write_at(place(device), raw.as_bytes()).unwrap();
}

#[track_caller]
fn refusal(opened: Result<Ext4, Error>) -> String {
    match opened {
        Err(error @ Error::Unsupported(_)) => error.to_string(),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it is opened"),
    }
}

fn create(fs: &Ext4, name: &str) -> Result<(), Error> {
    fs.create(fs.root(), name.as_bytes(), &NewInode::default()).map(drop)
}

#[test]
fn an_open_image_is_in_use_and_a_closed_one_is_not() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("dumpe2fs"));
    for arguments in [&["-b", "1024"][..], &["-b", "4096"], &["-b", "4096", "-O", "^metadata_csum"]]
    {
        let image = MmpImage::new(arguments);
        let device = image.device();
        assert_eq!(block(&device).seq, SEQUENCE_CLEAN);
        let fs = open(&device, "one", SECOND).unwrap();
        let first = block(&device);
        assert!(first.seq <= SEQUENCE_MAX && first.nodename.starts_with(b"one\0"), "{first:?}");
        create(&fs, "file").unwrap();
        fs.sync().unwrap();
        thread::sleep(SECOND * 15);
        let later = block(&device);
        assert!(later.seq != first.seq && later.nodename == first.nodename, "{later:?}");
        fs.close().unwrap();
        let closed = block(&device);
        assert!(closed.seq == SEQUENCE_CLEAN && closed.nodename == first.nodename, "{closed:?}");
        image.judge();
    }
}

#[test]
fn another_host_is_refused_by_name() {
    require!(Tool("mke2fs"));
    let image = MmpImage::new(&[]);
    let device = in_memory(&image.path);
    let fs = open(&device, "one", SECOND).unwrap();
    let said = refusal(open(&device, "two", SECOND));
    assert!(said.contains("another host uses") && said.contains("host \"one\""), "{said}");
    create(&fs, "file").unwrap();
    fs.close().unwrap();
    open(&device, "two", SECOND).unwrap().close().unwrap();
    assert!(block(&device).nodename.starts_with(b"two\0"));
}

#[test]
fn an_image_being_checked_is_refused_at_once() {
    require!(Tool("mke2fs"));
    let image = MmpImage::new(&[]);
    let device = in_memory(&image.path);
    let options = MmpOptions { second: SECOND, ..MmpOptions::named(b"one", b"disk") };
    let claim = claim_for_repair(&device, &options).unwrap().unwrap();
    assert_eq!(block(&device).seq, SEQUENCE_CHECK);
    let said = refusal(open(&device, "two", Duration::from_secs(1000)));
    assert!(said.contains("another host is checking"), "{said}");
    assert!(claim_for_repair(&device, &options).is_err());
    // A write of equal bytes changes nothing, either.
    claim.write_at(0, &in_bytes(&device)[..1024]).unwrap();
    drop(claim);
    assert!(in_bytes(&device) == in_bytes(&in_memory(&image.path)), "nothing was changed");
}

fn in_bytes(device: &Arc<dyn BlockDevice>) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_host_that_has_crashed_is_replaced() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("dumpe2fs"));
    let image = MmpImage::new(&[]);
    let device = image.device();
    let fs = open(&device, "one", SECOND).unwrap();
    create(&fs, "file").unwrap();
    fs.sync().unwrap();
    drop(fs);
    assert!(block(&device).seq <= SEQUENCE_MAX);
    let fs = open(&device, "two", SECOND).unwrap();
    assert!(fs.recovered().transactions > 0);
    fs.lookup(fs.root(), b"file").unwrap();
    fs.close().unwrap();
    image.judge();
}

#[test]
fn a_host_that_lost_the_image_writes_nothing_more() {
    require!(Tool("mke2fs"));
    let image = MmpImage::new(&[]);
    let device = in_memory(&image.path);
    let fs = open(&device, "one", SECOND).unwrap();
    create(&fs, "file").unwrap();
    fs.sync().unwrap();
    set_sequence(&device, 77);
    thread::sleep(SECOND * 15);
    let before = in_bytes(&device);
    let written = create(&fs, "other").and_then(|()| fs.sync());
    assert!(matches!(written, Err(Error::Device(_))), "{written:?}");
    assert!(fs.close().is_err());
    assert!(in_bytes(&device) == before);
}

/// A computer that was suspended writes nothing before it has looked at the block.
#[test]
fn a_write_after_a_pause_looks_first() {
    require!(Tool("mke2fs"));
    let image = MmpImage::new(&[]);
    let device = in_memory(&image.path);
    // No update is due during the test, and the last one is too old for a write.
    let options = MmpOptions { second: Duration::from_secs(1000), ..MmpOptions::DEFAULT };
    let claim = claim_for_repair(&device, &options).unwrap().unwrap();
    let place = place(&device);
    claim.write_at(0, &[0; 512]).unwrap();
    claim.age_for_tests();
    set_sequence(&device, 77);
    assert!(claim.write_at(0, &[1; 512]).is_err());
    assert!(claim.zero_range(place + 4096, 4096).is_err());
    let mut bytes = [1; 512];
    device.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 512]);
    assert!(claim.release().is_err());
    assert_eq!(block(&device).seq, 77);
}

#[test]
fn damaged_blocks_are_named_and_repairs_may_go_on() {
    require!(Tool("mke2fs"));
    let image = MmpImage::new(&[]);
    for (at, byte, problem) in
        [(0, 0, "magic number"), (20, 7, "checksum"), (4, 0, "checksum"), (1020, 1, "checksum")]
    {
        let device = in_memory(&image.path);
        device.write_at(place(&device) + at, &[byte]).unwrap();
        let before = in_bytes(&device);
        match open(&device, "one", SECOND) {
            Err(Error::Corrupt(damage)) => {
                let said = damage.to_string();
                assert!(said.contains("MMP block") && said.contains(problem), "{said}");
            }
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("it is opened"),
        }
        assert!(claim_for_repair(&device, &MmpOptions::DEFAULT).unwrap().is_none());
        assert!(in_bytes(&device) == before);
    }
    let device = in_memory(&image.path);
    set_sequence(&device, SEQUENCE_CHECK + 1);
    assert!(matches!(open(&device, "one", SECOND), Err(Error::Corrupt(_))));
}

/// Writes to the block from above take effect at the release, and readers above do not see the updates.
#[test]
fn the_device_shows_an_unused_block() {
    require!(Tool("mke2fs"));
    let image = MmpImage::new(&["-b", "1024"]);
    let device = in_memory(&image.path);
    let place = place(&device);
    let options = MmpOptions { second: SECOND, ..MmpOptions::DEFAULT };
    let claim = claim_for_repair(&device, &options).unwrap().unwrap();
    let mut page = [0; 4096];
    claim.read_at(place - 1024, &mut page).unwrap();
    assert_eq!(page[1028..1032], SEQUENCE_CLEAN.to_le_bytes());
    page[0] ^= 1;
    page[1024 + 500] ^= 1;
    page[4095] ^= 1;
    claim.write_at(place - 1024, &page).unwrap();
    assert_eq!(block(&device).seq, SEQUENCE_CHECK);
    claim.release().unwrap();
    let mut found = [0; 4096];
    device.read_at(place - 1024, &mut found).unwrap();
    assert!(found == page);
}

/// A resize opens the image again, without the name of the host.
#[test]
fn a_resize_keeps_the_name_of_the_host() {
    require!(Tool("mke2fs"));
    let image = MmpImage::new(&["-b", "1024"]);
    let options = MmpOptions { second: SECOND, ..MmpOptions::named(b"one", b"disk") };
    let claim = claim_for_repair(&image.device(), &options).unwrap().unwrap();
    shrink(claim.clone(), SizeRequest::Minimum, &mut |_, _| true).unwrap();
    claim.release().unwrap();
    drop(claim);
    let found = block(&image.device());
    assert!(found.nodename.starts_with(b"one\0"), "{:?}", &found.nodename[..12]);
    assert!(found.bdevname.starts_with(b"disk\0"));
    assert_eq!(found.seq, SEQUENCE_CLEAN);
    image.judge();
}

/// The block stays where it is, so it limits the minimum size.
#[test]
fn a_shrink_keeps_the_block() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("tune2fs"), Tool("dumpe2fs"));
    let image = MmpImage::new(&["-b", "1024", "-O", "^mmp"]);
    let fs = open(&image.device(), "one", SECOND).unwrap();
    let file = fs.create(fs.root(), b"file", &NewInode::default()).unwrap();
    fs.write(file, 0, &vec![1; 10 << 20], None).unwrap();
    fs.close().unwrap();
    let tuned = testkit::command("tune2fs").args(["-O", "mmp"]).arg(&image.path).output();
    assert!(tuned.unwrap().status.success());
    let fs = open(&image.device(), "one", SECOND).unwrap();
    fs.unlink(fs.root(), b"file", None).unwrap();
    fs.close().unwrap();
    let number = superblock(&image.device()).raw.mmp_block.get();
    assert!(number > 7000, "{number}");
    let before = std::fs::read(&image.path).unwrap();
    match shrink(image.device(), SizeRequest::Blocks(6000), &mut |_, _| true) {
        Err(error @ Error::Unsupported(_)) => {
            let said = error.to_string();
            assert!(said.contains("MMP block") && said.contains(&number.to_string()), "{said}");
        }
        other => panic!("{other:?}"),
    }
    assert!(std::fs::read(&image.path).unwrap() == before, "nothing is written");
    let shrunk = shrink(image.device(), SizeRequest::Minimum, &mut |_, _| true).unwrap();
    assert!((number + 1..16384).contains(&shrunk.after.blocks), "{shrunk:?}");
    File::options().write(true).open(&image.path).unwrap().set_len(shrunk.after.bytes()).unwrap();
    image.judge();
}

#[test]
fn the_kernel_refuses_an_image_that_is_checked_or_open() {
    require!(Tool("mke2fs"), Mount("ext4"));
    let image = MmpImage::new(&["-E", "mmp_update_interval=1"]);
    let device = image.device();
    let attempt = || KernelMount::attempt(&image.path, &MountOptions::read_write("ext4"));
    let claim = claim_for_repair(&device, &MmpOptions::DEFAULT).unwrap().unwrap();
    assert!(attempt().is_err());
    drop(claim);
    attempt().unwrap().unmount();
    // The kernel waits for 11 seconds.
    if effort(false, true, true) {
        let fs = open(&device, "one", Duration::from_secs(1)).unwrap();
        assert!(attempt().is_err());
        fs.close().unwrap();
        attempt().unwrap().unmount();
    }
}

#[test]
fn an_image_that_the_kernel_has_mounted_is_refused() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("dumpe2fs"), Mount("ext4"));
    let image = MmpImage::new(&["-E", "mmp_update_interval=1"]);
    let mount = KernelMount::new(&image.path, &MountOptions::read_write("ext4"));
    std::fs::write(mount.path().join("file"), "contents").unwrap();
    // 11 of these seconds are longer than the kernel's interval.
    let said = refusal(open(&image.device(), "one", Duration::from_millis(150)));
    assert!(said.contains("another host uses") && said.contains("device \"loop"), "{said}");
    mount.unmount();
    let fs = open(&image.device(), "one", SECOND).unwrap();
    fs.lookup(fs.root(), b"file").unwrap();
    create(&fs, "other").unwrap();
    fs.close().unwrap();
    image.judge();
    let mount = KernelMount::new(&image.path, &MountOptions::read_write("ext4"));
    assert!(mount.path().join("other").exists());
}
