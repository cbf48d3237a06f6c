//! Dispatch to the checker of each format.

use std::sync::Arc;

use disk::BlockDevice;
use vfs::check::{Code, Observer, Options, Summary};

use crate::Format;

/// Runs the checker of a format on a device. Findings are reported to `observer`.
///
/// # Errors
/// If the device fails, or the image cannot be checked at all.
pub fn check(
    format: Format,
    device: Arc<dyn BlockDevice>,
    options: &Options,
    observer: &dyn Observer,
) -> vfs::Result<Summary> {
    match format {
        Format::Ext4 => ext4::check::check(device, options, observer),
        Format::Xfs => xfs::check::check(device, options, observer),
    }
}

pub(crate) fn codes(format: Format) -> &'static [&'static Code] {
    match format {
        Format::Ext4 => ext4::check::CODES,
        Format::Xfs => xfs::check::CODES,
    }
}
