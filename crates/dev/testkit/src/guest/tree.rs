//! A tree as text, because the guest reads it and this process compares it.
//!
//! One line per entry; byte strings are hexadecimal after an `x`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use crate::{Node, NodeKind, Tree};

/// The first line. It identifies the version of the program that reads trees in the guest.
const HEADER: &str = "tree 1";

const KINDS: [(NodeKind, &str); 7] = [
    (NodeKind::File, "file"),
    (NodeKind::Directory, "directory"),
    (NodeKind::Symlink, "symlink"),
    (NodeKind::Fifo, "fifo"),
    (NodeKind::Socket, "socket"),
    (NodeKind::CharDevice, "char"),
    (NodeKind::BlockDevice, "block"),
];

/// Returns a tree as text.
pub fn write_tree(tree: &Tree) -> String {
    let mut text = format!("{HEADER}\n");
    for (path, node) in &tree.nodes {
        let kind = KINDS.iter().find(|(kind, _)| *kind == node.kind).map_or("", |(_, name)| name);
        let leader = node.link_leader.as_deref().map_or("-".into(), hex);
        let _ = write!(
            text,
            "{} {kind} {} {} {} {} {} {leader} {} {} {}",
            hex(path),
            node.permissions,
            node.uid,
            node.gid,
            node.size,
            node.nlink,
            node.rdev,
            hex(&node.target),
            node.content
        );
        for (seconds, nanoseconds) in [node.atime, node.ctime, node.mtime] {
            let _ = write!(text, " {seconds} {nanoseconds}");
        }
        for Range { start, end } in &node.data {
            let _ = write!(text, " data:{start}:{end}");
        }
        for (name, value) in &node.xattrs {
            let _ = write!(text, " xattr:{}:{}", hex(name), hex(value));
        }
        text.push('\n');
    }
    text
}

/// Parses a tree; `None` if the text is invalid.
pub(super) fn read_tree(text: &str) -> Option<Tree> {
    let mut lines = text.lines();
    if lines.next()? != HEADER {
        return None;
    }
    let nodes = lines.map(read_node).collect::<Option<BTreeMap<_, _>>>()?;
    Some(Tree { nodes })
}

fn read_node(line: &str) -> Option<(Vec<u8>, Node)> {
    let mut words = line.split(' ');
    let path = unhex(words.next()?)?;
    let kind = words.next()?;
    let (kind, _) = KINDS.into_iter().find(|(_, name)| *name == kind)?;
    let mut next = || words.next();
    let mut node = Node {
        kind,
        permissions: next()?.parse().ok()?,
        uid: next()?.parse().ok()?,
        gid: next()?.parse().ok()?,
        size: next()?.parse().ok()?,
        nlink: next()?.parse().ok()?,
        link_leader: match next()? {
            "-" => None,
            leader => Some(unhex(leader)?),
        },
        rdev: next()?.parse().ok()?,
        target: unhex(next()?)?,
        content: next()?.parse().ok()?,
        atime: (next()?.parse().ok()?, next()?.parse().ok()?),
        ctime: (next()?.parse().ok()?, next()?.parse().ok()?),
        mtime: (next()?.parse().ok()?, next()?.parse().ok()?),
        data: Vec::new(),
        xattrs: BTreeMap::new(),
    };
    for word in words {
        let mut parts = word.split(':');
        let (what, first, second) = (parts.next()?, parts.next()?, parts.next()?);
        if what == "data" {
            node.data.push(first.parse().ok()?..second.parse().ok()?);
        } else {
            node.xattrs.insert(unhex(first)?, unhex(second)?);
        }
    }
    Some((path, node))
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::from("x");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix('x')?.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(|pair| if pair.len() == 2 { byte(pair) } else { None }).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{read_tree, write_tree};
    use crate::{Ignore, Tree, assert_same};

    #[test]
    fn a_tree_is_the_same_after_a_way_through_text() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("directory")).unwrap();
        fs::write(root.path().join("directory/a file\n"), [7; 9000]).unwrap();
        fs::hard_link(root.path().join("directory/a file\n"), root.path().join("link")).unwrap();
        std::os::unix::fs::symlink("target", root.path().join("symlink")).unwrap();
        let tree = Tree::of(root.path());
        let read = read_tree(&write_tree(&tree)).unwrap();
        let everything =
            Ignore { atime: false, ctime: false, lost_found: false, ..Ignore::default() };
        assert_same(&tree, &read, &everything);
        assert!(read_tree("tree 0\n").is_none() && read_tree("tree 1\nx file\n").is_none());
    }
}
