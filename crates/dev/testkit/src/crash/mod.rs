//! Crashes: an [`Explorer`] of random runs, and judges of the crashed images, which are the format's checker on our
//! recovered image, and the kernel's recovery compared with ours. For tests with recordings of their own, see
//! [`cut_off`].

mod cut_off;
mod explorer;
mod log_states;
mod pair;
mod parts;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::{BlockDevice, FileDevice, MemoryDevice};
use tempfile::TempDir;
use vfs::FileSystem;

use crate::fs_tree::{FsTree, Rules};
use crate::sparse::for_each_piece;
use crate::{Format, Ignore, KernelMount, MountOptions, differences, show_image};

pub(crate) use explorer::{ModelSnapshot, check};

pub use cut_off::{Tearing, cut_off, cut_off_beside, cut_off_but_for, flushes};
pub use explorer::{
    CarelessDevice, CrashCase, CrashTarget, Exploration, Explorer, InvalidState, Judge,
    OpenFileSystem, Options,
};
pub use log_states::{Bulk, LogState, LogStates, Loss, change_in_bulk};
pub use pair::{PairJudge, PairTarget, PairedFormat, PairedImage, joined};
pub use parts::{CachedPart, copy_in_memory, part_of};

/// Granularity of holes in written images, in bytes.
const PAGE_BYTES: usize = 4096;

/// Checks an image: returns a description of the problem if it is not sound.
pub type Verdict = fn(&Path) -> Result<(), String>;
/// Opens an image for reading.
pub type OpenToRead = fn(Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn FileSystem>>;

/// Writes an image into a new sparse file.
///
/// # Errors
/// Returns the errors of the file.
pub fn write_image(device: &MemoryDevice, path: &Path) -> io::Result<()> {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
    file.set_len(device.len())?;
    device.for_each_part(|offset, bytes| {
        let pages = bytes.chunks(PAGE_BYTES).zip((offset..).step_by(PAGE_BYTES));
        let mut written = pages.filter(|(page, _)| page.iter().any(|byte| *byte != 0));
        written.try_for_each(|(page, at)| file.write_all_at(page, at))
    })
}

/// Reads an image. Only non-zero parts take memory.
///
/// # Errors
/// Returns the errors of the file.
pub fn read_image(path: &Path) -> io::Result<MemoryDevice> {
    let file = File::open(path)?;
    let device = MemoryDevice::new(file.metadata()?.len());
    for_each_piece(&file, |offset, piece| device.write_at(offset, piece))?;
    Ok(device)
}

/// A directory for images of a judge.
pub struct Desk {
    folder: TempDir,
    next: AtomicU64,
}

impl Default for Desk {
    fn default() -> Self {
        Self { folder: crate::scratch(), next: AtomicU64::new(0) }
    }
}

impl Desk {
    /// Writes an image into a file.
    ///
    /// # Errors
    /// If there is no space.
    pub fn put(&self, device: &MemoryDevice) -> Result<Sheet, String> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let sheet = Sheet(self.folder.path().join(number.to_string()));
        write_image(device, &sheet.0).map_err(|error| format!("writing an image: {error}"))?;
        Ok(sheet)
    }
}

/// An image file, removed on drop.
pub struct Sheet(pub PathBuf);

impl Drop for Sheet {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Checks our recovered image with the format's checker.
pub struct CheckRecovered {
    name: String,
    verdict: Verdict,
    one_in: u64,
}

impl CheckRecovered {
    /// `checker` is its name in the report.
    pub fn new(checker: &str, verdict: Verdict, one_in: u64) -> Self {
        let name = format!("{checker} after our recovery");
        Self { name, verdict, one_in }
    }
}

impl Judge for CheckRecovered {
    fn name(&self) -> &str {
        &self.name
    }

    fn one_in(&self) -> u64 {
        self.one_in
    }

    fn judge(&self, case: &CrashCase<'_>) -> Result<(), String> {
        show_image(case.recovered, self.verdict)
    }
}

/// Lets the kernel recover the crashed image, and checks that it shows the same tree as ours and leaves nothing to
/// repair.
pub struct KernelRecovers {
    desk: Desk,
    verdict: Verdict,
    open: OpenToRead,
    one_in: u64,
}

impl KernelRecovers {
    /// `open` opens the image after the kernel's recovery.
    pub fn new(verdict: Verdict, open: OpenToRead, one_in: u64) -> Self {
        Self { desk: Desk::default(), verdict, open, one_in }
    }
}

impl Judge for KernelRecovers {
    fn name(&self) -> &str {
        "recovery by the kernel"
    }

    fn one_in(&self) -> u64 {
        self.one_in
    }

    fn judge(&self, case: &CrashCase<'_>) -> Result<(), String> {
        let crashed = self.desk.put(case.crashed)?;
        let recovered = self.desk.put(case.recovered)?;
        let fs_type = Format::of(&recovered.0).kernel_name();
        let theirs = {
            let options = MountOptions { extra: "noatime", ..MountOptions::read_write(fs_type) };
            let mount = KernelMount::attempt(&crashed.0, &options)?;
            let tree = crate::Tree::of(mount.path());
            mount.unmount();
            tree
        };
        let ours = {
            let mount = KernelMount::attempt(&recovered.0, &MountOptions::read_only(fs_type))?;
            crate::Tree::of(mount.path())
        };
        let ignore = Ignore { ctime: false, ..Ignore::default() };
        let list = differences(&ours, &theirs, &ignore);
        if !list.is_empty() {
            return Err(format!("another tree:\n{}", list.join("\n")));
        }
        (self.verdict)(&crashed.0)?;
        same_tree(&crashed.0, case.tree, self.open)
    }
}

/// Checks that our implementation shows this tree in an image.
///
/// # Errors
/// The differences.
pub fn same_tree(image: &Path, expected: &FsTree, open: OpenToRead) -> Result<(), String> {
    let file = File::open(image).map_err(|error| error.to_string())?;
    let device = FileDevice::new(file).map_err(|error| error.to_string())?;
    let fs = open(Arc::new(device)).map_err(|error| format!("opening what it left: {error}"))?;
    let list = expected.differences(&FsTree::of(&*fs)?, Rules::default());
    if list.is_empty() { Ok(()) } else { Err(format!("another tree:\n{}", list.join("\n"))) }
}
