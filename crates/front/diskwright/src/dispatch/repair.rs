//! Dispatch to the repair of each format.

use std::sync::Arc;

use disk::BlockDevice;
use operations::repair::{Repairer, StepWriter};
use vfs::check::Options;

use crate::Format;

pub(crate) fn repairer(format: Format, options: &Options) -> Box<dyn Repairer> {
    match format {
        Format::Ext4 => Box::new(ext4::repair::Repair { options: *options }),
        Format::Xfs => Box::new(xfs::repair::Repair { options: *options }),
    }
}

/// Returns a view of an image for a repair, which reads parts that it needs repeatedly only once.
pub(crate) fn kept(format: Format, device: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    match format {
        Format::Ext4 => device,
        Format::Xfs => xfs::repair::keep_log(device),
    }
}

/// Opens the image's own log for writing, if it is usable. Replays its contents first.
pub(crate) fn open_log(
    format: Format,
    device: Arc<dyn BlockDevice>,
) -> vfs::Result<Option<Box<dyn StepWriter>>> {
    match format {
        Format::Ext4 => ext4::repair::open_log(device),
        Format::Xfs => xfs::repair::open_log(device),
    }
}

/// Returns whether the image's log contains changes.
pub(crate) fn needs_recovery(format: Format, device: &dyn BlockDevice) -> vfs::Result<bool> {
    match format {
        Format::Ext4 => ext4::tune::needs_recovery(device),
        Format::Xfs => xfs::tune::needs_recovery(device),
    }
}
