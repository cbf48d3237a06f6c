//! Inodes of the metadata directory tree (`metadir`): their type, and the fields that they have in common.
//!
//! The type (`di_metatype`) is at byte 6 of the inode, where inodes of version 1 have their link count. It is 0 in all
//! other inodes.

use super::btree::TreeShape;
use super::bytes::{be16, put16};
use super::inode::{Inode, flags, flags2};
use super::quota::QuotaKind;

/// Byte offset of `di_metatype`.
pub(crate) const METATYPE: usize = 6;
/// Bytes of `di_dmevmask` and `di_dmstate`, which must be zero in the tree.
const UNUSED: std::ops::Range<usize> = 84..90;
/// Name of the directory of quota files, below the root of the tree.
pub(crate) const QUOTA_DIRECTORY: &str = "quota";
/// Name of the directory of the files of realtime groups, below the root of the tree.
pub(crate) const RTGROUPS_DIRECTORY: &str = "rtgroups";
/// Flags that all inodes of the tree have (`di_flags`).
pub(crate) const FILE_FLAGS: u16 =
    flags::IMMUTABLE | flags::SYNC | flags::NOATIME | flags::NODUMP | flags::NODEFRAG;
/// Flags that all directories of the tree have.
pub(crate) const DIRECTORY_FLAGS: u16 = FILE_FLAGS | flags::NOSYMLINKS;

/// The type of an inode of the tree (`di_metatype`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum MetafileType {
    /// Unknown, as in inodes outside of the tree.
    Unknown = 0,
    /// A directory.
    Directory = 1,
    /// Quotas of users.
    UserQuota = 2,
    /// Quotas of groups.
    GroupQuota = 3,
    /// Quotas of projects.
    ProjectQuota = 4,
    /// The bitmap of a realtime group.
    RtBitmap = 5,
    /// The summary of a realtime group.
    RtSummary = 6,
    /// The reverse map of a realtime group.
    RtRmap = 7,
    /// The reference counts of a realtime group.
    RtRefcount = 8,
}

impl MetafileType {
    /// All types; the index is their number.
    pub const ALL: [Self; 9] = [
        Self::Unknown,
        Self::Directory,
        Self::UserQuota,
        Self::GroupQuota,
        Self::ProjectQuota,
        Self::RtBitmap,
        Self::RtSummary,
        Self::RtRmap,
        Self::RtRefcount,
    ];

    /// Returns the type with a number, or `None` if it is invalid.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Returns its number.
    #[must_use]
    pub(crate) const fn number(self) -> u16 {
        self as u16
    }

    /// Returns its name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Directory => "directory",
            Self::UserQuota => "user quota",
            Self::GroupQuota => "group quota",
            Self::ProjectQuota => "project quota",
            Self::RtBitmap => "realtime bitmap",
            Self::RtSummary => "realtime summary",
            Self::RtRmap => "realtime rmap",
            Self::RtRefcount => "realtime refcount",
        }
    }

    /// Returns the type of a quota file.
    #[must_use]
    pub(crate) const fn of_quota(kind: QuotaKind) -> Self {
        match kind {
            QuotaKind::User => Self::UserQuota,
            QuotaKind::Group => Self::GroupQuota,
            QuotaKind::Project => Self::ProjectQuota,
        }
    }

    /// Returns the tree whose root is in such an inode; `None` for other files.
    #[must_use]
    pub(crate) const fn shape(self) -> Option<TreeShape> {
        match self {
            Self::RtRmap => Some(TreeShape::RTRMAP),
            Self::RtRefcount => Some(TreeShape::RTREFCOUNT),
            _ => None,
        }
    }

    /// Returns whether it is that of a quota file.
    #[must_use]
    pub const fn is_quota(self) -> bool {
        matches!(self, Self::UserQuota | Self::GroupQuota | Self::ProjectQuota)
    }

    /// Returns the type that the file at a path below the root of the tree must have; `None` if kernels use no such
    /// path.
    #[must_use]
    pub fn of_path(path: &[u8]) -> Option<Self> {
        let path = std::str::from_utf8(path).ok()?;
        match path.split_once('/') {
            None => {
                matches!(path, "" | QUOTA_DIRECTORY | RTGROUPS_DIRECTORY).then_some(Self::Directory)
            }
            Some((QUOTA_DIRECTORY, name)) => {
                let kind = QuotaKind::ALL.into_iter().find(|kind| kind.name() == name)?;
                Some(Self::of_quota(kind))
            }
            Some((RTGROUPS_DIRECTORY, name)) => Self::of_group_file(name),
            Some(_) => None,
        }
    }

    /// Same as [`Self::of_path`] for a file system with this number of realtime groups. Other groups have no files.
    #[must_use]
    pub(crate) fn of_path_with_groups(path: &[u8], groups: u32) -> Option<Self> {
        Self::of_path(path).filter(|_| group_of_path(path).is_none_or(|group| group < groups))
    }

    /// Returns the type of a file of a realtime group, named `NUMBER.KIND`.
    fn of_group_file(name: &str) -> Option<Self> {
        let (group, kind) = name.split_once('.')?;
        let is_number = group.parse::<u32>().is_ok_and(|number| number.to_string() == group);
        let found = match kind {
            "bitmap" => Self::RtBitmap,
            "summary" => Self::RtSummary,
            "rmap" => Self::RtRmap,
            "refcount" => Self::RtRefcount,
            _ => return None,
        };
        is_number.then_some(found)
    }
}

