//! In-memory state of each allocation group: its headers as of the last committed operation. The headers on disk are
//! updated when a checkpoint is closed.

use std::ops::Deref;
use std::sync::atomic::Ordering;

use engine::locks::atomic::AtomicU32;
use operations::groups::{self, Group, Groups};
use operations::reserve::{Claim, ReserveSize};

use super::busy::BusyBlocks;
use crate::format::address::{AgBlock, AgNumber};
use crate::format::btree::TreeShape;
use crate::format::geometry::{Geometry, INODES_PER_CHUNK};
use crate::inode::{KnownChunks, ReservedInodes};

/// Size of the reserve for operations that free: as in kernels, a share of each group (5 %, at most 8192 blocks in all;
/// the default of `XFS_IOC_SET_RESBLKS`).
const RESERVE: ReserveSize = ReserveSize { one_in: 20, total_max: 8192 };

/// Minimum number of blocks kept free in a group, in addition to the needs of the AGFL and the tree of free inodes: for
/// trees that grow other than by ordinary allocations.
const HELD_BACK_MIN: u32 = 8;

/// The trees of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum AgTree {
    /// Free space by block.
    Bno,
    /// Free space by length.
    Cnt,
    /// Reverse map.
    Rmap,
    /// Reference counts.
    Refcount,
    /// Inode chunks.
    Ino,
    /// Inode chunks with free inodes.
    Fino,
}

/// Number of trees of a group.
pub(crate) const AG_TREES: usize = 6;

/// The root of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Root {
    /// The root block.
    pub(crate) block: AgBlock,
    /// Levels of the tree: 1 if the root is a leaf.
    pub(crate) levels: u8,
}

/// State of a group's headers. Its fields are checked when they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgState {
    /// Blocks of the group (`agf_length`).
    pub(crate) length: u32,
    /// Roots, indexed by [`AgTree`]; `levels` is 0 for a tree that the file system does not have.
    pub(crate) roots: [Root; AG_TREES],
    /// Blocks of the trees, as counted in headers: reverse map, references (including roots), inode trees
    /// (`agi_iblocks`, `agi_fblocks`, including roots).
    pub(crate) rmap_blocks: u32,
    /// See `rmap_blocks`.
    pub(crate) refcount_blocks: u32,
    /// See `rmap_blocks`.
    pub(crate) ino_blocks: u32,
    /// See `rmap_blocks`.
    pub(crate) fino_blocks: u32,
    /// First and last valid entry of the AGFL, and number of entries.
    pub(crate) flfirst: u32,
    /// See `flfirst`.
    pub(crate) fllast: u32,
    /// See `flfirst`.
    pub(crate) flcount: u32,
    /// Free blocks in the free-space trees.
    pub(crate) freeblks: u32,
    /// Length of the longest free extent.
    pub(crate) longest: u32,
    /// Blocks of the free-space trees and the reverse map, without roots.
    pub(crate) btreeblks: u32,
    /// Inodes allocated in chunks, in use or not.
    pub(crate) icount: u32,
    /// Free inodes among `icount`.
    pub(crate) ifree: u32,
    /// The chunk allocated last (`agi_newino`).
    pub(crate) newino: u32,
    /// `agi_dirino`; not changed.
    pub(crate) dirino: u32,
    /// Free realtime extents, in groups of the realtime section alone. See [`Ags::new`].
    pub(crate) frextents: u64,
    /// Positions of records in the inode trees. In memory only.
    pub(crate) known_chunks: KnownChunks,
}

impl AgState {
    /// Returns the root of a tree.
    pub(crate) fn root(&self, tree: AgTree) -> Root {
        self.roots[tree as usize]
    }

    /// Returns the number of AGFL entries that one change of free space may need: the free-space trees and the reverse
    /// map may each split on every level twice (the kernel's rule, `xfs_alloc_min_freelist`).
    pub(crate) fn agfl_needed(&self) -> u32 {
        let levels = |tree| u32::from(self.root(tree).levels);
        2 * (levels(AgTree::Bno) + levels(AgTree::Cnt) + levels(AgTree::Rmap))
    }
}

