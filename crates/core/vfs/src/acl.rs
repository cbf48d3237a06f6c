//! POSIX access control lists in the format of Linux's extended attributes (`linux/posix_acl_xattr.h`).
//!
//! All numbers are little-endian: a u32 version, then for each entry a u16 tag, u16 permissions and a u32 id. Formats
//! store lists in formats of their own, archives as text; [`FileSystem`](crate::FileSystem) uses this one. [`parse`] does
//! not check whether a list is valid as a whole; [`Acl::parse`] does.

mod list;

pub use list::{Acl, InheritedAcl, default_of};

/// The attribute that contains the access control list.
pub const ACCESS: &[u8] = b"system.posix_acl_access";

/// The attribute that contains a directory's default list, which new files inherit.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Version at the start of a value (`POSIX_ACL_XATTR_VERSION`).
pub const VERSION: u32 = 2;

/// Size of an entry in a value, in bytes.
pub const ENTRY_SIZE: usize = 8;

/// Id of entries without a user or group (`ACL_UNDEFINED_ID`).
pub const NO_ID: u32 = u32::MAX;

/// Valid permission bits: read, write and execute.
pub const PERMISSIONS: u16 = 0o7;

/// Subject of an entry. The numbers ascend in the order of the entries of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum Tag {
    /// The file's owner.
    UserObj = 0x01,
    /// A user with an id.
    User = 0x02,
    /// The file's group.
    GroupObj = 0x04,
    /// A group with an id.
    Group = 0x08,
    /// Maximum permissions of named users, named groups and the file's group.
    Mask = 0x10,
    /// All other users.
    Other = 0x20,
}

impl Tag {
    /// Returns the tag with this number, or `None` if the number is unknown.
    pub const fn from_number(number: u16) -> Option<Self> {
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

    /// Returns whether entries with this tag name a user or group. A list may have any number of them.
    pub const fn is_named(self) -> bool {
        matches!(self, Self::User | Self::Group)
    }
}

/// One entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// Subject of the entry.
    pub tag: Tag,
    /// Permissions: bits of [`PERMISSIONS`]. A parsed value may contain other bits.
    pub permissions: u16,
    /// User or group of the entry; [`NO_ID`] if the tag has none.
    pub id: u32,
}

impl AclEntry {
    /// Creates an entry. `id` is ignored if the tag names no user or group.
    pub const fn new(tag: Tag, permissions: u16, id: u32) -> Self {
        Self { tag, permissions, id: if tag.is_named() { id } else { NO_ID } }
    }

    const fn from_bytes(
        [tag0, tag1, permissions0, permissions1, id @ ..]: [u8; ENTRY_SIZE],
    ) -> Option<Self> {
        let permissions = u16::from_le_bytes([permissions0, permissions1]);
        match Tag::from_number(u16::from_le_bytes([tag0, tag1])) {
            Some(tag) => Some(Self::new(tag, permissions, u32::from_le_bytes(id))),
            None => None,
        }
    }
}

/// Reason why a value is not a valid list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The version is not [`VERSION`].
    Version,
    /// The value is truncated or has an unknown tag.
    Entries,
}

/// Parses the value of an attribute. Keeps the order of the entries.
///
/// # Errors
/// [`Malformed`] for a wrong version, a truncated value or an unknown tag. Permissions, order and the number of entries
/// are not checked.
pub fn parse(value: &[u8]) -> Result<Vec<AclEntry>, Malformed> {
    let (version, entries) = value.split_first_chunk().ok_or(Malformed::Entries)?;
    if u32::from_le_bytes(*version) != VERSION {
        return Err(Malformed::Version);
    }
    let (entries, rest) = entries.as_chunks();
    let entries: Option<Vec<_>> =
        entries.iter().map(|&bytes| AclEntry::from_bytes(bytes)).collect();
    entries.filter(|_| rest.is_empty()).ok_or(Malformed::Entries)
}

/// Encodes a list as the value of an attribute.
pub fn to_bytes(entries: impl IntoIterator<Item = AclEntry>) -> Vec<u8> {
    let entries = entries.into_iter();
    let mut value = Vec::with_capacity(size_of_val(&VERSION) + entries.size_hint().0 * ENTRY_SIZE);
    value.extend(VERSION.to_le_bytes());
    for entry in entries {
        value.extend((entry.tag as u16).to_le_bytes());
        value.extend(entry.permissions.to_le_bytes());
        value.extend(entry.id.to_le_bytes());
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive() {
        let list = [
            AclEntry::new(Tag::UserObj, 6, NO_ID),
            AclEntry::new(Tag::User, 7, 1000),
            AclEntry::new(Tag::GroupObj, 4, 5),
            AclEntry::new(Tag::Group, 9, 7),
            AclEntry::new(Tag::Mask, 6, NO_ID),
            AclEntry::new(Tag::Other, 0, NO_ID),
        ];
        let value = to_bytes(list);
        assert_eq!(value[..12], [2, 0, 0, 0, 1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(value[12..20], [2, 0, 7, 0, 0xe8, 3, 0, 0]);
        assert_eq!(value[20..28], [4, 0, 4, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(parse(&value).unwrap(), list);
        assert_eq!(parse(&to_bytes([])), Ok(Vec::new()));
    }

    #[test]
    fn invalid_lists_are_refused() {
        let refused = |value: &[u8]| parse(value).err();
        assert_eq!(refused(b""), Some(Malformed::Entries));
        assert_eq!(refused(&[2, 0, 0]), Some(Malformed::Entries));
        assert_eq!(refused(&[1, 0, 0, 0]), Some(Malformed::Version));
        assert_eq!(refused(&[2, 0, 0, 0, 1, 0, 6, 0, 0, 0, 0]), Some(Malformed::Entries));
        assert_eq!(refused(&[2, 0, 0, 0, 3, 0, 6, 0, 0, 0, 0, 0]), Some(Malformed::Entries));
    }
}
