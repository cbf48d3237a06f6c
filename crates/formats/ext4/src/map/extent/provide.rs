//! Mapping the blocks that a change of contents needs, in the required state.

use operations::Mode;
use operations::Outcome;
use operations::data::{NearbyPlace, nearby_place};
use operations::reserve::Claim;
use smallvec::smallvec;
use vfs::Error;

use super::ExtentTree;
use super::path::ExtentPath;
use super::replace::Pieces;
use super::step::check_blocks;
use crate::format::address::{Block, FileBlock};
use crate::format::extent::{DEPTH_MAX, Extent, UNWRITTEN_LEN_MAX, WRITTEN_LEN_MAX};
use crate::map::{Piece, Want, Was};

/// Generous limit on the structural changes until a leaf has room.
pub(super) const ROUNDS_MAX: usize = 4 * DEPTH_MAX as usize;

/// Mapping of one file block.
enum Spot {
    /// This extent, entry `at` of the leaf.
    Extent { at: usize, extent: Extent },
    /// A hole up to `end`. A new extent would be entry `at`.
    Hole { at: usize, end: u64, neighbours: Neighbours },
}

/// The extents of a leaf before and after a hole.
type Neighbours = (Option<Extent>, Option<Extent>);

/// The preferred position of new blocks: behind `free` blocks that stay free, from `start` on.
pub(super) struct Goal {
    pub(super) start: Block,
    pub(super) free: u32,
}

impl ExtentTree<'_, '_> {
    /// Implements [`crate::op::Op::provide`] for a file with an extent tree.
    pub(crate) fn provide(&mut self, block: FileBlock, limit: u32, want: Want) -> Outcome<Piece> {
        let mut taken = None;
        for _ in 0..ROUNDS_MAX {
            let path = self.path_to(block)?;
            let done = match self.spot(&path, block)? {
                Spot::Extent { at, extent } => {
                    check_blocks(
                        &self.op.fs.volume,
                        self.file,
                        extent.start,
                        u64::from(extent.len),
                    )?;
                    self.bring_to_state(&path, at, extent, block..FileBlock(limit), want)?
                }
                Spot::Hole { at, end, neighbours } => {
                    let (start, len) = match taken {
                        Some(run) => run,
                        None => {
                            let len = end.min(u64::from(limit)) as u32 - block.0;
                            let goal = self.goal_between(neighbours, block, len);
                            self.take_run(goal, block, len, want)?
                        }
                    };
                    taken = Some((start, len));
                    let unwritten = want != Want::Written;
                    let extent = Extent { block, len, start, unwritten };
                    self.replace(&path, at..at, smallvec![extent])?.then_some(Piece {
                        start,
                        len: len.into(),
                        was: Was::Hole,
                        written: !unwritten,
                        copied_from: None,
                    })
                }
            };
            if let Some(piece) = done {
                return Ok(piece);
            }
        }
        Err(self.file.corrupt("extent tree", "no space after splitting").into())
    }

    /// Maps an extent of allocated blocks in a hole of the file and counts them. Not for clusters of several blocks.
    pub(crate) fn map_given(&mut self, given: Extent) -> Outcome<()> {
        for _ in 0..ROUNDS_MAX {
            let path = self.path_to(given.block)?;
            let Spot::Hole { at, end, .. } = self.spot(&path, given.block)? else {
                return Err(self.file.corrupt("extent tree", "unexpected blocks").into());
            };
            if given.end() > end {
                return Err(self.file.corrupt("extent tree", "unexpected blocks").into());
            }
            if self.replace(&path, at..at, smallvec![given])? {
                return self.op.add_clusters(self.file, given.len);
            }
        }
        Err(self.file.corrupt("extent tree", "no space after splitting").into())
    }

    /// Allocates up to `len` contiguous blocks for the start of a hole.
    fn take_run(
        &mut self,
        goal: Goal,
        block: FileBlock,
        len: u32,
        want: Want,
    ) -> Outcome<(Block, u32)> {
        let len_max = if want == Want::Written { WRITTEN_LEN_MAX } else { UNWRITTEN_LEN_MAX };
        if self.op.fs.volume.geometry.cluster_blocks_log > 0 {
            return self.take_in_clusters(goal, block, len.min(len_max));
        }
        let (start, len) = self.op.allocate_behind(goal.start, goal.free, len.min(len_max))?;
        self.op.add_clusters(self.file, len)?;
        Ok((start, len))
    }

