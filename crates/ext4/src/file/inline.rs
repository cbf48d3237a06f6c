//! Giving a file whose data lies in its inode blocks instead, before its contents change.

use vfs::Result;

use super::data::{DataRun, DataRuns};
use crate::Ext4;
use crate::block_map::Want;
use crate::format::address::FileBlock;
use crate::format::inode::flags;
use crate::op::{Handle, Op};
use crate::read;

/// Inline data, read before the operation that puts it into a block.
pub(super) struct Unpacked {
    contents: read::inline::Contents,
    /// What follows the fixed fields of the inode, without the data.
    tail: Vec<u8>,
}

impl Ext4 {
    /// The inline data of a file, if that is what it has.
    pub(super) fn unpack(&self, file: &Handle) -> Result<Option<Unpacked>> {
        if !file.has_flag(flags::INLINE_DATA) {
            return Ok(None);
        }
        let mut contents = read::inline::all(self, file)?;
        let size = usize::try_from(file.inode.size()).unwrap_or(usize::MAX);
        contents.truncate(size.min(self.volume.block_size()));
        Ok(Some(Unpacked { contents, tail: self.tail_without_inline_data(file)? }))
    }
}

impl Op<'_> {
    /// Gives a file an empty map and writes what was inline into its first block.
    pub(super) fn use_unpacked(
        &mut self,
        file: &mut Handle,
        unpacked: Option<&Unpacked>,
    ) -> Result<()> {
        let Some(Unpacked { contents, .. }) = unpacked else { return Ok(()) };
        file.inode.set_flag(flags::INLINE_DATA, false);
        file.inode.i_block_mut().fill(0);
        self.init_map(file);
        if contents.is_empty() {
            return Ok(());
        }
        let piece = self.provide(file, FileBlock(0), 1, Want::Written)?;
        let mut runs = DataRuns::new();
        let (start, was_unwritten) = (piece.start, false);
        runs.push(DataRun { block: 0, start, len: 1, is_exposed: true, was_unwritten });
        self.fs.write_run(&runs[0], 0, contents)
    }

    /// Writes the inode of a file when the operation commits, if it changed; without the inline
    /// data it had.
    pub(super) fn stage_contents(
        &mut self,
        file: Handle,
        before: &Handle,
        unpacked: Option<&Unpacked>,
    ) {
        match unpacked {
            Some(unpacked) => self.stage_with_tail(file, unpacked.tail.clone()),
            None => self.stage_if_changed(file, before),
        }
    }
}
