//! Compares the tree that the kernel or a source shows with the tree that this project shows.

use std::fmt::Debug;

use crate::fs_tree::{FsTree, Inode};

use crate::{Node, NodeKind};

/// Properties that are not compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Leave {
    /// Link counts and times, because the other tree is a copy.
    pub copied: bool,
}

/// Returns the differences between the tree of the kernel or a source and this project's tree, one line each.
pub fn shown_differences(expected: &crate::Tree, ours: &FsTree, leave: Leave) -> Vec<String> {
    let mut list = Vec::new();
    for path in ours.paths.keys().filter(|path| !expected.nodes.contains_key(*path)) {
        list.push(format!("{}: only we show it", path.escape_ascii()));
    }
    // `crate::Tree` includes `lost+found` and its link of the root; this project's tree does not.
    let is_lost = |path: &[u8]| path == b"lost+found";
    let links_of_root = u64::from(expected.nodes.keys().any(|path| is_lost(path)));
    for (path, node) in expected.nodes.iter().filter(|(path, _)| !is_lost(path)) {
        let at = path.escape_ascii();
        let links = node.nlink - if path.is_empty() { links_of_root } else { 0 };
        match ours.get(path) {
            Some(inode) => {
                let mut add = |what| list.push(format!("{at}: {what}"));
                compare((node, links), inode, leave, &mut add);
            }
            None => list.push(format!("{at}: we do not show it")),
        }
    }
    list
}

fn compare((node, links): (&Node, u64), inode: &Inode, leave: Leave, add: &mut dyn FnMut(String)) {
    let attributes = &inode.attributes;
    check("permissions", node.permissions, attributes.permissions.into(), add);
    check("uid", node.uid, attributes.uid, add);
    check("gid", node.gid, attributes.gid, add);
    check("target", &node.target, &inode.target, add);
    // The kernel also shows access control lists as raw attributes.
    let is_shown = |(name, _): &(&Vec<u8>, &Vec<u8>)| !name.starts_with(b"trusted.SGI_ACL_");
    let shown = || node.xattrs.iter().filter(is_shown);
    if !shown().eq(&inode.xattrs) {
        check("attributes", shown().collect(), inode.xattrs.iter().collect::<Vec<_>>(), add);
    }
    if !leave.copied {
        let mtime = (attributes.mtime.sec, i64::from(attributes.mtime.nsec));
        check("mtime", node.mtime, mtime, add);
        check("links", links, attributes.links.into(), add);
    }
    if node.kind == NodeKind::File {
        check("size", node.size, attributes.size, add);
        let mut sum = 0;
        for (granule, bytes) in &inode.contents.granules {
            sum = crc32c::crc32c_append(sum, &(granule * 4096).to_le_bytes());
            sum = crc32c::crc32c_append(sum, bytes);
        }
        check("contents", node.content, sum, add);
    }
}

fn check<T: PartialEq + Debug>(what: &str, expected: T, found: T, add: &mut dyn FnMut(String)) {
    if expected != found {
        add(format!("{what}: expected {expected:?}, found {found:?}"));
    }
}
