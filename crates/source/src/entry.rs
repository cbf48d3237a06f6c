//! What a stream of entries consists of.

use crate::Content;

/// One file of a tree, of any type.
#[derive(Debug)]
pub struct Entry {
    /// Path from the root: no leading or trailing slash, no component that is empty, `.` or `..`.
    /// Empty for the root itself.
    pub path: Vec<u8>,
    /// Its type, and what belongs to that type.
    pub kind: EntryKind,
    /// Owner, permissions and times.
    pub metadata: Metadata,
    /// Extended attributes, sorted by name, each name once. Empty for [`EntryKind::Hardlink`],
    /// whose file has been returned with them before.
    pub xattrs: Vec<Xattr>,
    /// What only images of file systems say of their inodes. `None` for [`EntryKind::Hardlink`].
    pub inode: Option<Box<InodeDetails>>,
}

/// What archives and directories of the host do not tell of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InodeDetails {
    /// When it was made, where that is kept.
    pub crtime: Option<Time>,
    /// Its flags, project and hints.
    pub attributes: vfs::FileAttributes,
}

/// The type of an entry.
#[derive(Debug)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A regular file.
    File(Content),
    /// A symbolic link and its target, which is never empty and holds no NUL.
    Symlink(Vec<u8>),
    /// One more name of the file at this path, in the form of [`Entry::path`]. The file may be of
    /// any type but a directory.
    Hardlink(Vec<u8>),
    /// A character device.
    CharDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A block device.
    BlockDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A named pipe.
    Fifo,
    /// A Unix-domain socket.
    Socket,
}

impl EntryKind {
    /// What it is called in a message.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::File(_) => "regular file",
            Self::Symlink(_) => "symbolic link",
            Self::Hardlink(_) => "hard link",
            Self::CharDevice { .. } => "character device",
            Self::BlockDevice { .. } => "block device",
            Self::Fifo => "named pipe",
            Self::Socket => "socket",
        }
    }
}

/// Owner, permissions and times of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Permission bits with set-user-id, set-group-id and sticky, below 0o10000.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of the contents.
    pub mtime: Time,
    /// Last access, where the source knows it. That of a host directory changes by being read.
    pub atime: Option<Time>,
    /// Last change of the inode, where the source knows it.
    pub ctime: Option<Time>,
}

/// A point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since 1970-01-01 UTC, negative before.
    pub sec: i64,
    /// Nanoseconds within that second, below 1,000,000,000.
    pub nsec: u32,
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// Full Linux name: `user.…`, `trusted.…`, `security.…`, `system.posix_acl_access`, ….
    pub name: Vec<u8>,
    /// Value, as Linux system calls give it.
    pub value: Vec<u8>,
}

impl Xattr {
    /// Gives attributes in this order one more, or another value of one.
    pub(crate) fn set(xattrs: &mut Vec<Self>, name: &[u8], value: &[u8]) {
        match xattrs.binary_search_by(|xattr| xattr.name[..].cmp(name)) {
            Ok(at) => xattrs[at].value = value.to_vec(),
            Err(at) => {
                xattrs.insert(at, Self { name: name.to_vec(), value: value.to_vec() });
            }
        }
    }

    /// Brings attributes into the order of [`Entry::xattrs`]; of equal names the last one stays.
    pub(crate) fn normalize(xattrs: &mut Vec<Self>) {
        xattrs.reverse();
        xattrs.sort_by(|a, b| a.name.cmp(&b.name));
        xattrs.dedup_by(|a, b| a.name == b.name);
    }
}
