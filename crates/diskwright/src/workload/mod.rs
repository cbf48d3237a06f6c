//! Where the workloads of [`::workload`] are run: file systems in this process and what the kernel has
//! mounted, each as it is named on the command line.

mod format;
mod image;
mod memory;
mod spec;

use std::path::PathBuf;
use std::rc::Rc;

use ::workload::contestant::Contestant;

use crate::{Error, Result};

pub use image::ImageFile;
pub use memory::{Memory, MemorySession};
pub use spec::{FsSpec, TargetSpec};

/// What contestants have in common.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directory for images that are made for a run.
    pub scratch: PathBuf,
}

/// Memory for cached metadata, in bytes: all of a large directory stays in memory, as in a kernel.
const CACHE_BYTES: usize = 2 << 30;

/// The contestant of a name. Its figures are compared with those of `base`, another one's name.
///
/// # Errors
/// If there is nothing of that name, or it is damaged, or no file system that this program knows. What
/// cannot be had here shows when a run starts.
pub fn contestant(
    spec: &TargetSpec,
    base: Option<String>,
    _settings: &Settings,
) -> Result<Rc<dyn Contestant>> {
    let missing = |what: &str| Error::Usage(format!("{spec}: this build cannot use {what}"));
    match spec {
        TargetSpec::Memory(fs) => Ok(Rc::new(Memory::new(fs.clone(), base))),
        TargetSpec::Kernel(_) => Err(missing("file systems of the kernel")),
        TargetSpec::Path(path) => {
            let metadata = std::fs::metadata(path).map_err(|e| Error::host("open", path, e))?;
            if metadata.is_dir() {
                return Err(missing("directories"));
            }
            Ok(Rc::new(ImageFile::new(path.clone(), base)?))
        }
    }
}
