//! What is known of each allocation group in memory: what its headers say, as of the last committed
//! operation. The headers on disk follow when a checkpoint is closed.

use std::ops::Deref;
use std::sync::atomic::Ordering;

use operation::groups::{self, Group, Groups};
use operation::reserve::{Claim, ReserveSize};
use transaction::locks::atomic::AtomicU32;

use super::busy::BusyBlocks;
use crate::format::address::{AgBlock, AgNumber};
use crate::format::btree::Shape;
use crate::format::geometry::{Geometry, INODES_PER_CHUNK};
use crate::inode::{KnownChunks, ReservedInodes};

/// How much is kept for operations that free: as much as kernels keep, of each group (5 %, at most 8192
/// blocks; the default of `XFS_IOC_SET_RESBLKS`).
const RESERVE: ReserveSize = ReserveSize { one_in: 20, total_max: 8192 };

/// Blocks that are left free in a group, beside what the AGFL and the tree of free inodes may need: for
/// trees that others than ordinary allocations make grow.
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
    /// Counts of references.
    Refcount,
    /// Inode chunks.
    Ino,
    /// Inode chunks with free inodes.
    Fino,
}

/// Trees of a group.
pub(crate) const AG_TREES: usize = 6;

/// Where a tree starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Root {
    /// The root block.
    pub(crate) block: AgBlock,
    /// Levels of the tree: 1 if the root is a leaf.
    pub(crate) levels: u8,
}

/// What the headers of a group say. Its fields are checked when they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgState {
    /// Blocks of the group (`agf_length`).
    pub(crate) length: u32,
    /// Roots by [`AgTree`]; `levels` is 0 for a tree the file system does not have.
    pub(crate) roots: [Root; AG_TREES],
    /// Blocks of the trees, as far as headers count them: reverse map, references (roots included),
    /// inode trees (`agi_iblocks`, `agi_fblocks`, roots included).
    pub(crate) rmap_blocks: u32,
    /// As `rmap_blocks`.
    pub(crate) refcount_blocks: u32,
    /// As `rmap_blocks`.
    pub(crate) ino_blocks: u32,
    /// As `rmap_blocks`.
    pub(crate) fino_blocks: u32,
    /// First entry in use of the AGFL, the last one, and how many.
    pub(crate) flfirst: u32,
    /// As `flfirst`.
    pub(crate) fllast: u32,
    /// As `flfirst`.
    pub(crate) flcount: u32,
    /// Free blocks that the trees of free space list.
    pub(crate) freeblks: u32,
    /// Length of the longest free extent.
    pub(crate) longest: u32,
    /// Blocks of the trees of free space and the reverse map, without roots.
    pub(crate) btreeblks: u32,
    /// Inodes allocated in chunks, in use or not.
    pub(crate) icount: u32,
    /// Those of them that are free.
    pub(crate) ifree: u32,
    /// The chunk allocated last (`agi_newino`).
    pub(crate) newino: u32,
    /// `agi_dirino`; kept as it is.
    pub(crate) dirino: u32,
    /// Where records of the trees of inodes are. No header says that.
    pub(crate) known_chunks: KnownChunks,
}

impl AgState {
    /// Where a tree starts.
    pub(crate) fn root(&self, tree: AgTree) -> Root {
        self.roots[tree as usize]
    }

    /// Entries of the AGFL that one change of free space may take: the trees of free space and the reverse
    /// map may each split on every level twice (the kernel's rule, `xfs_alloc_min_freelist`).
    pub(crate) fn agfl_needed(&self) -> u32 {
        let levels = |tree| u32::from(self.root(tree).levels);
        2 * (levels(AgTree::Bno) + levels(AgTree::Cnt) + levels(AgTree::Rmap))
    }
}

/// What of a group's free blocks is not for everybody: numbers that follow from the geometry.
#[derive(Clone, Copy, Debug, Default)]
struct Holding {
    /// The group's share of the reserve.
    share: u32,
    /// Fewest records of a leaf, and entries of a node, of the tree of free inodes.
    fino_leaf: u32,
    fino_node: u32,
}

impl Holding {
    fn of(geometry: &Geometry, ag: AgNumber, state: &AgState) -> Self {
        Self {
            share: RESERVE.share(ag.0, geometry.ag_count, state.length),
            fino_leaf: Shape::FINO.leaf_area(geometry).min().max(1) as u32,
            fino_node: Shape::FINO.node_area(geometry).min().max(1) as u32,
        }
    }

