//! Copies between files without a transfer through the kernel.

use std::cell::RefCell;
use std::ops::{ControlFlow, Range};

use linux::abi::{CopyFileRangeIn, CopyFileRangeOut, InHeader, WriteOut};
use linux::{Errno, Reply};
use vfs::{AllocateMode, Error, FileSystem, Ino, Result};

use super::seek::holds_data;
use crate::Adapter;

/// Buffer size in bytes, for each thread that copies.
const PIECE_BYTES: usize = 256 << 10;

/// Maximum number of bytes that one request writes, so that requests stay short. The caller continues the copy.
const WRITTEN_BYTES_MAX: u64 = 64 << 20;

/// Maximum number of bytes that one request shares, for the same reason: a fragmented file takes many operations.
const SHARED_BYTES_MAX: u64 = 4 << 30;

thread_local! {
    /// The copy buffer.
    static PIECE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Adapter<'_> {
    /// Answers COPY_FILE_RANGE, up to the end of the source and the limit of a request. Reports the number of copied
    /// bytes.
    pub(crate) fn copy_file_range(
        &self,
        header: &InHeader,
        source: Ino,
        args: &CopyFileRangeIn,
        wide: bool,
        reply: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        if args.flags != 0 {
            return Err(Errno::INVAL);
        }
        self.check_writable()?;
        let target = self.ino(args.nodeid_out);
        let size = self.attributes(source)?.size;
        let len_max = if wide { u64::MAX } else { u64::from(u32::MAX) };
        let len = args.len.min(len_max).min(size.saturating_sub(args.off_in));
        args.off_out.checked_add(len).ok_or(Errno::FBIG)?;
        let mut copied = 0;
        if len > 0 {
            self.will_change(header, target)?;
            let copy =
                Copy { fs: self.fs, source: (source, args.off_in), target: (target, args.off_out) };
            let outcome = self.result(copy.run(len, &mut copied));
            // A partial copy is a success, unless damage ended it: then nothing more is changed.
            if copied == 0 || self.has_stopped() {
                outcome?;
            }
            self.space.took(copied);
            self.contents_changed(target)?;
            self.sync_if_asked(header, target)?;
        }
        if wide {
            return reply.put(&CopyFileRangeOut { bytes_copied: copied });
        }
        reply.put(&WriteOut { size: copied as u32, padding: 0 })
    }
}

/// A copy: source and target, each a file and an offset.
struct Copy<'a> {
    fs: &'a dyn FileSystem,
    source: (Ino, u64),
    target: (Ino, u64),
}

