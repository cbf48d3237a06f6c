//! Images whose log is in another file, and their judges.

use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, DeviceRole, MemoryDevice};
use testkit::crash::{PairedFormat, PairedImage, joined};
use xfs::format::superblock::Superblock;
use xfs::mkfs::{self, Options, PreviousContents};
use xfs::{OpenOptions, Xfs};

use crate::changing::SMALL_CACHE_BYTES;
use crate::changing::target::{Open, Way};

/// XFS with its log on another device.
pub(super) static XFS: PairedFormat = PairedFormat {
    fs_type: "xfs",
    mount_options: ("logdev", "noatime"),
    checker: ("xfs_repair", &["-n", "-f", "-P", "-l"]),
    findings,
    open: |device| {
        let options = OpenOptions { cache_bytes: SMALL_CACHE_BYTES, ..OpenOptions::default() };
        Ok(Box::new(Open(Xfs::open_writable(device, &options)?, Way::InPlace)))
    },
};

/// Returns the paths of an image and its log in a folder.
pub(super) fn in_folder(folder: &Path, name: &str) -> PairedImage {
    PairedImage::in_folder(&XFS, folder, name)
}

/// Writes an image and its log into files.
pub(super) fn write(folder: &Path, name: &str, parts: [&MemoryDevice; 2]) -> PairedImage {
    PairedImage::write(&XFS, folder, name, parts)
}

/// Returns the findings of our own check.
pub(super) fn findings(device: Arc<dyn BlockDevice>) -> Vec<String> {
    let found = crate::checking::findings(device).unwrap();
    found.iter().map(|finding| format!("{finding:?}")).collect()
}

/// Makes an image and its log in memory.
pub(crate) fn made(size: u64, log_bytes: u64) -> [Arc<MemoryDevice>; 2] {
    let parts = [size, log_bytes].map(|bytes| Arc::new(MemoryDevice::new(bytes)));
    // Old contents of the log device are not taken for records.
    parts[1].write_at(log_bytes / 2, &[0xa5; 4096]).unwrap();
    let options = Options {
        external_log: true,
        log_bytes: Some(log_bytes),
        uuid: [0x5a; 16],
        allow_small: true,
        ..Options::new(size)
    };
    let layout = mkfs::plan(&options).unwrap();
    assert_eq!(layout.external_log_bytes(), Some(log_bytes));
    mkfs::format(&*joined(parts[0].clone(), parts[1].clone()), &layout, PreviousContents::Zeros)
        .unwrap();
    parts
}

pub(super) fn superblock(device: &dyn BlockDevice) -> Superblock {
    crate::log_recovery::support::superblock(device)
}

/// Returns the number of blocks of 512 bytes from the head of the log to its end.
pub(super) fn blocks_left(device: &dyn BlockDevice) -> u64 {
    let end = xfs::log_end(device, &superblock(device)).unwrap().unwrap();
    device.part_len(DeviceRole::Log).unwrap() / 512 - u64::from(end.head)
}
