//! The entries of a stream.

use crate::Content;

/// One file of a tree, of any type.
#[derive(Debug)]
pub struct Entry {
    /// Path from the root: no leading or trailing slash, no component that is empty, `.` or `..`. Empty for the root
    /// itself.
    pub path: Vec<u8>,
    /// Type, with the data of that type.
    pub kind: EntryKind,
    /// Owner, permissions and times.
    pub metadata: Metadata,
    /// Extended attributes, sorted by name without duplicates. Empty for [`EntryKind::Hardlink`], because its file was
    /// returned with them before.
    pub xattrs: Vec<Xattr>,
    /// Attributes that only file-system images contain. `None` for [`EntryKind::Hardlink`].
    pub inode: Option<Box<InodeDetails>>,
}

/// Attributes of an inode that archives and host directories do not contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InodeDetails {
    /// Creation time, if it is stored.
    pub crtime: Option<Time>,
    /// Flags, project and allocation hints.
    pub attributes: vfs::FileAttributes,
}

/// The type of an entry.
#[derive(Debug)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A regular file.
    File(Content),
    /// A symbolic link with its target, which is not empty and contains no NUL.
    Symlink(Vec<u8>),
    /// Another name of the file at this path, in the form of [`Entry::path`]. The file may be of any type except a
    /// directory.
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
    /// Returns the name of the type for messages.
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
    /// Last access, if the source contains it. Reading a host directory changes its own.
    pub atime: Option<Time>,
    /// Last change of the inode, if the source contains it.
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
    /// Value in the form of Linux system calls.
    pub value: Vec<u8>,
}

impl Xattr {
    /// Sets an attribute in a sorted list.
    pub(crate) fn set(xattrs: &mut Vec<Self>, name: &[u8], value: &[u8]) {
        match xattrs.binary_search_by(|xattr| xattr.name[..].cmp(name)) {
            Ok(at) => xattrs[at].value = value.to_vec(),
            Err(at) => {
                xattrs.insert(at, Self { name: name.to_vec(), value: value.to_vec() });
            }
        }
    }

    /// Sorts attributes as required by [`Entry::xattrs`]. The last of equal names is kept.
    pub(crate) fn normalize(xattrs: &mut Vec<Self>) {
        xattrs.reverse();
        xattrs.sort_by(|a, b| a.name.cmp(&b.name));
        xattrs.dedup_by(|a, b| a.name == b.name);
    }
}
