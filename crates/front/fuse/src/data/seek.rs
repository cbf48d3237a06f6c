//! SEEK_DATA and SEEK_HOLE.
//!
//! Linux (tested with 6.18) neither writes back its cache before it asks for data and holes, nor sends the size in its
//! cache. Bytes that are only in its cache would be reported as a hole or as past the end, and copies would lose them.
//! So before a hole is reported, the kernel must write back its cache of that range. It sends WRITEs for that, which
//! other threads handle: this is a late request ([`linux::Handler::handle_late`]). Data needs no write-back.
//!
//! Over io_uring that is impossible, and the answer is `ENOSYS`: the kernel then treats everything up to its size as
//! data, and does not ask again. On read-only mounts nothing can be cached.

use std::ops::{ControlFlow, Range};

use linux::abi::{LseekIn, LseekOut};
use linux::{Errno, PageCache, Reply};
use vfs::{ExtentPlace, Ino};

use crate::Adapter;

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// Returns whether an extent contains data that must be copied; all others read as zeros.
pub(super) fn holds_data(place: ExtentPlace) -> bool {
    match place {
        ExtentPlace::Device(_) | ExtentPlace::Inline => true,
        ExtentPlace::Unwritten(_) | ExtentPlace::Hole => false,
    }
}

impl Adapter<'_> {
    /// Answers LSEEK if the kernel's cache cannot contain unwritten data.
    pub(crate) fn lseek(
        &self,
        ino: Ino,
        args: &LseekIn,
        reply: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        if !self.options.read_only {
            return Err(Errno::NOSYS);
        }
        self.seek(ino, args)?.report(reply)
    }

    /// Answers LSEEK if the kernel's cache may contain unwritten data.
    pub(crate) fn lseek_late(
        &self,
        nodeid: u64,
        args: &LseekIn,
        reply: &mut Reply<'_>,
        cache: &PageCache<'_>,
    ) -> Result<(), Errno> {
        let ino = self.ino(nodeid);
        let first = self.seek(ino, args)?;
        let Some(hole) = first.hole.clone() else { return first.report(reply) };
        cache.write_back(nodeid, hole.clone())?;
        let second = self.seek(ino, args)?;
        if second.hole.as_ref().is_none_or(|now| now.start >= hole.start && now.end <= hole.end) {
            return second.report(reply);
        }
        // The presumed hole contained data, and the next hole has not been written back.
        cache.write_back(nodeid, args.offset..u64::MAX)?;
        self.seek(ino, args)?.report(reply)
    }

    /// Returns the offset of the next data or hole. The end of the file counts as a hole.
    fn seek(&self, ino: Ino, args: &LseekIn) -> Result<SeekResult, Errno> {
        let wants_data = match args.whence {
            SEEK_DATA => true,
            SEEK_HOLE => false,
            _ => return Err(Errno::INVAL),
        };
        let size = self.attributes(ino)?.size;
        let offset = args.offset;
        if i64::try_from(offset).is_err() {
            // The offset is invalid, so the cache is irrelevant.
            return Ok(SeekResult { at: None, hole: None });
        }
        if offset >= size {
            return Ok(SeekResult { at: None, hole: Some(offset..u64::MAX) });
        }
        // The first extent of the requested kind, and the first of the other kind after that.
        let (mut start, mut end) = (None, None);
        let map = self.fs.extent_map(ino, offset, size - offset, &mut |run| {
            match (start, holds_data(run.place) == wants_data) {
                (None, true) => start = Some(run.offset),
                (Some(_), false) => end = Some(run.offset),
                _ => return ControlFlow::Continue(()),
            }
            if end.is_some() || wants_data {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        self.result(map)?;
        Ok(if wants_data {
            let is_here = start == Some(offset);
            SeekResult { at: start, hole: (!is_here).then(|| offset..start.unwrap_or(u64::MAX)) }
        } else {
            let at = start.unwrap_or(size);
            SeekResult { at: Some(at), hole: Some(at..end.unwrap_or(u64::MAX)) }
        })
    }
}

/// Answer to LSEEK.
struct SeekResult {
    /// Offset; `None` if there is none.
    at: Option<u64>,
    /// The range that is presumed to be a hole.
    hole: Option<Range<u64>>,
}

impl SeekResult {
    fn report(&self, reply: &mut Reply<'_>) -> Result<(), Errno> {
        reply.put(&LseekOut { offset: self.at.ok_or(Errno::NXIO)? })
    }
}
