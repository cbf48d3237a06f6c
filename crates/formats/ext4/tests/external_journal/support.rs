//! Images whose journal is in another file, and their judges.

use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use ext4::format::journal_device::{JournalDevice, JournalDeviceOptions};
use ext4::mkfs::{self, ExternalJournal, FeatureChange, Options, PreviousContents};
use ext4::{Ext4, log};
use testkit::crash::{PairedFormat, PairedImage, joined};
use vfs::Timestamp;
use vfs::check::FindingList;

use crate::changing::crashing::OpenExt4;
use crate::changing::{SMALL_CACHE_BYTES, open_with};

/// UUID of the journals made here.
pub(super) const JOURNAL: [u8; 16] = [0x4a; 16];
/// UUID of the images made here.
pub(super) const IMAGE: [u8; 16] = [0x5a; 16];
const TIME: Timestamp = Timestamp { sec: 1_600_000_000, nsec: 0 };

/// ext4 with its journal on another device.
pub(super) static EXT4: PairedFormat = PairedFormat {
    fs_type: "ext4",
    mount_options: ("journal_path", "noatime,noinit_itable"),
    checker: ("e2fsck", &["-fn", "-j"]),
    findings,
    open: |device| Ok(Box::new(OpenExt4(open_with(device, SMALL_CACHE_BYTES, None)?))),
};

/// Returns the paths of an image and its journal in a folder.
pub(crate) fn in_folder(folder: &Path, name: &str) -> PairedImage {
    PairedImage::in_folder(&EXT4, folder, name)
}

/// Writes an image and its journal into files.
pub(crate) fn write(folder: &Path, name: &str, parts: [&MemoryDevice; 2]) -> PairedImage {
    PairedImage::write(&EXT4, folder, name, parts)
}

/// Returns the findings of our own check.
pub(super) fn findings(device: Arc<dyn BlockDevice>) -> Vec<String> {
    let found = FindingList::default();
    ext4::check::check(device, &Default::default(), &found).unwrap();
    found.into_texts()
}

/// Makes an image and its journal in memory.
pub(crate) fn made(size: u64, journal_bytes: u64, block_size: u32) -> [Arc<MemoryDevice>; 2] {
    let parts = [size, journal_bytes].map(|bytes| Arc::new(MemoryDevice::new(bytes)));
    // Old contents of the device are not taken for transactions.
    parts[1].write_at(journal_bytes / 2, &[0xa5; 4096]).unwrap();
    let device = joined(parts[0].clone(), parts[1].clone());
    let journal = JournalDeviceOptions {
        size_bytes: journal_bytes,
        block_size,
        uuid: JOURNAL,
        label: Vec::new(),
        hash_seed: [0; 16],
        has_checksum: true,
        time: TIME,
    };
    log::make_device(&*device, &JournalDevice::plan(&journal).unwrap()).unwrap();
    let options = Options {
        block_size: Some(block_size),
        uuid: IMAGE,
        hash_seed: [0xc3; 16],
        features: FeatureChange::parse_list("").unwrap(),
        external_journal: Some(ExternalJournal { uuid: JOURNAL, device_number: 0 }),
        time: TIME,
        ..Options::new(size)
    };
    mkfs::format(&*device, &mkfs::plan(&options).unwrap(), PreviousContents::Zeros).unwrap();
    Ext4::open_in_progress(device, 16 << 20).unwrap().finish(None).unwrap();
    parts
}
