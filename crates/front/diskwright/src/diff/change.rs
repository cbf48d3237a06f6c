//! Types of differences.

use vfs::{DeviceNumber, FileType, InodeFlags, Timestamp};

/// Difference at one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Path from the root, without leading `/`; empty for the root itself.
    pub path: Vec<u8>,
    /// Kind of change.
    pub kind: ChangeKind,
    /// File type in the second tree, or in the first one if the file was removed.
    pub file_type: FileType,
    /// Differences; empty unless the file was modified.
    pub differences: Vec<Difference>,
}

/// Kind of change between the first tree and the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// Exists only in the second tree.
    Added,
    /// Exists only in the first tree. Files below a removed directory are not reported.
    Removed,
    /// Exists in both trees, with differences.
    Modified,
}

/// Difference of one property, with the old and the new value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// File type. Other properties were not compared then.
    Type(FileType, FileType),
    /// Permission bits.
    Mode(u16, u16),
    /// Owner and group.
    Owner((u32, u32), (u32, u32)),
    /// Size in bytes.
    Size(u64, u64),
    /// Contents.
    Contents,
    /// Symbolic link target.
    Target(Vec<u8>, Vec<u8>),
    /// Device number.
    Device(DeviceNumber, DeviceNumber),
    /// Modification time.
    Mtime(Timestamp, Timestamp),
    /// An extended attribute, by name.
    Xattr(Vec<u8>, XattrChange),
    /// Flags.
    Flags(InodeFlags, InodeFlags),
    /// Hard links: the set of names of the file.
    Links,
}

/// Kind of change of an extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrChange {
    /// Exists only in the second tree.
    Added,
    /// Exists only in the first tree.
    Removed,
    /// The value differs.
    Modified,
}

/// Properties to ignore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Modification times.
    pub times: bool,
    /// Owners and groups.
    pub owner: bool,
    /// Permission bits.
    pub mode: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Inode flags.
    pub flags: bool,
    /// Hard links.
    pub links: bool,
}
