//! Inodes in the log. Kernels read and write them in clusters of several blocks, so those are logged as buffers.
//! Otherwise a replay would have the same blocks in buffers of two sizes.
//!
//! For a cluster that is logged whole, an ICREATE item represents the contents of free inodes, followed only by the
//! differences.

use std::ops::Range;

use engine::BlockImage;
use smallvec::SmallVec;

use crate::format::address::{AgIno, Block};
use crate::format::bytes::be32;
use crate::format::geometry::Geometry;
use crate::format::inode::{GENERATION_OFFSET, pieces_beside_free};
use crate::format::log::buffer::{BufferFormat, BufferPlace, BufferType, CHUNK, runs_of};
use crate::format::log::build::Operations;
use crate::format::log::icreate::Icreate;

/// Runs of chunks of a buffer.
type Runs = SmallVec<[Range<usize>; 16]>;

/// A cluster of inodes with changed blocks, collected.
#[derive(Default)]
pub(super) struct Cluster {
    /// Its first block.
    pub(super) first: u64,
    /// Number of its blocks; 0 if nothing is collected.
    pub(super) blocks: u32,
    /// Changed pieces of each of its blocks up to the last changed one, as in [`BlockImage::pieces`].
    pieces: Vec<u64>,
    bytes: Vec<u8>,
}

impl Cluster {
    /// Returns the first block of the cluster that contains a block of inodes.
    pub(super) fn first_of(geometry: &Geometry, block: u64) -> u64 {
        let (_, within) = geometry.locate(Block(block));
        block - u64::from(within.0 % geometry.cluster_blocks())
    }

    /// Adds the changes of a block of inodes. Blocks must be added in ascending order. The cluster must be the block's
    /// or empty.
    pub(super) fn gather(&mut self, geometry: &Geometry, image: &BlockImage<'_>) {
        if self.blocks == 0 {
            self.first = Self::first_of(geometry, image.block);
            self.blocks = geometry.cluster_blocks();
        }
        let before = (image.block - self.first) as usize;
        self.pieces.resize(before, 0);
        self.pieces.push(image.pieces);
        self.bytes.resize(before * geometry.block_size(), 0);
        self.bytes.extend_from_slice(image.data);
    }

    /// Returns the blocks with changes.
    pub(super) fn changed(&self) -> impl Iterator<Item = u64> + '_ {
        (self.first..).zip(&self.pieces).filter(|(_, pieces)| **pieces != 0).map(|(block, _)| block)
    }

    /// Empties the cluster, but keeps its memory.
    pub(super) fn clear(&mut self) {
        self.blocks = 0;
        self.pieces.clear();
        self.bytes.clear();
    }

    /// Adds the items of the collected blocks.
    pub(super) fn write(&self, geometry: &Geometry, operations: &mut Operations) {
        let is_whole = self.pieces.len() == self.blocks as usize
            && self.pieces.iter().all(|pieces| *pieces == u64::MAX);
        let runs = if is_whole && geometry.has_sparse_clusters() {
            let created = self.as_created(geometry);
            operations.push(&created.encode());
            self.beside(geometry, &created)
        } else {
            self.changed_runs(geometry)
        };
        if runs.is_empty() {
            return;
        }
        let place = BufferPlace::of_blocks(geometry, Block(self.first), self.blocks);
        operations.push(BufferFormat::new(place, BufferType::Dinode, &runs).as_bytes());
        runs.iter()
            .for_each(|run| operations.push(&self.bytes[run.start * CHUNK..run.end * CHUNK]));
    }

    /// Returns the runs that changed. Each is within one block, so that no region is longer than a block.
    fn changed_runs(&self, geometry: &Geometry) -> Runs {
        let size = geometry.block_size();
        let of_block = |(at, pieces): (usize, &u64)| {
            let first = at * size / CHUNK;
            runs_of(*pieces, size).into_iter().map(move |run| first + run.start..first + run.end)
        };
        self.pieces.iter().enumerate().flat_map(of_block).collect()
    }

    /// Returns the ICREATE item for the cluster.
    fn as_created(&self, geometry: &Geometry) -> Icreate {
        let (ag, block) = geometry.locate(Block(self.first));
        Icreate {
            ag,
            block,
            inodes: self.blocks << geometry.inodes_per_block_log(),
            inode_size: geometry.inode_size() as u32,
            blocks: self.blocks,
            generation: be32(&self.bytes, GENERATION_OFFSET),
        }
    }

    /// Returns the runs of chunks in which the inodes differ from newly created ones.
    fn beside(&self, geometry: &Geometry, created: &Icreate) -> Runs {
        let size = geometry.block_size() / CHUNK;
        let first = geometry.first_ino(created.block);
        let mut runs = Runs::new();
        let slots = self.bytes.chunks_exact(geometry.inode_size());
        for (index, slot) in slots.enumerate() {
            let ino = geometry.ino(created.ag, AgIno(first.0 + index as u32));
            let start = index * slot.len() / CHUNK;
            let generation = created.generation;
            let mut changed = pieces_beside_free::<CHUNK>(geometry, ino, generation, slot);
            while changed != 0 {
                let chunk = start + changed.trailing_zeros() as usize;
                changed &= changed - 1;
                match runs.last_mut() {
                    Some(run) if run.end == chunk && !chunk.is_multiple_of(size) => run.end += 1,
                    _ => runs.push(chunk..chunk + 1),
                }
            }
        }
        runs
    }
}
