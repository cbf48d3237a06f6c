//! Changes of files that match patterns.

use std::fmt;
use std::sync::Arc;

use super::globs::Glob;
use crate::rule_file::capability::{FileCapabilities, XATTR_NAME};
use crate::{Entry, EntryKind, Time, Xattr};

/// A change of the files that match a pattern.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The pattern.
    pub glob: Glob,
    /// The change.
    pub change: Change,
}

/// A change of a file's attributes.
#[derive(Clone, Debug)]
pub enum Change {
    /// New permissions. Not applied to symbolic links.
    Permissions(PermissionChange),
    /// New owners; `None` leaves one unchanged.
    Owner {
        /// User.
        uid: Option<u32>,
        /// Group.
        gid: Option<u32>,
    },
    /// An extended attribute. `user.…` attributes are applied to regular files and directories only.
    Xattr(Xattr),
    /// Capabilities, applied to regular files only.
    Capabilities(FileCapabilities),
    /// A new value of all times.
    Time(Time),
}

/// A function from old to new permissions. The second argument is true for directories.
#[derive(Clone)]
pub struct PermissionChange(Arc<dyn Fn(u16, bool) -> u16 + Send + Sync>);

impl PermissionChange {
    /// Creates a change from a function on permissions below 0o10000.
    pub fn new(change: impl Fn(u16, bool) -> u16 + Send + Sync + 'static) -> Self {
        Self(Arc::new(change))
    }
}

impl fmt::Debug for PermissionChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PermissionChange")
    }
}

impl Rule {
    /// Returns whether it applies to the file at this path.
    pub(super) fn is_about(&self, path: &[u8], kind: &EntryKind) -> bool {
        let is_possible = match (&self.change, kind) {
            (Change::Permissions(_), kind) => !matches!(kind, EntryKind::Symlink(_)),
            (Change::Xattr(xattr), kind) if xattr.name.starts_with(b"user.") => {
                matches!(kind, EntryKind::File(_) | EntryKind::Directory)
            }
            (Change::Capabilities(_), kind) => matches!(kind, EntryKind::File(_)),
            _ => true,
        };
        is_possible && self.glob.is_match(path, matches!(kind, EntryKind::Directory))
    }

    /// Changes an entry. Returns the number of extended attributes set.
    pub(super) fn apply(&self, entry: &mut Entry) -> u64 {
        let is_directory = matches!(entry.kind, EntryKind::Directory);
        let metadata = &mut entry.metadata;
        match &self.change {
            Change::Permissions(change) => {
                metadata.permissions = (change.0)(metadata.permissions, is_directory) & 0o7777;
            }
            Change::Owner { uid, gid } => {
                metadata.uid = uid.unwrap_or(metadata.uid);
                metadata.gid = gid.unwrap_or(metadata.gid);
            }
            Change::Xattr(xattr) => {
                Xattr::set(&mut entry.xattrs, &xattr.name, &xattr.value);
                return 1;
            }
            Change::Capabilities(capabilities) => {
                Xattr::set(&mut entry.xattrs, XATTR_NAME, &capabilities.to_xattr());
                return 1;
            }
            Change::Time(time) => {
                (metadata.mtime, metadata.atime, metadata.ctime) = (*time, None, None);
                if let Some(details) = &mut entry.inode {
                    details.crtime = None;
                }
            }
        }
        0
    }

    /// Returns the command-line option of the rule.
    pub(super) fn option(&self) -> &'static str {
        match self.change {
            Change::Permissions(_) => "--chmod",
            Change::Owner { .. } => "--chown",
            Change::Xattr(_) => "--xattr",
            Change::Capabilities(_) => "--capability",
            Change::Time(_) => "-T",
        }
    }
}
