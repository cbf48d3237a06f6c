//! Which blocks of the device hold which blocks of a file: extent trees and block maps, read and changed.

pub(crate) mod extent;
mod find;
pub(crate) mod indirect;
mod provide;

use operation::data;

use crate::format::address::Block;

pub(crate) use find::{FILE_BLOCKS_MAX, run_at};
pub(crate) use operation::data::{Want, Was};

/// Where a run of blocks is.
pub(crate) type Place = data::Place<Block>;

/// Some blocks of a file that lie together.
pub(crate) type Run = data::Run<Block>;

/// Some blocks of a file that lie together, as [`crate::op::Op::provide`] left them. No file shares
/// its blocks, so none are copied.
pub(crate) type Piece = data::Piece<Block>;
