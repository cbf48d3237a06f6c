//! Files protected by fs-verity. The tests create them: contents, zeros instead of a Merkle tree in blocks past the
//! size, and the flag. An implementation without keys sees no more than that.

use testkit::{debugfs, debugfs_write, require};
use vfs::{AllocateMode, Error, FileSystem, SetAttributes};

use super::{QuotaImage, create};

/// `i_flags`: an extent tree, and fs-verity.
const VERITY_FLAGS: u32 = 0x18_0000;

const SIZE: u64 = 10_000;

/// Creates an image with a protected file that has blocks past its size.
fn protected() -> QuotaImage {
    let image = QuotaImage::new(&["-b", "1024", "-O", "verity"]);
    let fs = image.open();
    let file = create(&fs, fs.root(), "file");
    fs.write(file, 0, &[7; SIZE as usize], None).unwrap();
    fs.allocate(file, 65_536, 20_000, AllocateMode::ZeroKeepSize).unwrap();
    fs.close().unwrap();
    debugfs_write(&image.path, &format!("set_inode_field file flags {VERITY_FLAGS}"));
    testkit::e2fsck(&image.path);
    image
}

#[test]
fn protected_contents_do_not_change() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let image = protected();
    let fs = image.open();
    let file = fs.lookup(fs.root(), b"file").unwrap();
    let before = fs.attributes(file).unwrap();
    let outcomes = [
        fs.write(file, 0, b"new", None),
        fs.write(file, SIZE, b"new", None),
        fs.truncate(file, 0, None),
        fs.truncate(file, SIZE, None),
        fs.truncate(file, SIZE + 1, None),
        fs.allocate(file, 0, 100, AllocateMode::Unwritten),
        fs.allocate(file, 0, 100, AllocateMode::Zero),
        fs.allocate(file, 0, SIZE, AllocateMode::PunchHole),
    ];
    for outcome in outcomes {
        assert!(matches!(outcome, Err(Error::NotPermitted(why)) if why.contains("fs-verity")));
    }
    assert_eq!(fs.attributes(file).unwrap(), before);
    let mut bytes = vec![0; SIZE as usize + 1];
    assert_eq!(fs.read(file, 0, &mut bytes).unwrap(), SIZE as usize);
    assert!(bytes[..SIZE as usize].iter().all(|&byte| byte == 7));
    fs.close().unwrap();
    testkit::e2fsck(&image.path);
}

#[test]
fn all_but_the_contents_changes_and_removal_frees_all_blocks() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let image = protected();
    let fs = image.open();
    let root = fs.root();
    let file = fs.lookup(root, b"file").unwrap();
    let blocks = fs.attributes(file).unwrap().blocks_512;
    assert!(blocks > 2 * SIZE.div_ceil(1024));
    let change =
        SetAttributes { permissions: Some(0o600), uid: Some(5), ..SetAttributes::default() };
    fs.set_attributes(file, &change).unwrap();
    fs.set_xattr(file, b"user.name", b"value").unwrap();
    fs.link(file, root, b"second", None).unwrap();
    fs.rename((root, b"file"), (root, b"third"), vfs::RenameMode::Replace, None).unwrap();
    fs.unlink(root, b"second", None).unwrap();
    fs.close().unwrap();
    testkit::e2fsck(&image.path);
    assert!(debugfs(&image.path, "stat third").contains("0x180000"));

    let fs = image.open();
    let free = fs.statfs().unwrap().blocks_free;
    fs.unlink(root, b"third", None).unwrap();
    assert_eq!(fs.statfs().unwrap().blocks_free, free + blocks / 2);
    fs.close().unwrap();
    testkit::e2fsck(&image.path);
}
