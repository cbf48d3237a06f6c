//! XMI intents: exchanging ranges of two files.
//!
//! Blocks are exchanged extent by extent, from the front. An operation exchanges a limited number, and logs the rest in
//! a new intent with the same id.

use operations::Outcome;
use operations::RunOperations;
use operations::reserve::Claim;
use smallvec::{SmallVec, smallvec};
use vfs::Result;

use super::attribute::check_generation;
use crate::XfsCore;
use crate::format::address::FileBlock;
use crate::format::inode::{Fork, flags2};
use crate::format::log::intent::{Exchange, Intent};
use crate::inode::Handle;
use crate::map::{self, Extent, Place, Run};
use crate::op::Op;
use crate::xattr::AttrChange;

/// Maximum number of extents exchanged in one operation.
const EXCHANGED_PER_OP_MAX: usize = 256;

/// The inodes of an exchange: two, or one that exchanges its own ranges.
pub(crate) type Handles = SmallVec<[Handle; 2]>;

impl XfsCore {
    /// Does the rest of an exchange.
    pub(super) fn finish_exchange(&self, intent: &Intent, exchange: &Exchange) -> Result<()> {
        let mut left = Some(*exchange);
        while let Some(now) = left {
            let files = self.inodes_of_exchange(&now)?;
            left = self.atomically_with(
                Claim::Freeing,
                |op| op.exchange_some(&files, now),
                |left| {
                    self.log_item(intent.done());
                    if let Some(left) = left {
                        let rest = Intent::exchange(intent.id, left).regions;
                        rest.into_iter().for_each(|region| self.log_item(region));
                    }
                    Ok(())
                },
            )?;
        }
        Ok(())
    }

    fn inodes_of_exchange(&self, exchange: &Exchange) -> Result<Handles> {
        let [one, two] = &exchange.files;
        let first = self.inode_of_intent(one.ino)?;
        check_generation(&first, one.generation)?;
        if one.ino == two.ino {
            return Ok(smallvec![first]);
        }
        let second = self.inode_of_intent(two.ino)?;
        check_generation(&second, two.generation)?;
        Ok(smallvec![first, second])
    }
}

impl Op<'_> {
    /// Does a part of an exchange. Returns the rest.
    fn exchange_some(&mut self, before: &Handles, now: Exchange) -> Outcome<Option<Exchange>> {
        let mut files = before.clone();
        let mut left = now;
        let mut changes = 0;
        while left.blocks > 0 && changes < EXCHANGED_PER_OP_MAX {
            changes += usize::from(self.exchange_step(&mut files, &mut left)?);
        }
        if left.blocks == 0 {
            self.end_exchange(&mut files, &left)?;
        }
        for (file, before) in files.into_iter().zip(before) {
            self.stage_if_changed(file, before);
        }
        Ok((left.blocks > 0).then_some(left))
    }

    /// Exchanges the contiguous runs of both files at the start of the rest, or skips them. Returns whether anything
    /// changed.
    pub(crate) fn exchange_step(
        &mut self,
        files: &mut Handles,
        left: &mut Exchange,
    ) -> Outcome<bool> {
        let (fork, second) = (left.fork, files.len() - 1);
        let [first_at, second_at] = left.files.map(|file| file.offset);
        let run = map::run_at(self, &files[0], fork, first_at)?;
        let mut len = run.len.min(left.blocks);
        if left.written_only && !matches!(run.place, Place::Written(_)) {
            pass(left, len);
            return Ok(false);
        }
        let other = map::run_at(self, &files[second], fork, second_at)?;
        len = len.min(other.len);
        let is_change = run.place != other.place;
        if is_change {
            let (one, two) = (extent_of(&run, first_at, len), extent_of(&other, second_at, len));
            if let Some(one) = one {
                self.take_extent(&mut files[0], fork, one)?;
            }
            if let Some(two) = two {
                self.take_extent(&mut files[second], fork, two)?;
            }
            if let Some(two) = two {
                self.enter_extent(&mut files[0], fork, Extent { offset: first_at, ..two })?;
            }
            if let Some(one) = one {
                self.enter_extent(&mut files[second], fork, Extent { offset: second_at, ..one })?;
            }
        }
        pass(left, len);
        if is_change && left.set_sizes && fork == Fork::Data {
            for (index, file) in left.files.iter().enumerate() {
                self.grow_with(&mut files[index.min(second)], file.offset, file.size);
            }
        }
        Ok(is_change)
    }

    /// Extends the size of a file to `end`, but at most to its final size.
    fn grow_with(&self, file: &mut Handle, end: FileBlock, size_max: u64) {
        let end = end.0.saturating_mul(self.fs.volume.geometry.block_size() as u64).min(size_max);
        file.inode.set_size(file.inode.size().max(end));
    }

    /// Does the final changes of an exchange.
    pub(crate) fn end_exchange(&mut self, files: &mut Handles, exchange: &Exchange) -> Outcome<()> {
        let second = files.len() - 1;
        for (index, end) in exchange.files.iter().enumerate() {
            let file = &mut files[index.min(second)];
            if exchange.set_sizes {
                file.inode.set_size(end.size);
            }
            if end.clear_reflink {
                file.inode.set_flags2(file.inode.flags2() & !flags2::REFLINK);
            }
        }
        if exchange.fork == Fork::Attr {
            AttrChange::new(self, &mut files[second]).end_exchange()?;
        }
        Ok(())
    }
}

/// Reduces the rest of an exchange by `len` blocks.
fn pass(left: &mut Exchange, len: u64) {
    left.blocks -= len;
    for file in &mut left.files {
        file.offset = file.offset.plus(len);
    }
}

/// Returns the first `len` blocks of a run that starts at `offset`; `None` for a hole.
fn extent_of(run: &Run, offset: FileBlock, len: u64) -> Option<Extent> {
    let (start, unwritten) = match run.place {
        Place::Written(start) => (start, false),
        Place::Unwritten(start) => (start, true),
        Place::Hole => return None,
    };
    Some(Extent { offset, start, len, unwritten })
}
