//! Conversion of a file with inline data to blocks, before its contents change.

use operations::Outcome;
use operations::data::{DataRun, write_run};
use vfs::Result;

use crate::Ext4Core;
use crate::format::address::FileBlock;
use crate::format::inode::flags;
use crate::inode::Handle;
use crate::inode::inline;
use crate::map::Want;
use crate::op::Op;

/// Inline data, read before the operation that moves it to a block.
pub struct Unpacked {
    contents: inline::InlineData,
    /// Rest of the inode's slot after the fixed fields, without the inline data.
    pub(super) tail: Vec<u8>,
}

impl Ext4Core {
    /// Returns the inline data of a file, or `None` if it has blocks.
    pub(super) fn unpack(&self, file: &Handle) -> Result<Option<Unpacked>> {
        if !file.has_flag(flags::INLINE_DATA) {
            return Ok(None);
        }
        let mut contents = inline::all(self, file)?;
        let size = usize::try_from(file.inode.size()).unwrap_or(usize::MAX);
        contents.truncate(size.min(self.volume.block_size()));
        Ok(Some(Unpacked { contents, tail: self.tail_without_inline_data(file)? }))
    }
}

impl Op<'_> {
    /// Gives a file an empty map and writes the former inline data to its first block.
    pub(super) fn use_unpacked(&mut self, file: &mut Handle, unpacked: &Unpacked) -> Outcome<()> {
        file.inode.set_flag(flags::INLINE_DATA, false);
        file.inode.i_block_mut().fill(0);
        self.fs.init_map(file);
        if unpacked.contents.is_empty() {
            return Ok(());
        }
        let piece = self.provide(file, FileBlock(0), 1, Want::Written)?;
        let volume = &self.fs.volume;
        let (place, len) = (volume.geometry.byte_of(piece.start), volume.block_size() as u64);
        let run = DataRun { offset: 0, place, len, is_exposed: true, was_unwritten: false };
        Ok(write_run(self.fs, &run, 0, &unpacked.contents)?)
    }
}
