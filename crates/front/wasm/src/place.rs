//! Locations of file systems on a disk, and detection of contents.

use std::sync::Arc;

use disk::partition::{PartitionError, Signature};
use disk::{BlockDevice, WindowDevice};
use diskwright::ImageOptions;
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
    advice: Option<String>,
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

fn word(signature: Signature) -> (&'static str, Option<String>) {
    match signature {
        Signature::Ext => ("ext", None),
        Signature::Xfs => ("xfs", None),
        Signature::Zeros => ("zeros", None),
        Signature::Unknown | Signature::Lost(_) => ("unknown", None),
        Signature::Other(found) => (found.what, Some(found.advice.to_string())),
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
        Err(error @ PartitionError::Device(_)) => return Err(Failure::of_partition(&error)),
        Err(error) => layout.error = Some(Failure::of_partition(&error)),
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
    /// Returns the options for opening the image there.
    ///
    /// # Errors
    /// If it has both a partition and an offset.
    pub(crate) fn options(self) -> Result<ImageOptions> {
        let options = ImageOptions::new();
        match (self.partition, self.offset.unwrap_or(0)) {
            (Some(_), 1..) => Err(Failure::invalid("give an offset or a partition, not both")),
            (Some(number), 0) => Ok(options.partition(number)),
            (None, offset) => Ok(options.offset(offset)),
        }
    }
}
