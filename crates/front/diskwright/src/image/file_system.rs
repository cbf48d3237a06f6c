//! Access to the file system of an open image.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use operations::profile::ListingProfile;
#[cfg(feature = "build")]
use vfs::quota::{LimitChanges, OwnerKind, OwnerUsage, QuotaState};
use vfs::survey::TellsLayout;
use vfs::{FileSystem, Paths};

use super::shared::{Lease, Shared};
use super::{Image, ImageInfo};
use crate::Result;
use crate::dispatch::OpenFs;

/// File system of an open [`Image`], for operations below the calls of `std::fs`. Closing the image waits until this is
/// dropped.
///
/// Calls of the image do not wait for this: an inode number that was found by a path is valid until a file is removed,
/// or as long as [`FileSystem::open`] holds the inode.
pub struct FileSystemRef<'a> {
    // Declared before the lease, which ends when nothing uses the file system.
    fs: Arc<dyn OpenFs>,
    lease: Lease,
    image: PhantomData<&'a Image>,
}

impl FileSystemRef<'_> {
    pub(super) fn new(shared: &Arc<Shared>) -> Result<Self> {
        let (fs, lease) = Shared::lease(shared)?;
        Ok(Self { fs, lease, image: PhantomData })
    }

    /// Returns access to the files by path.
    pub fn paths(&self) -> Paths<'_> {
        Paths::new(&**self)
    }

    /// Returns the use of the blocks.
    pub fn layout(&self) -> &dyn TellsLayout {
        self.fs.layout()
    }

    /// Writes the metadata with random names to a device of zeros.
    #[cfg(feature = "anywhere")]
    pub(crate) fn obfuscate(
        &self,
        key: u64,
        out: &dyn disk::BlockDevice,
    ) -> vfs::Result<Vec<String>> {
        self.fs.obfuscate(key, out)
    }

    /// Returns the profile of the time spent in listings.
    #[doc(hidden)]
    pub fn listing_profile(&self) -> &ListingProfile {
        self.fs.file_system().listing_profile()
    }

    /// Returns the current properties of an image that is open for writing.
    pub(super) fn info(&self) -> vfs::Result<ImageInfo> {
        self.fs.info(None)
    }

    /// Returns the state of the quotas of a kind of owner.
    ///
    /// # Errors
    /// Damage of a quota file, and errors of the device.
    #[cfg(feature = "build")]
    pub fn quota_state(&self, kind: OwnerKind) -> Result<QuotaState> {
        self.fs.quota_state(kind).map_err(|source| self.lease.shared().error(source))
    }

    /// Reports all owners of a kind with usage or limits, by their numbers.
    ///
    /// # Errors
    /// Damage of a quota file, and errors of the device.
    #[cfg(feature = "build")]
    pub fn for_each_owner(&self, kind: OwnerKind, each: &mut dyn FnMut(&OwnerUsage)) -> Result<()> {
        self.fs.for_each_owner(kind, each).map_err(|source| self.lease.shared().error(source))
    }

    /// Changes limits and grace times of an image that is open for writing. `now` is in seconds since the epoch.
    /// [`crate::quota::change_quotas`] also counts usage first.
    ///
    /// # Errors
    /// Kinds of owners that are not counted, soft limits above hard ones; no space for a quota file, and its damage.
    #[cfg(feature = "build")]
    pub fn change_limits(&self, changes: &LimitChanges, now: u64) -> Result<()> {
        self.fs.change_limits(changes, now).map_err(|source| self.lease.shared().error(source))
    }

    /// Returns the number of checkpoints closed since opening, or `None` without a journal or log. Changes are atomic
    /// if no checkpoint was closed between them: all become durable or none, and none if the image is abandoned.
    #[cfg(feature = "build")]
    pub(crate) fn checkpoints_closed(&self) -> Option<u64> {
        self.fs.checkpoints_closed()
    }
}

impl FileSystemRef<'static> {
    /// Closes the image, like [`Image::close`].
    ///
    /// # Errors
    /// Same as [`Image::close`].
    pub fn close(self) -> Result<()> {
        let shared = Arc::clone(self.lease.shared());
        drop(self);
        shared.close()
    }
}

impl Deref for FileSystemRef<'_> {
    type Target = dyn FileSystem;

    fn deref(&self) -> &Self::Target {
        self.fs.file_system()
    }
}
