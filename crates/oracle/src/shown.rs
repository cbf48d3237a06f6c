//! The tree of an image as the kernel or a source shows it, compared with the tree as we show it.

use workload::tree::{Inode, Tree};

use crate::{Kind, Node};

/// What is not compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Leave {
    /// Numbers of links and times: the other tree lies elsewhere.
    pub copied: bool,
}

/// The differences between what the kernel or a source shows and what we show, one line each.
pub fn shown_differences(expected: &crate::Tree, ours: &Tree, leave: Leave) -> Vec<String> {
    let mut list = Vec::new();
    for path in ours.paths.keys().filter(|path| !expected.nodes.contains_key(*path)) {
        list.push(format!("{}: only we show it", path.escape_ascii()));
    }
    // Trees of ours never have it, and the root has no link from it.
    let is_lost = |path: &[u8]| path == b"lost+found";
    let links_of_root = u64::from(expected.nodes.keys().any(|path| is_lost(path)));
    for (path, node) in expected.nodes.iter().filter(|(path, _)| !is_lost(path)) {
        let at = path.escape_ascii();
        let mut node = node.clone();
        if path.is_empty() {
            node.nlink -= links_of_root;
        }
        match ours.get(path) {
            Some(inode) => {
                compare(&node, inode, leave, &mut |what| list.push(format!("{at}: {what}")));
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
