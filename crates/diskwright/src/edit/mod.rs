//! Changing an image in place: what `mkdir`, `rm`, `mv`, `ln`, `chmod`, `chown`, `setfattr` and
//! `truncate` do.
//!
//! [`OpenToEdit`] is an image that is open for writing and locked; [`Editor`] has the changes, on
//! any file system. A change happens as a whole or not at all. A program that is killed leaves an
//! image with the changes up to some moment, with one exception: regular files created in a large
//! directory (1024 blocks or more) since the last sync may be missing in any order.
//!
//! ```no_run
//! use diskwright::edit::Policy;
//! use diskwright::{Image, OpenImage};
//!
//! # fn main() -> diskwright::Result<()> {
//! let image = Image::edit("root.img".as_ref(), &OpenImage::default())?;
//! let editor = image.editor(Policy::now(None));
//! editor.make_directory(b"/var/lib/app", None, true)?;
//! editor.symlink(b"../lib/app", b"/var/app", false)?;
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

use crate::build::Owner;
use crate::inode::inherit_group;

pub use attributes::Links;
pub use flags::FlagChange;
pub use mode::ModeChange;
pub use names::{Move, MoveOptions};
pub use values::{OwnerChange, SizeChange, parse_owner_change, parse_xattr_value};

pub use crate::open_to_edit::OpenToEdit;
pub use crate::writable::{RecoverDetails, RecoverReport};

/// Owner and time of what is made or changed.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Owner of new files. A directory with the set-group-id bit gives them its group instead.
    pub owner: Owner,
    /// The time of all changes.
    pub time: Timestamp,
}

impl Policy {
    /// New files belong to `owner` (root if `None`), and the time is now.
    pub fn now(owner: Option<Owner>) -> Self {
        let time = SystemTime::now().into();
        Self { owner: owner.unwrap_or(Owner { uid: 0, gid: 0 }), time }
    }
}

impl OpenToEdit {
    /// The changes that can be made to it.
    pub fn editor(&self, policy: Policy) -> Editor<'_> {
        Editor { paths: self.paths(), policy }
    }
}

/// Changes to a file system, by path.
#[derive(Clone, Copy)]
pub struct Editor<'a> {
    paths: Paths<'a>,
    policy: Policy,
}

impl<'a> Editor<'a> {
    /// Changes to a file system that is open for writing.
    pub fn new(paths: Paths<'a>, policy: Policy) -> Self {
        Self { paths, policy }
    }

    /// The files by path.
    pub fn paths(&self) -> Paths<'a> {
        self.paths
    }

    /// Owner and time of changes.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(crate) fn fs(&self) -> &'a dyn FileSystem {
        self.paths.file_system()
    }

    pub(crate) fn time(&self) -> Option<Timestamp> {
        Some(self.policy.time)
    }

    /// What a new file in `dir` starts with. As in Linux, a directory with the set-group-id bit
    /// gives its group on, and directories inherit the bit.
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
