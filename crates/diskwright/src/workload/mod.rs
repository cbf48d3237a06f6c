//! Where the workloads of [`::workload`] are run: file systems in this process and what the kernel has
//! mounted, each as it is named on the command line.
//!
//! ```no_run
//! use diskwright::workload::{Settings, TargetSpec, contestant};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let spec: TargetSpec = "memory:xfs,size=8G".parse()?;
//! let contestant = contestant(&spec, None, &Settings { scratch: std::env::temp_dir() })?;
//! println!("{}", contestant.describe().name);
//! # Ok(()) }
//! ```

#[cfg(target_os = "linux")]
mod directory;
mod format;
mod image;
#[cfg(target_os = "linux")]
mod kernel;
mod memory;
mod spec;

use std::path::PathBuf;
use std::rc::Rc;

use ::workload::contestant::Contestant;

use crate::{Error, Result};

#[cfg(target_os = "linux")]
pub use directory::Directory;
pub use image::ImageFile;
#[cfg(target_os = "linux")]
pub use kernel::Kernel;
pub use memory::{Memory, MemorySession};
pub use spec::{FsSpec, TargetSpec};

/// What contestants have in common.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directory for images that are made for a run.
    pub scratch: PathBuf,
}

/// Memory for cached metadata, in bytes: the index of a directory of ten million entries, four times. With
/// much more, what a run measures is how fast the machine hands out memory.
const CACHE_BYTES: usize = 512 << 20;

/// The contestant of a name. Its figures are compared with those of `base`, another one's name.
///
/// # Errors
/// If there is nothing of that name, or it is damaged, or no file system that this program knows. What
/// cannot be had here shows when a run starts.
pub fn contestant(
    spec: &TargetSpec,
    base: Option<String>,
    settings: &Settings,
) -> Result<Rc<dyn Contestant>> {
    match spec {
        TargetSpec::Memory(fs) => Ok(Rc::new(Memory::new(fs.clone(), base))),
        #[cfg(target_os = "linux")]
        TargetSpec::Kernel(fs) => Ok(Rc::new(Kernel::new(fs.clone(), base, &settings.scratch))),
        #[cfg(not(target_os = "linux"))]
        TargetSpec::Kernel(_) => Err(only_on_linux("kernel targets", settings)),
        TargetSpec::Path(path) => {
            let metadata = std::fs::metadata(path).map_err(|e| Error::host("open", path, e))?;
            #[cfg(target_os = "linux")]
            if metadata.is_dir() {
                return Ok(Rc::new(Directory::new(path, base)));
            }
            #[cfg(not(target_os = "linux"))]
            if metadata.is_dir() {
                return Err(only_on_linux("a directory as a target", settings));
            }
            Ok(Rc::new(ImageFile::new(path.clone(), base)?))
        }
    }
}

/// What cannot be had on this host, whatever the settings.
#[cfg(not(target_os = "linux"))]
fn only_on_linux(what: &str, _: &Settings) -> Error {
    Error::Usage(format!("there is {what} on Linux only; name memory:FORMAT, or an image"))
}
