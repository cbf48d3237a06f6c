//! Searches all formats.

use std::io;

use super::probe::Probe;
use super::row::SignatureRow;
use super::{DetectedFormat, Lost};
use super::{containers, file_systems, tables, volumes};

/// Returns all formats in libblkid's order of precedence: volumes hide file systems, and both come before partition
/// tables.
fn rows() -> impl Iterator<Item = &'static SignatureRow> {
    let all = [volumes::ROWS, file_systems::ROWS, containers::ROWS, tables::ROWS];
    all.into_iter().flatten()
}

pub(super) fn find(probe: &Probe<'_>) -> io::Result<Vec<DetectedFormat>> {
    let mut found = Vec::new();
    for row in rows() {
        for (place, magic) in row.magics {
            let Some(at) = place.of(probe.len()) else { continue };
            let Some(bytes) = probe.bytes(at, magic.len() as u64)? else { continue };
            if bytes != *magic {
                continue;
            }
            if let Some(details) = (row.details)(probe, at)? {
                found.push(row.found(at, magic.len() as u64, details));
                break;
            }
        }
    }
    Ok(found)
}

/// Offsets of the first copy of ext's superblock for each block size, and of the group number in the copy.
const EXT_COPIES: [u64; 3] = [8193 << 10, 16384 << 11, 32768 << 12];
const EXT_GROUP_NUMBER: usize = 90;
/// Sector sizes of XFS. The second and third sector are the headers of free space and of inodes.
const XFS_SECTORS: [u64; 2] = [512, 4096];

/// Looks for traces of ext or XFS without a first superblock.
pub(super) fn lost(probe: &Probe<'_>) -> io::Result<Option<Lost>> {
    for at in EXT_COPIES {
        let copy = probe.fields(at, 1024)?;
        if copy.le16(56) == 0xef53 && copy.le16(EXT_GROUP_NUMBER) == 1 {
            return Ok(Some(Lost { format: "ext2/3/4", at }));
        }
    }
    // A superblock that lost only its magic number still has plausible sizes: blocks per group, and inode size.
    let first = probe.fields(1024, 1024)?;
    let (bits, groups) = (first.le32(24), first.le32(32));
    let is_sized = bits <= 6 && groups > 0 && groups <= 8 << (10 + bits) && first.le32(40) > 0;
    if is_sized && matches!(first.le16(88), 128 | 256 | 512 | 1024) && first.le32(84) == 11 {
        return Ok(Some(Lost { format: "ext2/3/4", at: 1024 }));
    }
    for sector in XFS_SECTORS {
        let headers = probe.fields(sector, 2 * sector)?;
        if headers.has(0, b"XAGF") && headers.has(sector as usize, b"XAGI") {
            return Ok(Some(Lost { format: "XFS", at: sector }));
        }
    }
    Ok(None)
}
