//! Data and holes.
//!
//! Linux (seen with 6.18) does not write back what it caches before it asks where data and holes are, nor
//! does it tell the size that it has in mind. Bytes that are only in its cache would be reported as a hole,
//! or as lying past the end, and copies would lose them. So before something is said to be a hole, the
//! kernel is made to write back what it has there. It sends WRITEs for that, which other threads do: this
//! is a late request ([`fuse_device::Handler::handle_late`]). Data needs no such care.
//!
//! Over io_uring that is not possible, and the answer is `ENOSYS`: the kernel then takes everything up to
//! the size that it knows for data, and asks no more. On read-only mounts nothing can be waiting.

use std::ops::{ControlFlow, Range};

use fuse_device::abi::{LseekIn, LseekOut};
use fuse_device::{Errno, PageCache, Reply};
use vfs::{ExtentPlace, Ino};

use crate::Adapter;

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// Whether bytes there must be copied: all others read as zeros.
pub(super) fn holds_data(place: ExtentPlace) -> bool {
    match place {
        ExtentPlace::Device(_) | ExtentPlace::Inline => true,
        ExtentPlace::Unwritten(_) | ExtentPlace::Hole => false,
    }
}

impl Adapter<'_> {
    /// LSEEK where nothing can be waiting in the kernel's cache.
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

    /// LSEEK where the kernel may hold what was written.
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
        // What was taken for a hole was none, and the next one has not been looked at.
        cache.write_back(nodeid, args.offset..u64::MAX)?;
        self.seek(ino, args)?.report(reply)
    }

    /// Where the next data, or the next hole, is. The end of the file counts as a hole.
    fn seek(&self, ino: Ino, args: &LseekIn) -> Result<Found, Errno> {
        let wants_data = match args.whence {
            SEEK_DATA => true,
            SEEK_HOLE => false,
            _ => return Err(Errno::INVAL),
        };
        let size = self.attributes(ino)?.size;
        let offset = args.offset;
        if i64::try_from(offset).is_err() {
            // It is before the start, where there is nothing, not even a cache.
            return Ok(Found { at: None, hole: None });
        }
        if offset >= size {
            return Ok(Found { at: None, hole: Some(offset..u64::MAX) });
        }
        // The first run of the kind that is wanted, and the first of the other kind after that.
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
            Found { at: start, hole: (!is_here).then(|| offset..start.unwrap_or(u64::MAX)) }
        } else {
            let at = start.unwrap_or(size);
            Found { at: Some(at), hole: Some(at..end.unwrap_or(u64::MAX)) }
        })
    }
}

/// An answer to LSEEK.
struct Found {
    /// Where it is; `None` if there is none.
    at: Option<u64>,
    /// What is taken for a hole in saying so.
    hole: Option<Range<u64>>,
}

impl Found {
    fn report(&self, reply: &mut Reply<'_>) -> Result<(), Errno> {
        reply.put(&LseekOut { offset: self.at.ok_or(Errno::NXIO)? })
    }
}
