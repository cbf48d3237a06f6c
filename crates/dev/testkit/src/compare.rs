//! Differences of trees.

use std::fmt::{Debug, Write};
use std::ops::Range;

use crate::tree::{Node, NodeKind, Tree};

/// Maximum number of differences that a failing comparison prints.
const DIFFERENCES_SHOWN: usize = 20;

/// Properties excluded from a comparison. By default only `atime`, `ctime` and `lost_found`, which always differ.
#[derive(Clone, Debug)]
pub struct Ignore {
    /// Access times.
    pub atime: bool,
    /// Inode change times.
    pub ctime: bool,
    /// Modification times.
    pub mtime: bool,
    /// The nanoseconds of all times, for instance for 128-byte inodes.
    pub nanoseconds: bool,
    /// Owners and groups.
    pub owner: bool,
    /// Link counts of directories, which some file systems do not keep.
    pub directory_nlink: bool,
    /// The hole or written state of zeros.
    pub holes: bool,
    /// All extended attributes.
    pub xattrs: bool,
    /// Extended attributes whose full name starts with one of these.
    pub xattr_prefixes: Vec<&'static [u8]>,
    /// Attributes, times and extended attributes of the root directory.
    pub root: bool,
    /// The directory `lost+found` in the root, and its link of the root.
    pub lost_found: bool,
    /// Whole subtrees, by path.
    pub paths: Vec<&'static [u8]>,
}

impl Default for Ignore {
    fn default() -> Self {
        Ignore {
            atime: true,
            ctime: true,
            mtime: false,
            nanoseconds: false,
            owner: false,
            directory_nlink: false,
            holes: false,
            xattrs: false,
            xattr_prefixes: Vec::new(),
            root: false,
            lost_found: true,
            paths: Vec::new(),
        }
    }
}

impl Ignore {
    fn skips(&self, path: &[u8]) -> bool {
        let below = |top: &[u8]| {
            path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        (self.lost_found && below(b"lost+found")) || self.paths.iter().any(|top| below(top))
    }

    fn skips_xattr(&self, name: &[u8]) -> bool {
        self.xattrs || self.xattr_prefixes.iter().any(|prefix| name.starts_with(prefix))
    }
}

/// Asserts that two trees are equal except for ignored properties.
///
/// # Panics
/// With the first differences and their number.
#[track_caller]
pub fn assert_same(expected: &Tree, actual: &Tree, ignore: &Ignore) {
    let differences = differences(expected, actual, ignore);
    if differences.is_empty() {
        return;
    }
    let shown = &differences[..differences.len().min(DIFFERENCES_SHOWN)];
    panic!("the trees differ in {} places:\n{}", differences.len(), shown.join("\n"));
}

/// Returns all differences between two trees, one line each, in the order of the paths.
pub fn differences(expected: &Tree, actual: &Tree, ignore: &Ignore) -> Vec<String> {
    let mut found = Vec::new();
    for (path, node) in expected.nodes.iter().filter(|(path, _)| !ignore.skips(path)) {
        let Some(other) = actual.nodes.get(path) else {
            found.push(format!("{}: missing ({:?})", shown(path), node.kind));
            continue;
        };
        let mut pair = ComparedPath { path, ignore, found: &mut found };
        pair.compare(node, other, [expected, actual].map(|tree| links_ignored(tree, ignore)));
    }
    let known = |path: &[u8]| expected.nodes.contains_key(path) || ignore.skips(path);
    for (path, node) in actual.nodes.iter().filter(|(path, _)| !known(path)) {
        found.push(format!("{}: not expected ({:?})", shown(path), node.kind));
    }
    found
}

/// Returns the number of the root's links that belong to an ignored `lost+found`.
fn links_ignored(tree: &Tree, ignore: &Ignore) -> u64 {
    u64::from(ignore.lost_found && tree.nodes.contains_key(b"lost+found".as_slice()))
}

fn shown(path: &[u8]) -> String {
    format!("/{}", path.escape_ascii())
}

struct ComparedPath<'a> {
    path: &'a [u8],
    ignore: &'a Ignore,
    found: &'a mut Vec<String>,
}

