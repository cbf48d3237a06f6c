//! What is in an image.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use diskwright::{Error, Image, ImageInfo, OpenImage};

/// Bytes from either end where formats have what they are known by: tables of partitions, superblocks, labels of
/// volumes and of RAID.
const EDGE_BYTES: u64 = 1 << 20;

/// One thing that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) name: &'static str,
    pub(super) value: String,
    /// It is shown by `-p` only.
    pub(super) is_low_level: bool,
}

/// What was found.
#[derive(Debug)]
pub(super) enum Found {
    Tags(Vec<Tag>),
    /// Nothing but zeros where there would be something.
    Nothing,
    /// Something.
    Unknown,
}

/// Looks at an image as it lies, from byte `offset` of its file on.
pub(super) fn probe(image: &Path, offset: u64) -> Result<Found, String> {
    let mut open = OpenImage::default().norecovery(true);
    open.offset = offset;
    match Image::open_rootless(image, &open) {
        Ok(image) => Ok(Found::Tags(tags(image.info()))),
        Err(error @ Error::Host { .. }) => Err(error.to_string()),
        // A damaged one is not nothing.
        Err(_) => {
            let empty = is_empty(image, offset).map_err(|e| format!("{}: {e}", image.display()))?;
            Ok(if empty { Found::Nothing } else { Found::Unknown })
        }
    }
}

fn tags(info: &ImageInfo) -> Vec<Tag> {
    let tag = |name, value: &str| Tag { name, value: value.to_owned(), is_low_level: false };
    let low = |name, value: &str| Tag { name, value: value.to_owned(), is_low_level: true };
    let mut tags = Vec::new();
    if !info.label.is_empty() {
        tags.push(tag("LABEL", &info.label));
    }
    tags.push(tag("UUID", &info.uuid));
    let block = if info.format == "xfs" { sector(info) } else { info.block_size.to_string() };
    if info.format != "xfs" {
        tags.push(low("VERSION", "1.0"));
    }
    tags.push(tag("BLOCK_SIZE", &block));
    tags.push(tag("TYPE", &info.format));
    tags.push(low("USAGE", "filesystem"));
    tags
}

/// The size of a sector of XFS, which is what counts as its block.
fn sector(info: &ImageInfo) -> String {
    let mut values = info.sections.iter().flat_map(|section| &section.values);
    let size = values.find(|(name, _)| name == "sector size");
    size.map_or_else(|| info.block_size.to_string(), |(_, value)| value.clone())
}

/// Whether there are zeros only at both ends.
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
