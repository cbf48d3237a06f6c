//! Changes of an image in place: `mkdir`, `rm`, `mv`, `ln`, `chmod`, `chown`, `setfattr` and `truncate`.
//!
//! [`Editor`] implements the changes on any file system. Each change is atomic. If the program is killed, the image
//! contains the changes up to some moment. [`ImageOptions::defer_creates`](crate::ImageOptions::defer_creates) weakens this
//! order.
//!
//! ```no_run
//! use diskwright::edit::Policy;
//! use diskwright::Image;
//!
//! # fn main() -> diskwright::Result<()> {
//! let image = Image::open_writable("root.img")?;
//! let fs = image.file_system()?;
//! let editor = fs.editor(Policy::now(None));
//! editor.make_directory(b"/var/lib/app", None, true)?;
//! editor.symlink(b"../lib/app", b"/var/app", false)?;
//! drop(fs);
//! image.close()?;
//! # Ok(()) }
//! ```

mod attributes;
mod flags;
mod mode;
mod names;
mod values;

use std::time::SystemTime;

use vfs::{FileSystem, FileType, Ino, NewInode, Paths, Timestamp};

use crate::FileSystemRef;
use crate::build::Owner;
use crate::inode::inherit_group;

pub use attributes::SymlinkPolicy;
pub use flags::FlagChange;
pub use mode::ModeChange;
pub use names::{Move, MoveOptions};
pub use values::{OwnerChange, SizeChange, parse_owner_change, parse_xattr_value};

pub use crate::recovery::{RecoverDetails, RecoverReport};

/// Owner and time of changes.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Owner of new files. Files in a set-group-ID directory inherit its group instead.
    pub owner: Owner,
    /// Time of all changes.
    pub time: Timestamp,
}

impl Policy {
    /// Creates a policy with this owner (root if `None`) and the current time.
    pub fn now(owner: Option<Owner>) -> Self {
        let time = SystemTime::now().into();
        Self { owner: owner.unwrap_or(Owner { uid: 0, gid: 0 }), time }
    }
}

impl FileSystemRef<'_> {
    /// Returns an editor for an image that is open for writing.
    pub fn editor(&self, policy: Policy) -> Editor<'_> {
        Editor { paths: self.paths(), policy }
    }
}

/// Changes of a file system by path.
#[derive(Clone, Copy)]
pub struct Editor<'a> {
    paths: Paths<'a>,
    policy: Policy,
}

impl<'a> Editor<'a> {
    /// Creates an editor for a file system that is open for writing.
    pub fn new(paths: Paths<'a>, policy: Policy) -> Self {
        Self { paths, policy }
    }

    /// Returns access to the files by path.
    pub fn paths(&self) -> Paths<'a> {
        self.paths
    }

    /// Returns owner and time of changes.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(crate) fn fs(&self) -> &'a dyn FileSystem {
        self.paths.file_system()
    }

    pub(crate) fn time(&self) -> Option<Timestamp> {
        Some(self.policy.time)
    }

    /// Returns the initial attributes of a new file in `dir`. As on Linux, files in a set-group-ID directory inherit
    /// its group, and directories also the bit.
    pub(crate) fn new_inode(
        &self,
        dir: Ino,
        permissions: u16,
        file_type: FileType,
    ) -> vfs::Result<NewInode> {
        let Policy { owner, time } = self.policy;
        let new =
            NewInode { permissions, uid: owner.uid, gid: owner.gid, time, parent_time: Some(time) };
        inherit_group(self.fs(), dir, new, file_type)
    }
}
