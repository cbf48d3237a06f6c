//! Valid lists and their relation to permission bits, according to acl(5).

use super::{AclEntry, Malformed, NO_ID, PERMISSIONS, Tag};
use crate::{Error, FileSystem, FileType, Ino};

/// Permission bits that a list determines.
const ACCESS_BITS: u16 = 0o777;

/// Returns whether an entry can be part of a valid list.
const fn is_valid(entry: &AclEntry) -> bool {
    entry.permissions & !PERMISSIONS == 0 && (entry.id == NO_ID) != entry.tag.is_named()
}

/// A valid list: one entry each for the owner, the group and others; between them any number of named users and groups,
/// and a mask if there are any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    /// Sorted by tag.
    entries: Vec<AclEntry>,
}

/// Permission bits and lists of a new file in a directory with a default list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InheritedAcl {
    /// Permission bits.
    pub permissions: u16,
    /// Value of [`super::ACCESS`], unless it is equivalent to the permission bits.
    pub access: Option<Vec<u8>>,
    /// Value of [`super::DEFAULT`], for directories.
    pub default: Option<Vec<u8>>,
}

/// Returns the default list of a directory.
///
/// # Errors
/// `Invalid` if the list is invalid.
pub fn default_of(fs: &dyn FileSystem, dir: Ino) -> crate::Result<Option<Acl>> {
    match fs.get_xattr(dir, super::DEFAULT) {
        Ok(value) => Acl::parse(&value).map(Some).map_err(|_| {
            Error::Invalid("the default access control list of the directory is invalid")
        }),
        Err(Error::NoAttribute | Error::Unsupported(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Acl {
    /// Parses an attribute's value. Entries of named users may be in any order, and so may those of groups. Duplicates
    /// are rejected: the kernel accepts them, but xfs_repair does not.
    ///
    /// # Errors
    /// [`Malformed::Version`] if the version is unknown, [`Malformed::Entries`] if the list is invalid.
    pub fn parse(value: &[u8]) -> Result<Self, Malformed> {
        let acl = Self { entries: super::parse(value)? };
        if acl.is_valid() { Ok(acl) } else { Err(Malformed::Entries) }
    }

    /// Returns the entries, sorted by tag.
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// Returns the attribute's value.
    pub fn to_bytes(&self) -> Vec<u8> {
        super::to_bytes(self.entries.iter().copied())
    }

    /// Returns the equivalent permission bits; the group bits are those of the mask if there is one.
    pub fn mode(&self) -> u16 {
        let class = self.group_class();
        let bits = |tag| self.permissions(tag).unwrap_or(0);
        bits(Tag::UserObj) << 6 | bits(class) << 3 | bits(Tag::Other)
    }

    /// Returns whether the list is equivalent to permission bits, so that it need not be stored.
    pub fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    /// Updates the list after a change of the permission bits.
    pub fn set_mode(&mut self, mode: u16) {
        self.change_by_mode(mode, |_, bits| bits);
    }

    /// Removes permissions that are not in the permission bits: derives a new file's list from the default list.
    pub fn restrict(&mut self, mode: u16) {
        self.change_by_mode(mode, |permissions, bits| permissions & bits);
    }

    /// Returns the lists and permission bits that a new file inherits from this default list of its directory.
    /// `permissions` are those of the request, without an umask.
    pub fn inherit(self, permissions: u16, file_type: FileType) -> InheritedAcl {
        let default = (file_type == FileType::Directory).then(|| self.to_bytes());
        let mut access = self;
        access.restrict(permissions);
        let permissions = permissions & !ACCESS_BITS | access.mode();
        let access = (!access.is_minimal()).then(|| access.to_bytes());
        InheritedAcl { permissions, access, default }
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
        let mut named: Vec<_> = named.map(|entry| (entry.tag, entry.id)).collect();
        named.sort_unstable();
        in_order
            && self.entries.iter().all(is_valid)
            && [Tag::UserObj, Tag::GroupObj, Tag::Other].into_iter().all(has)
            && (has(Tag::Mask) || named.is_empty())
            && named.is_sorted_by(|a, b| a < b)
    }
}