    fn spot(&self, path: &ExtentPath, block: FileBlock) -> Outcome<Spot> {
        let leaf = path[path.len() - 1];
        let node = self.node(&leaf)?;
        let before = leaf.position.map(|at| (at, node.extent(at)));
        if let Some((at, extent)) = before
            && u64::from(block.0) < extent.end()
        {
            return Ok(Spot::Extent { at, extent });
        }
        let at = before.map_or(0, |(at, _)| at + 1);
        let after = (at < node.len()).then(|| node.extent(at));
        let end = after.map_or(leaf.end, |next| u64::from(next.block.0).min(leaf.end));
        if end <= u64::from(block.0) {
            return Err(self
                .file
                .corrupt("extent tree node", "it has no entry for a block that it contains")
                .into());
        }
        Ok(Spot::Hole { at, end, neighbours: (before.map(|(_, extent)| extent), after) })
    }

    /// Returns the preferred position of `len` new blocks from `block` on.
    fn goal_between(&self, neighbours: Neighbours, block: FileBlock, len: u32) -> Goal {
        let geometry = &self.op.fs.volume.geometry;
        let (before, after) = neighbours;
        let at = u64::from(block.0);
        // A build writes each file from front to back, and its holes stay.
        let place = if self.op.fs.mode == Mode::InProgress {
            NearbyPlace::Behind { free: 0 }
        } else {
            let hole = (before.map(|it| it.end()), after.map(|it| it.block.0.into()));
            nearby_place(hole, &(at..at + u64::from(len)), geometry.block_size_log)
        };
        let behind = before.map(|it| it.start.plus(it.len.into()));
        let in_front =
            after.and_then(|it| it.start.0.checked_sub(u64::from(it.block.0) - at).map(Block));
        let (start, free) = match place {
            NearbyPlace::Behind { free } if before.is_some() || free > 0 => (behind, free as u32),
            NearbyPlace::Behind { .. } | NearbyPlace::InFront => (in_front, 0),
        };
        let start = start.filter(|start| geometry.contains(*start, 1));
        Goal { start: start.unwrap_or_else(|| self.op.metadata_goal(self.file)), free }
    }

    /// Makes `range` of an extent written or unwritten, as requested. Returns `None` if the tree had no room.
    fn bring_to_state(
        &mut self,
        path: &ExtentPath,
        at: usize,
        extent: Extent,
        range: std::ops::Range<FileBlock>,
        want: Want,
    ) -> Outcome<Option<Piece>> {
        let skip = range.start.0 - extent.block.0;
        let len = extent.end().min(u64::from(range.end.0)) as u32 - range.start.0;
        let start = extent.start.plus(u64::from(skip));
        let was = if extent.unwritten { Was::Unwritten } else { Was::Written };
        let unwritten = match want {
            Want::Written => false,
            Want::Allocated | Want::Own => extent.unwritten,
            Want::Zeroed => true,
        };
        let piece = |len: u32| {
            let (len, written) = (len.into(), !unwritten);
            Piece { start, len, was, written, copied_from: None }
        };
        if unwritten == extent.unwritten {
            return Ok(Some(piece(len)));
        }
        let len = if unwritten { len.min(UNWRITTEN_LEN_MAX) } else { len };
        let mut pieces = Pieces::new();
        if skip > 0 {
            pieces.push(Extent { len: skip, ..extent });
        }
        pieces.push(Extent { block: range.start, len, start, unwritten });
        let end = skip + len;
        if end < extent.len {
            let block = extent.block.checked_plus(end).ok_or(Error::FileTooLarge)?;
            let start = extent.start.plus(u64::from(end));
            pieces.push(Extent { block, len: extent.len - end, start, ..extent });
        }
        // The space already belongs to the file, so writing to it must not fail because the map needs a block.
        let claim = self.op.claim;
        self.op.claim = claim.max(Claim::Promised);
        let done = self.replace(path, at..at + 1, pieces)?;
        self.op.claim = claim;
        Ok(done.then_some(piece(len)))
    }
}
