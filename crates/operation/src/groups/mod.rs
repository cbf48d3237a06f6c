//! The groups of an open file system: ext4's block groups, XFS's allocation groups.
//!
//! A group has a state in memory, which operations change under the group's lock and which is written to
//! the group's descriptor or headers when a checkpoint is closed; blocks that are busy, under the same
//! lock; and what anybody may look at without it.
//!
//! Invariants:
//! - A group's lock is held from [`HeldGroups::hold`] to the end of the operation. What everybody can see
//!   is published before the lock is given back, so it is of a committed operation.
//! - Blocks that an operation frees are busy from then on until the checkpoint that has the operation is
//!   durable: a crash before would give them back to their file.
//! - A group is on the list of busy groups exactly once if some of its blocks were freed in the running
//!   checkpoint, and on the list of dirty groups exactly once if its state is still to be written.
//!
//! Lock order: the locks of groups, in ascending order → the lists of dirty and of busy groups. Closing a
//! checkpoint goes the other way round, which it may: no operation holds a group then.

mod guard;
mod held;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crossbeam_utils::CachePadded;
use transaction::locks::Mutex;

pub use guard::GroupGuard;
pub use held::HeldGroups;

/// What a format has of each group that can be seen without the group's lock: what never changes, and
/// copies of what does, as of the last operation that committed.
pub trait Group: Sized {
    /// The number of a group.
    type Number: Copy + Ord;

    /// What operations change. It is put back when an operation fails.
    type State: Copy;

    /// The blocks that are free but busy.
    type Busy: Busy;

    /// The place of a group among all.
    fn index(number: Self::Number) -> usize;

    /// Copies what everybody may see out of what only the lock's holder does.
    fn publish(&self, state: &Self::State, busy: &Self::Busy);

    /// Whether a group must be written that an operation held and left as `after`.
    fn is_changed(before: &Self::State, after: &Self::State) -> bool;
}

/// Blocks of a group that were freed and wait for a checkpoint.
///
/// An operation's own blocks may join the set when they are freed ([`Busy::add`]) or when the operation
/// commits ([`Busy::keep`]): a format does its work in the one or the other.
pub trait Busy {
    /// An operation frees blocks.
    fn add(&mut self, freed: &Range<u32>);

    /// The operation that freed these blocks fails.
    fn take_back(&mut self, freed: &[Range<u32>]);

    /// The operation that freed these blocks commits.
    fn keep(&mut self, freed: &[Range<u32>]);

    /// The running checkpoint is being closed: what it freed waits for it now.
    fn close(&mut self);

    /// The checkpoint that was closed last is durable: what it freed may be taken.
    fn release(&mut self);
}

/// What a group's lock guards.
struct Guarded<G: Group> {
    state: G::State,
    busy: G::Busy,
    /// Whether the group is on the list of those whose state is to be written.
    is_dirty: bool,
    /// Whether the group is on the list of those with busy blocks of the running checkpoint.
    is_busy: bool,
}

/// A group's place in memory.
struct Slot<G: Group> {
    guarded: Mutex<Guarded<G>>,
    group: G,
}

/// All groups of a file system.
pub struct Groups<G: Group> {
    /// Each on cache lines of its own, because threads work in different groups.
    slots: Box<[CachePadded<Slot<G>>]>,
    /// Groups whose states are to be written.
    dirty: Mutex<Vec<G::Number>>,
    /// Groups with busy blocks of the running checkpoint, and of the one being written.
    busy_running: Mutex<Vec<G::Number>>,
    busy_closed: Mutex<Vec<G::Number>>,
}

impl<G: Group> Groups<G> {
    /// Groups with the states that were read and nothing busy, in the order of their numbers.
    pub fn new(groups: impl IntoIterator<Item = (G, G::State, G::Busy)>) -> Self {
        let slot = |(group, state, busy): (G, G::State, G::Busy)| {
            group.publish(&state, &busy);
            let guarded = Guarded { state, busy, is_dirty: false, is_busy: false };
            CachePadded::new(Slot { guarded: Mutex::new(guarded), group })
        };
        Self {
            slots: groups.into_iter().map(slot).collect(),
            dirty: Mutex::default(),
            busy_running: Mutex::default(),
            busy_closed: Mutex::default(),
        }
    }

    fn slot(&self, number: G::Number) -> &Slot<G> {
        &self.slots[G::index(number)]
    }

    /// What can be seen of a group without its lock.
    pub fn group(&self, number: G::Number) -> &G {
        &self.slot(number).group
    }

    /// The same of all groups.
    pub fn iter(&self) -> impl Iterator<Item = &G> {
        self.slots.iter().map(|slot| &slot.group)
    }

    /// The state of a group. Waits for its lock.
    pub fn state(&self, number: G::Number) -> G::State {
        self.slot(number).guarded.lock().state
    }

    /// All groups with their states, each as it is when its lock was waited for.
    pub fn states(&self) -> impl Iterator<Item = (&G, G::State)> {
        self.slots.iter().map(|slot| (&slot.group, slot.guarded.lock().state))
    }

    /// Waits for a group and holds it. An operation holds its groups by [`HeldGroups`].
    pub fn hold(&self, number: G::Number) -> GroupGuard<'_, G> {
        GroupGuard::new(self, number, self.slot(number).guarded.lock())
    }

    /// Holds a group, unless somebody else does.
    fn try_hold(&self, number: G::Number) -> Option<GroupGuard<'_, G>> {
        Some(GroupGuard::new(self, number, self.slot(number).guarded.try_lock()?))
    }

    /// Whether blocks are free that only a checkpoint makes usable.
    pub fn has_busy(&self) -> bool {
        // One after the other: who holds a group may want the first, and who holds the second a group.
        let is_running = !self.busy_running.lock().is_empty();
        is_running || !self.busy_closed.lock().is_empty()
    }

    /// The running checkpoint is being closed: what it freed waits for it now. To be called with the
    /// checkpoint lock held exclusively.
    pub fn close_busy(&self) {
        let mut closed = self.busy_closed.lock();
        for number in self.busy_running.lock().drain(..) {
            let mut guarded = self.slot(number).guarded.lock();
            guarded.is_busy = false;
            guarded.busy.close();
            closed.push(number);
        }
    }

    /// The checkpoint that was closed last is durable: what it freed may be taken.
    pub fn release_busy(&self) {
        for number in self.busy_closed.lock().drain(..) {
            let slot = self.slot(number);
            let mut guarded = slot.guarded.lock();
            guarded.busy.release();
            slot.group.publish(&guarded.state, &guarded.busy);
        }
    }

    /// Has `write` bring the states of dirty groups into their blocks, in ascending order, after which they
    /// count as written. Whether any was dirty. To be called with the checkpoint lock held exclusively.
    ///
    /// # Errors
    /// What `write` fails with. Nothing more may be written then: the rest is forgotten.
    pub fn flush_dirty<E>(
        &self,
        mut write: impl FnMut(G::Number, &G, &mut G::State) -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut dirty = std::mem::take(&mut *self.dirty.lock());
        dirty.sort_unstable();
        for &number in &dirty {
            let slot = self.slot(number);
            let mut guarded = slot.guarded.lock();
            write(number, &slot.group, &mut guarded.state)?;
            guarded.is_dirty = false;
        }
        Ok(!dirty.is_empty())
    }
}
