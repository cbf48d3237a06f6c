//! File contents, as far as they are specific to ext4. The common part is in [`operations::data`], whose traits [`data`]
//! implements.

mod data;
mod encrypted;
mod read;
mod truncate;
mod unpack;

pub(crate) use read::{extent_map, is_fast, read, read_contents, read_in_place, readlink};

use operations::Outcome;
use operations::data::{write_data, write_zeros};

use crate::format::address::FileBlock;
use crate::inode::Handle;
use crate::map::Want;
use crate::op::Op;

/// Maximum number of runs that one operation maps or frees. It changes about as many metadata blocks, which fit into a
/// small journal.
pub(crate) const CHANGES_PER_OP_MAX: u32 = 128;

/// File size in bytes from which the feature large_file is required.
const LARGE_FILE_FROM: u64 = 1 << 31;

impl Op<'_> {
    /// Gives a new file its first block, with `data` at the start and zeros after it.
    pub(crate) fn write_new_block(&mut self, file: &mut Handle, data: &[u8]) -> Outcome<()> {
        let piece = self.provide(file, FileBlock(0), 1, Want::Written)?;
        let (volume, engine) = (&self.fs.volume, &self.fs.engine);
        let start = volume.geometry.byte_of(piece.start);
        write_data(engine, start, data)?;
        let end = start + volume.block_size() as u64;
        Ok(write_zeros(engine, start + data.len() as u64..end)?)
    }
}
