//! The places of blocks: FIBMAP, which the kernel asks for on mounts of block devices only.

use std::ops::ControlFlow;

use linux::abi::{BmapIn, BmapOut};
use linux::{Errno, PageCache, Reply};
use vfs::{ExtentPlace, Ino};

use crate::Adapter;

/// First address of other devices than the image, such as a realtime device of XFS (`disk::DeviceRole`).
const OTHER_DEVICES: u64 = 1 << 61;

impl Adapter<'_> {
    /// BMAP after the kernel has written back what it caches of the block.
    pub(crate) fn bmap_late(
        &self,
        nodeid: u64,
        args: &BmapIn,
        reply: &mut Reply<'_>,
        cache: &PageCache<'_>,
    ) -> Result<(), Errno> {
        let start = block_start(args)?;
        cache.write_back(nodeid, start..start.saturating_add(args.blocksize.into()))?;
        self.bmap(self.ino(nodeid), args, reply)
    }

    /// BMAP: the block of the device that holds a block of a file. 0 if there is none, as kernels have it: for holes,
    /// contents on a realtime device, blocks that were allocated and never written, and contents in the inode.
    pub(crate) fn bmap(&self, ino: Ino, args: &BmapIn, reply: &mut Reply<'_>) -> Result<(), Errno> {
        let mut place = ExtentPlace::Hole;
        let found = self.fs.extent_map(ino, block_start(args)?, 1, &mut |extent| {
            place = extent.place;
            ControlFlow::Break(())
        });
        self.result(found)?;
        let block = match place {
            ExtentPlace::Device(at) if at < OTHER_DEVICES => at / u64::from(args.blocksize),
            _ => 0,
        };
        reply.put(&BmapOut { block })
    }
}

/// The first byte of the block that is asked for.
fn block_start(args: &BmapIn) -> Result<u64, Errno> {
    if args.blocksize == 0 {
        return Err(Errno::INVAL);
    }
    args.block.checked_mul(args.blocksize.into()).ok_or(Errno::FBIG)
}
