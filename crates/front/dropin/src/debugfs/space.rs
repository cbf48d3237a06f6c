//! Requests that allocate or free space of a file.

use vfs::{AllocateMode, FileSystem};

use super::phrases::words;
use super::request::Request;
use super::session::DebugSession;
use crate::failure::Failure;

/// Parses the arguments `FILE FIRST [LAST]`. Without LAST the range is unlimited.
fn range(request: &Request) -> Result<(&[u8], u64, Option<u64>), Failure> {
    let given = request.between(2, 3)?;
    let first = request.number("logical block", given[1])?;
    let last = given.get(2).map(|word| request.number("logical block", word)).transpose()?;
    if first > u64::from(u32::MAX)
        || last.is_some_and(|last| last > u64::from(u32::MAX) || last < first)
    {
        return Err(request.wrong_words());
    }
    Ok((given[0], first, last))
}

fn change(
    session: &mut DebugSession,
    request: &Request,
    mode: AllocateMode,
) -> Result<(), Failure> {
    let (path, first, last) = range(request)?;
    let ino = session.ino(path)?;
    let fs = session.fs()?;
    let block_size = u64::from(fs.geometry().block_size());
    let size = fs.attributes(ino).map_err(|e| request.failed(words(&e)))?.size;
    let last = match last {
        Some(last) => last,
        None if mode == AllocateMode::PunchHole => u64::from(u32::MAX) - 1,
        // Only an explicit last block allocates past the end of a file.
        None => size.div_ceil(block_size).saturating_sub(1).max(first),
    };
    let (offset, len) = (first * block_size, (last - first + 1) * block_size);
    fs.allocate(ino, offset, len, mode).map_err(|e| request.failed(words(&e)))
}

/// `fallocate FILE FIRST [LAST]`.
pub(super) fn allocate(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    change(session, request, AllocateMode::UnwrittenKeepSize)
}

/// `punch FILE FIRST [LAST]`.
pub(super) fn punch(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    change(session, request, AllocateMode::PunchHole)
}

/// `expand_dir DIR`: adds one block.
pub(super) fn expand(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [path] = request.exactly()?;
    let ino = session.ino(path)?;
    session.fs()?.expand_directory(ino).map_err(|e| request.failed(words(&e)))
}
