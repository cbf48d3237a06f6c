//! Preallocation, holes and zeroing.

use linux::Errno;
use linux::abi::{FallocateIn, InHeader};
use vfs::{AllocateMode, Ino};

use crate::Adapter;

// Bits of a mode of fallocate(2).
const KEEP_SIZE: u32 = 0x01;
const PUNCH_HOLE: u32 = 0x02;
const ZERO_RANGE: u32 = 0x10;
const PUNCH_HOLE_KEEP_SIZE: u32 = PUNCH_HOLE | KEEP_SIZE;
const ZERO_RANGE_KEEP_SIZE: u32 = ZERO_RANGE | KEEP_SIZE;

impl Adapter<'_> {
    /// Answers FALLOCATE. Supports all modes of fallocate(2) except those that move or unshare contents.
    pub(crate) fn fallocate(
        &self,
        header: &InHeader,
        ino: Ino,
        args: &FallocateIn,
    ) -> Result<(), Errno> {
        let mode = match args.mode {
            0 => AllocateMode::Unwritten,
            KEEP_SIZE => AllocateMode::UnwrittenKeepSize,
            PUNCH_HOLE_KEEP_SIZE => AllocateMode::PunchHole,
            ZERO_RANGE => AllocateMode::Zero,
            ZERO_RANGE_KEEP_SIZE => AllocateMode::ZeroKeepSize,
            _ => return Err(Errno::OPNOTSUPP),
        };
        self.will_change(header, ino)?;
        self.result(self.fs.allocate(ino, args.offset, args.length, mode))?;
        if mode != AllocateMode::PunchHole {
            self.space.took(args.length);
        }
        self.contents_changed(ino)?;
        self.sync_if_asked(header, ino)
    }
}
