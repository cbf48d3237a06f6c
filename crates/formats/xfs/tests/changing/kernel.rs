//! Compares the tree of an image as shown by the kernel or by a source with the tree as read here.

use std::path::Path;
use std::sync::Arc;

use disk::{FileDevice, MemoryDevice};
use testkit::crash::write_image;
use testkit::fs_tree::FsTree;
use testkit::{KernelMount, MountOptions, shown_differences};
use xfs::{OpenOptions, Xfs};

pub use testkit::Leave;

/// Asserts that the kernel shows the same tree.
pub fn assert_kernel_agrees(device: &MemoryDevice) {
    let folder = testkit::scratch();
    let path = folder.path().join("image");
    write_image(device, &path).unwrap();
    let kernel = {
        let mount = KernelMount::new(&path, &MountOptions::read_only("xfs"));
        testkit::Tree::of(mount.path())
    };
    assert_same(&kernel, &path, Leave::default());
}

/// Asserts that an image has this tree.
#[track_caller]
pub fn assert_same(expected: &testkit::Tree, image: &Path, leave: Leave) {
    let device = Arc::new(FileDevice::new(std::fs::File::open(image).unwrap()).unwrap());
    let fs = Xfs::open(device, &OpenOptions::default()).unwrap();
    let mut ours = FsTree::of(&fs).unwrap();
    // mkfs.xfs adds this attribute to the root.
    if leave.copied
        && let Some(root) = ours.paths.get(&b""[..]).copied()
    {
        ours.inodes[root].xattrs.remove(&b"trusted.xfs:autofsck"[..]);
    }
    let list = shown_differences(expected, &ours, leave);
    assert!(list.is_empty(), "{}", list.join("\n"));
}
