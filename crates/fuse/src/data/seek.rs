//! Data and holes.

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
