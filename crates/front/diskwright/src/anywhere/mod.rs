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

#[cfg(feature = "build")]
mod base;
#[cfg(feature = "anywhere")]
mod named;
#[cfg(feature = "anywhere")]
mod open;
#[cfg(feature = "anywhere")]
mod published;
#[cfg(feature = "anywhere")]
mod reading;
pub(crate) mod words;

#[cfg(feature = "build")]
pub(crate) use base::{Base, absolute, identity_of_file, utf_8};
#[cfg(feature = "anywhere")]
pub(crate) use open::{lasting_name, open, open_base, open_to_write};
#[cfg(feature = "anywhere")]
pub use reading::{Reading, set_reading};
#[cfg(feature = "anywhere")]
pub(crate) use reading::{of_volumes, options};

#[cfg(not(feature = "anywhere"))]
mod absent;

#[cfg(all(feature = "build", not(feature = "anywhere")))]
pub(crate) use absent::{lasting_name, open_base};
#[cfg(not(feature = "anywhere"))]
pub(crate) use absent::{open, open_to_write};
