//! Images that are no local files: places, as `s3://bucket/root.img` or `qcow2:disk.qcow2`.
//!
//! With the feature `anywhere` they are opened; without it, the words that look like one are told from files that are
//! missing, to say what would read them. A local file never starts any of it.
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
mod commit;
#[cfg(feature = "anywhere")]
mod named;
#[cfg(feature = "anywhere")]
mod open;
#[cfg(feature = "anywhere")]
mod overlay;
#[cfg(all(feature = "anywhere", feature = "mount", target_os = "linux"))]
mod overlay_to_change;
#[cfg(feature = "anywhere")]
mod published;
#[cfg(feature = "anywhere")]
mod reading;
pub(crate) mod words;

#[cfg(feature = "anywhere")]
pub use commit::{CommitOptions, CommitReport, commit};
#[cfg(feature = "anywhere")]
pub(crate) use open::{open, open_to_write};
#[cfg(all(feature = "anywhere", feature = "mount", target_os = "linux"))]
pub(crate) use overlay_to_change::open_overlay;
#[cfg(feature = "anywhere")]
pub(crate) use reading::of_volumes;
#[cfg(feature = "anywhere")]
pub use reading::{Reading, set_reading};

/// What is opened here, without the feature: nothing.
#[cfg(not(feature = "anywhere"))]
mod absent {
    use std::path::Path;
    use std::sync::Arc;

    use blockdev::BlockDevice;

    pub(crate) fn open(_: &Path, _: bool) -> crate::Result<Option<Arc<dyn BlockDevice>>> {
        Ok(None)
    }

    pub(crate) fn open_to_write(_: &Path) -> crate::Result<Option<Arc<dyn BlockDevice>>> {
        Ok(None)
    }
}

#[cfg(not(feature = "anywhere"))]
pub(crate) use absent::{open, open_to_write};
