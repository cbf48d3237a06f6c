//! Environments of workloads: file systems in this process and mounted ones, with the names used
//! on the command line.
//!
//! ```no_run
//! use bench::environments::{Settings, TargetSpec, contestant};
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
#[cfg(target_os = "linux")]
mod mounts;
mod spec;

use std::path::PathBuf;
use std::rc::Rc;

use crate::contestant::Contestant;

use diskwright::{Error, Result};

#[cfg(target_os = "linux")]
pub use directory::Directory;
pub use image::ImageFile;
#[cfg(target_os = "linux")]
pub use kernel::Kernel;
pub use memory::{Memory, MemorySession};
pub use spec::{FsSpec, TargetSpec};

/// Common settings of all environments.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directory of temporary images.
    pub scratch: PathBuf,
}

/// Metadata cache size in bytes: four times the index of a directory with ten million entries. With a much larger
/// cache, the run would measure memory allocation.
const CACHE_BYTES: usize = 512 << 20;

/// Returns the environment of a name. Its results are compared with those of `base`, another name.
///
/// # Errors
/// If it does not exist, is damaged, or is not a known file system. Missing support on this machine is reported when a
/// run starts.
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
        TargetSpec::Kernel(_) => Err(only_on_linux("a kernel target", settings)),
        TargetSpec::Path(path) => {
            let metadata = std::fs::metadata(path).map_err(|source| {
                let path = path.clone();
                Error::Host { operation: "open", path, source }
            })?;
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

/// Returns the error for environments that only Linux supports.
#[cfg(not(target_os = "linux"))]
fn only_on_linux(what: &str, _: &Settings) -> Error {
    Error::Usage(format!("{what} is supported only on Linux; use memory:FORMAT or an image"))
}
