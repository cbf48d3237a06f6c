//! The tree of an image as the kernel or a source shows it, compared with the tree as we show it.

use std::path::Path;
use std::sync::Arc;

use blockdev::{FileDevice, MemoryDevice};
use oracle::{KernelMount, Kind, MountOptions, Node};
use workload::tree::{Inode, Tree};
use xfs::{OpenOptions, Xfs};

use super::write_image;

/// What is not compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Leave {
    /// Numbers of links and times, and what mkfs.xfs adds to the root: the other tree lies elsewhere.
    pub copied: bool,
}

/// The kernel shows what we show.
pub fn assert_kernel_agrees(device: &MemoryDevice) {
    let folder = oracle::scratch();
    let path = folder.path().join("image");
    write_image(device, &path).unwrap();
    let kernel = {
        let mount = KernelMount::new(&path, &MountOptions::read_only("xfs"));
        oracle::Tree::of(mount.path())
    };
    assert_same(&kernel, &path, Leave::default());
}

/// Asserts that an image shows this tree.
#[track_caller]
pub fn assert_same(expected: &oracle::Tree, image: &Path, leave: Leave) {
    let device = Arc::new(FileDevice::new(std::fs::File::open(image).unwrap()).unwrap());
    let fs = Xfs::open(device, &OpenOptions::default()).unwrap();
    let mut ours = Tree::of(&fs).unwrap();
    if leave.copied
        && let Some(root) = ours.paths.get(&b""[..]).copied()
    {
        ours.inodes[root].xattrs.remove(&b"trusted.xfs:autofsck"[..]);
    }
    let list = differences(expected, &ours, leave);
    assert!(list.is_empty(), "{}", list.join("\n"));
}

fn differences(expected: &oracle::Tree, ours: &Tree, leave: Leave) -> Vec<String> {
    let mut list = Vec::new();
    for path in ours.paths.keys().filter(|path| !expected.nodes.contains_key(*path)) {
        list.push(format!("{}: only we show it", path.escape_ascii()));
    }
    for (path, node) in &expected.nodes {
        let at = path.escape_ascii();
        match ours.get(path) {
            Some(inode) => {
                compare(node, inode, leave, &mut |what| list.push(format!("{at}: {what}")));
            }
            None => list.push(format!("{at}: we do not show it")),
        }
    }
    list
}

fn compare(node: &Node, inode: &Inode, leave: Leave, add: &mut dyn FnMut(String)) {
    let attributes = &inode.attributes;
    let mut check = |what: &str, expected: String, found: String| {
        if expected != found {
            add(format!("{what}: expected {expected}, found {found}"));
        }
    };
    check("permissions", node.permissions.to_string(), attributes.permissions.to_string());
    check("uid", node.uid.to_string(), attributes.uid.to_string());
    check("gid", node.gid.to_string(), attributes.gid.to_string());
    check("target", format!("{:?}", node.target), format!("{:?}", inode.target));
    // The kernel shows access control lists once more, as they lie on disk.
    let mut xattrs = node.xattrs.clone();
    xattrs.retain(|name, _| !name.starts_with(b"trusted.SGI_ACL_"));
    check("attributes", format!("{xattrs:?}"), format!("{:?}", inode.xattrs));
    if !leave.copied {
        let mtime = (attributes.mtime.sec, i64::from(attributes.mtime.nsec));
        check("mtime", format!("{:?}", node.mtime), format!("{mtime:?}"));
        check("links", node.nlink.to_string(), attributes.links.to_string());
    }
    if node.kind == Kind::File {
        check("size", node.size.to_string(), attributes.size.to_string());
        let mut sum = 0;
        for (granule, bytes) in &inode.contents.granules {
            sum = crc32c::crc32c_append(sum, &(granule * 4096).to_le_bytes());
            sum = crc32c::crc32c_append(sum, bytes);
        }
        check("contents", node.content.to_string(), sum.to_string());
    }
}
