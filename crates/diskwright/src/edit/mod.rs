//! Changing an image in place: what `mkdir`, `rm`, `mv`, `ln`, `chmod`, `chown`, `setfattr` and
//! `truncate` do.
//!
//! [`OpenToEdit`] is an image that is open for writing and locked; [`Editor`] has the changes, on
//! any file system. A change happens as a whole or not at all. Changes become durable in their
//! order: a program that is killed leaves an image with those up to some moment.

mod attributes;
mod flags;
mod mode;
mod names;
mod values;
pub(crate) mod writable;

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use operation::profile::ListingProfile;
use vfs::{FileSystem, FileType, Ino, NewInode, Paths, Timestamp};

use crate::build::Owner;
use crate::image::{open_device, probe_kind, window};
use crate::{Error, Image, OpenImage, Result, lock};

pub(crate) use attributes::CAPABILITY;
pub use attributes::Links;
pub use flags::FlagChange;
pub use mode::ModeChange;
pub use names::{Move, MoveOptions};
pub use values::{OwnerChange, SizeChange, parse_owner_change, parse_xattr_value};
pub use writable::{RecoverDetails, RecoverReport};

use writable::Writable;

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
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = Timestamp { sec: since.as_secs().cast_signed(), nsec: since.subsec_nanos() };
        Self { owner: owner.unwrap_or(Owner { uid: 0, gid: 0 }), time }
    }
}

/// An image that is open to be changed, and locked against everybody else.
///
/// Dropped without [`OpenToEdit::close`], it is left as after a crash: what is not durable yet is
/// gone, and the journal or log has to be replayed.
pub struct OpenToEdit {
    fs: Box<dyn Writable>,
    image: std::path::PathBuf,
}

impl Image {
    /// Which of its features makes that an image cannot be changed, but read; `None` if there is none. This
    /// one may still be damaged, or somebody may be using it: [`Image::edit`] tells.
    ///
    /// # Errors
    /// If it cannot be read, or has no format that is known.
    pub fn read_only_because(path: &Path, options: &OpenImage) -> Result<Option<String>> {
        let device = open_device(path, &OpenImage { norecovery: true, ..*options })?;
        let reason = probe_kind(path, &device, options)?.read_only_because(&*device);
        reason.map_err(|source| Error::Image { image: path.to_owned(), source })
    }

    /// Opens an image to change it. What its journal or log holds is replayed first.
    ///
    /// # Errors
    /// If somebody else uses the image, if it cannot be read or written, or if it is no image that
    /// can be changed; the error says why. Nothing has been written then.
    pub fn edit(path: &Path, options: &OpenImage) -> Result<OpenToEdit> {
        let device = blockdev::FileDevice::new(lock::open_to_write(path)?);
        let device = device.map_err(|e| Error::host("read", path, e))?;
        let device = window(path, Arc::new(device), options)?;
        let kind = probe_kind(path, &device, options)?;
        match writable::open(kind, device, options) {
            Ok(fs) => Ok(OpenToEdit { fs, image: path.to_owned() }),
            Err(source) => Err(Error::Image { image: path.to_owned(), source }),
        }
    }

    /// Replays the journal or log of an image, ends what a crash left unfinished, and leaves it clean.
    ///
    /// # Errors
    /// As [`Image::edit`] and [`OpenToEdit::close`].
    pub fn recover(path: &Path, options: &OpenImage) -> Result<RecoverReport> {
        let open = Self::edit(path, options)?;
        let report = open.fs.recovery();
        open.close().map(|()| report)
    }
}

impl OpenToEdit {
    /// Its file system.
    pub fn file_system(&self) -> &dyn FileSystem {
        self.fs.file_system()
    }

    /// What tells where the time of its listings goes.
    pub(crate) fn listing_profile(&self) -> &ListingProfile {
        self.fs.file_system().listing_profile()
    }

    /// Its files by path.
    pub fn paths(&self) -> Paths<'_> {
        Paths::new(self.file_system())
    }

    /// The image file, as it was named.
    pub fn path(&self) -> &Path {
        &self.image
    }

    /// Checkpoints that were closed since it was opened; `None` if it has no journal or log. Changes between which
    /// none was closed are one: all of them become durable, or none, and none if this is dropped.
    pub(crate) fn checkpoints_closed(&self) -> Option<u64> {
        self.fs.checkpoints_closed()
    }

    /// The changes that can be made to it.
    pub fn editor(&self, policy: Policy) -> Editor<'_> {
        Editor { paths: self.paths(), policy }
    }

    /// Makes all changes durable and leaves the image clean.
    ///
    /// # Errors
    /// If the image cannot be written; it is then as after a crash.
    pub fn close(self) -> Result<()> {
        let Self { fs, image } = self;
        fs.close().map_err(|source| Error::Image { image, source })
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
        let parent = self.fs().attributes(dir)?;
        let Policy { owner, time } = self.policy;
        let mut new =
            NewInode { permissions, uid: owner.uid, gid: owner.gid, time, parent_time: Some(time) };
        if parent.permissions & 0o2000 != 0 {
            new.gid = parent.gid;
            if file_type == FileType::Directory {
                new.permissions |= 0o2000;
            }
        }
        Ok(new)
    }
}
