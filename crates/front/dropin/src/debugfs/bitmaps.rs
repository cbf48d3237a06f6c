//! Requests about block and inode bitmaps.

use ext4::debug::Bitmaps;
use ext4::format::address::Block;
use ext4::format::inode::Inode;
use vfs::Ino;

use super::phrases::words;
use super::request::Request;
use super::session::DebugSession;
use crate::failure::{Failure, STATUSES};
use crate::invoked::say;

/// The maximum number of blocks that are listed or marked at once.
const COUNT_MAX: u64 = 1 << 20;

/// Returns the first block and the count of a request.
fn run(request: &Request) -> Result<(u64, u64), Failure> {
    let given = request.between(1, 2)?;
    let first = request.number("block number", given[0])?;
    if first == 0 {
        return Err(request.failed("Invalid block number 0"));
    }
    let count = given.get(1).map(|word| request.number("count", word)).transpose()?.unwrap_or(1);
    if count > COUNT_MAX {
        return Err(
            request.failed(format_args!("Bad count - {count}: at most {COUNT_MAX} at once"))
        );
    }
    Ok((first, count))
}

/// `testb BLOCK [COUNT]`.
pub(super) fn test_block(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let (first, count) = run(request)?;
    let device = session.device()?;
    let bitmaps = Bitmaps::open(&*device).map_err(|e| request.failed(words(&e)))?;
    for block in first..first.saturating_add(count) {
        let used = match bitmaps.is_block_used(Block(block)) {
            Err(vfs::Error::NotFound) => {
                return Err(request.failed(format_args!("Illegal block number {block}")));
            }
            used => used.map_err(|e| request.failed(words(&e)))?,
        };
        say(format_args!("Block {block} {}", if used { "marked in use" } else { "not in use" }));
    }
    Ok(())
}

fn mark_blocks(session: &mut DebugSession, request: &Request, used: bool) -> Result<(), Failure> {
    let (first, count) = run(request)?;
    let device = session.device()?;
    let mut bitmaps = Bitmaps::open(&*device).map_err(|e| request.failed(words(&e)))?;
    for block in first..first.saturating_add(count) {
        let changed = match bitmaps.mark_block(Block(block), used) {
            Err(vfs::Error::NotFound) => {
                return Err(request.failed(format_args!("Illegal block number {block}")));
            }
            changed => changed.map_err(|e| request.failed(words(&e)))?,
        };
        if !changed {
            let already = if used { "set" } else { "clear" };
            let why = format_args!("Warning: block {block} already {already}");
            // Only a warning: the request continues.
            eprintln!("{}: {why}", request.name);
        }
    }
    Ok(())
}

/// `freeb BLOCK [COUNT]`.
pub(super) fn free_block(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    mark_blocks(session, request, false)
}

/// `setb BLOCK [COUNT]`.
pub(super) fn set_block(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    mark_blocks(session, request, true)
}

/// `testi FILE`.
pub(super) fn test_inode(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [path] = request.exactly()?;
    let ino = session.ino(path)?;
    let device = session.device()?;
    let used = Bitmaps::open(&*device).and_then(|bitmaps| bitmaps.is_inode_used(ino));
    let used = used.map_err(|e| request.failed(words(&e)))?;
    let state = if used { "is marked in use" } else { "is not in use" };
    say(format_args!("Inode {ino} {state}"));
    Ok(())
}

fn mark_inodes(session: &mut DebugSession, request: &Request, used: bool) -> Result<(), Failure> {
    let given = request.between(1, 2)?;
    let first = session.ino(given[0])?;
    let count = given.get(1).map(|word| request.number("count", word)).transpose()?.unwrap_or(1);
    let last = first.0.saturating_add(count.min(COUNT_MAX));
    let fs = session.fs()?;
    let last = last.min(u64::from(fs.superblock().inodes_count) + 1);
    let is_dir =
        |ino: u64| fs.inode_slot(Ino(ino)).is_ok_and(|slot| Inode::from_slot(&slot).is_dir());
    let inodes = (first.0..last).map(|ino| (Ino(ino), is_dir(ino))).collect::<Vec<_>>();
    let device = session.device()?;
    let mut bitmaps = Bitmaps::open(&*device).map_err(|e| request.failed(words(&e)))?;
    for (ino, is_dir) in inodes {
        let changed = bitmaps.mark_inode(ino, used, is_dir);
        if !changed.map_err(|e| request.failed(words(&e)))? {
            let already = if used { "set" } else { "clear" };
            eprintln!("{}: Warning: inode already {already}", request.name);
        }
    }
    Ok(())
}

/// `freei FILE [COUNT]`.
pub(super) fn free_inode(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    mark_inodes(session, request, false)
}

/// `seti FILE [COUNT]`.
pub(super) fn set_inode(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    mark_inodes(session, request, true)
}

/// `find_free_block [COUNT [GOAL]]`.
pub(super) fn find_block(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let given = request.between(0, 2)?;
    let number =
        |at: usize, what: &str| given.get(at).map(|word| request.number(what, word)).transpose();
    let count = number(0, "count")?.unwrap_or(1);
    let goal = number(1, "goal")?.unwrap_or(0);
    if count == 0 || count > COUNT_MAX {
        return Err(request.failed(format_args!("Bad count - {count}")));
    }
    let device = session.device()?;
    let found = Bitmaps::open(&*device)
        .and_then(|bitmaps| bitmaps.free_blocks(Block(goal), count as usize));
    let found = found.map_err(|e| request.failed(words(&e)))?;
    if found.is_empty() {
        return Err(STATUSES.failed(format_args!(
            "{}: {}",
            request.name,
            words(&vfs::Error::NoSpace)
        )));
    }
    let list = found.iter().map(|block| format!("{block} ")).collect::<String>();
    say(format_args!("Free blocks found: {list}"));
    Ok(())
}

/// `find_free_inode [DIR [MODE]]`.
pub(super) fn find_inode(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let given = request.between(0, 2)?;
    let near = match given.first() {
        Some(word) => Ino(request.number("dir", word)?),
        None => session.root.ino,
    };
    let device = session.device()?;
    let found = Bitmaps::open(&*device).and_then(|bitmaps| bitmaps.free_inode(near));
    let found = found.map_err(|e| request.failed(words(&e)))?;
    let found = found.ok_or_else(|| request.failed(words(&vfs::Error::NoInodes)))?;
    say(format_args!("Free inode found: {found}"));
    Ok(())
}
