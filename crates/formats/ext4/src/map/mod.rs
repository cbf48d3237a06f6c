//! Mapping of file blocks to device blocks: extent trees and block maps.

pub(crate) mod extent;
mod find;
pub(crate) mod indirect;
mod provide;

use operations::data;

use crate::format::address::Block;

pub(crate) use find::{FILE_BLOCKS_MAX, run_at};
pub(crate) use operations::data::{Want, Was};

/// Position of a run of blocks.
pub(crate) type Mapping = data::Mapping<Block>;

/// Contiguous run of file blocks.
pub(crate) type MappedRun = data::MappedRun<Block>;

/// Contiguous run of file blocks as [`crate::op::Op::provide`] left them. ext4 files share no blocks, so none are
/// copied.
pub(crate) type Piece = data::Piece<Block>;