/// Returns the path of a file of a realtime group below the root of the tree.
#[must_use]
pub(crate) fn group_path(group: u32, metafile_type: MetafileType) -> String {
    let kind = match metafile_type {
        MetafileType::RtBitmap => "bitmap",
        MetafileType::RtSummary => "summary",
        MetafileType::RtRmap => "rmap",
        _ => "refcount",
    };
    format!("{RTGROUPS_DIRECTORY}/{group}.{kind}")
}

/// Returns the number of the realtime group whose file is at a path; `None` for other files.
#[must_use]
pub(crate) fn group_of_path(path: &[u8]) -> Option<u32> {
    let name = std::str::from_utf8(path).ok()?.strip_prefix(RTGROUPS_DIRECTORY)?;
    name.strip_prefix('/')?.split_once('.')?.0.parse().ok()
}

/// Returns the path of a name in a directory, below the root of the tree.
#[must_use]
pub(crate) fn path_in(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let parts: &[&[u8]] = if dir.is_empty() { &[name] } else { &[dir, name] };
    parts.join(&b'/')
}

/// Returns the path of a quota file below the root of the tree.
#[must_use]
pub(crate) fn quota_path(kind: QuotaKind) -> String {
    format!("{QUOTA_DIRECTORY}/{}", kind.name())
}

impl Inode {
    /// Returns whether it belongs to the metadata directory tree.
    #[must_use]
    pub fn is_metadata(&self) -> bool {
        self.flags2() & flags2::METADATA != 0
    }

    /// Returns `di_metatype` as stored.
    #[must_use]
    pub(crate) fn metatype_number(&self) -> u16 {
        be16(self.as_bytes(), METATYPE)
    }

    /// Returns its type in the tree; `Unknown` outside of it, and for an invalid number.
    #[must_use]
    pub fn metafile_type(&self) -> MetafileType {
        let known = MetafileType::from_number(self.metatype_number());
        known.filter(|_| self.is_metadata()).unwrap_or(MetafileType::Unknown)
    }

    /// Makes it an inode of the tree: sets type and flags, and clears permissions, owners and unused
    /// fields.
    pub(crate) fn set_metadata(&mut self, metafile_type: MetafileType) {
        self.set_permissions(0);
        self.set_uid(0);
        self.set_gid(0);
        self.set_flags2(self.flags2() & !flags2::DAX | flags2::METADATA);
        let own = if self.is_dir() { DIRECTORY_FLAGS } else { FILE_FLAGS };
        self.set_flags(own);
        let bytes = self.as_mut_bytes();
        put16(bytes, METATYPE, metafile_type.number());
        bytes[UNUSED].fill(0);
    }

    /// Takes it out of the tree: clears the type and the flag.
    pub fn clear_metadata(&mut self) {
        self.set_flags2(self.flags2() & !flags2::METADATA);
        put16(self.as_mut_bytes(), METATYPE, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::FileType;

    #[test]
    fn paths_have_the_types_of_kernels() {
        let of = |path: &str| MetafileType::of_path(path.as_bytes());
        assert_eq!(of(""), Some(MetafileType::Directory));
        assert_eq!(of("rtgroups"), Some(MetafileType::Directory));
        assert_eq!(of(&quota_path(QuotaKind::Project)), Some(MetafileType::ProjectQuota));
        for found in &MetafileType::ALL[5..] {
            let path = group_path(17, *found);
            assert_eq!(of(&path), Some(*found));
            let with = |groups| MetafileType::of_path_with_groups(path.as_bytes(), groups);
            assert_eq!((with(18), with(17)), (Some(*found), None));
        }
        for other in ["rtgroups/017.rmap", "rtgroups/1.rmapbt", "quota/users", "bitmap", "a/b/c"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn numbers_come_back() {
        for (number, kind) in (0..).zip(MetafileType::ALL) {
            assert_eq!((MetafileType::from_number(number), kind.number()), (Some(kind), number));
        }
        assert_eq!(MetafileType::from_number(9), None);
    }

    #[test]
    fn an_inode_enters_and_leaves_the_tree() {
        let mut slot = [0; 512];
        slot[4] = 3;
        let mut inode = Inode::from_slot(&slot);
        inode.reset(FileType::Directory, 0o755, 1);
        inode.set_uid(7);
        assert_eq!(inode.metafile_type(), MetafileType::Unknown);
        inode.set_metadata(MetafileType::Directory);
        // mkfs.xfs 7.2 sets the same values.
        assert_eq!((inode.mode(), inode.flags(), inode.uid()), (0o40000, 0x24e8, 0));
        assert_eq!((inode.flags2(), inode.metatype_number()), (0x20, 1));
        assert_eq!(inode.metafile_type(), MetafileType::Directory);
        inode.clear_metadata();
        assert_eq!((inode.flags2(), inode.metatype_number()), (0, 0));
    }
}
