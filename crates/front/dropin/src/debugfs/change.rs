//! Requests that change or free an inode, regardless of its names.

use ext4::debug::Bitmaps;
use ext4::format::address::Block;
use ext4::format::features::Incompat;
use ext4::format::inode::{DTIME_BYTES, GOOD_OLD_INODE_SIZE, Inode};
use vfs::{FileSystem, Ino};

use super::blocks::{blocks_of, has_map};
use super::phrases::words;
use super::request::{Request, shown};
use super::session::DebugSession;
use crate::dumpe2fs::local;
use crate::failure::{Failure, STATUSES};
use crate::invoked::say;

/// Bytes of the link count in an inode.
const LINKS: std::ops::Range<usize> = 26..28;
/// Bytes of the extended attribute block number in an inode.
const FILE_ACL: std::ops::Range<usize> = 104..108;
/// Bytes of its upper half.
const FILE_ACL_HIGH: std::ops::Range<usize> = 118..120;

fn slot(session: &mut DebugSession, request: &Request, ino: Ino) -> Result<Vec<u8>, Failure> {
    session.fs()?.inode_slot(ino).map_err(|e| request.failed(words(&e)))
}

/// `clri FILE`: clears the fields common to all inodes.
pub(super) fn clear(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [path] = request.exactly()?;
    let ino = session.ino(path)?;
    let mut bytes = slot(session, request, ino)?;
    bytes[..GOOD_OLD_INODE_SIZE].fill(0);
    session.replace_slot(ino, &bytes)
}

/// `copy_inode FROM TO`.
pub(super) fn copy(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [from, to] = request.exactly()?;
    let (from, to) = (session.ino(from)?, session.ino(to)?);
    let bytes = slot(session, request, from)?;
    session.replace_slot(to, &bytes)
}

/// `kill_file FILE`: frees an inode and its blocks. Its fields remain for `undelete`, except the attribute block and
/// the link count, so that e2fsck considers it deleted.
pub(super) fn kill(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [path] = request.exactly()?;
    let ino = session.ino(path)?;
    let mut bytes = slot(session, request, ino)?;
    let deleted = session.now().sec as u32;
    let fs = session.fs()?;
    let keeps_tail = !fs.superblock().features.incompat(Incompat::EA_INODE);
    fs.free_inode(ino).map_err(|e| request.failed(words(&e)))?;
    bytes[DTIME_BYTES].copy_from_slice(&deleted.to_le_bytes());
    for range in [LINKS, FILE_ACL, FILE_ACL_HIGH] {
        bytes[range].fill(0);
    }
    if !keeps_tail {
        bytes[GOOD_OLD_INODE_SIZE..].fill(0);
    }
    // Make the freed space durable first: a crash must not leave two owners.
    fs.sync().map_err(|e| request.failed(words(&e)))?;
    let place = fs.replace_inode_slot(ino, &bytes);
    place.map_err(|e| request.failed(words(&e)))
}

/// `undelete INODE [NAME]`: marks a deleted inode and its blocks in use. Fails if another file uses one of the blocks.
pub(super) fn undelete(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let words_given = request.between(1, 2)?;
    let ino = session.ino(words_given[0])?;
    let mut bytes = slot(session, request, ino)?;
    let inode = Inode::from_slot(&bytes);
    if inode.dtime() == 0 {
        let name = shown(words_given[0]);
        return Err(STATUSES.failed(format_args!("{name}: Inode is not marked as deleted")));
    }
    let mut blocks = Vec::new();
    if has_map(&inode) {
        let limit = session.fs()?.geometry().blocks_count;
        let walked = session.fs()?.walk_map(ino, &mut |entry| {
            let (start, len) = blocks_of(&entry);
            if blocks.len() as u64 + len <= limit {
                blocks.extend((start..start + len).map(Block));
            }
        });
        walked.map_err(|e| request.failed(words(&e)))?;
    }
    let failed = |e: vfs::Error| request.failed(words(&e));
    let device = session.device()?;
    let mut bitmaps = Bitmaps::open(&*device).map_err(failed)?;
    if bitmaps.is_inode_used(ino).map_err(failed)? {
        return Err(request.failed(format_args!("inode {ino} is in use")));
    }
    for &block in &blocks {
        if bitmaps.is_block_used(block).map_err(failed)? {
            return Err(request.failed(format_args!("block {block} belongs to another file now")));
        }
    }
    for &block in &blocks {
        bitmaps.mark_block(block, true).map_err(failed)?;
    }
    bitmaps.mark_inode(ino, true, inode.is_dir()).map_err(failed)?;
    bytes[DTIME_BYTES].fill(0);
    bytes[LINKS].copy_from_slice(&1_u16.to_le_bytes());
    session.replace_slot(ino, &bytes)?;
    let Some(name) = words_given.get(1) else { return Ok(()) };
    let (dir, name) = session.parent(name)?;
    session.fs()?.enter_name(dir, name, ino).map_err(failed)
}

/// `lsdel`: lists deleted inodes that still contain their block map.
pub(super) fn list_deleted(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    request.exactly::<0>()?;
    let fs = session.fs()?;
    let block_size = fs.geometry().block_size();
    let mut found = Vec::new();
    for number in 1..=fs.superblock().inodes_count {
        let ino = Ino(number.into());
        let Ok(slot) = fs.inode_slot(ino) else { continue };
        let inode = Inode::from_slot(&slot);
        if inode.dtime() == 0 || inode.mode() == 0 || inode.blocks_512(block_size) == 0 {
            continue;
        }
        let mut blocks = 0;
        if has_map(&inode) {
            let _ = fs.walk_map(ino, &mut |entry| blocks += blocks_of(&entry).1);
        }
        if blocks > 0 {
            found.push((inode.dtime(), ino, inode, blocks));
        }
    }
    found.sort_by_key(|(dtime, ino, ..)| (*dtime, *ino));
    say(format_args!(" Inode  Owner  Mode    Size      Blocks   Time deleted"));
    for (dtime, ino, inode, blocks) in &found {
        let time = local((*dtime).into(), "%a %b %e %H:%M:%S %Y");
        let (uid, mode, size) = (inode.uid(), inode.mode(), inode.size());
        say(format_args!("{ino:6} {uid:6} {mode:6o} {size:6} {blocks:6}/{blocks:6} {time}"));
    }
    say(format_args!("{} deleted inodes found.", found.len()));
    Ok(())
}