    /// Blocks of a group that allocations for files and inodes leave alone, of images in progress too: what the
    /// next change of free space may put into the AGFL, what the tree of free inodes may grow by when inodes
    /// are freed, and as much again as the tree of references has, where it has more than its root. So
    /// giving back never fails for want of blocks.
    fn held_back(&self, state: &AgState) -> u32 {
        let has_fino = state.root(AgTree::Fino).levels > 0;
        let fino = if has_fino { self.fino_growth(state.icount, state.fino_blocks) } else { 0 };
        let shared = state.refcount_blocks.saturating_sub(1);
        state.agfl_needed() + HELD_BACK_MIN + fino + shared
    }

    /// How many blocks the tree of free inodes needs if every chunk has some, beside those it has.
    fn fino_growth(&self, icount: u32, blocks: u32) -> u32 {
        let chunks = icount.div_ceil(INODES_PER_CHUNK);
        let leaves = chunks.div_ceil(self.fino_leaf.max(1));
        let nodes = leaves.div_ceil(self.fino_node.max(1));
        (leaves + 2 * nodes).saturating_sub(blocks)
    }

    /// Blocks that must stay free when an operation with a claim has taken what it wants.
    fn withheld(&self, held_back: u32, claim: Claim) -> u32 {
        match claim {
            // What the group's own trees may need stays for them.
            Claim::Freeing => held_back.saturating_sub(HELD_BACK_MIN),
            _ => held_back + claim.withheld(self.share),
        }
    }
}

/// What can be seen of a group without its lock.
#[derive(Default)]
pub(crate) struct Ag {
    holding: Holding,
    /// Copies of fields of the state as of the last committed operation, to choose a group by.
    freeblks: AtomicU32,
    longest: AtomicU32,
    ifree: AtomicU32,
    icount: AtomicU32,
    /// Blocks beside `freeblks` that the superblock counts as free: of the AGFL and of trees.
    reserve: AtomicU32,
    /// What of `freeblks` allocations leave alone, without the share of the reserve.
    held_back: AtomicU32,
    /// Free blocks that are promised to files that wait. It grows only with the group's lock.
    promised: AtomicU32,
    /// Free inodes that are kept for such files.
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
        // What is known beside the headers does not go into them.
        let known_chunks = after.known_chunks;
        AgState { known_chunks, ..*before } != *after
    }
}

/// All groups.
pub(crate) struct Ags(Groups<Ag>);

/// What a group says without its lock: of some moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgSummary {
    pub(crate) freeblks: u32,
    pub(crate) longest: u32,
    pub(crate) ifree: u32,
    pub(crate) icount: u32,
    /// Blocks of the AGFL and of the trees of free space.
    pub(crate) reserve: u32,
    /// Free blocks that ordinary operations may take.
    pub(crate) available: u32,
}

impl Ags {
    pub(crate) fn new(geometry: &Geometry, states: Vec<AgState>) -> Self {
        let groups = geometry.ags().zip(states).map(|(number, state)| {
            let holding = Holding::of(geometry, number, &state);
            (Ag { holding, ..Ag::default() }, state, BusyBlocks::default())
        });
        Self(Groups::new(groups))
    }

    /// What a group says without its lock.
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

    /// Free blocks of a group that a claim allows to take, without its lock: of some moment.
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

    /// Blocks that must stay free when an operation with a claim has taken what it wants.
    fn withheld(&self, held_back: u32, claim: Claim) -> u32 {
        let withheld = self.holding.withheld(held_back, claim);
        match claim {
            // What was promised may be taken by who keeps the promise, and is little to who frees.
            Claim::Freeing | Claim::Unbounded => withheld,
            Claim::Ordinary | Claim::Promised => withheld + self.promised.load(Ordering::Relaxed),
        }
    }

    /// Promises blocks to files that wait. The group must be held, and have as many that may be taken.
    pub(crate) fn promise(&self, blocks: u32) {
        self.promised.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Lets others have blocks that were promised.
    pub(crate) fn release(&self, blocks: u32) {
        self.promised.fetch_sub(blocks, Ordering::Relaxed);
    }
}

/// A group held by an operation.
pub(crate) type GroupGuard<'a> = groups::GroupGuard<'a, Ag>;

/// The groups that an operation holds.
pub(crate) type HeldGroups<'a> = groups::HeldGroups<'a, Ag>;

/// Free blocks of a held group that a claim allows to take. Of images in progress, too, allocations for files and
/// inodes leave alone what the group's own trees may need.
pub(super) fn usable(guard: &GroupGuard<'_>, claim: Claim) -> u32 {
    let ag = guard.group();
    guard.freeblks.saturating_sub(ag.withheld(ag.holding.held_back(guard), claim))
}
