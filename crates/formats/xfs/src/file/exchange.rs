//! Exchanging blocks between files.
//!
//! An exchange is one operation, so it is atomic after a crash without an intent, in images with and without the feature
//! that kernels need for theirs. Ranges whose maps and owners are in more blocks than an operation may change are
//! refused.
//!
//! The exchange is durable before the files are unlocked. Otherwise a write to one of them could overwrite blocks that
//! belong to the other one after a crash.

use operations::data::{ChangeFiles, FileHandle};
use operations::inode::InodeHandle;
use operations::{Outcome, RunOperations};
use smallvec::smallvec;
use vfs::{Error, Ino, Result, Timestamp};

use super::clone::request::check_devices;
use crate::XfsCore;
use crate::format::address::FileBlock;
use crate::format::inode::{Fork, flags2};
use crate::format::log::intent::{Exchange, ExchangeFile};
use crate::inode::Handle;
use crate::intents::exchange::Handles;
use crate::map;
use crate::op::Op;

/// Maximum number of blocks that an exchange may hold with a small log: the number that the engine assumes for each
/// operation then.
const BLOCKS_MAX_SMALL: usize = 32;

/// Maximum number with a large log.
const BLOCKS_MAX: usize = 512;

/// Blocks of the largest checkpoint for each block that an exchange may hold.
const BLOCK_SHARE: usize = 64;

impl XfsCore {
    pub(super) fn exchange_blocks(
        &self,
        one: (Ino, u64),
        two: (Ino, u64),
        len: u64,
        time: Option<Timestamp>,
    ) -> Result<()> {
        self.check_writable()?;
        let _lock = self.locks.exclusive(&[one.0, two.0]);
        let (first, second) = (self.load_file(one.0)?, self.load_file(two.0)?);
        first.protection().check_change()?;
        second.protection().check_change()?;
        check_devices(self, &first, &second)?;
        let exchange = self.exchange_of((&first, one.1), (&second, two.1), len)?;
        let files: Handles = match one.0 == two.0 {
            true => smallvec![first],
            false => smallvec![first, second],
        };
        self.atomically(|op| op.exchange_all(&files, exchange, time))?;
        operations::sync(self)
    }

    /// Returns a checked exchange.
    fn exchange_of(&self, one: (&Handle, u64), two: (&Handle, u64), len: u64) -> Result<Exchange> {
        let block = self.volume.geometry.block_size() as u64;
        let left =
            |(file, at): (&Handle, u64)| file.size().checked_sub(at).filter(|left| len <= *left);
        let (Some(left_one), Some(left_two)) = (left(one), left(two)) else {
            return Err(Error::Invalid("the range is past the end of a file"));
        };
        if !one.1.is_multiple_of(block) || !two.1.is_multiple_of(block) {
            return Err(Error::Invalid("exchanged ranges must start at a block boundary"));
        }
        let is_to_end = len == 0;
        let len = if is_to_end { left_one.max(left_two) } else { len };
        if !is_to_end && !len.is_multiple_of(block) && (len != left_one || len != left_two) {
            let problem = "a part of a block can be exchanged only at the end of both files";
            return Err(Error::Invalid(problem));
        }
        let (from, to, blocks) = (one.1 / block, two.1 / block, len.div_ceil(block));
        if one.0.ino() == two.0.ino() && (is_to_end || from.abs_diff(to) < blocks) {
            return Err(Error::Invalid("ranges of one file that overlap cannot be exchanged"));
        }
        let sizes = match is_to_end {
            true => (one.1.checked_add(left_two), two.1.checked_add(left_one)),
            false => (Some(one.0.size()), Some(two.0.size())),
        };
        let (Some(size_one), Some(size_two)) = sizes else { return Err(Error::FileTooLarge) };
        self.check_end(0, size_one.max(size_two))?;
        let file = |file: &Handle, offset: u64, size: u64| ExchangeFile {
            ino: file.ino(),
            generation: file.inode.generation(),
            offset: FileBlock(offset),
            size,
            clear_reflink: false,
        };
        let files = [file(one.0, from, size_one), file(two.0, to, size_two)];
        let fork = Fork::Data;
        Ok(Exchange { files, blocks, fork, set_sizes: is_to_end, written_only: false })
    }

    /// Returns the maximum number of blocks that an exchange may hold.
    fn exchanged_blocks_max(&self) -> usize {
        (self.engine.log_blocks_max() / BLOCK_SHARE).clamp(BLOCKS_MAX_SMALL, BLOCKS_MAX)
    }
}

impl Op<'_> {
    fn exchange_all(
        &mut self,
        before: &Handles,
        mut left: Exchange,
        time: Option<Timestamp>,
    ) -> Outcome<()> {
        let mut files = before.clone();
        let may_share = files.iter().any(map::may_share);
        while left.blocks > 0 {
            self.exchange_step(&mut files, &mut left)?;
            if left.blocks > 0 && self.txn.blocks_held() > self.fs.exchanged_blocks_max() {
                let what = "exchanging more extents than one transaction of this log can change";
                return Err(Error::unsupported(what, "exchange smaller ranges").into());
            }
        }
        self.end_exchange(&mut files, &left)?;
        for (mut file, before) in files.into_iter().zip(before) {
            if may_share {
                file.inode.set_flags2(file.inode.flags2() | flags2::REFLINK);
            }
            file.touch(time);
            self.stage_if_changed(file, before);
        }
        Ok(())
    }
}
