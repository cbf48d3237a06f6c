//! Data and holes.
//!
//! Linux (seen with 6.18) does not write back what it caches before it asks where data and holes are, nor
//! does it tell the size that it has in mind. Bytes that are only in its cache would be reported as a hole,
//! or as lying past the end, and copies would lose them. Making it write back from here, by
//! `FUSE_NOTIFY_INVAL_INODE`, works only while some other thread serves its writes; with several such
//! requests, or with requests bound to queues, there may be none.
//!
//! So the answer is exact where nothing can be waiting, on read-only mounts. Otherwise it is `ENOSYS`: the
//! kernel then takes everything up to the size that it knows for data, and asks no more. Copies within the
//! mount keep their holes all the same ([`super::copy`]).

use std::ops::ControlFlow;

use fuse_device::abi::{LseekIn, LseekOut};
use fuse_device::{Errno, Reply};
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
    /// LSEEK: where data, or a hole, is next. The end of the file counts as a hole.
    pub(crate) fn lseek(
        &self,
        ino: Ino,
        args: &LseekIn,
        reply: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        if !self.options.read_only {
            return Err(Errno::NOSYS);
        }
        let wants_data = match args.whence {
            SEEK_DATA => true,
            SEEK_HOLE => false,
            _ => return Err(Errno::INVAL),
        };
        let size = self.attributes(ino)?.size;
        if args.offset >= size {
            return Err(Errno::NXIO);
        }
        let mut found = None;
        let map = self.fs.extent_map(ino, args.offset, size - args.offset, &mut |run| {
            if holds_data(run.place) == wants_data {
                found = Some(run.offset);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        self.result(map)?;
        let end = if wants_data { None } else { Some(size) };
        let offset = found.or(end).ok_or(Errno::NXIO)?;
        reply.put(&LseekOut { offset })
    }
}
