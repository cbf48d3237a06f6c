//! Images whose journal is in another file, and their judges.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{BlockDevice, JoinedDevice, MemoryDevice};
use ext4::format::journal_device::{JournalDevice, JournalDeviceOptions};
use ext4::mkfs::{self, Contents, ExternalJournal, FeatureChange, Options};
use ext4::{Ext4, log};
use testkit::crash::write_image;
use testkit::{KernelMount, LoopDevice, MountOptions, Tree};
use vfs::Timestamp;
use vfs::check::{Finding, Observer};

use crate::journal::support::device;

/// UUID of the journals made here.
pub(super) const JOURNAL: [u8; 16] = [0x4a; 16];
/// UUID of the images made here.
pub(super) const IMAGE: [u8; 16] = [0x5a; 16];
const TIME: Timestamp = Timestamp { sec: 1_600_000_000, nsec: 0 };

/// An image and its journal, as files.
pub(super) struct Pair {
    pub(super) image: PathBuf,
    pub(super) journal: PathBuf,
}

impl Pair {
    pub(super) fn in_folder(folder: &Path, name: &str) -> Self {
        Self { image: folder.join(name), journal: folder.join(format!("{name}.journal")) }
    }

    /// Writes two devices into files.
    pub(super) fn write(folder: &Path, name: &str, parts: [&MemoryDevice; 2]) -> Self {
        let pair = Self::in_folder(folder, name);
        write_image(parts[0], &pair.image).unwrap();
        write_image(parts[1], &pair.journal).unwrap();
        pair
    }

    pub(super) fn remove(&self) {
        let both = [&self.image, &self.journal];
        both.into_iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }

    pub(super) fn copy(&self, name: &str) -> Self {
        let copy = Self::in_folder(self.image.parent().unwrap(), name);
        testkit::copy_image(&self.image, &copy.image);
        testkit::copy_image(&self.journal, &copy.journal);
        copy
    }

    pub(super) fn device(&self) -> Arc<dyn BlockDevice> {
        joined(device(&self.image), device(&self.journal))
    }

    /// Mounts it with the kernel and calls `work` with the root.
    pub(super) fn mounted<T>(
        &self,
        is_read_only: bool,
        work: impl FnOnce(&Path) -> T,
    ) -> Result<T, String> {
        let journal = LoopDevice::new(&self.journal);
        let extra = format!("journal_path={},noatime,noinit_itable", journal.name());
        let options = match is_read_only {
            true => MountOptions::read_only("ext4"),
            false => MountOptions::read_write("ext4"),
        };
        let mount = KernelMount::attempt(&self.image, &MountOptions { extra: &extra, ..options })?;
        let done = work(mount.path());
        mount.unmount();
        Ok(done)
    }

    pub(super) fn tree(&self) -> Tree {
        self.mounted(true, |root| Tree::of(root)).unwrap()
    }

    /// Runs e2fsck with the journal.
    pub(super) fn e2fsck(&self, option: &str) -> std::process::Output {
        let mut command = testkit::command("e2fsck");
        command.args([option, "-j"]).arg(&self.journal).arg(&self.image).output().unwrap()
    }

    /// Checks it with `e2fsck -fn` and by our own check.
    pub(super) fn verdict(&self) -> Result<(), String> {
        let output = self.e2fsck("-fn");
        if !output.status.success() {
            return Err(format!("{output:?}"));
        }
        let found = findings(self.device());
        if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
    }
}

pub(super) fn joined(
    data: Arc<dyn BlockDevice>,
    journal: Arc<dyn BlockDevice>,
) -> Arc<dyn BlockDevice> {
    Arc::new(JoinedDevice::new(data, Some(journal), None).unwrap())
}

/// Collects findings as text.
#[derive(Default)]
struct FindingTexts(std::sync::Mutex<Vec<String>>);

impl Observer for FindingTexts {
    fn found(&self, finding: Finding) {
        self.0.lock().unwrap().push(format!("{finding:?}"));
    }
}

/// Returns the findings of our own check.
pub(super) fn findings(device: Arc<dyn BlockDevice>) -> Vec<String> {
    let found = FindingTexts::default();
    ext4::check::check(device, &Default::default(), &found).unwrap();
    found.0.into_inner().unwrap()
}

/// Makes an image and its journal in memory.
pub(super) fn made(size: u64, journal_bytes: u64, block_size: u32) -> [Arc<MemoryDevice>; 2] {
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
    mkfs::format(&*device, &mkfs::plan(&options).unwrap(), Contents::Zeros).unwrap();
    Ext4::open_in_progress(device, 16 << 20).unwrap().finish(None).unwrap();
    parts
}
