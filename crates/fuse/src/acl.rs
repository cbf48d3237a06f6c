//! POSIX access control lists as a whole: what acl(5) says of them and permission bits.

#[cfg(test)]
mod tests;

use fuse_device::Errno;
use smallvec::SmallVec;
pub(crate) use vfs::acl::{ACCESS, DEFAULT};
use vfs::acl::{Entry, Malformed, NO_ID, PERMISSIONS, Tag};

/// Whether an entry can be part of a valid list.
const fn is_valid(entry: &Entry) -> bool {
    entry.permissions & !PERMISSIONS == 0 && (entry.id == NO_ID) != entry.tag.is_named()
}

/// A valid list: an entry each for the owner, the group and others, in between any number of named users
/// and groups, and a mask if there are such.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    /// In the order of their tags.
    entries: Vec<Entry>,
}

impl Acl {
    /// Reads an attribute's value. Entries of named users may have any order among themselves, and so
    /// may those of groups, but nobody may be named twice: kernels let that pass, xfs_repair does not.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if it is of another version, `EINVAL` if it is not a valid list.
    pub(crate) fn parse(value: &[u8]) -> Result<Self, Errno> {
        let entries = vfs::acl::parse(value).map_err(|malformed| match malformed {
            Malformed::Version => Errno::OPNOTSUPP,
            Malformed::Entries => Errno::INVAL,
        })?;
        let acl = Self { entries };
        if acl.is_valid() { Ok(acl) } else { Err(Errno::INVAL) }
    }

    /// The attribute's value.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        vfs::acl::to_bytes(self.entries.iter().copied())
    }

    /// The nine permission bits that correspond to it: those of the group are the mask's if there is one.
    pub(crate) fn mode(&self) -> u16 {
        let class = self.group_class();
        let bits = |tag| self.permissions(tag).unwrap_or(0);
        bits(Tag::UserObj) << 6 | bits(class) << 3 | bits(Tag::Other)
    }

    /// Whether it says no more than the nine bits do: then it is not stored.
    pub(crate) fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    /// Follows a change of the permission bits.
    pub(crate) fn set_mode(&mut self, mode: u16) {
        self.change_by_mode(mode, |_, bits| bits);
    }

    /// Takes away what the permission bits do not have: how a new file's list comes from the default one.
    pub(crate) fn restrict(&mut self, mode: u16) {
        self.change_by_mode(mode, |permissions, bits| permissions & bits);
    }

    /// Changes the entries that correspond to the permission bits, each by its bits.
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

    /// The entry that the group's permission bits correspond to.
    fn group_class(&self) -> Tag {
        if self.permissions(Tag::Mask).is_some() { Tag::Mask } else { Tag::GroupObj }
    }

    /// What the entry of a tag says that there is one of at most.
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
