//! What is known of each allocation group in memory: what its headers say, as of the last committed
//! operation. The headers on disk follow when a checkpoint is closed.

use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use vfs::reserve::{Claim, ReserveSize};

use super::busy::{Busy, BusyView};
use crate::format::address::{AgBlock, AgNumber};
use crate::format::btree::Shape;
use crate::format::geometry::{Geometry, INODES_PER_CHUNK};

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

    /// Blocks of a group that allocations for files and inodes leave alone, on fresh images too: what the
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

/// A group. Aligned so that threads in different groups do not touch each other's cache lines.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Ag {
    guarded: Mutex<Guarded>,
    holding: Holding,
    /// Copies of fields of `state` as of the last committed operation, to choose a group by without
    /// its lock.
    freeblks: AtomicU32,
    longest: AtomicU32,
    ifree: AtomicU32,
    icount: AtomicU32,
    /// Blocks beside `freeblks` that the superblock counts as free: of the AGFL and of trees.
    reserve: AtomicU32,
    /// What of `freeblks` allocations leave alone, without the share of the reserve.
    held_back: AtomicU32,
    /// Whether the headers on disk say something else.
    dirty: AtomicBool,
}

/// What a group's lock guards.
#[derive(Default)]
struct Guarded {
    state: AgState,
    busy: Busy,
}

/// All groups.
pub(crate) struct Ags {
    list: Box<[Ag]>,
    /// Groups with busy blocks of the running checkpoint, and of the one being written.
    busy_running: Mutex<Vec<AgNumber>>,
    busy_closed: Mutex<Vec<AgNumber>>,
}

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
        let list: Box<[Ag]> = geometry
            .ags()
            .zip(states)
            .map(|(number, state)| {
                let guarded = Mutex::new(Guarded { state, busy: Busy::default() });
                let holding = Holding::of(geometry, number, &state);
                let ag = Ag { guarded, holding, ..Ag::default() };
                ag.publish(&state);
                ag
            })
            .collect();
        Self { list, busy_running: Mutex::default(), busy_closed: Mutex::default() }
    }

    /// Waits for a group and holds it. The group must exist.
    pub(crate) fn lease(&self, ag: AgNumber) -> Lease<'_> {
        let home = &self.list[ag.0 as usize];
        Lease::new(ag, home, home.guarded.lock())
    }

    /// Holds a group, unless somebody else does.
    pub(crate) fn try_lease(&self, ag: AgNumber) -> Option<Lease<'_>> {
        let home = &self.list[ag.0 as usize];
        home.guarded.try_lock().map(|guard| Lease::new(ag, home, guard))
    }

    /// What a group says without its lock.
    pub(crate) fn summary(&self, ag: AgNumber) -> AgSummary {
        let ag = &self.list[ag.0 as usize];
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
        self.list[ag.0 as usize].usable(claim)
    }

    /// Lets groups go and keeps what was changed in them.
    pub(crate) fn keep<'a>(&self, leases: impl Iterator<Item = Lease<'a>>) {
        for mut lease in leases {
            lease.kept = true;
            let Lease { guard, freed, .. } = &mut lease;
            if guard.busy.add(freed) {
                self.busy_running.lock().push(lease.number);
            }
        }
    }

    /// Whether blocks are free that file data may have only after a checkpoint.
    pub(crate) fn has_busy(&self) -> bool {
        // One after the other: who holds a group may want the first, and who holds the second a group.
        let is_running = !self.busy_running.lock().is_empty();
        is_running || !self.busy_closed.lock().is_empty()
    }

    /// The running checkpoint is being closed: what it freed waits for it now. To be called with the
    /// gate held exclusively.
    pub(crate) fn close_busy(&self) {
        let mut closed = self.busy_closed.lock();
        for ag in self.busy_running.lock().drain(..) {
            self.list[ag.0 as usize].guarded.lock().busy.close();
            closed.push(ag);
        }
    }

    /// The checkpoint that was closed last is durable: what it freed may be taken for anything.
    pub(crate) fn release_busy(&self) {
        for ag in self.busy_closed.lock().drain(..) {
            self.list[ag.0 as usize].guarded.lock().busy.release();
        }
    }

    /// The groups whose headers must be written, which then count as written, and their states.
    pub(crate) fn take_dirty(&self) -> Vec<(AgNumber, AgState)> {
        let dirty = |(at, ag): (usize, &Ag)| {
            let was_dirty = ag.dirty.swap(false, Ordering::Relaxed);
            was_dirty.then(|| (AgNumber(at as u32), ag.guarded.lock().state))
        };
        self.list.iter().enumerate().filter_map(dirty).collect()
    }
}

impl Ag {
    fn publish(&self, state: &AgState) {
        self.freeblks.store(state.freeblks, Ordering::Relaxed);
        self.longest.store(state.longest, Ordering::Relaxed);
        self.ifree.store(state.ifree, Ordering::Relaxed);
        self.icount.store(state.icount, Ordering::Relaxed);
        self.reserve.store(state.flcount + state.btreeblks, Ordering::Relaxed);
        self.held_back.store(self.holding.held_back(state), Ordering::Relaxed);
    }

    fn usable(&self, claim: Claim) -> u32 {
        let held_back = self.held_back.load(Ordering::Relaxed);
        let free = self.freeblks.load(Ordering::Relaxed);
        free.saturating_sub(self.holding.withheld(held_back, claim))
    }
}

/// A group held by an operation. Let go without [`Ags::keep`], its state is what it was.
pub(crate) struct Lease<'a> {
    number: AgNumber,
    home: &'a Ag,
    guard: MutexGuard<'a, Guarded>,
    before: AgState,
    /// What the operation made busy.
    freed: SmallVec<[Range<u32>; 2]>,
    kept: bool,
}

impl<'a> Lease<'a> {
    fn new(number: AgNumber, home: &'a Ag, guard: MutexGuard<'a, Guarded>) -> Self {
        let before = guard.state;
        Self { number, home, guard, before, freed: SmallVec::new(), kept: false }
    }

    pub(crate) fn number(&self) -> AgNumber {
        self.number
    }

    /// Free blocks that a claim allows to take. On fresh images, too, allocations for files and inodes leave
    /// alone what the group's own trees may need.
    pub(crate) fn usable(&self, claim: Claim) -> u32 {
        let held_back = self.home.holding.held_back(self);
        self.freeblks.saturating_sub(self.home.holding.withheld(held_back, claim))
    }

    /// Keeps blocks that become free from file data until a checkpoint is durable, if the operation
    /// commits.
    pub(super) fn make_busy(&mut self, start: AgBlock, len: u32) {
        self.freed.push(start.0..start.0 + len);
    }

    /// What must not be taken for file data, be it free.
    pub(super) fn busy(&self) -> BusyView<'_> {
        BusyView { busy: &self.guard.busy, freed: &self.freed }
    }
}

impl Deref for Lease<'_> {
    type Target = AgState;

    fn deref(&self) -> &AgState {
        &self.guard.state
    }
}

impl DerefMut for Lease<'_> {
    fn deref_mut(&mut self) -> &mut AgState {
        &mut self.guard.state
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.guard.state = self.before;
        } else if self.guard.state != self.before {
            self.home.publish(&self.guard.state);
            self.home.dirty.store(true, Ordering::Relaxed);
        }
    }
}
