//! Finds the log if its location is in only one superblock, and no record is there.
//!
//! Each record contains the UUID of the file system and its own position in the log, which give the start of the log.

use std::collections::BTreeMap;

use disk::BlockDevice;
use operations::repair::Staging;
use zerocopy::FromBytes;

use crate::format::address::{AgBlock, AgNumber, Block};
use crate::format::geometry::Geometry;
use crate::format::log::{BLOCK_SIZE, Lsn, RECORD_MAGIC, RawRecordHeader};
use crate::format::superblock::{RawSuperblock, Superblock};
use crate::log;

/// Number of bytes read at once.
const PIECE_BYTES: usize = 1 << 20;

/// Sets the location of the log according to its records.
pub(super) fn set(staging: &Staging, sb: &Superblock, raw: &mut RawSuperblock) {
    if has_record(staging, sb) {
        return;
    }
    let geometry = Geometry::new(sb);
    // mkfs uses this group, too.
    let usual = AgNumber(geometry.ag_count / 2);
    let others = geometry.ags().filter(|ag| *ag != usual);
    for ag in std::iter::once(usual).chain(others) {
        let starts = starts(staging, &geometry, ag, &sb.raw.uuid);
        let Some((start, _)) = starts.into_iter().max_by_key(|(_, count)| *count) else { continue };
        let (ag, block) = geometry.locate(start);
        let mut moved = sb.clone();
        moved.raw.logstart = geometry.fs_block(ag, block).0.into();
        if has_record(staging, &moved) {
            raw.logstart = moved.raw.logstart;
            return;
        }
    }
}

/// Returns whether there is a log with a record at the location in a superblock.
fn has_record(staging: &Staging, sb: &Superblock) -> bool {
    log::log_end(staging, sb).is_ok_and(|end| end.is_some_and(|end| end.last.is_some()))
}

/// Returns the starts of the log according to records in a group, with their number of records.
fn starts(
    staging: &Staging,
    geometry: &Geometry,
    ag: AgNumber,
    uuid: &[u8; 16],
) -> BTreeMap<Block, u64> {
    let first = geometry.byte_of(geometry.block_of(ag, AgBlock(0)));
    let end = first + (u64::from(geometry.ag_len(ag)) << geometry.block_log);
    let mut starts = BTreeMap::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = first;
    while at < end {
        let len = (end - at).min(PIECE_BYTES as u64) as usize;
        // Unreadable blocks are treated as having no records.
        if staging.read_at(at, &mut piece[..len]).is_ok() {
            for (nth, bytes) in (0..).zip(piece[..len].chunks_exact(BLOCK_SIZE)) {
                let byte = at + nth * BLOCK_SIZE as u64;
                let start = start(bytes, byte, uuid).filter(|start| *start >= first);
                if let Some(start) = start.filter(|start| start % (1 << geometry.block_log) == 0) {
                    *starts.entry(Block(start >> geometry.block_log)).or_default() += 1;
                }
            }
        }
        at += len as u64;
    }
    starts
}

/// Returns the start of the log according to a record at a byte offset.
fn start(bytes: &[u8], byte: u64, uuid: &[u8; 16]) -> Option<u64> {
    let (header, _) = RawRecordHeader::ref_from_prefix(bytes).ok()?;
    let is_ours = header.magicno.get() == RECORD_MAGIC && header.fs_uuid == *uuid;
    let block = Lsn::from_raw(header.lsn.get()).block;
    is_ours.then(|| byte.checked_sub(u64::from(block) * BLOCK_SIZE as u64))?
}
