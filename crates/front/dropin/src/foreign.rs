//! Existing contents of a file or device that is to be overwritten.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use disk::partition::signature::{self, DetectedFormat, Usage};
use disk::{BlockDevice, FileDevice, WindowDevice};
use diskwright::ImageOptions;
use ext4::format::journal_device::is_journal_device;
use ext4::format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use zerocopy::IntoBytes;

/// Name of journal devices of ext4, as libblkid prints it.
pub(crate) const JOURNAL: &str = "jbd";

/// Contents known to libblkid.
#[derive(Clone, Debug)]
pub(crate) enum Old {
    /// File system, volume or swap area, with its label.
    Contents(String, Option<Vec<u8>>),
    /// A partition table.
    Table(&'static str),
}

/// Opens a file or device from byte `offset` on.
pub(crate) fn open(path: &Path, offset: u64) -> std::io::Result<Arc<dyn BlockDevice>> {
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::new(File::open(path)?)?);
    let len = device.len().saturating_sub(offset);
    Ok(Arc::new(WindowDevice::new(device, offset.min(offset + len), len)?))
}

/// Reads a superblock without checks.
pub(crate) fn raw_superblock(device: &dyn BlockDevice) -> Option<RawSuperblock> {
    let mut raw = RawSuperblock::zeroed();
    device.read_at(SUPERBLOCK_OFFSET, raw.as_mut_bytes()).ok()?;
    Some(raw)
}

/// Returns the existing contents of a file. Returns `None` if it is empty, unreadable, or unknown to libblkid.
pub(crate) fn find(path: &Path) -> Option<Old> {
    let found = signature::find_all(&*open(path, 0).ok()?).ok()?;
    let known = |found: &&DetectedFormat| found.usage.name().is_some();
    let first = found.iter().find(known);
    if first.is_none_or(|first| !matches!(first.usage, Usage::Raid | Usage::Crypto))
        && let Ok(info) = ImageOptions::default().norecovery(true).info(path)
    {
        let label = (!info.label.is_empty()).then(|| info.label_text().into_bytes());
        return Some(Old::Contents(info.format_name().to_owned(), label));
    }
    let superblock = raw_superblock(&*open(path, 0).ok()?).filter(is_journal_device);
    if let Some(journal) = superblock {
        let label = journal.volume_name.split(|byte| *byte == 0).next().unwrap_or_default();
        let label = (!label.is_empty()).then(|| label.to_vec());
        return Some(Old::Contents(JOURNAL.into(), label));
    }
    if let Some(found) = first {
        return Some(Old::Contents(found.name.to_owned(), found.details.label.clone()));
    }
    found.iter().find(|found| found.usage == Usage::Table).map(|table| Old::Table(table.name))
}

impl Old {
    /// Returns the message of mkfs.xfs, which callers search for.
    pub(crate) fn refused_by_xfs(&self, image: &Path) -> String {
        let what = match self {
            Self::Contents(name, _) => format!("an existing filesystem ({name})"),
            Self::Table(name) => format!("a partition table ({name})"),
        };
        format!(
            "{} appears to contain {what}.\nUse the -f option to force overwrite.",
            image.display()
        )
    }

    /// Returns the line that mke2fs prints before its question.
    pub(crate) fn line_of_mke2fs(&self, image: &Path) -> String {
        let image = image.display();
        match self {
            Self::Contents(name, Some(label)) => {
                let label = String::from_utf8_lossy(label);
                format!("{image} contains a {name} file system labelled '{label}'")
            }
            Self::Contents(name, None) => format!("{image} contains a {name} file system"),
            Self::Table(name) => format!("Found a {name} partition table in {image}"),
        }
    }
}