/// Parameters of the blocks withheld from allocations of a group; derived from the geometry.
#[derive(Clone, Copy, Debug, Default)]
struct Holding {
    /// The group's share of the reserve.
    share: u32,
    /// Minimum number of records of a leaf, and of entries of a node, of the tree of free inodes.
    fino_leaf: u32,
    fino_node: u32,
}

impl Holding {
    fn of(geometry: &Geometry, ag: AgNumber, state: &AgState) -> Self {
        Self {
            share: RESERVE.share(ag.0, geometry.ag_count, state.length),
            fino_leaf: TreeShape::FINO.leaf_area(geometry).min().max(1) as u32,
            fino_node: TreeShape::FINO.node_area(geometry).min().max(1) as u32,
        }
    }

    /// Returns the number of blocks of a group that allocations for files and inodes must leave free, also in images in
    /// progress. They ensure that freeing never fails for lack of blocks. Their purposes are AGFL blocks for the next
    /// change of free space, growth of the tree of free inodes, and growth of the reference-count tree.
    fn held_back(&self, state: &AgState) -> u32 {
        let has_fino = state.root(AgTree::Fino).levels > 0;
        let fino = if has_fino { self.fino_growth(state.icount, state.fino_blocks) } else { 0 };
        let shared = state.refcount_blocks.saturating_sub(1);
        state.agfl_needed() + HELD_BACK_MIN + fino + shared
    }

    /// Returns the number of additional blocks of the tree of free inodes if every chunk has free inodes.
    fn fino_growth(&self, icount: u32, blocks: u32) -> u32 {
        let chunks = icount.div_ceil(INODES_PER_CHUNK);
        let leaves = chunks.div_ceil(self.fino_leaf.max(1));
        let nodes = leaves.div_ceil(self.fino_node.max(1));
        (leaves + 2 * nodes).saturating_sub(blocks)
    }

    /// Returns the number of blocks that must remain free after an operation with this claim.
    fn withheld(&self, held_back: u32, claim: Claim) -> u32 {
        match claim {
            // Blocks for the group's own trees remain.
            Claim::Freeing => held_back.saturating_sub(HELD_BACK_MIN),
            _ => held_back + claim.withheld(self.share),
        }
    }
}

/// Fields of a group that can be read without its lock.
#[derive(Default)]
pub(crate) struct Ag {
    holding: Holding,
    /// Copies of fields of the state as of the last committed operation, for choosing a group.
    freeblks: AtomicU32,
    longest: AtomicU32,
    ifree: AtomicU32,
    icount: AtomicU32,
    /// Blocks that the superblock counts as free in addition to `freeblks`: those of the AGFL and of trees.
    reserve: AtomicU32,
    /// Part of `freeblks` that allocations must leave free, without the share of the reserve.
    held_back: AtomicU32,
    /// Free blocks promised to deferred files. Grows only under the group's lock.
    promised: AtomicU32,
    /// Free inodes reserved for deferred files.
    pub(crate) reserved: ReservedInodes,
}

impl Group for Ag {
    type Number = AgNumber;
    type State = AgState;
    type Busy = BusyBlocks;

    fn index(ag: AgNumber) -> usize {
        ag.0 as usize
    }

    fn publish(&self, state: &AgState, _: &BusyBlocks) {
        self.freeblks.store(state.freeblks, Ordering::Relaxed);
        self.longest.store(state.longest, Ordering::Relaxed);
        self.ifree.store(state.ifree, Ordering::Relaxed);
        self.icount.store(state.icount, Ordering::Relaxed);
        self.reserve.store(state.flcount + state.btreeblks, Ordering::Relaxed);
        self.held_back.store(self.holding.held_back(state), Ordering::Relaxed);
    }

    fn is_changed(before: &AgState, after: &AgState) -> bool {
        // State that exists only in memory does not require writing the headers.
        let known_chunks = after.known_chunks;
        AgState { known_chunks, ..*before } != *after
    }
}

/// All groups.
pub(crate) struct Ags(Groups<Ag>);

/// Summary of a group, read without its lock, so possibly outdated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgSummary {
    pub(crate) freeblks: u32,
    pub(crate) longest: u32,
    pub(crate) ifree: u32,
    pub(crate) icount: u32,
    /// Blocks of the AGFL and of the free-space trees.
    pub(crate) reserve: u32,
    /// Free blocks that ordinary operations may take.
    pub(crate) available: u32,
}

