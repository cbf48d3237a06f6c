//! Images whose journal or log is on another device, and their crashes.
//!
//! In a crash each device has a separate cache, which only a flush of this device writes out. So a write that needs a
//! flush of the other device before it is found out.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::{BlockDevice, FileDevice, JoinedDevice, MemoryDevice};
use tempfile::TempDir;

use super::{
    CachedPart, CrashCase, CrashTarget, Judge, OpenFileSystem, copy_in_memory, part_of, write_image,
};
use crate::{Ignore, KernelMount, LoopDevice, MountOptions, Tree, differences};

/// Function that opens a device with an image for writing.
type OpenDevice = fn(Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn OpenFileSystem>>;

/// Programs and functions of a format, for images of two devices.
pub struct PairedFormat {
    /// Type of the file system, for mount(8).
    pub fs_type: &'static str,
    /// Mount option that names the second device, and the options after it.
    pub mount_options: (&'static str, &'static str),
    /// The format's checker, and its arguments for a check without changes. The second device and the image follow.
    pub checker: (&'static str, &'static [&'static str]),
    /// Returns the findings of our own check as text.
    pub findings: fn(Arc<dyn BlockDevice>) -> Vec<String>,
    /// Opens both devices for writing, with a small cache.
    pub open: OpenDevice,
}

/// An image and its journal or log, as files.
pub struct PairedImage {
    format: &'static PairedFormat,
    /// The image.
    pub image: PathBuf,
    /// Its journal or log.
    pub log: PathBuf,
}

impl PairedImage {
    /// Returns the paths of both files in a folder. They need not exist.
    #[must_use]
    pub fn in_folder(format: &'static PairedFormat, folder: &Path, name: &str) -> Self {
        Self { format, image: folder.join(name), log: folder.join(format!("{name}.log")) }
    }

    /// Writes two devices into files.
    ///
    /// # Panics
    /// If a file cannot be written.
    #[must_use]
    pub fn write(
        format: &'static PairedFormat,
        folder: &Path,
        name: &str,
        parts: [&MemoryDevice; 2],
    ) -> Self {
        let pair = Self::in_folder(format, folder, name);
        write_image(parts[0], &pair.image).unwrap();
        write_image(parts[1], &pair.log).unwrap();
        pair
    }

    fn remove(&self) {
        [&self.image, &self.log].into_iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }

    /// Copies both files.
    ///
    /// # Panics
    /// If a file cannot be copied.
    #[must_use]
    pub fn copy(&self, name: &str) -> Self {
        let copy = Self::in_folder(self.format, self.image.parent().unwrap(), name);
        crate::copy_image(&self.image, &copy.image);
        crate::copy_image(&self.log, &copy.log);
        copy
    }

    /// Opens both files as one device.
    ///
    /// # Panics
    /// If a file cannot be opened.
    #[must_use]
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        let open = |path: &Path| {
            let file = File::options().read(true).write(true).open(path).unwrap();
            Arc::new(FileDevice::new(file).unwrap())
        };
        joined(open(&self.image), open(&self.log))
    }

    /// Mounts it with the kernel and calls `work` with the root.
    ///
    /// # Errors
    /// The reason why the kernel refuses the mount.
    pub fn mounted<T>(
        &self,
        is_read_only: bool,
        work: impl FnOnce(&Path) -> T,
    ) -> Result<T, String> {
        let log = LoopDevice::new(&self.log);
        let (option, others) = self.format.mount_options;
        let extra = format!("{option}={},{others}", log.name());
        let options = match is_read_only {
            true => MountOptions::read_only(self.format.fs_type),
            false => MountOptions::read_write(self.format.fs_type),
        };
        let mount = KernelMount::attempt(&self.image, &MountOptions { extra: &extra, ..options })?;
        let done = work(mount.path());
        mount.unmount();
        Ok(done)
    }

    /// Returns the tree that the kernel shows.
    ///
    /// # Panics
    /// If the kernel refuses the mount.
    #[must_use]
    pub fn tree(&self) -> Tree {
        self.mounted(true, |root| Tree::of(root)).unwrap()
    }

    /// Runs the format's checker on both files with these arguments.
    ///
    /// # Panics
    /// If the program cannot be started.
    #[must_use]
    pub fn checker(&self, arguments: &[&str]) -> Output {
        let mut command = crate::command(self.format.checker.0);
        command.args(arguments).arg(&self.log).arg(&self.image).output().unwrap()
    }

    /// Checks it with the format's checker and by our own check.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn verdict(&self) -> Result<(), String> {
        let output = self.checker(self.format.checker.1);
        if !output.status.success() {
            return Err(format!("{output:?}"));
        }
        let found = (self.format.findings)(self.device());
        if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
    }
}

/// Returns an image and its journal or log as one device.
///
/// # Panics
/// If the devices cannot be joined.
#[must_use]
pub fn joined(data: Arc<dyn BlockDevice>, log: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    Arc::new(JoinedDevice::new(data, Some(log), None).unwrap())
}

fn parts(device: &Arc<dyn BlockDevice>, sizes: [u64; 2]) -> [Arc<dyn BlockDevice>; 2] {
    [part_of(device, 0, sizes[0]), part_of(device, sizes[0], sizes[1])]
}

/// Images in one device of the explorer: the data first, then the journal or log.
pub struct PairTarget {
    format: &'static PairedFormat,
    sizes: [u64; 2],
    made: Vec<MemoryDevice>,
    /// True for each device that loses its flushes: the data, and the other one.
    pub swallows_flushes: [bool; 2],
    /// See [`CrashTarget::indivisible`].
    pub indivisible: Vec<Range<u64>>,
}

impl PairTarget {
    /// Returns a target without images. `sizes` are those of both devices, in bytes.
    #[must_use]
    pub fn new(format: &'static PairedFormat, sizes: [u64; 2]) -> Self {
        let (made, indivisible) = (Vec::new(), Vec::new());
        Self { format, sizes, made, swallows_flushes: [false; 2], indivisible }
    }

    /// Adds an image, after `wear` has changed it.
    ///
    /// # Panics
    /// If a device is larger than its size.
    #[must_use]
    pub fn with(
        mut self,
        made: &[Arc<MemoryDevice>; 2],
        wear: impl FnOnce(Arc<dyn BlockDevice>),
    ) -> Self {
        let both = Arc::new(MemoryDevice::new(self.sizes[0] + self.sizes[1]));
        for (device, offset) in made.iter().zip([0, self.sizes[0]]) {
            device.for_each_part(|at, bytes| both.write_at(offset + at, bytes)).unwrap();
        }
        let device: Arc<dyn BlockDevice> = both.clone();
        let [data, log] = parts(&device, self.sizes);
        wear(joined(data, log));
        self.made.push(both.fork());
        self
    }
}

impl CrashTarget for PairTarget {
    fn make(&self, seed: u64) -> Result<MemoryDevice, String> {
        Ok(self.made[seed as usize % self.made.len()].fork())
    }

    fn indivisible(&self) -> Vec<Range<u64>> {
        self.indivisible.clone()
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn OpenFileSystem>> {
        let [data, log] = parts(&device, self.sizes);
        let [data_is_bad, log_is_bad] = self.swallows_flushes;
        let data = Arc::new(CachedPart::new(data, data_is_bad));
        let log = Arc::new(CachedPart::new(log, log_is_bad));
        (self.format.open)(joined(data, log))
    }
}

/// Checks our recovery with the format's checker, or compares it with the kernel's.
pub struct PairJudge {
    format: &'static PairedFormat,
    sizes: [u64; 2],
    folder: TempDir,
    next: AtomicU64,
    asks_kernel: bool,
}

impl PairJudge {
    /// Returns a judge of a target's images.
    #[must_use]
    pub fn new(target: &PairTarget, asks_kernel: bool) -> Self {
        let (folder, next) = (crate::scratch(), AtomicU64::new(0));
        Self { format: target.format, sizes: target.sizes, folder, next, asks_kernel }
    }

    /// Writes both devices into files.
    fn put(&self, device: &MemoryDevice) -> PairedImage {
        let device: Arc<dyn BlockDevice> = Arc::new(device.fork());
        let parts = parts(&device, self.sizes).map(|part| copy_in_memory(&*part));
        let name = self.next.fetch_add(1, Ordering::Relaxed).to_string();
        PairedImage::write(self.format, self.folder.path(), &name, [&parts[0], &parts[1]])
    }

    fn compare_with_kernel(
        &self,
        case: &CrashCase<'_>,
        recovered: &PairedImage,
    ) -> Result<(), String> {
        let crashed = self.put(case.crashed);
        crashed.mounted(false, |_| ())?;
        let ignore = Ignore { ctime: false, ..Ignore::default() };
        let list = differences(&recovered.tree(), &crashed.tree(), &ignore);
        let verdict = crashed.verdict();
        crashed.remove();
        if list.is_empty() { verdict } else { Err(list.join("\n")) }
    }
}

impl Judge for PairJudge {
    fn name(&self) -> &str {
        if self.asks_kernel { "recovery by the kernel" } else { "the checker after our recovery" }
    }

    fn one_in(&self) -> u64 {
        if self.asks_kernel { 8 } else { 2 }
    }

    fn judge(&self, case: &CrashCase<'_>) -> Result<(), String> {
        let recovered = self.put(case.recovered);
        let verdict = if self.asks_kernel {
            self.compare_with_kernel(case, &recovered)
        } else {
            recovered.verdict()
        };
        recovered.remove();
        verdict
    }
}
