//! Comparison of file attributes.

use vfs::{FileType, InodeFlags, Timestamp};

use super::change::{Difference, Ignored, XattrChange};
use super::tree::{ComparedTree, VisitedFile, Xattrs};
use crate::Result;

/// Flags that all formats support.
const COMMON_FLAGS: InodeFlags = InodeFlags::IMMUTABLE
    .union(InodeFlags::APPEND)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::PROJINHERIT);

/// Flags that describe storage and are not properties of the file.
const OWN_FLAGS: InodeFlags = InodeFlags::DESCRIBING
    .union(InodeFlags::EXTENTS)
    .union(InodeFlags::EXTSIZE)
    .union(InodeFlags::EXTSZINHERIT)
    .union(InodeFlags::COWEXTSIZE)
    .union(InodeFlags::REALTIME);

/// Compares the attributes of two files of the same type.
pub(super) fn compare(
    (a_tree, a): (&dyn ComparedTree, &VisitedFile),
    (b_tree, b): (&dyn ComparedTree, &VisitedFile),
    ignored: Ignored,
) -> Result<Vec<Difference>> {
    let (x, y) = (&a.attributes, &b.attributes);
    let file_type = x.file_type;
    let mut found = Vec::new();
    // Permissions of symbolic links have no effect.
    if !ignored.mode && file_type != FileType::Symlink && x.permissions != y.permissions {
        found.push(Difference::Mode(x.permissions, y.permissions));
    }
    if !ignored.owner && (x.uid, x.gid) != (y.uid, y.gid) {
        found.push(Difference::Owner((x.uid, x.gid), (y.uid, y.gid)));
    }
    if file_type == FileType::Regular && x.size != y.size {
        found.push(Difference::Size(x.size, y.size));
    }
    if file_type == FileType::Symlink {
        let (old, new) = (a_tree.target(a)?, b_tree.target(b)?);
        if old != new {
            found.push(Difference::Target(old, new));
        }
    }
    let is_device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
    if is_device && x.device != y.device {
        found.push(Difference::Device(x.device, y.device));
    }
    let is_exact = a_tree.has_nanoseconds() && b_tree.has_nanoseconds();
    let kept = |time: Timestamp| if is_exact { time } else { Timestamp { nsec: 0, ..time } };
    if !ignored.times && kept(x.mtime) != kept(y.mtime) {
        found.push(Difference::Mtime(x.mtime, y.mtime));
    }
    if !ignored.xattrs {
        compare_xattrs(a_tree.xattrs(a)?, b_tree.xattrs(b)?, &mut found);
    }
    if !ignored.flags
        && let Some((old, new)) = a_tree.flags(a)?.zip(b_tree.flags(b)?)
    {
        let is_same_format = a_tree.format() == b_tree.format();
        let mask = if is_same_format { InodeFlags::all() - OWN_FLAGS } else { COMMON_FLAGS };
        if old & mask != new & mask {
            found.push(Difference::Flags(old & mask, new & mask));
        }
    }
    Ok(found)
}

/// Compares two sorted lists of extended attributes.
fn compare_xattrs(a: Xattrs, b: Xattrs, found: &mut Vec<Difference>) {
    let (mut a, mut b) = (a.into_iter().peekable(), b.into_iter().peekable());
    loop {
        let (name, change) = match (a.peek(), b.peek()) {
            (None, None) => return,
            (Some(old), Some(new)) if old.0 == new.0 => {
                let is_same = old.1 == new.1;
                b.next();
                let Some((name, _)) = a.next() else { return };
                if is_same {
                    continue;
                }
                (name, XattrChange::Modified)
            }
            (Some(old), new) if new.is_none_or(|new| old.0 < new.0) => {
                let Some((name, _)) = a.next() else { return };
                (name, XattrChange::Removed)
            }
            _ => {
                let Some((name, _)) = b.next() else { return };
                (name, XattrChange::Added)
            }
        };
        found.push(Difference::Xattr(name, change));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_reported_by_name() {
        let list = |items: &[(&str, &str)]| -> Xattrs {
            items
                .iter()
                .map(|(name, value)| (name.as_bytes().into(), value.as_bytes().into()))
                .collect()
        };
        let mut found = Vec::new();
        let (a, b) = (
            list(&[("a", "1"), ("c", "1"), ("d", "1")]),
            list(&[("b", "1"), ("c", "2"), ("d", "1")]),
        );
        compare_xattrs(a, b, &mut found);
        let expected =
            [("a", XattrChange::Removed), ("b", XattrChange::Added), ("c", XattrChange::Modified)];
        let expected = expected.map(|(name, change)| Difference::Xattr(name.into(), change));
        assert_eq!(found, expected);
    }
}
