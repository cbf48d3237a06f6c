//! Volumes: file systems that live in a bucket. What `diskwright volume` does.
//!
//! A volume is named by its address, as `s3://bucket/name`, and a snapshot of one by `s3://bucket/name@snapshot`.
//!
//! ```no_run
//! use diskwright::Format;
//! use diskwright::volume::{NewFileSystem, clone, create, snapshot};
//!
//! # fn main() -> diskwright::Result<()> {
//! let new = NewFileSystem { format: Format::Ext4, size: 100 << 30, label: b"data".to_vec() };
//! create("s3://bucket/data", &new)?;
//! snapshot("s3://bucket/data", "empty", false)?;
//! clone("s3://bucket/data@empty", "s3://bucket/copy", false)?;
//! # Ok(()) }
//! ```

mod create;
mod export;
mod open;

use std::path::Path;

pub use ::volume::Snapshot;
use ::volume::{Location, VolumeError};
pub use create::{NewFileSystem, create};
pub use export::export;
pub(crate) use open::device;

use crate::{Error, Result};

/// What is at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    /// A volume, and its snapshots from the oldest on.
    Volume(Vec<Snapshot>),
    /// A prefix, and the names of the volumes in it.
    Prefix(Vec<String>),
}

/// Keeps a volume as it is under a name, at once. What was synced last may be in its log only, if it is open elsewhere
/// or was not closed: that is refused unless `take_over`, which ends a mount elsewhere with errors.
///
/// # Errors
/// If there is no volume, the name is taken or is none, or the bucket cannot be used.
pub fn snapshot(address: &str, name: &str, take_over: bool) -> Result<()> {
    ::volume::snapshot(&whole(address)?, name, take_over).map_err(at(address))
}

/// Makes a volume that begins as another one, or a snapshot of it, at once. Both lie in one bucket. `take_over` is as of
/// [`snapshot`].
///
/// # Errors
/// If there is no such volume or snapshot, something at `to`, or the bucket cannot be used.
pub fn clone(address: &str, to: &str, take_over: bool) -> Result<()> {
    let (volume, snapshot) = parts(address);
    let (from, to) = (location(volume)?, whole(to)?);
    ::volume::clone(&from, snapshot, &to, take_over).map_err(at(address))
}

/// What volumes or snapshots are at an address.
///
/// # Errors
/// If the bucket cannot be used.
pub fn list(address: &str) -> Result<Listing> {
    let location = whole(address)?;
    if ::volume::is_volume(&location).map_err(at(address))? {
        return ::volume::snapshots(&location).map(Listing::Volume).map_err(at(address));
    }
    ::volume::list(&location).map(Listing::Prefix).map_err(at(address))
}

/// Removes a volume and its snapshots. Clones of it must go first.
///
/// # Errors
/// If there is none, it has clones, or the bucket cannot be used.
pub fn delete(address: &str) -> Result<()> {
    ::volume::delete(&whole(address)?).map_err(at(address))
}

/// An address as that of a volume and the name of a snapshot.
fn parts(address: &str) -> (&str, Option<&str>) {
    match address.rsplit_once('@') {
        Some((volume, name)) if volume.contains("://") && !name.contains('/') => {
            (volume, Some(name))
        }
        _ => (address, None),
    }
}

/// The place of a volume, where no snapshot can be meant.
fn whole(address: &str) -> Result<Location> {
    match parts(address) {
        (volume, Some(_)) => Err(Error::Usage(format!(
            "{} is a snapshot: name a volume, as {}",
            address::safe_line(address),
            address::safe_line(volume)
        ))),
        (volume, None) => location(volume),
    }
}

fn location(address: &str) -> Result<Location> {
    let location =
        place::store::open(&address.into()).map_err(|error| Error::Usage(error.to_string()))?;
    if location.path.as_ref().is_empty() {
        let problem = format!(
            "{} names no place in a bucket: add a name, as in s3://bucket/name",
            address::safe_line(address)
        );
        return Err(Error::Usage(problem));
    }
    Ok(location)
}

/// An error of the volume at an address.
fn at(address: &str) -> impl Fn(VolumeError) -> Error {
    let path = Path::new(address).to_owned();
    move |error| match error {
        VolumeError::Size { .. } | VolumeError::SnapshotName(_) | VolumeError::OtherBucket(_) => {
            Error::Usage(error.to_string())
        }
        error if error.is_damage() => {
            let source = vfs::Error::unsupported(error.to_string(), "restore it from a snapshot");
            Error::Image { image: path.clone(), source }
        }
        error => Error::host("use", &path, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_named_after_volumes() {
        assert_eq!(parts("s3://bucket/a@b"), ("s3://bucket/a", Some("b")));
        assert_eq!(parts("s3://bucket/a@b/c"), ("s3://bucket/a@b/c", None));
        assert_eq!(parts("s3://bucket/a"), ("s3://bucket/a", None));
        assert!(matches!(whole("s3://bucket/a@b"), Err(Error::Usage(_))));
        assert!(matches!(location("nothing"), Err(Error::Usage(_))));
    }
}
