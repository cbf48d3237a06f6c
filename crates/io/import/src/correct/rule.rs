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
    pub change: AttributeChange,
}

/// A change of a file's attributes.
#[derive(Clone, Debug)]
pub enum AttributeChange {
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
            (AttributeChange::Permissions(_), kind) => !matches!(kind, EntryKind::Symlink(_)),
            (AttributeChange::Xattr(xattr), kind) if xattr.name.starts_with(b"user.") => {
                matches!(kind, EntryKind::File(_) | EntryKind::Directory)
            }
            (AttributeChange::Capabilities(_), kind) => matches!(kind, EntryKind::File(_)),
            _ => true,
        };
        is_possible && self.glob.is_match(path, matches!(kind, EntryKind::Directory))
    }

    /// Changes an entry. Returns the number of extended attributes set.
    pub(super) fn apply(&self, entry: &mut Entry) -> u64 {
        let is_directory = matches!(entry.kind, EntryKind::Directory);
        let metadata = &mut entry.metadata;
        match &self.change {
            AttributeChange::Permissions(change) => {
                metadata.permissions = (change.0)(metadata.permissions, is_directory) & 0o7777;
            }
            AttributeChange::Owner { uid, gid } => {
                metadata.uid = uid.unwrap_or(metadata.uid);
                metadata.gid = gid.unwrap_or(metadata.gid);
            }
            AttributeChange::Xattr(xattr) => {
                Xattr::set(&mut entry.xattrs, &xattr.name, &xattr.value);
                return 1;
            }
            AttributeChange::Capabilities(capabilities) => {
                Xattr::set(&mut entry.xattrs, XATTR_NAME, &capabilities.to_xattr());
                return 1;
            }
            AttributeChange::Time(time) => {
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
            AttributeChange::Permissions(_) => "--chmod",
            AttributeChange::Owner { .. } => "--chown",
            AttributeChange::Xattr(_) => "--xattr",
            AttributeChange::Capabilities(_) => "--capability",
            AttributeChange::Time(_) => "-T",
        }
    }
}
