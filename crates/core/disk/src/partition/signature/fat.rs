//! Boot sectors of Microsoft's file systems.

use std::io;

use super::SignatureDetails;
use super::probe::{Fields, Probe};

/// Maximum number of bytes of a root directory that are searched for a label.
const ROOT_BYTES_MAX: u64 = 64 << 10;
const ENTRY_BYTES: usize = 32;
/// Attributes of a directory entry: a volume label, and the bits of a long name.
const LABEL_ATTRIBUTE: u8 = 0x08;
const LONG_NAME: u8 = 0x0f;
const NO_LABEL: &[u8] = b"NO NAME";
/// Minimum numbers of clusters of FAT16 and FAT32.
const FAT12_CLUSTERS: u64 = 4085;
const FAT16_CLUSTERS: u64 = 65525;

/// The layout of a FAT file system, in bytes.
struct FatLayout {
    sector: u64,
    cluster: u64,
    /// Offset of the root directory of FAT12 and FAT16, and of the first cluster.
    root: u64,
    root_bytes: u64,
    clusters: u64,
    is_32: bool,
}

impl FatLayout {
    /// Validates the parameter block.
    fn of(raw: &Fields) -> Option<Self> {
        let (sector, per_cluster) = (u64::from(raw.le16(11)), u64::from(raw.byte(13)));
        let (reserved, fats) = (u64::from(raw.le16(14)), u64::from(raw.byte(16)));
        let is_media = raw.byte(21) >= 0xf8 || raw.byte(21) == 0xf0;
        let is_jump = matches!(raw.byte(0), 0xeb | 0xe9);
        let is_sized = matches!(sector, 512 | 1024 | 2048 | 4096) && per_cluster.is_power_of_two();
        if !is_media || !is_jump || !is_sized || reserved == 0 || !(1..=2).contains(&fats) {
            return None;
        }
        let either =
            |short: u16, long: u32| if short != 0 { short.into() } else { u64::from(long) };
        let is_32 = raw.le16(22) == 0;
        let fat = either(raw.le16(22), raw.le32(36));
        let sectors = either(raw.le16(19), raw.le32(32));
        let root_bytes = u64::from(raw.le16(17)) * ENTRY_BYTES as u64;
        let root = reserved + fats * fat;
        let clusters = sectors.checked_sub(root + root_bytes.div_ceil(sector))? / per_cluster;
        let layout = Self {
            sector,
            cluster: sector * per_cluster,
            root: root * sector,
            root_bytes,
            clusters,
            is_32,
        };
        (fat > 0 && clusters > 0).then_some(layout)
    }

    fn version(&self) -> &'static str {
        match self.clusters {
            _ if self.is_32 => "FAT32",
            ..FAT12_CLUSTERS => "FAT12",
            FAT12_CLUSTERS..FAT16_CLUSTERS => "FAT16",
            _ => "FAT32",
        }
    }
}

pub(super) fn fat(probe: &Probe<'_>, _: u64) -> io::Result<Option<SignatureDetails>> {
    let raw = probe.fields(0, 512)?;
    let Some(layout) = FatLayout::of(&raw) else { return Ok(None) };
    // Without a known type name, a boot sector must have the extended boot signature.
    let extended = if layout.is_32 { 66 } else { 38 };
    if !matches!(raw.byte(extended), 0x28 | 0x29) {
        return Ok(None);
    }
    let (root, root_bytes) = if layout.is_32 {
        let first = u64::from(raw.le32(44)).saturating_sub(2);
        (layout.root.saturating_add(first.saturating_mul(layout.cluster)), layout.cluster)
    } else {
        (layout.root, layout.root_bytes)
    };
    let entries = probe.fields(root, root_bytes.min(ROOT_BYTES_MAX))?;
    let serial = raw.le32(extended + 1);
    let boot = raw.padded(extended + 5, 11).filter(|label| label != NO_LABEL);
    let mut details = SignatureDetails {
        version: Some(layout.version().into()),
        label: root_label(&entries, root_bytes.min(ROOT_BYTES_MAX) as usize),
        uuid: (serial != 0).then(|| format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff)),
        block_size: Some(layout.sector),
        place: Some((if layout.is_32 { 82 } else { 54 }, 8)),
        ..SignatureDetails::default()
    };
    if !layout.is_32 {
        details.more.push(("SEC_TYPE", b"msdos".to_vec()));
    }
    details.more.extend(boot.map(|label| ("LABEL_FATBOOT", label)));
    Ok(Some(details))
}

