//! POSIX access control lists, in the form that Linux's extended attributes have (`linux/posix_acl_xattr.h`),
//! and what acl(5) says of them and permission bits.
//!
//! Little-endian: version 2 u32, then of each entry tag u16, permissions u16, id u32. What the formats
//! store is their affair.

#[cfg(test)]
mod tests;

use fuse_device::Errno;
use smallvec::SmallVec;

/// The attribute that says who may do what.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";

/// The attribute of a directory that new files in it start from.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const ENTRY_SIZE: usize = 8;

/// The id of entries that name nobody.
const NO_ID: u32 = u32::MAX;

/// Read, write and execute.
const PERMISSIONS: u16 = 0o7;

/// Who an entry is for. The numbers ascend in the order that entries have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
enum Tag {
    UserObj = 0x01,
    User = 0x02,
    GroupObj = 0x04,
    Group = 0x08,
    Mask = 0x10,
    Other = 0x20,
}

impl Tag {
    const fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            0x01 => Self::UserObj,
            0x02 => Self::User,
            0x04 => Self::GroupObj,
            0x08 => Self::Group,
            0x10 => Self::Mask,
            0x20 => Self::Other,
            _ => return None,
        })
    }

    /// Whether its entries name a user or group, and there may be any number of them.
    const fn is_named(self) -> bool {
        matches!(self, Self::User | Self::Group)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: Tag,
    permissions: u16,
    id: u32,
}

impl Entry {
    fn parse(bytes: [u8; ENTRY_SIZE]) -> Option<Self> {
        let [tag0, tag1, perm0, perm1, id @ ..] = bytes;
        let tag = Tag::from_number(u16::from_le_bytes([tag0, tag1]))?;
        let permissions = u16::from_le_bytes([perm0, perm1]);
        let id = if tag.is_named() { u32::from_le_bytes(id) } else { NO_ID };
        let is_valid = permissions & !PERMISSIONS == 0 && (id == NO_ID) != tag.is_named();
        is_valid.then_some(Self { tag, permissions, id })
    }
}

/// A valid list: an entry each for the owner, the group and others, in between any number of named users
/// and groups, and a mask if there are such.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    /// In the order of their tags.
    entries: SmallVec<[Entry; 8]>,
}

impl Acl {
    /// Reads an attribute's value. Entries of named users may have any order among themselves, and so
    /// may those of groups, but nobody may be named twice: kernels let that pass, xfs_repair does not.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if it is of another version, `EINVAL` if it is not a valid list.
    pub(crate) fn parse(value: &[u8]) -> Result<Self, Errno> {
        let (version, entries) = value.split_first_chunk().ok_or(Errno::INVAL)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Errno::OPNOTSUPP);
        }
        let (entries, rest) = entries.as_chunks::<ENTRY_SIZE>();
        if !rest.is_empty() {
            return Err(Errno::INVAL);
        }
        let entries = entries.iter().map(|&entry| Entry::parse(entry));
        let acl = Self { entries: entries.collect::<Option<_>>().ok_or(Errno::INVAL)? };
        if acl.is_valid() { Ok(acl) } else { Err(Errno::INVAL) }
    }

    /// The attribute's value.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(size_of::<u32>() + self.entries.len() * ENTRY_SIZE);
        value.extend(VERSION.to_le_bytes());
        for entry in &self.entries {
            value.extend((entry.tag as u16).to_le_bytes());
            value.extend(entry.permissions.to_le_bytes());
            value.extend(entry.id.to_le_bytes());
        }
        value
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
            && [Tag::UserObj, Tag::GroupObj, Tag::Other].into_iter().all(has)
            && (has(Tag::Mask) || named.is_empty())
            && named.is_sorted_by(|a, b| a < b)
    }
}