impl Ags {
    /// Returns the groups with these states, and those of the realtime section after them. It has `frextents` free
    /// extents. With realtime groups, group 0 starts with that number, and the others with 0: only the wrapping sum is
    /// a count, because counting each would mean to read all bitmaps.
    pub(crate) fn new(geometry: &Geometry, states: Vec<AgState>, frextents: u64) -> Self {
        let groups = geometry.ags().zip(states).map(|(number, state)| {
            let holding = Holding::of(geometry, number, &state);
            (Ag { holding, ..Ag::default() }, state, BusyBlocks::default())
        });
        let numbers = 0..geometry.realtime.map_or(0, |realtime| realtime.groups());
        let realtime = numbers.map(|number| {
            let frextents = if number == 0 { frextents } else { 0 };
            let state = AgState { frextents, ..AgState::default() };
            (Ag::default(), state, BusyBlocks::default())
        });
        Self(Groups::new(groups.chain(realtime)))
    }

    /// Returns the summary of a group without locking it.
    pub(crate) fn summary(&self, ag: AgNumber) -> AgSummary {
        let ag = self.group(ag);
        AgSummary {
            available: ag.usable(Claim::Ordinary),
            freeblks: ag.freeblks.load(Ordering::Relaxed),
            longest: ag.longest.load(Ordering::Relaxed),
            ifree: ag.ifree.load(Ordering::Relaxed),
            icount: ag.icount.load(Ordering::Relaxed),
            reserve: ag.reserve.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of free realtime extents, for an image with a realtime section.
    pub(crate) fn free_realtime(&self, geometry: &Geometry) -> u64 {
        let groups = geometry.realtime.map_or(0, |realtime| realtime.groups());
        let counts = (0..groups).map(|group| self.state(AgNumber(geometry.ag_count + group)));
        counts.fold(0, |sum, state| sum.wrapping_add(state.frextents))
    }

    /// Returns the number of free blocks of a group that a claim may take, without locking it. Possibly outdated.
    pub(crate) fn usable(&self, ag: AgNumber, claim: Claim) -> u32 {
        self.group(ag).usable(claim)
    }
}

impl Deref for Ags {
    type Target = Groups<Ag>;

    fn deref(&self) -> &Groups<Ag> {
        &self.0
    }
}

impl Ag {
    fn usable(&self, claim: Claim) -> u32 {
        let held_back = self.held_back.load(Ordering::Relaxed);
        let free = self.freeblks.load(Ordering::Relaxed);
        free.saturating_sub(self.withheld(held_back, claim))
    }

    /// Returns the number of blocks that must remain free after an operation with this claim.
    fn withheld(&self, held_back: u32, claim: Claim) -> u32 {
        let withheld = self.holding.withheld(held_back, claim);
        match claim {
            // Promised blocks are available to the batch that applies deferred files. Operations that free take few
            // blocks.
            Claim::Freeing | Claim::Unbounded => withheld,
            Claim::Ordinary | Claim::Promised => withheld + self.promised.load(Ordering::Relaxed),
        }
    }

    /// Promises blocks to deferred files. The group must be held and have as many usable blocks.
    pub(crate) fn promise(&self, blocks: u32) {
        self.promised.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Releases promised blocks.
    pub(crate) fn release(&self, blocks: u32) {
        self.promised.fetch_sub(blocks, Ordering::Relaxed);
    }
}

/// A group held by an operation.
pub(crate) type GroupGuard<'a> = groups::GroupGuard<'a, Ag>;

/// The groups held by an operation.
pub(crate) type HeldGroups<'a> = groups::HeldGroups<'a, Ag>;

/// Returns the number of free blocks of a held group that a claim may take. Allocations for files and inodes leave free
/// what the group's own trees may need, also in images in progress.
pub(super) fn usable(guard: &GroupGuard<'_>, claim: Claim) -> u32 {
    let ag = guard.group();
    guard.freeblks.saturating_sub(ag.withheld(ag.holding.held_back(guard), claim))
}
