//! Labels, headers of physical volumes, and headers of metadata areas.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::{LayerError, Result, raw};

/// Number of bytes that may contain the label.
pub const SCAN_BYTES: u64 = 4 * SECTOR as u64;
/// Size of a header of a metadata area in bytes.
pub const AREA_HEADER_BYTES: u64 = 512;
/// Name of a metadata area in messages.
pub(super) const AREA: &str = "LVM metadata area header";
/// Name of the text in messages.
pub(super) const TEXT: &str = "LVM metadata";

const LABEL: &str = "LVM label";
const SECTOR: usize = 512;
/// Start of the bytes that the label's checksum covers.
const CHECKED_FROM: usize = 20;
/// Start value of all checksums of LVM.
const CHECKSUM_START: u32 = 0xf597_a6cf;
const AREA_MAGIC: [u8; 16] = *b" LVM2 x[5A%r0N*>";
/// Flag of a location whose text is outdated.
const IGNORED: u32 = 1;
/// Maximum number of areas that are read. `pvcreate` makes at most two of each kind.
const AREAS_MAX: usize = 16;

/// `label_header`.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct LabelHeader {
    id: [u8; 8],
    sector: U64,
    crc: U32,
    offset: U32,
    kind: [u8; 8],
}

/// `pv_header` without its lists.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PvHeader {
    id: [u8; 32],
    device_size: U64,
}

/// `disk_locn`.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct DiskLocation {
    offset: U64,
    size: U64,
}

/// `mda_header` without its list.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AreaHeader {
    checksum: U32,
    magic: [u8; 16],
    version: U32,
    start: U64,
    size: U64,
    committed: RawLocation,
}

/// `raw_locn`.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawLocation {
    offset: U64,
    size: U64,
    checksum: U32,
    flags: U32,
}

const _: () = assert!(size_of::<LabelHeader>() == 32);
const _: () = assert!(size_of::<PvHeader>() == 40);
const _: () = assert!(size_of::<DiskLocation>() == 16);
const _: () = assert!(size_of::<RawLocation>() == 24);
const _: () = assert!(size_of::<AreaHeader>() == 64);

/// An area of a physical volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its start.
    pub offset: u64,
    /// Its length; 0 for the rest of the device.
    pub size: u64,
}

/// Header of a physical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhysicalVolumeHeader {
    /// UUID with hyphens, as in the metadata.
    pub id: String,
    /// Size of its device in bytes.
    pub device_bytes: u64,
    /// Metadata areas.
    pub metadata_areas: Vec<Area>,
}

/// Text in a metadata area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextLocation {
    /// Offset and length of its parts: the second follows the first at the start of the circular buffer.
    pub parts: [(u64, u64); 2],
    /// Expected checksum.
    pub checksum: u32,
}

/// Returns LVM's checksum: a CRC-32 with its own start value, not inverted.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(!CHECKSUM_START);
    hasher.update(bytes);
    !hasher.finalize()
}

/// Parses the first valid label in the first sectors of a device.
///
/// # Errors
/// If there is none.
pub fn parse(sectors: &[u8]) -> Result<PhysicalVolumeHeader> {
    let mut problem = LayerError::damaged(LABEL, 0, "none in the first four sectors");
    for (number, sector) in sectors.chunks_exact(SECTOR).take(4).enumerate() {
        if sector.starts_with(b"LABELONE") {
            match parse_label(sector, number as u64) {
                Ok(header) => return Ok(header),
                Err(error) => problem = error,
            }
        }
    }
    Err(problem)
}

