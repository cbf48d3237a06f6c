//! Space in advance, holes and zeros.

use std::ops::Range;

use vfs::{AllocateMode, Error, Ino, Result};

use super::data::DataRuns;
use super::{SIZE_MAX, blocks_of};
use crate::Xfs;
use crate::bmap::Want;
use crate::format::address::FileBlock;
use crate::format::inode::{Fork, flags};
use crate::fs::Mode;
use crate::inode::Handle;
use crate::op::Op;

/// What is asked for: bytes of a file, and how.
#[derive(Clone)]
struct Request {
    bytes: Range<u64>,
    mode: AllocateMode,
}

impl Xfs {
    pub(crate) fn allocate_range(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        mode: AllocateMode,
    ) -> Result<()> {
        self.check_writable()?;
        if len == 0 {
            return Err(Error::Invalid("an empty range"));
        }
        if mode == AllocateMode::Exposed && self.mode != Mode::Fresh {
            return Err(Error::Invalid("only a fresh image may show what its blocks held before"));
        }
        let end = offset.checked_add(len).ok_or(Error::FileTooLarge)?;
        let _lock = self.locks.exclusive(&[ino]);
        if mode == AllocateMode::PunchHole {
            return self.punch(ino, offset..end);
        }
        let request = Request { bytes: offset..end, mode };
        let blocks = blocks_of(&self.volume.geometry, offset, len)?;
        let mut at = blocks.start;
        while at < blocks.end {
            let before = self.load_file(ino)?;
            before.protection().check_allocate(mode)?;
            at = self.atomically(|op| op.provide_part(&before, at..blocks.end, &request))?;
        }
        Ok(())
    }

    /// Frees the whole blocks of a range and zeroes the rest. The last block of a file counts as
    /// whole if all that the file has of it is in the range.
    fn punch(&self, ino: Ino, bytes: Range<u64>) -> Result<()> {
        let log = self.volume.geometry.block_log;
        let bytes = bytes.start..bytes.end.min(SIZE_MAX);
        loop {
            let before = self.load_file(ino)?;
            before.protection().check_allocate(AllocateMode::PunchHole)?;
            if bytes.is_empty() {
                return Ok(());
            }
            let whole_end = if bytes.end >= before.inode.size() {
                bytes.end.div_ceil(1 << log)
            } else {
                bytes.end >> log
            };
            let blocks = bytes.start.div_ceil(1 << log)..whole_end;
            if self.atomically_freeing(|op| op.punch_part(&before, &bytes, &blocks))? {
                return Ok(());
            }
        }
    }
}

impl Op<'_> {
    /// Provides blocks from the front of a range as one operation may; where it ended.
    fn provide_part(
        &mut self,
        before: &Handle,
        blocks: Range<FileBlock>,
        request: &Request,
    ) -> Result<FileBlock> {
        let fs = self.fs;
        let mut file = before.clone();
        let mut runs = DataRuns::new();
        let (mut at, mut changes) = (blocks.start, 0);
        while at < blocks.end && changes < fs.changes_per_op() {
            let (want, limit) = self.wanted(at, blocks.end, request);
            let piece = self.provide(&mut file, at, limit, want)?;
            changes += u32::from(piece.is_change());
            fs.copy_edges(at, &piece, &request.bytes)?;
            let is_shown = request.mode == AllocateMode::Exposed;
            if piece.written && !is_shown && (request.mode.zeroes() || piece.is_exposed()) {
                fs.push_run(&mut runs, at, &piece);
            }
            at = at.plus(piece.len);
        }
        let end = fs.byte_of(at).min(request.bytes.end);
        if end > file.inode.size() {
            if request.mode.keeps_size() {
                file.inode.set_flags(file.inode.flags() | flags::PREALLOC);
            } else {
                if request.mode != AllocateMode::Exposed {
                    let grown = file.inode.size()..end;
                    self.zero_written(&mut file, grown)?;
                }
                file.inode.set_size(end);
            }
        }
        for run in &runs {
            fs.zero_run(run, &request.bytes)?;
        }
        self.stage_if_changed(file, before);
        Ok(at)
    }

    /// What a request wants of block `at`, and up to where before `limit` it wants the same.
    fn wanted(&self, at: FileBlock, limit: FileBlock, request: &Request) -> (Want, FileBlock) {
        if request.mode == AllocateMode::Exposed {
            return (Want::Written, limit);
        }
        if !request.mode.zeroes() {
            return (Want::Allocated, limit);
        }
        // Blocks at the edges keep what is outside the range.
        let log = self.fs.volume.geometry.block_log;
        let whole_start = FileBlock(request.bytes.start.div_ceil(1 << log));
        let whole_end = FileBlock(request.bytes.end >> log);
        if at < whole_start || at >= whole_end {
            return (Want::Own, at.plus(1));
        }
        (Want::Zeroed, limit.min(whole_end))
    }

    /// Frees blocks from the end of a punched range as one operation may, and zeroes its edges with
    /// the last of them. Whether that was all.
    fn punch_part(
        &mut self,
        before: &Handle,
        bytes: &Range<u64>,
        blocks: &Range<u64>,
    ) -> Result<bool> {
        let mut file = before.clone();
        let mut budget = self.fs.changes_per_op();
        let whole = FileBlock(blocks.start)..FileBlock(blocks.end);
        let done = self.unmap_some(&mut file, Fork::Data, whole, &mut budget)?;
        if done {
            let log = self.fs.volume.geometry.block_log;
            let head_end = (blocks.start << log).min(bytes.end);
            let tail_start = (blocks.end << log).max(head_end);
            self.zero_written(&mut file, bytes.start..head_end)?;
            self.zero_written(&mut file, tail_start..bytes.end)?;
        }
        self.stage_if_changed(file, before);
        Ok(done)
    }
}
