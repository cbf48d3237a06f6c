//! POSIX access control lists and their relation to permission bits, according to acl(5).

#[cfg(test)]
mod tests;

use linux::Errno;
use smallvec::SmallVec;
pub(crate) use vfs::acl::{ACCESS, DEFAULT};
use vfs::acl::{AclEntry, Malformed, NO_ID, PERMISSIONS, Tag};

/// Returns whether an entry can be part of a valid list.
const fn is_valid(entry: &AclEntry) -> bool {
    entry.permissions & !PERMISSIONS == 0 && (entry.id == NO_ID) != entry.tag.is_named()
}

/// A valid list: one entry each for the owner, the group and others; between them any number of named users and groups,
/// and a mask if there are any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    /// Sorted by tag.
    entries: Vec<AclEntry>,
}

impl Acl {
    /// Parses an attribute's value. Entries of named users may be in any order, and so may those of groups. Duplicates
    /// are rejected: the kernel accepts them, but xfs_repair does not.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the version is unknown, `EINVAL` if the list is invalid.
    pub(crate) fn parse(value: &[u8]) -> Result<Self, Errno> {
        let entries = vfs::acl::parse(value).map_err(|malformed| match malformed {
            Malformed::Version => Errno::OPNOTSUPP,
            Malformed::Entries => Errno::INVAL,
        })?;
        let acl = Self { entries };
        if acl.is_valid() { Ok(acl) } else { Err(Errno::INVAL) }
    }

    /// Returns the attribute's value.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        vfs::acl::to_bytes(self.entries.iter().copied())
    }

    /// Returns the equivalent permission bits; the group bits are those of the mask if there is one.
    pub(crate) fn mode(&self) -> u16 {
        let class = self.group_class();
        let bits = |tag| self.permissions(tag).unwrap_or(0);
        bits(Tag::UserObj) << 6 | bits(class) << 3 | bits(Tag::Other)
    }

    /// Returns whether the list is equivalent to permission bits, so that it need not be stored.
    pub(crate) fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    /// Updates the list after a change of the permission bits.
    pub(crate) fn set_mode(&mut self, mode: u16) {
        self.change_by_mode(mode, |_, bits| bits);
    }

    /// Removes permissions that are not in the permission bits: derives a new file's list from the default list.
    pub(crate) fn restrict(&mut self, mode: u16) {
        self.change_by_mode(mode, |permissions, bits| permissions & bits);
    }

    /// Changes each entry that corresponds to permission bits.
    fn change_by_mode(&mut self, mode: u16, change: impl Fn(u16, u16) -> u16) {
        let class = self.group_class();
        for entry in &mut self.entries {
            let bits = match entry.tag {
                Tag::UserObj => mode >> 6,
                Tag::Other => mode,
                tag if tag == class => mode >> 3,
                _ => continue,
            };
            entry.permissions = change(entry.permissions, bits & PERMISSIONS);
        }
    }

    /// Returns the tag of the entry that corresponds to the group's permission bits.
    fn group_class(&self) -> Tag {
        if self.permissions(Tag::Mask).is_some() { Tag::Mask } else { Tag::GroupObj }
    }

    /// Returns the permissions of a tag with at most one entry.
    fn permissions(&self, tag: Tag) -> Option<u16> {
        self.entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions)
    }

    fn is_valid(&self) -> bool {
        let in_order =
            self.entries.is_sorted_by(|a, b| a.tag < b.tag || a.tag == b.tag && a.tag.is_named());
        let has = |tag| self.permissions(tag).is_some();
        let named = self.entries.iter().filter(|entry| entry.tag.is_named());
        let mut named: SmallVec<[_; 8]> = named.map(|entry| (entry.tag, entry.id)).collect();
        named.sort_unstable();
        in_order
            && self.entries.iter().all(is_valid)
            && [Tag::UserObj, Tag::GroupObj, Tag::Other].into_iter().all(has)
            && (has(Tag::Mask) || named.is_empty())
            && named.is_sorted_by(|a, b| a < b)
    }
}
