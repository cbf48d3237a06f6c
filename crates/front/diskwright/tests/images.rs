//! Images of both formats in memory, and external checkers.

use std::sync::Arc;

use diskwright::fs::{Ext4Options, FormatOptions, Image, ImageOptions, MemoryDevice, XfsOptions};

/// Size of an image in bytes, sufficient for the checkers to accept both formats.
const SIZE: u64 = 300 << 20;

/// Tested formats.
pub(crate) const FORMATS: [&str; 2] = ["ext4", "xfs"];

/// Returns the options of a format.
pub(crate) fn options(format: &str) -> FormatOptions {
    match format {
        "ext4" => Ext4Options::new().into(),
        _ => XfsOptions::new().into(),
    }
}

/// Creates an image and returns its device.
pub(crate) fn new_image(format: &str) -> (Arc<MemoryDevice>, Image) {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let image = Image::format(device.clone(), options(format)).unwrap();
    (device, image)
}

/// Opens the image on a device.
pub(crate) fn open(device: &Arc<MemoryDevice>, writes: bool) -> Image {
    ImageOptions::new().write(writes).open_device(device.clone()).unwrap()
}

/// Asserts that the external checker of the format finds no errors.
#[track_caller]
pub(crate) fn judge(device: &MemoryDevice) {
    testkit::show_image(device, |path| testkit::judge(path));
}