impl ComparedPath<'_> {
    fn compare(&mut self, expected: &Node, actual: &Node, root_links_ignored: [u64; 2]) {
        let is_root = self.path.is_empty();
        self.value("type", expected.kind, actual.kind);
        if !(is_root && self.ignore.root) {
            self.attributes(expected, actual);
            self.times(expected, actual);
            self.xattrs(expected, actual);
        }
        if expected.kind != NodeKind::Directory {
            self.value("nlink", expected.nlink, actual.nlink);
        } else if !self.ignore.directory_nlink {
            let [of_expected, of_actual] = if is_root { root_links_ignored } else { [0, 0] };
            self.value("nlink", expected.nlink - of_expected, actual.nlink - of_actual);
        }
        let leader = |node: &Node| node.link_leader.as_deref().map(shown);
        self.value("hard link of", leader(expected), leader(actual));
        self.value("size", expected.size, actual.size);
        let target = |node: &Node| node.target.escape_ascii().to_string();
        self.value("symlink target", target(expected), target(actual));
        self.value("content checksum", expected.content, actual.content);
        if !self.ignore.holes && expected.data != actual.data {
            let (expected, actual) = (first_ranges(&expected.data), first_ranges(&actual.data));
            self.value("data ranges", expected, actual);
        }
    }

    fn attributes(&mut self, expected: &Node, actual: &Node) {
        let mode = |node: &Node| format!("{:04o}", node.permissions);
        self.value("mode", mode(expected), mode(actual));
        if !self.ignore.owner {
            self.value("owner", (expected.uid, expected.gid), (actual.uid, actual.gid));
        }
        self.value("device number", expected.rdev, actual.rdev);
    }

    fn times(&mut self, expected: &Node, actual: &Node) {
        let times = [
            ("mtime", self.ignore.mtime, expected.mtime, actual.mtime),
            ("atime", self.ignore.atime, expected.atime, actual.atime),
            ("ctime", self.ignore.ctime, expected.ctime, actual.ctime),
        ];
        for (what, ignored, expected, actual) in times {
            match (ignored, self.ignore.nanoseconds) {
                (true, _) => {}
                (false, true) => self.value(what, expected.0, actual.0),
                (false, false) => self.value(what, expected, actual),
            }
        }
    }

    fn xattrs(&mut self, expected: &Node, actual: &Node) {
        let ignore = self.ignore;
        for (name, value) in expected.xattrs.iter().filter(|(name, _)| !ignore.skips_xattr(name)) {
            match actual.xattrs.get(name) {
                None => self.note(&format!("xattr {} is missing", name.escape_ascii())),
                Some(other) if value != other => {
                    let what = format!("xattr {}", name.escape_ascii());
                    self.value(&what, first_bytes(value), first_bytes(other));
                }
                Some(_) => {}
            }
        }
        for name in actual.xattrs.keys().filter(|name| !ignore.skips_xattr(name)) {
            if !expected.xattrs.contains_key(name) {
                self.note(&format!("xattr {} is not expected", name.escape_ascii()));
            }
        }
    }

    fn value<T: PartialEq + Debug>(&mut self, what: &str, expected: T, actual: T) {
        if expected != actual {
            self.note(&format!("{what}: expected {expected:?}, found {actual:?}"));
        }
    }

    fn note(&mut self, text: &str) {
        self.found.push(format!("{}: {text}", shown(self.path)));
    }
}

/// Returns the beginning of a long value, with its length and checksum.
fn first_bytes(value: &[u8]) -> String {
    let start = value[..value.len().min(32)].escape_ascii();
    format!("{start} ({} bytes, crc {:08x})", value.len(), crc32c::crc32c(value))
}

fn first_ranges(ranges: &[Range<u64>]) -> String {
    let mut text = format!("{} ranges", ranges.len());
    for range in ranges.iter().take(8) {
        let _ = write!(text, " {range:?}");
    }
    text
}
