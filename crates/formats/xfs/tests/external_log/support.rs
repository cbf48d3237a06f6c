//! Images whose log is in another file, and their judges.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{BlockDevice, JoinedDevice, MemoryDevice, Part};
use testkit::crash::write_image;
use testkit::{KernelMount, LoopDevice, MountOptions, Tree};
use xfs::format::superblock::Superblock;
use xfs::mkfs::{self, Contents, Options};

use crate::log_recovery::support::device;

/// An image and its log, as files.
pub(super) struct Pair {
    pub(super) image: PathBuf,
    pub(super) log: PathBuf,
}

impl Pair {
    pub(super) fn in_folder(folder: &Path, name: &str) -> Self {
        Self { image: folder.join(name), log: folder.join(format!("{name}.log")) }
    }

    /// Writes two devices into files.
    pub(super) fn write(folder: &Path, name: &str, parts: [&MemoryDevice; 2]) -> Self {
        let pair = Self::in_folder(folder, name);
        write_image(parts[0], &pair.image).unwrap();
        write_image(parts[1], &pair.log).unwrap();
        pair
    }

    pub(super) fn remove(&self) {
        [&self.image, &self.log].into_iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }

    pub(super) fn copy(&self, name: &str) -> Self {
        let copy = Self::in_folder(self.image.parent().unwrap(), name);
        testkit::copy_image(&self.image, &copy.image);
        testkit::copy_image(&self.log, &copy.log);
        copy
    }

    pub(super) fn device(&self) -> Arc<dyn BlockDevice> {
        joined(device(&self.image), device(&self.log))
    }

    /// Mounts it with the kernel and calls `work` with the root.
    pub(super) fn mounted<T>(
        &self,
        is_read_only: bool,
        work: impl FnOnce(&Path) -> T,
    ) -> Result<T, String> {
        let log = LoopDevice::new(&self.log);
        let extra = format!("logdev={},noatime", log.name());
        let options = match is_read_only {
            true => MountOptions::read_only("xfs"),
            false => MountOptions::read_write("xfs"),
        };
        let mount = KernelMount::attempt(&self.image, &MountOptions { extra: &extra, ..options })?;
        let done = work(mount.path());
        mount.unmount();
        Ok(done)
    }

    pub(super) fn tree(&self) -> Tree {
        self.mounted(true, |root| Tree::of(root)).unwrap()
    }

    /// Checks it with `xfs_repair -n` and by our own check.
    pub(super) fn verdict(&self) -> Result<(), String> {
        let mut command = testkit::command("xfs_repair");
        command.args(["-n", "-f", "-P", "-l"]).arg(&self.log).arg(&self.image);
        let output = command.output().unwrap();
        if !output.status.success() {
            return Err(format!("{output:?}"));
        }
        let found = findings(self.device());
        if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
    }
}

pub(super) fn joined(
    data: Arc<dyn BlockDevice>,
    log: Arc<dyn BlockDevice>,
) -> Arc<dyn BlockDevice> {
    Arc::new(JoinedDevice::new(data, Some(log), None).unwrap())
}

/// Returns the findings of our own check.
pub(super) fn findings(device: Arc<dyn BlockDevice>) -> Vec<String> {
    let found = crate::checking::findings(device).unwrap();
    found.iter().map(|finding| format!("{finding:?}")).collect()
}

/// Makes an image and its log in memory.
pub(super) fn made(size: u64, log_bytes: u64) -> [Arc<MemoryDevice>; 2] {
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
    mkfs::format(&*joined(parts[0].clone(), parts[1].clone()), &layout, Contents::Zeros).unwrap();
    parts
}

pub(super) fn superblock(device: &dyn BlockDevice) -> Superblock {
    crate::log_recovery::support::superblock(device)
}

/// Returns the number of blocks of 512 bytes from the head of the log to its end.
pub(super) fn blocks_left(device: &dyn BlockDevice) -> u64 {
    let end = xfs::log_end(device, &superblock(device)).unwrap().unwrap();
    device.part_len(Part::Log).unwrap() / 512 - u64::from(end.head)
}
