//! Images in memory, of both formats, and what judges them.

use std::sync::Arc;

use diskwright::fs::{Ext4Options, FormatOptions, Image, ImageOptions, MemoryDevice, XfsOptions};

/// Size of an image in bytes: enough for a file system of either format that judges take for a usual one.
const SIZE: u64 = 300 << 20;

/// Formats that are tested.
pub(crate) const FORMATS: [&str; 2] = ["ext4", "xfs"];

/// The options of a format.
pub(crate) fn options(format: &str) -> FormatOptions {
    match format {
        "ext4" => Ext4Options::new().into(),
        _ => XfsOptions::new().into(),
    }
}

/// A new image, and the device that it is on.
pub(crate) fn new_image(format: &str) -> (Arc<MemoryDevice>, Image) {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let image = Image::format(device.clone(), options(format)).unwrap();
    (device, image)
}

/// Opens what is on a device.
pub(crate) fn open(device: &Arc<MemoryDevice>, writes: bool) -> Image {
    ImageOptions::new().write(writes).open_device(device.clone()).unwrap()
}

/// Asserts that the judge of the format finds nothing wrong.
#[track_caller]
pub(crate) fn judge(device: &MemoryDevice) {
    oracle::show_image(device, |path| oracle::judge(path));
}
