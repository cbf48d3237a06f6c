//! What can be different.

use vfs::{DeviceNumber, FileType, InodeFlags, Timestamp};

/// What is different about one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Path from the root, without leading `/`; empty for the root itself.
    pub path: Vec<u8>,
    /// What happened to it.
    pub kind: ChangeKind,
    /// What it is in the second tree; in the first one, if it is gone.
    pub file_type: FileType,
    /// What is different; empty unless it was modified.
    pub differences: Vec<Difference>,
}

/// What happened to a path between the first tree and the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// Only the second tree has it.
    Added,
    /// Only the first tree has it. What was in a directory is gone with it and not told.
    Removed,
    /// Both have it, and it is not the same.
    Modified,
}

/// One thing that is different about a file, as it was and as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Its type; nothing else was compared then.
    Type(FileType, FileType),
    /// Permission bits.
    Mode(u16, u16),
    /// Owner and group.
    Owner((u32, u32), (u32, u32)),
    /// Size in bytes.
    Size(u64, u64),
    /// The bytes of a file.
    Contents,
    /// The target of a symbolic link.
    Target(Vec<u8>, Vec<u8>),
    /// The number of a device.
    Device(DeviceNumber, DeviceNumber),
    /// The time of the last change of the contents.
    Mtime(Timestamp, Timestamp),
    /// An extended attribute, by name.
    Xattr(Vec<u8>, XattrChange),
    /// Flags.
    Flags(InodeFlags, InodeFlags),
    /// Which other names lead to the same file.
    Links,
}

/// What happened to an extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrChange {
    /// Only the second tree has it.
    Added,
    /// Only the first tree has it.
    Removed,
    /// Its value is another one.
    Modified,
}

/// What does not count as a difference.
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
    /// Flags of inodes.
    pub flags: bool,
    /// Which names lead to the same file.
    pub links: bool,
}
