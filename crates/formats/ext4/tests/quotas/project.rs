//! Directories whose project is inherited by new entries.

use ext4::Ext4;
use testkit::{debugfs, debugfs_write, require};
use vfs::{Error, FileSystem, Ino, RenameMode, SpecialFile};

use super::{QuotaImage, create, owned};

/// `i_flags`: an extent tree, and `PROJINHERIT`.
const INHERIT_FLAGS: u32 = 0x2008_0000;

const PROJECT: u32 = 77;

/// Creates two directories in the root: `bound`, which has a project, and `free`.
pub fn with_project(arguments: &[&str]) -> QuotaImage {
    let image = QuotaImage::new(arguments);
    let fs = image.open();
    for name in ["bound", "free"] {
        fs.mkdir(fs.root(), name.as_bytes(), &owned(0, 0)).unwrap();
    }
    fs.close().unwrap();
    debugfs_write(&image.path, &format!("set_inode_field bound flags {INHERIT_FLAGS}"));
    debugfs_write(&image.path, &format!("set_inode_field bound projid {PROJECT}"));
    image
}

pub fn find(fs: &Ext4, name: &str) -> Ino {
    fs.lookup(fs.root(), name.as_bytes()).unwrap()
}

fn has_project(image: &QuotaImage, path: &str) -> bool {
    debugfs(&image.path, &format!("stat {path}")).contains(&format!("Project:    {PROJECT} "))
}

fn has_flag(image: &QuotaImage, path: &str) -> bool {
    debugfs(&image.path, &format!("stat {path}")).contains("Flags: 0x2")
}

#[test]
fn new_files_inherit_the_project() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let image = with_project(&["-O", "project"]);
    testkit::e2fsck(&image.path);
    let fs = image.open();
    let bound = find(&fs, "bound");
    create(&fs, bound, "file");
    let dir = fs.mkdir(bound, b"dir", &owned(0, 0)).unwrap();
    create(&fs, dir, "below");
    fs.symlink(bound, b"link", b"to", &owned(0, 0)).unwrap();
    fs.mknod(bound, b"fifo", SpecialFile::Fifo, &owned(0, 0)).unwrap();
    let unlinked = fs.create_unlinked(bound, &owned(0, 0)).unwrap();
    fs.link(unlinked, bound, b"named", None).unwrap();
    FileSystem::close(&fs, unlinked).unwrap();
    create(&fs, find(&fs, "free"), "file");
    fs.close().unwrap();
    testkit::e2fsck(&image.path);
    for path in ["bound/file", "bound/dir", "bound/dir/below", "bound/link", "bound/fifo"] {
        assert!(has_project(&image, path), "{path}");
    }
    assert!(has_project(&image, "bound/named"));
    assert!(has_flag(&image, "bound/dir") && !has_flag(&image, "bound/file"));
    assert!(!has_project(&image, "free/file") && !has_flag(&image, "free"));
}

#[test]
fn files_of_other_projects_cannot_move_in() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let image = with_project(&["-O", "project"]);
    let fs = image.open();
    let (bound, free) = (find(&fs, "bound"), find(&fs, "free"));
    let stranger = create(&fs, free, "stranger");
    fs.mkdir(free, b"dir", &owned(0, 0)).unwrap();
    let member = create(&fs, bound, "member");
    let refused = |outcome: vfs::Result<()>| {
        assert!(matches!(outcome, Err(Error::OtherProject)));
    };
    refused(fs.link(stranger, bound, b"link", None));
    refused(fs.rename((free, b"stranger"), (bound, b"moved"), RenameMode::Replace, None));
    refused(fs.rename((free, b"stranger"), (bound, b"member"), RenameMode::Replace, None));
    refused(fs.rename((free, b"dir"), (bound, b"dir"), RenameMode::NoReplace, None));
    refused(fs.rename((bound, b"member"), (free, b"stranger"), RenameMode::Exchange, None));
    assert_eq!(fs.lookup(bound, b"member").unwrap(), member);
    assert_eq!(fs.lookup(free, b"stranger").unwrap(), stranger);
    // Out of the project, and back.
    fs.rename((bound, b"member"), (free, b"out"), RenameMode::Replace, None).unwrap();
    fs.link(member, bound, b"again", None).unwrap();
    fs.rename((free, b"out"), (bound, b"member"), RenameMode::NoReplace, None).unwrap();
    fs.close().unwrap();
    testkit::e2fsck(&image.path);
    assert!(has_project(&image, "bound/member"));
}
