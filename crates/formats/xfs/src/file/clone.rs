//! Sharing blocks between files.

use operations::data::{self, ChangeFiles};
use operations::{Outcome, RunOperations};
use vfs::{Error, Ino, Result};

use crate::XfsCore;
use crate::format::address::{FileBlock, FsBlock};
use crate::format::features::RoCompat;
use crate::format::inode::{Fork, flags2};
use crate::inode::Handle;
use crate::map::{self, Extent, Place};
use crate::op::Op;

/// Source and target of the remaining blocks.
#[derive(Clone, Copy)]
struct Step {
    from: FileBlock,
    to: FileBlock,
    len: u64,
}

impl XfsCore {
    /// Returns whether files can share blocks.
    pub fn can_share(&self) -> bool {
        self.volume.geometry.features.ro_compat(RoCompat::REFLINK)
    }

    /// Maps the blocks of `len` bytes of a file into another file (or elsewhere in the same file); later writes to
    /// either copy them first. Holes stay holes. Offsets must be multiples of the block size; the last block may be
    /// shared to its end. The size grows as needed.
    ///
    /// # Errors
    /// `Unsupported` if files cannot share blocks, `Invalid` for offsets that are not block-aligned, `Corrupt` if the
    /// target already has blocks there, `NoSpace` if there is no room for reference counts.
    pub fn share_blocks(&self, from: (Ino, u64), to: (Ino, u64), len: u64) -> Result<()> {
        self.check_writable()?;
        if !self.can_share() {
            return Err(Error::unsupported(
                "sharing blocks between files",
                "create the image with the feature reflink",
            ));
        }
        let block_size = self.block_size_of_files();
        if !from.1.is_multiple_of(block_size) || !to.1.is_multiple_of(block_size) {
            return Err(Error::Invalid("shared ranges must start at a block boundary"));
        }
        operations::deferred_create::flush_file(self, from.0)?;
        operations::deferred_create::flush_file(self, to.0)?;
        if self.load_file(to.0)?.inode.size() < to.1 {
            // Zeroes the bytes after the old end in the last block, which have undefined contents.
            data::resize(self, to.0, to.1, None)?;
        }
        let _lock = self.locks.exclusive(&[from.0, to.0]);
        let mut rest = Step {
            from: FileBlock(from.1 / block_size),
            to: FileBlock(to.1 / block_size),
            len: len.div_ceil(block_size),
        };
        while rest.len > 0 {
            let done = self.atomically(|op| op.share_some(from.0, to.0, rest))?;
            rest =
                Step { from: rest.from.plus(done), to: rest.to.plus(done), len: rest.len - done };
        }
        let end = to.1 + len;
        self.atomically(|op| {
            let mut file = op.fs.load_file(to.0)?;
            let before = file.clone();
            file.inode.set_size(file.inode.size().max(end));
            op.stage_if_changed(file, &before);
            Ok(())
        })
    }

    fn block_size_of_files(&self) -> u64 {
        self.volume.geometry.block_size() as u64
    }
}

impl Op<'_> {
    /// Shares the contiguous blocks at the start of the rest. Returns how many were done.
    fn share_some(&mut self, from: Ino, to: Ino, rest: Step) -> Outcome<u64> {
        let source = self.fs.load_file(from)?;
        let run = map::run_at(self, &source, Fork::Data, rest.from)?;
        let len = run.len.min(rest.len);
        let (start, unwritten) = match run.place {
            Place::Hole => return Ok(len),
            Place::Written(start) => (start, false),
            Place::Unwritten(start) => (start, true),
        };
        let mut target = if to == from { source.clone() } else { self.fs.load_file(to)? };
        // The reverse map accepts a second owner only for blocks recorded as shared.
        self.add_references(&source, &target, start, len)?;
        let extent = Extent { offset: rest.to, start, len, unwritten };
        self.enter_extent(&mut target, Fork::Data, extent)?;
        mark_shared(&mut target);
        self.stage(target);
        if to != from && !map::may_share(&source) {
            let mut source = source;
            mark_shared(&mut source);
            self.stage(source);
        }
        Ok(len)
    }

    /// Adds a reference to blocks of `source` that will belong to `target`, too.
    fn add_references(
        &mut self,
        source: &Handle,
        target: &Handle,
        start: FsBlock,
        len: u64,
    ) -> Outcome<()> {
        let on_realtime = map::is_realtime(source, Fork::Data);
        if on_realtime != map::is_realtime(target, Fork::Data) {
            return Err(Error::Invalid("files on different devices share no blocks").into());
        }
        if !on_realtime {
            let (ag, block) = self.fs.volume.geometry.split(start);
            return self.ag(ag)?.add_references(block, len as u32);
        }
        match self.share_realtime(start, len)? {
            true => Ok(()),
            false => {
                let advice = "create the image with realtime groups and reflink";
                Err(Error::unsupported("sharing blocks of the realtime device", advice).into())
            }
        }
    }
}

fn mark_shared(file: &mut Handle) {
    file.inode.set_flags2(file.inode.flags2() | flags2::REFLINK);
}
