//! Images that are not local files, such as `s3://bucket/root.img` or `qcow2:disk.qcow2`.
//!
//! With the feature `anywhere` they are opened. Without it, such names are recognised, so that the error names the
//! missing feature. Local files never use this code.
//!
//! ```no_run
//! # #[cfg(feature = "anywhere")]
//! # fn main() -> diskwright::Result<()> {
//! use diskwright::anywhere::{Reading, set_reading};
//! use diskwright::fs::Image;
//!
//! set_reading(&Reading::default().cache(Some("/var/cache/images".into())))?;
//! let image = Image::open("https://example.org/images/names/root")?;
//! println!("{}", image.read_to_string("/etc/os-release")?);
//! # Ok(()) }
//! # #[cfg(not(feature = "anywhere"))]
//! # fn main() {}
//! ```

#[cfg(feature = "anywhere")]
mod clones;
#[cfg(feature = "anywhere")]
mod commit;
#[cfg(feature = "anywhere")]
mod named;
#[cfg(feature = "anywhere")]
mod open;
#[cfg(feature = "anywhere")]
mod overlay;
#[cfg(feature = "anywhere")]
mod published;
#[cfg(feature = "anywhere")]
mod reading;
pub(crate) mod words;

#[cfg(feature = "anywhere")]
pub use clones::{ResetTarget, clone, reset, snapshot};
#[cfg(feature = "anywhere")]
pub use commit::{CommitOptions, CommitReport, commit};
#[cfg(feature = "anywhere")]
pub(crate) use open::{open, open_to_write};
#[cfg(all(feature = "anywhere", feature = "mount", target_os = "linux"))]
pub(crate) use overlay::open_overlay;
#[cfg(feature = "anywhere")]
pub(crate) use reading::of_volumes;
#[cfg(feature = "anywhere")]
pub use reading::{Reading, set_reading};

/// Stubs without the feature.
#[cfg(not(feature = "anywhere"))]
mod absent {
    use std::path::Path;
    use std::sync::Arc;

    use disk::BlockDevice;

    pub(crate) fn open(_: &Path, _: bool) -> crate::Result<Option<Arc<dyn BlockDevice>>> {
        Ok(None)
    }

    pub(crate) fn open_to_write(_: &Path) -> crate::Result<Option<Arc<dyn BlockDevice>>> {
        Ok(None)
    }
}

#[cfg(not(feature = "anywhere"))]
pub(crate) use absent::{open, open_to_write};
