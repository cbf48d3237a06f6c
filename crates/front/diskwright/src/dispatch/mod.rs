//! Dispatch on the format of an image. Other modules use the functions here for either format, except the image builder
//! (`build::format`, `volume::create`, `fs::making`) and `dump`, which have their own per format.

#[cfg(feature = "check")]
pub(crate) mod check;
mod ext4;
#[cfg(feature = "build")]
pub(crate) mod repair;
#[cfg(feature = "build")]
pub(crate) mod resize;
mod xfs;

use std::path::Path;
use std::sync::Arc;

use ::ext4::Ext4;
use ::xfs::Xfs;
use disk::BlockDevice;
use operations::profile::MeasuresListings;
use vfs::deleted::{DeletedScope, DeletedSink};
use vfs::quota::{LimitChanges, OwnerKind, OwnerUsage, QuotaState};
use vfs::survey::TellsLayout;

use crate::image::ImageInfo;
use crate::recovery::RecoverReport;
use crate::{Format, ImageOptions, mmp};

/// Open file system of either format.
pub(crate) trait OpenFs: Send + Sync {
    fn file_system(&self) -> &(dyn MeasuresListings + 'static);
    fn layout(&self) -> &dyn TellsLayout;
    /// Returns damage that does not prevent opening.
    fn remarks(&self) -> &[String];
    /// Returns the properties. The state of the log is read from `device`, or else was replayed at opening.
    fn info(&self, device: Option<&dyn BlockDevice>) -> vfs::Result<ImageInfo>;
    /// Returns the result of recovery at opening.
    fn recovery(&self) -> RecoverReport;
    /// Returns the number of closed checkpoints, or `None` without a log.
    fn checkpoints_closed(&self) -> Option<u64>;
    /// Reports deleted inodes and names. `evidence` is the device as found, before any replay in memory.
    fn find_deleted(
        &self,
        evidence: &dyn BlockDevice,
        scope: DeletedScope,
        sink: &mut dyn DeletedSink,
    );
    /// Returns the state of the quotas of a kind of owner.
    fn quota_state(&self, kind: OwnerKind) -> vfs::Result<QuotaState>;
    /// Reports all owners of a kind with usage or limits, by their numbers.
    fn for_each_owner(&self, kind: OwnerKind, each: &mut dyn FnMut(&OwnerUsage))
    -> vfs::Result<()>;
    /// Changes limits and grace times at a time in seconds since the epoch.
    fn change_limits(&self, changes: &LimitChanges, now: u64) -> vfs::Result<()>;
    /// Writes the metadata with random names to a device of zeros. Returns remarks about parts that could not be read.
    #[cfg(feature = "anywhere")]
    fn obfuscate(&self, key: u64, out: &dyn BlockDevice) -> vfs::Result<Vec<String>>;
    /// Makes all changes durable and marks the image clean. The caller has the only reference.
    fn close(self: Arc<Self>) -> vfs::Result<()>;
}

/// Opens a file system for reading. Its journal or log is replayed in memory.
pub(crate) fn open(
    format: Format,
    device: Arc<dyn BlockDevice>,
    options: &ImageOptions,
) -> vfs::Result<Arc<dyn OpenFs>> {
    Ok(match format {
        Format::Ext4 => Arc::new(Ext4::open(device, &options.ext4())?),
        Format::Xfs => Arc::new(Xfs::open(device, &options.xfs())?),
    })
}

/// Opens a file system for writing. Its journal or log is replayed first. `name` is the name of its image.
pub(crate) fn open_writable(
    format: Format,
    device: Arc<dyn BlockDevice>,
    options: &ImageOptions,
    name: &Path,
) -> vfs::Result<Arc<dyn OpenFs>> {
    Ok(match format {
        Format::Ext4 => {
            let options = ::ext4::OpenOptions { mmp: mmp::options(name), ..options.ext4() };
            Arc::new(Ext4::open_writable(device, &options)?)
        }
        Format::Xfs => Arc::new(Xfs::open_writable(device, &options.xfs())?),
    })
}

/// Returns the feature that makes an image read-only, if there is one.
pub(crate) fn read_only_because(
    format: Format,
    device: &dyn BlockDevice,
) -> vfs::Result<Option<String>> {
    match format {
        Format::Ext4 => ext4::read_only_because(device),
        Format::Xfs => xfs::read_only_because(device),
    }
}

/// Returns whether the journal or log contains changes.
#[cfg(feature = "build")]
pub(crate) fn needs_recovery(format: Format, device: &dyn BlockDevice) -> vfs::Result<bool> {
    match format {
        Format::Ext4 => ::ext4::tune::needs_recovery(device),
        Format::Xfs => ::xfs::tune::needs_recovery(device),
    }
}
