//! Detection of image contents.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use disk::partition::signature::{self, DetectedFormat as Other, Usage};
use diskwright::{Details, Error, ExtVersion, Format, ImageInfo, ImageOptions};
use ext4::format::journal_device::is_journal_device;

use crate::foreign;

/// Size of the areas at both ends that contain the magic numbers of most formats: partition tables, superblocks, volume
/// labels.
const EDGE_BYTES: u64 = 1 << 20;

/// Offset and length of the label in the superblocks of ext and XFS.
const EXT_LABEL: (u64, usize) = (1024 + 120, 16);
const XFS_LABEL: (u64, usize) = (108, 12);

/// Property of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) name: &'static str,
    /// Value as bytes, because labels may not be UTF-8.
    pub(super) value: Vec<u8>,
    /// True if it is shown only with `-p`.
    pub(super) is_low_level: bool,
}

/// Result of the detection.
#[derive(Debug)]
pub(super) enum ProbeResult {
    Tags(Vec<Tag>),
    /// Both ends contain only zeros.
    Nothing,
    /// No known magic number.
    Unknown,
    /// Magic numbers of several file systems.
    Ambivalent(Vec<&'static str>),
}

/// Detects the contents of an image at byte `offset` of its file.
pub(super) fn probe(image: &Path, offset: u64) -> Result<ProbeResult, String> {
    let failed = |e: io::Error| format!("{}: {e}", image.display());
    let others = match foreign::open(image, offset) {
        Ok(device) => signature::find_all(&*device).map_err(failed)?,
        // The error of the file itself is reported below.
        Err(_) => Vec::new(),
    };
    // RAID members may contain a whole file system before their own header, and encrypted volumes contain random bytes.
    let is_volume = |first: &&Other| matches!(first.usage, Usage::Raid | Usage::Crypto);
    if let Some(volume) = others.first().filter(is_volume) {
        return Ok(ProbeResult::Tags(of_other(volume)));
    }
    let mut open = ImageOptions::default().norecovery(true);
    open.offset = offset;
    let mut tags = match open.info(image) {
        Ok(found) => tags(&found, label(image, offset, &found).map_err(failed)?),
        Err(error @ Error::Host { .. }) => return Err(error.to_string()),
        Err(_) => journal_device(image, offset).unwrap_or_default(),
    };
    let (known, tables): (Vec<_>, Vec<_>) = others
        .iter()
        .filter(|other| other.usage != Usage::Container)
        .partition(|other| other.usage != Usage::Table);
    if known.len() + usize::from(!tags.is_empty()) > 1 {
        return Ok(ProbeResult::Ambivalent(known.iter().map(|other| other.name).collect()));
    }
    tags.extend(known.into_iter().flat_map(of_other));
    tags.extend(tables.first().into_iter().flat_map(|table| of_other(table)));
    if !tags.is_empty() {
        return Ok(ProbeResult::Tags(tags));
    }
    let empty = is_empty(image, offset).map_err(failed)?;
    // A damaged image is not empty.
    Ok(if empty { ProbeResult::Nothing } else { ProbeResult::Unknown })
}

fn tag(name: &'static str, value: impl Into<Vec<u8>>, is_low_level: bool) -> Tag {
    Tag { name, value: value.into(), is_low_level }
}

fn tags(info: &ImageInfo, label: Vec<u8>) -> Vec<Tag> {
    let mut tags = Vec::new();
    if !label.is_empty() {
        tags.push(tag("LABEL", label, false));
    }
    // A cleared UUID is not shown.
    if info.uuid != [0; 16] {
        tags.push(tag("UUID", info.uuid_text(), false));
    }
    let block = match &info.details {
        // blkid shows the sector size as the block size.
        Details::Xfs(details) => details.sector_size,
        Details::Ext(details) => {
            if details.version == ExtVersion::Ext3 {
                tags.push(tag("SEC_TYPE", ExtVersion::Ext2.name(), false));
            }
            tags.push(tag("VERSION", "1.0", true));
            info.block_size
        }
    };
    tags.push(tag("BLOCK_SIZE", block.to_string(), false));
    tags.push(tag("TYPE", info.format_name(), false));
    tags.push(tag("USAGE", "filesystem", true));
    tags
}

/// Returns the properties of a journal device of ext4.
fn journal_device(image: &Path, offset: u64) -> Option<Vec<Tag>> {
    let device = foreign::open(image, offset).ok()?;
    let raw = foreign::raw_superblock(&*device).filter(is_journal_device)?;
    let uuid = uuid::Uuid::from_bytes(raw.uuid).to_string();
    let label = raw.volume_name.split(|byte| *byte == 0).next().unwrap_or_default();
    let block_size = 1024_u64 << raw.log_block_size.get().min(6);
    let mut tags = Vec::new();
    if !label.is_empty() {
        tags.push(tag("LABEL", label.trim_ascii_end(), false));
    }
    tags.push(tag("UUID", &*uuid, false));
    tags.push(tag("VERSION", "1.0", true));
    tags.push(tag("BLOCK_SIZE", block_size.to_string(), false));
    tags.push(tag("LOGUUID", &*uuid, false));
    tags.push(tag("TYPE", foreign::JOURNAL, false));
    tags.push(tag("USAGE", "other", true));
    Some(tags)
}

/// Returns the properties of another format, with the names of libblkid.
fn of_other(other: &Other) -> Vec<Tag> {
    let details = &other.details;
    let mut tags = Vec::new();
    let mut add = |name, value: Option<Vec<u8>>, is_low_level| {
        tags.extend(value.map(|value| tag(name, value, is_low_level)));
    };
    let text = |text: &Option<String>| text.clone().map(String::into_bytes);
    if other.usage == Usage::Table {
        add("PTUUID", text(&details.uuid), false);
        add("PTTYPE", Some(other.name.into()), false);
        return tags;
    }
    for (name, value) in &details.more {
        add(*name, Some(value.clone()), false);
    }
    add("LABEL", details.label.clone().map(|label| label.trim_ascii_end().to_vec()), false);
    add("UUID", text(&details.uuid), false);
    add("UUID_SUB", text(&details.uuid_sub), false);
    add("VERSION", text(&details.version), true);
    add("BLOCK_SIZE", details.block_size.map(|size| size.to_string().into_bytes()), false);
    add("TYPE", Some(other.name.into()), false);
    add("USAGE", other.usage.name().map(Into::into), true);
    tags
}

/// Returns the label of ext and XFS as stored in the first superblock, up to a NUL, without trailing blanks. The
/// properties may be those of a superblock copy.
fn label(image: &Path, offset: u64, info: &ImageInfo) -> io::Result<Vec<u8>> {
    let (at, len) = match info.format() {
        Format::Ext4 => EXT_LABEL,
        Format::Xfs => XFS_LABEL,
    };
    let mut file = File::open(image)?;
    file.seek(SeekFrom::Start(offset + at))?;
    let mut bytes = vec![0; len];
    file.read_exact(&mut bytes)?;
    let label = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(label.trim_ascii_end().to_vec())
}

/// Returns whether both ends contain only zeros.
fn is_empty(image: &Path, offset: u64) -> io::Result<bool> {
    let mut file = File::open(image)?;
    let len = file.seek(SeekFrom::End(0))?;
    for start in [offset, len.saturating_sub(EDGE_BYTES).max(offset)] {
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        (&mut file).take(EDGE_BYTES).read_to_end(&mut bytes)?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}