/// Returns the label in a root directory.
fn root_label(entries: &Fields, len: usize) -> Option<Vec<u8>> {
    for at in (0..len).step_by(ENTRY_BYTES) {
        match (entries.byte(at), entries.byte(at + 11)) {
            (0, _) => return None,
            (0xe5, _) => {}
            (_, attributes) if attributes & LONG_NAME == LONG_NAME => {}
            (_, attributes) if attributes & LABEL_ATTRIBUTE != 0 => return entries.padded(at, 11),
            _ => {}
        }
    }
    None
}

pub(super) fn exfat(probe: &Probe<'_>, _: u64) -> io::Result<Option<SignatureDetails>> {
    let raw = probe.fields(0, 512)?;
    let (sector_bits, cluster_bits) = (u32::from(raw.byte(108)), u32::from(raw.byte(109)));
    if !(9..=12).contains(&sector_bits) || sector_bits + cluster_bits > 25 {
        return Ok(None);
    }
    let cluster = 1_u64 << (sector_bits + cluster_bits);
    let heap = u64::from(raw.le32(88)) << sector_bits;
    let root =
        heap.saturating_add(u64::from(raw.le32(96)).saturating_sub(2).saturating_mul(cluster));
    let len = cluster.min(ROOT_BYTES_MAX);
    let entries = probe.fields(root, len)?;
    let serial = raw.le32(100);
    // Entry 0x83 is the label, and starts with its length in characters.
    let label = (0..len as usize).step_by(ENTRY_BYTES).find(|at| entries.byte(*at) == 0x83);
    Ok(Some(SignatureDetails {
        version: Some(format!("{}.{}", raw.byte(105), raw.byte(104))),
        label: label.and_then(|at| entries.utf16(at + 2, entries.byte(at + 1).min(11).into())),
        uuid: Some(format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff)),
        block_size: Some(1 << sector_bits),
        ..SignatureDetails::default()
    }))
}

pub(super) fn ntfs(probe: &Probe<'_>, _: u64) -> io::Result<Option<SignatureDetails>> {
    let raw = probe.fields(0, 512)?;
    let (sector, per_cluster) = (u64::from(raw.le16(11)), raw.byte(13));
    if !(256..=4096).contains(&sector) || !sector.is_power_of_two() {
        return Ok(None);
    }
    // Large clusters are encoded as a negative power of two.
    let cluster = if per_cluster > 128 {
        1 << (256 - u32::from(per_cluster)).min(21)
    } else {
        sector * u64::from(per_cluster)
    };
    let record = match raw.byte(64) as i8 {
        bits @ -31..0 => 1 << u32::from(bits.unsigned_abs()),
        count => cluster.saturating_mul(count.unsigned_abs().into()),
    };
    // The fourth record of the master file table describes the volume.
    let at = raw.le64(48).saturating_mul(cluster).saturating_add(record.saturating_mul(3));
    let volume = probe.fields(at, record.min(4096))?;
    Ok(Some(SignatureDetails {
        label: ntfs_label(&volume),
        uuid: Some(format!("{:016X}", raw.le64(72))),
        block_size: Some(sector),
        ..SignatureDetails::default()
    }))
}

/// Returns the attribute `$VOLUME_NAME` (0x60) of a file record.
fn ntfs_label(record: &Fields) -> Option<Vec<u8>> {
    if !record.has(0, b"FILE") {
        return None;
    }
    let mut at = usize::from(record.le16(20));
    for _ in 0..32 {
        let (kind, len) = (record.le32(at), record.le32(at + 4) as usize);
        if kind == 0x60 {
            let (bytes, offset) =
                (record.le32(at + 16) as usize, usize::from(record.le16(at + 20)));
            return record.utf16(at + offset, (bytes / 2).min(128));
        }
        if kind == u32::MAX || !(16..=4096).contains(&len) {
            return None;
        }
        at += len;
    }
    None
}
