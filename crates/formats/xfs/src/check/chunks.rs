//! Inode chunks: the contents of the inode trees, and the numbers that identify inodes during a check.

use crate::btree::records::InodeChunk;
use crate::format::address::AgNumber;
use crate::format::geometry::{Geometry, INODES_PER_CHUNK};
use vfs::Ino;

/// A chunk in 16 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    /// The first inode, within its group.
    pub(crate) start: u32,
    /// Mask of the groups of four inodes that have no blocks.
    pub(crate) holes: u16,
    /// Mask of the inodes that are free or have no blocks.
    pub(crate) free: u64,
}

impl Chunk {
    pub(crate) const fn new(record: &InodeChunk) -> Self {
        Self { start: record.start.0, holes: record.holemask, free: record.free }
    }

    /// Returns whether an inode has blocks.
    pub(crate) const fn has(&self, nth: u32) -> bool {
        self.holes >> (nth / 4) & 1 == 0
    }

    pub(crate) const fn is_free(&self, nth: u32) -> bool {
        self.free >> nth & 1 == 1
    }
}

/// The chunks of a group, in order.
#[derive(Debug, Default)]
pub(crate) struct AgChunks {
    pub(crate) chunks: Vec<Chunk>,
    /// True if the tree could be read completely.
    pub(crate) is_whole: bool,
}

impl AgChunks {
    /// Returns whether an inode of the group has blocks and is in use.
    pub(crate) fn is_used(&self, ag_ino: u32) -> bool {
        let behind = self.chunks.partition_point(|chunk| chunk.start <= ag_ino);
        let chunk = behind.checked_sub(1).map(|at| self.chunks[at]);
        chunk.is_some_and(|chunk| {
            let nth = ag_ino - chunk.start;
            nth < INODES_PER_CHUNK && chunk.has(nth) && !chunk.is_free(nth)
        })
    }
}

/// All chunks. Inodes are numbered consecutively, 64 per chunk, in order.
#[derive(Debug)]
pub(super) struct Chunks {
    geometry: Geometry,
    ags: Vec<AgChunks>,
    /// By group: number of chunks in the groups before.
    before: Vec<u32>,
    total: u32,
}

/// The state of an inode according to its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InodeState {
    /// It is in use.
    Used(u32),
    Free,
    /// There is no such inode.
    None,
    /// Its group's tree could not be read.
    Unknown,
}

impl Chunks {
    pub(super) fn new(geometry: &Geometry, ags: Vec<AgChunks>) -> Option<Self> {
        let (mut total, mut before) = (0_u32, Vec::with_capacity(ags.len()));
        for ag in &ags {
            before.push(total);
            total = total.checked_add(u32::try_from(ag.chunks.len()).ok()?)?;
        }
        total.checked_mul(INODES_PER_CHUNK)?;
        Some(Self { geometry: *geometry, ags, before, total })
    }

    pub(super) const fn inodes(&self) -> usize {
        (self.total * INODES_PER_CHUNK) as usize
    }

    pub(super) const fn count(&self) -> u32 {
        self.total
    }

    pub(super) fn of(&self, ag: AgNumber) -> &AgChunks {
        &self.ags[ag.0 as usize]
    }

    /// Returns the chunk of this number, and its group.
    pub(super) fn chunk(&self, number: u32) -> (AgNumber, Chunk) {
        let ag = self.before.partition_point(|before| *before <= number) - 1;
        let ag = AgNumber(ag as u32);
        (ag, self.of(ag).chunks[(number - self.before[ag.0 as usize]) as usize])
    }

    /// Returns the inode of a number.
    pub(super) fn ino(&self, number: u32) -> Ino {
        let (ag, chunk) = self.chunk(number / INODES_PER_CHUNK);
        let ino = self.geometry.ino(ag, crate::format::address::AgIno(chunk.start));
        Ino(ino.0 + u64::from(number % INODES_PER_CHUNK))
    }

    pub(super) fn find(&self, ino: Ino) -> InodeState {
        let Some((ag, ag_ino)) = self.geometry.split_ino(ino) else { return InodeState::None };
        let group = self.of(ag);
        let behind = group.chunks.partition_point(|chunk| chunk.start <= ag_ino.0);
        let found = behind.checked_sub(1).and_then(|at| {
            let nth = ag_ino.0 - group.chunks[at].start;
            (nth < INODES_PER_CHUNK).then_some((at, nth))
        });
        match found {
            Some((at, nth)) if !group.chunks[at].is_free(nth) => {
                let number = (self.before[ag.0 as usize] + at as u32) * INODES_PER_CHUNK + nth;
                InodeState::Used(number)
            }
            Some((at, nth)) if group.chunks[at].has(nth) => InodeState::Free,
            _ if !group.is_whole => InodeState::Unknown,
            _ => InodeState::None,
        }
    }
}
