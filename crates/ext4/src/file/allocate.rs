//! Space in advance, holes and zeros.
//!
//! A block map cannot say that a block is allocated but not written. So a file without extents gets
//! blocks of zeros where another gets unwritten ones (the kernel offers nothing there, and programs
//! then write the zeros themselves); past its size it cannot have them, because checkers take
//! written blocks there for damage.

use std::ops::Range;

use vfs::{AllocateMode, Error, Ino, Result};

use super::CHANGES_PER_OP_MAX;
use super::data::{DataRuns, push};
use super::inline::Unpacked;
use crate::Ext4;
use crate::block_map::Want;
use crate::extent::step::FILE_BLOCKS_MAX;
use crate::format::address::FileBlock;
use crate::format::inode::flags;
use crate::fs::Mode;
use crate::op::{Handle, Op};

/// What is asked for: bytes of a file, and how.
#[derive(Clone)]
struct Request {
    bytes: Range<u64>,
    mode: AllocateMode,
}

impl Ext4 {
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
        let before = self.load_file(ino)?;
        before.protection().check_allocate(mode)?;
        if request.mode.keeps_size() && end > before.inode.size() && !self.maps_extents(&before) {
            let advice = "write to it, or turn the feature extents on for new files";
            let what = "space past the end of a file without extents";
            return Err(Error::unsupported(what, advice));
        }
        let blocks = self.blocks_of(&before, offset, len)?;
        let mut at = blocks.start;
        while at < blocks.end {
            let before = self.load_file(ino)?;
            let unpacked = self.unpack(&before)?;
            at = self.atomically(|op| {
                op.provide_part(&before, unpacked.as_ref(), at..blocks.end, &request)
            })?;
        }
        Ok(())
    }

    /// Frees the whole blocks of a range and zeroes the rest. The last block of a file counts as
    /// whole if all that the file has of it is in the range.
    fn punch(&self, ino: Ino, bytes: Range<u64>) -> Result<()> {
        let log = self.volume.geometry.block_size_log;
        let bytes = bytes.start..bytes.end.min(FILE_BLOCKS_MAX << log);
        loop {
            let before = self.load_file(ino)?;
            before.protection().check_allocate(AllocateMode::PunchHole)?;
            if bytes.is_empty() {
                return Ok(());
            }
            let unpacked = self.unpack(&before)?;
            let whole_end = if bytes.end >= before.inode.size() {
                bytes.end.div_ceil(1 << log)
            } else {
                bytes.end >> log
            };
            let blocks = bytes.start.div_ceil(1 << log)..whole_end;
            let done = self.atomically_freeing(|op| {
                op.punch_part(&before, unpacked.as_ref(), &bytes, &blocks)
            })?;
            if done {
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
        unpacked: Option<&Unpacked>,
        blocks: Range<u32>,
        request: &Request,
    ) -> Result<u32> {
        let fs = self.fs;
        let mut file = *before;
        self.use_unpacked(&mut file, unpacked)?;
        let mut runs = DataRuns::new();
        let (mut at, mut changes) = (blocks.start, 0);
        while at < blocks.end && changes < CHANGES_PER_OP_MAX {
            let (want, limit) = self.wanted(&file, at, blocks.end, request);
            let piece = self.provide(&mut file, FileBlock(at), limit, want)?;
            changes += u32::from(piece.is_change());
            let is_shown = request.mode == AllocateMode::Exposed;
            if piece.written && !is_shown && (request.mode.zeroes() || piece.is_exposed()) {
                push(&mut runs, at, &piece);
            }
            at += piece.len;
        }
        let end = fs.byte_of(at).min(request.bytes.end);
        if !request.mode.keeps_size() && end > file.inode.size() {
            if request.mode != AllocateMode::Exposed {
                self.zero_written(&file, file.inode.size()..end)?;
            }
            file.inode.set_size(end);
        }
        for run in &runs {
            fs.zero_run(run, &request.bytes)?;
        }
        self.stage_contents(file, before, unpacked);
        Ok(at)
    }

    /// What a request wants of block `at`, and up to where before `limit` it wants the same.
    fn wanted(&self, file: &Handle, at: u32, limit: u32, request: &Request) -> (Want, u32) {
        if request.mode == AllocateMode::Exposed {
            return (Want::Written, limit);
        }
        if !request.mode.zeroes() || !file.has_flag(flags::EXTENTS) {
            return (Want::Allocated, limit);
        }
        // Blocks at the edges keep what is outside the range.
        let log = self.fs.volume.geometry.block_size_log;
        let whole_start = request.bytes.start.div_ceil(1 << log);
        let whole_end = request.bytes.end >> log;
        let block = u64::from(at);
        if block < whole_start || block >= whole_end {
            return (Want::Allocated, at + 1);
        }
        (Want::Zeroed, limit.min(whole_end as u32))
    }

    /// Frees blocks from the end of a punched range as one operation may, and zeroes its edges with
    /// the last of them. Whether that was all.
    fn punch_part(
        &mut self,
        before: &Handle,
        unpacked: Option<&Unpacked>,
        bytes: &Range<u64>,
        blocks: &Range<u64>,
    ) -> Result<bool> {
        let mut file = *before;
        self.use_unpacked(&mut file, unpacked)?;
        let limit = |block: u64| u32::try_from(block).unwrap_or(u32::MAX);
        let whole = limit(blocks.start)..limit(blocks.end);
        let mut budget = CHANGES_PER_OP_MAX;
        let done = whole.is_empty() || self.remove_blocks(&mut file, whole, &mut budget)?;
        if done {
            let log = self.fs.volume.geometry.block_size_log;
            let head_end = (blocks.start << log).min(bytes.end);
            let tail_start = (blocks.end << log).max(head_end);
            self.zero_written(&file, bytes.start..head_end)?;
            self.zero_written(&file, tail_start..bytes.end)?;
        }
        self.stage_contents(file, before, unpacked);
        Ok(done)
    }
}
