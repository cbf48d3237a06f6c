//! Where the workloads of [`::workload`] are run: file systems in this process and what the kernel has
//! mounted, each as it is named on the command line.

mod format;
mod spec;

use std::path::PathBuf;
use std::rc::Rc;

use ::workload::contestant::Contestant;
use ::workload::{Error, Result};

pub use spec::{FsSpec, TargetSpec};

/// What contestants have in common.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directory for images that are made for a run.
    pub scratch: PathBuf,
}

/// The contestant of a name. Its figures are compared with those of `base`, another one's name.
///
/// # Errors
/// If there is nothing of that kind here, or this program or its user cannot have it.
pub fn contestant(
    spec: &TargetSpec,
    base: Option<String>,
    settings: &Settings,
) -> Result<Rc<dyn Contestant>> {
    let _ = (base, settings);
    Err(Error::Unsupported(format!("{spec}: this build has no contestants")))
}