impl Copy<'_> {
    /// Copies up to `len` bytes, limited for one request, and adds them to `copied`, also before an error. Whole blocks
    /// are shared if the file system supports that.
    fn run(&self, len: u64, copied: &mut u64) -> Result<()> {
        let shared = self.shareable(len)?;
        self.copy(shared.start, copied)?;
        let is_wanted = *copied == shared.start && !shared.is_empty();
        if is_wanted && self.share(&shared)? {
            *copied = shared.end;
            if shared.end - shared.start == SHARED_BYTES_MAX {
                return Ok(());
            }
        }
        self.copy(len, copied)
    }

    /// Returns the part of the first `len` bytes that can be shared: whole blocks, and the last one of the source if the
    /// target ends in it. Empty if there is none.
    fn shareable(&self, len: u64) -> Result<Range<u64>> {
        let ((source, from), (target, to)) = (self.source, self.target);
        if !self.fs.can_clone() {
            return Ok(0..0);
        }
        let block = u64::from(self.fs.statfs()?.block_size);
        let head = from.next_multiple_of(block) - from;
        if from % block != to % block || head >= len {
            return Ok(0..0);
        }
        let mut end = head + (len - head).min(SHARED_BYTES_MAX);
        let is_end = || -> Result<bool> {
            Ok(from + end == self.fs.attributes(source)?.size
                && to + end >= self.fs.attributes(target)?.size)
        };
        if !(from + end).is_multiple_of(block) && !is_end()? {
            end -= (from + end) % block;
        }
        Ok(head..end.max(head))
    }

    /// Shares a part of the bytes. Returns false if these files cannot share them, or not any more.
    fn share(&self, part: &Range<u64>) -> Result<bool> {
        let from = (self.source.0, self.source.1 + part.start);
        let to = (self.target.0, self.target.1 + part.start);
        match self.fs.clone_range(from, to, part.end - part.start, None) {
            Ok(()) => Ok(true),
            Err(Error::Unsupported(_) | Error::Invalid(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Copies up to the first `len` bytes, limited for one request. Holes and unwritten space are copied without data,
    /// except over existing data of the target.
    fn copy(&self, len: u64, copied: &mut u64) -> Result<()> {
        let mut left = WRITTEN_BYTES_MAX;
        while *copied < len && left > 0 {
            let (source, at) = (self.source.0, self.source.1 + *copied);
            let (run, is_data) = self.run_at(source, at..self.source.1 + len)?;
            let to = self.target.1 + *copied;
            let done = if is_data {
                let done = self.copy_piece(at, to, run.min(left))?;
                left -= done;
                done
            } else {
                self.zero(to..to + run, &mut left)?
            };
            if done == 0 {
                // The source has become shorter.
                break;
            }
            *copied += done;
        }
        Ok(())
    }

    /// Returns the length of data, or of a hole or unwritten space, at the start of a range. Data is counted only up to
    /// the size of the buffer.
    fn run_at(&self, ino: Ino, range: Range<u64>) -> Result<(u64, bool)> {
        let mut run: Option<(u64, bool)> = None;
        self.fs.extent_map(ino, range.start, range.end - range.start, &mut |extent| {
            let is_data = holds_data(extent.place);
            match &mut run {
                None => run = Some((extent.len, is_data)),
                Some((len, of)) if *of == is_data => *len += extent.len,
                Some(_) => return ControlFlow::Break(()),
            }
            match run {
                Some((len, true)) if len >= PIECE_BYTES as u64 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        })?;
        Ok(run.unwrap_or((0, true)))
    }

    /// Copies at most `len` bytes of data through memory. Returns the number of bytes.
    fn copy_piece(&self, from: u64, to: u64, len: u64) -> Result<u64> {
        PIECE.with_borrow_mut(|piece| {
            piece.resize(PIECE_BYTES, 0);
            // Pieces end at block boundaries of the target.
            let len_max = PIECE_BYTES - (to % PIECE_BYTES as u64) as usize;
            let len = usize::try_from(len).unwrap_or(len_max).min(len_max);
            let len = self.fs.read(self.source.0, from, &mut piece[..len])?;
            self.fs.write(self.target.0, to, &piece[..len], None)?;
            Ok(len as u64)
        })
    }

    /// Makes a range of the target read as zeros, until `left` is used up by ranges that had data. Returns the number
    /// of bytes.
    fn zero(&self, range: Range<u64>, left: &mut u64) -> Result<u64> {
        let target = self.target.0;
        let mut at = range.start;
        while at < range.end && *left > 0 {
            let size = self.fs.attributes(target)?.size;
            if at >= size {
                self.grow(at..range.end)?;
                at = range.end;
                continue;
            }
            let (run, is_data) = self.run_at(target, at..range.end.min(size))?;
            let len = if is_data { run.min(*left) } else { run };
            if len == 0 {
                // The target has become shorter.
                continue;
            }
            if is_data {
                self.fs.allocate(target, at, len, AllocateMode::ZeroKeepSize)?;
                *left -= len;
            }
            at += len;
        }
        Ok(at - range.start)
    }

    /// Extends the target to the end of this range with a hole. It does not set the size, because a concurrent
    /// write-back may have extended the file further.
    fn grow(&self, hole: Range<u64>) -> Result<()> {
        let target = self.target.0;
        self.fs.write(target, hole.end - 1, &[0], None)?;
        let block = u64::from(self.fs.statfs()?.block_size);
        let last = hole.start.max(hole.end.saturating_sub(block));
        self.fs.allocate(target, last, hole.end - last, AllocateMode::PunchHole)
    }
}
