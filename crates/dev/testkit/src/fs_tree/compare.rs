//! Differences of trees.

use std::fmt::Debug;
use std::ops::Range;

use vfs::FileType;

use super::{FileContents, FsTree, Inode};

/// Optional parts of a comparison, besides names, types, permissions, owners, sizes, links, targets, devices and
/// extended attributes. The default is everything.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// All times.
    pub times: bool,
    /// The hole, unwritten or written state of zeros.
    pub holes: bool,
    /// The bytes of regular files.
    pub contents: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { times: true, holes: true, contents: true }
    }
}

impl FsTree {
    /// Returns the differences from `found`, one line each; empty if the trees are equal.
    pub fn differences(&self, found: &Self, rules: Rules) -> Vec<String> {
        let mut list = Vec::new();
        for path in self.paths.keys().filter(|path| !found.paths.contains_key(*path)) {
            list.push(format!("{}: missing", path.escape_ascii()));
        }
        for path in found.paths.keys().filter(|path| !self.paths.contains_key(*path)) {
            list.push(format!("{}: should not be there", path.escape_ascii()));
        }
        if !list.is_empty() {
            return list;
        }
        // With equal paths, equal indexes mean equal groups of hard links.
        let mut seen = vec![false; self.inodes.len()];
        for ((path, &expected), &place) in self.paths.iter().zip(found.paths.values()) {
            if expected != place {
                list.push(format!("{}: a link to another file", path.escape_ascii()));
            } else if !std::mem::replace(&mut seen[expected], true) {
                let mut add = |what: String| list.push(format!("{}: {what}", path.escape_ascii()));
                self.inodes[expected].differences(&found.inodes[place], rules, &mut add);
            }
        }
        list
    }
}

impl Inode {
    fn differences(&self, found: &Self, rules: Rules, add: &mut dyn FnMut(String)) {
        let (a, b) = (&self.attributes, &found.attributes);
        check("type", a.file_type, b.file_type, add);
        check("permissions", Octal(a.permissions), Octal(b.permissions), add);
        check("links", a.links, b.links, add);
        check("owner", (a.uid, a.gid), (b.uid, b.gid), add);
        check("device", a.device, b.device, add);
        if a.file_type != FileType::Directory {
            check("size", a.size, b.size, add);
        }
        if rules.times {
            check("atime", a.atime, b.atime, add);
            check("mtime", a.mtime, b.mtime, add);
            check("ctime", a.ctime, b.ctime, add);
            check("crtime", a.crtime, b.crtime, add);
        }
        if self.target != found.target {
            let (a, b) = (self.target.escape_ascii(), found.target.escape_ascii());
            add(format!("target: expected {a}, found {b}"));
        }
        self.xattr_differences(found, add);
        if rules.holes {
            check("written granules", &self.contents.written, &found.contents.written, add);
        }
        if rules.contents
            && let Some(granule) = self.contents.first_difference(&found.contents)
        {
            add(format!("contents differ in granule {granule}"));
        }
    }

    fn xattr_differences(&self, found: &Self, add: &mut dyn FnMut(String)) {
        for (name, value) in &self.xattrs {
            let other = found.xattrs.get(name);
            let name = name.escape_ascii();
            match other {
                None => add(format!("attribute {name} is missing")),
                Some(other) if other != value => add(format!(
                    "attribute {name}: expected {} bytes, found {} others",
                    value.len(),
                    other.len()
                )),
                Some(_) => {}
            }
        }
        for name in found.xattrs.keys().filter(|name| !self.xattrs.contains_key(*name)) {
            add(format!("attribute {} should not be there", name.escape_ascii()));
        }
    }
}

impl FileContents {
    fn first_difference(&self, found: &Self) -> Option<u64> {
        let granules = self.granules.keys().chain(found.granules.keys());
        granules.filter(|g| self.granules.get(g) != found.granules.get(g)).min().copied()
    }

    /// Returns whether this granule has written space.
    pub fn is_written(&self, granule: u64) -> bool {
        self.written.iter().any(|range: &Range<u64>| range.contains(&granule))
    }
}

/// Formats permissions in octal.
#[derive(PartialEq)]
struct Octal(u16);

impl Debug for Octal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#o}", self.0)
    }
}

fn check<T: PartialEq + Debug>(what: &str, expected: T, found: T, add: &mut dyn FnMut(String)) {
    if expected != found {
        add(format!("{what}: expected {expected:?}, found {found:?}"));
    }
}
