//! Volumes: file systems stored in a bucket (`diskwright volume`).
//!
//! A volume is addressed as `s3://bucket/name`, a snapshot as `s3://bucket/name@snapshot`.
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

pub use create::{NewFileSystem, create};
pub use export::export;
pub(crate) use open::device;
pub use remote::volume::{GarbageCount, Snapshot, VolumeSurvey};
use remote::volume::{Location, VolumeError};

use crate::{Error, Result};

/// Result of listing an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeListing {
    /// Volume with its snapshots, oldest first.
    Volume(Vec<Snapshot>),
    /// Prefix with the names of its volumes.
    Prefix(Vec<String>),
}

/// Creates a snapshot of the current state of a volume. If the volume is open elsewhere or was not closed, recent
/// changes may be only in its log. This is an error unless `take_over`, which makes a mount elsewhere fail.
///
/// # Errors
/// If the volume does not exist, the name exists or is invalid, or the bucket is not accessible.
pub fn snapshot(address: &str, name: &str, take_over: bool) -> Result<()> {
    remote::volume::snapshot(&whole(address)?, name, take_over).map_err(at(address))
}

/// Creates a volume as a copy-on-write clone of another one or of a snapshot. Both are in one bucket. `take_over` is as
/// for [`snapshot`].
///
/// # Errors
/// If the source does not exist, `to` is in use, or the bucket is not accessible.
pub fn clone(address: &str, to: &str, take_over: bool) -> Result<()> {
    let (volume, snapshot) = parts(address);
    let (from, to) = (location(volume)?, whole(to)?);
    remote::volume::clone(&from, snapshot, &to, take_over).map_err(at(address))
}

/// Lists the volumes or snapshots at an address.
///
/// # Errors
/// If the bucket is not accessible.
pub fn list(address: &str) -> Result<VolumeListing> {
    let location = whole(address)?;
    if remote::volume::is_volume(&location).map_err(at(address))? {
        return remote::volume::snapshots(&location)
            .map(VolumeListing::Volume)
            .map_err(at(address));
    }
    remote::volume::list(&location).map(VolumeListing::Prefix).map_err(at(address))
}

/// Removes a volume and its snapshots. Its clones must be removed first.
///
/// # Errors
/// If the volume does not exist or has clones, or the bucket is not accessible.
pub fn delete(address: &str) -> Result<()> {
    remote::volume::delete(&whole(address)?).map_err(at(address))
}

/// Removes bulk objects of a volume that nothing refers to, and that were found so a day ago. The volume may be mounted
/// elsewhere; objects of that mount are not removed. `take_over` makes a mount elsewhere fail. It also compacts the volume.
///
/// # Errors
/// If the volume does not exist or is damaged, or the bucket is not accessible.
pub fn gc(address: &str, take_over: bool) -> Result<GarbageCount> {
    let location = whole(address)?;
    let age = remote::volume::GARBAGE_AGE;
    remote::volume::collect(&location, age, take_over).map_err(at(address))
}

/// Counts the data of a volume or of a snapshot, and checks that its bulk objects exist. With `verify`, also reads them
/// and verifies their checksums.
///
/// # Errors
/// If the volume does not exist, its database is damaged, or the bucket is not accessible.
pub fn survey(address: &str, verify: bool) -> Result<VolumeSurvey> {
    let (volume, snapshot) = parts(address);
    remote::volume::survey(&location(volume)?, snapshot, verify).map_err(at(address))
}

/// Splits an address into volume and snapshot name.
fn parts(address: &str) -> (&str, Option<&str>) {
    match address.rsplit_once('@') {
        Some((volume, name)) if volume.contains("://") && !name.contains('/') => {
            (volume, Some(name))
        }
        _ => (address, None),
    }
}

/// Parses the address of a volume, rejecting snapshots.
fn whole(address: &str) -> Result<Location> {
    match parts(address) {
        (volume, Some(_)) => Err(Error::Usage(format!(
            "{} is a snapshot; use a volume, such as {}",
            disk::address::safe_line(address),
            disk::address::safe_line(volume)
        ))),
        (volume, None) => location(volume),
    }
}

fn location(address: &str) -> Result<Location> {
    let location = remote::place::store::open(&address.into())
        .map_err(|error| Error::Usage(error.to_string()))?;
    if location.path.as_ref().is_empty() {
        let problem = format!(
            "{} has no name after the bucket; write it like s3://bucket/name",
            disk::address::safe_line(address)
        );
        return Err(Error::Usage(problem));
    }
    Ok(location)
}

/// Converts an error of the volume at an address.
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