fn parse_label(sector: &[u8], number: u64) -> Result<PhysicalVolumeHeader> {
    let at = number * SECTOR as u64;
    let bad = |problem: String| LayerError::damaged(LABEL, at, problem);
    let (label, _) = raw::prefix::<LabelHeader>(sector, LABEL, at)?;
    if label.sector.get() != number {
        return Err(bad(format!("sector {}, expected {number}", label.sector)));
    }
    let found = checksum(&sector[CHECKED_FROM..]);
    if found != label.crc.get() {
        return Err(bad(format!("checksum {found:#010x}, expected {:#010x}", label.crc)));
    }
    if label.kind != *b"LVM2 001" {
        let kind = String::from_utf8_lossy(&label.kind);
        return Err(LayerError::unsupported(
            format!("LVM label of type {kind:?}"),
            "read it with lvm2",
        ));
    }
    let offset = label.offset.get() as usize;
    let rest = sector
        .get(offset..)
        .ok_or_else(|| bad(format!("header at byte {offset}, expected at most 512")))?;
    let (header, rest) = raw::prefix::<PvHeader>(rest, LABEL, at)?;
    let id = uuid(&header.id).ok_or_else(|| bad("the UUID is not text".into()))?;
    let (_, rest) = areas(rest, at)?;
    let (metadata_areas, _) = areas(rest, at)?;
    Ok(PhysicalVolumeHeader { id, device_bytes: header.device_size.get(), metadata_areas })
}

/// Parses a list of areas up to its end, and returns the bytes after it.
fn areas(mut bytes: &[u8], at: u64) -> Result<(Vec<Area>, &[u8])> {
    let mut areas = Vec::new();
    loop {
        let (location, rest) = raw::prefix::<DiskLocation>(bytes, LABEL, at)?;
        bytes = rest;
        let (offset, size) = (location.offset.get(), location.size.get());
        if offset == 0 {
            return Ok((areas, bytes));
        }
        if areas.len() == AREAS_MAX {
            return Err(LayerError::damaged(LABEL, at, format!("more than {AREAS_MAX} areas")));
        }
        areas.push(Area { offset, size });
    }
}

/// Adds hyphens to a UUID, as the metadata has them.
fn uuid(raw: &[u8; 32]) -> Option<String> {
    let mut text = String::with_capacity(38);
    for (index, byte) in raw.iter().enumerate() {
        if matches!(index, 6 | 10 | 14 | 18 | 22 | 26) {
            text.push('-');
        }
        text.push(byte.is_ascii_graphic().then_some(char::from(*byte))?);
    }
    Some(text)
}

/// Parses the header of a metadata area and returns the location of the committed text. `None` without a text.
///
/// # Errors
/// If the header is damaged.
pub fn parse_area(bytes: &[u8], area: Area) -> Result<Option<TextLocation>> {
    let at = area.offset;
    let bad = |problem: String| LayerError::damaged(AREA, at, problem);
    let (header, _) = raw::prefix::<AreaHeader>(bytes, AREA, at)?;
    let found = checksum(&bytes[size_of::<U32>()..]);
    if found != header.checksum.get() {
        return Err(bad(format!("checksum {found:#010x}, expected {:#010x}", header.checksum)));
    }
    if header.magic != AREA_MAGIC || header.version.get() != 1 {
        return Err(bad(format!("version {}, expected 1", header.version)));
    }
    if header.start.get() != area.offset {
        return Err(bad(format!("start {}, expected {}", header.start, area.offset)));
    }
    let (offset, len) = (header.committed.offset.get(), header.committed.size.get());
    if offset == 0 || len == 0 || header.committed.flags.get() & IGNORED != 0 {
        return Ok(None);
    }
    let size = header.size.get();
    let text = AREA_HEADER_BYTES..size;
    let fits = text.contains(&offset) && len <= size - AREA_HEADER_BYTES;
    let end = area.offset.checked_add(size).filter(|_| fits);
    let Some(end) = end else {
        return Err(bad(format!("text at {offset}+{len} in an area of {size} bytes")));
    };
    let start = area.offset + offset;
    let first = len.min(end - start);
    let parts = [(start, first), (area.offset + AREA_HEADER_BYTES, len - first)];
    Ok(Some(TextLocation { parts, checksum: header.committed.checksum.get() }))
}
