//! Counting the realtime blocks of a file that gets another owner.

use engine::Tag;
use operations::Outcome;
use vfs::{Ino, Result};

use crate::XfsCore;
use crate::dir::BufferedAddresses;
use crate::format::address::{Block, FileBlock};
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::map::{Place, run_at};
use crate::op::Op;
use crate::op::source::Source;

/// Reads blocks that the operation holds through it, and others without holding them: a map may have more blocks than
/// an operation should hold.
struct Unheld<'o, 'a>(&'o mut Op<'a>);

impl Source for Unheld<'_, '_> {
    fn fs(&self) -> &XfsCore {
        self.0.fs
    }

    fn with<T>(&mut self, place: Block, tag: Tag, look: impl FnOnce(&[u8]) -> T) -> Result<T> {
        if self.0.txn.holds(place.0) {
            return self.0.with(place, tag, look);
        }
        let mut fs = self.0.fs;
        fs.with(place, tag, look)
    }

    fn buffered(&self, dir: Ino, leaf: u32, hash: u32) -> BufferedAddresses {
        self.0.buffered(dir, leaf, hash)
    }
}

impl Op<'_> {
    /// Returns the number of realtime blocks that a realtime file maps.
    pub(crate) fn realtime_blocks(&mut self, handle: &Handle) -> Outcome<u64> {
        let (mut at, mut blocks) = (FileBlock(0), 0);
        while at < FileBlock::END {
            let run = run_at(&mut Unheld(self), handle, Fork::Data, at)?;
            if run.place != Place::Hole {
                blocks += run.len;
            }
            at = at.plus(run.len);
        }
        Ok(blocks)
    }
}
