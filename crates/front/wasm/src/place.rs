//! Locations of file systems on a disk, and detection of contents.

use std::sync::Arc;

use disk::partition::{PartitionError, Signature};
use disk::{BlockDevice, WindowDevice};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

/// Location on a disk; the default is the whole disk.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Place {
    /// Byte offset.
    pub(crate) offset: Option<u64>,
    /// Partition number, instead of `offset`.
    pub(crate) partition: Option<u32>,
}

/// Contents of a disk.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Layout {
    size: u64,
    /// `ext`, `xfs`, `zeros`, `partitions`, or the name of another format.
    contents: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    partitions: Vec<PartitionRecord>,
    /// Error that prevented reading the partition table.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Failure>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PartitionRecord {
    number: u32,
    offset: u64,
    size: u64,
    description: String,
    /// Same as [`Layout::contents`].
    contents: &'static str,
}

fn word(signature: Signature) -> (&'static str, Option<&'static str>) {
    match signature {
        Signature::Ext => ("ext", None),
        Signature::Xfs => ("xfs", None),
        Signature::Zeros => ("zeros", None),
        Signature::Unknown | Signature::Lost(_) => ("unknown", None),
        Signature::Other(found) => (found.what, Some(found.advice)),
    }
}

/// Detects the contents of a disk and its partitions.
///
/// # Errors
/// If the first bytes cannot be read. A damaged partition table is part of the result.
pub(crate) fn layout(device: &Arc<dyn BlockDevice>) -> Result<Layout> {
    let signature = Signature::of(&**device)?;
    let has_table = matches!(signature, Signature::Unknown | Signature::Zeros | Signature::Lost(_));
    let (contents, advice) = word(signature);
    let mut layout =
        Layout { size: device.len(), contents, advice, partitions: Vec::new(), error: None };
    if !has_table {
        return Ok(layout);
    }
    match disk::partition::read(&**device) {
        Ok(None) => {}
        Ok(Some(found)) => {
            layout.contents = "partitions";
            layout.partitions = found.into_iter().map(|one| record(device, one)).collect();
        }
        // A boot sector without partitions looks like a damaged table.
        Err(error @ PartitionError::Device(_)) => return Err(error.into()),
        Err(error) => layout.error = Some(error.into()),
    }
    Ok(layout)
}

fn record(device: &Arc<dyn BlockDevice>, found: disk::partition::Partition) -> PartitionRecord {
    let disk::partition::Partition { number, offset, len, description } = found;
    let window = WindowDevice::new(Arc::clone(device), offset, len);
    let contents = match window.and_then(|window| Signature::of(&window)) {
        Ok(signature) => word(signature).0,
        Err(_) => "unreadable",
    };
    PartitionRecord { number, offset, size: len, description, contents }
}

impl Place {
    /// Returns the device of a location and its signature.
    ///
    /// # Errors
    /// If the location does not exist.
    pub(crate) fn window(
        self,
        device: &Arc<dyn BlockDevice>,
    ) -> Result<(Arc<dyn BlockDevice>, Signature)> {
        let (start, len) = match (self.partition, self.offset.unwrap_or(0)) {
            (Some(_), 1..) => {
                return Err(Failure::invalid("give an offset or a partition, not both"));
            }
            (Some(number), 0) => {
                let found = disk::partition::find(&**device, number)?;
                (found.offset, found.len)
            }
            (None, offset) => match device.len().checked_sub(offset) {
                Some(len) => (offset, len),
                None => {
                    let len = device.len();
                    let past = format!("offset {offset} is past the end ({len} bytes)");
                    return Err(Failure::invalid(past));
                }
            },
        };
        let device: Arc<dyn BlockDevice> =
            Arc::new(WindowDevice::new(Arc::clone(device), start, len)?);
        let signature = Signature::of(&*device)?;
        Ok((device, signature))
    }
}

/// Creates the failure for contents that are not a supported file system.
pub(crate) fn no_file_system(device: &Arc<dyn BlockDevice>, signature: Signature) -> Failure {
    let partitions = disk::partition::read(&**device).ok().flatten().filter(|all| !all.is_empty());
    let message = match (signature, partitions) {
        (Signature::Other(found), _) => {
            format!("unsupported: {}; {}", found.description(), found.advice)
        }
        (Signature::Lost(lost), None) => format!(
            "unsupported: an {} file system without a valid superblock; another structure of it is \
             at byte {}",
            lost.format, lost.at
        ),
        (_, Some(partitions)) => {
            let there = disk::partition::overview(&partitions);
            format!("unsupported: a disk with partitions; {there}; choose one of them")
        }
        (Signature::Zeros, None) => "unsupported: the image starts with zeros only; if the file \
                                     system is inside a disk image, choose its partition or offset"
            .into(),
        _ => "unsupported: neither an ext2/3/4 nor an XFS image; if the file system is inside a \
              disk image, choose its partition or offset"
            .into(),
    };
    Failure::new("ENOTSUP", message)
}
