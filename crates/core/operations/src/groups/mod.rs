//! The groups of an open file system: ext4's block groups, XFS's allocation groups.
//!
//! A group has three parts in memory. Its state is changed by operations under the group's lock, and written to the
//! group's descriptor or headers when a checkpoint is closed. Its busy blocks are under the same lock. The published
//! part is readable without the lock.
//!
//! Invariants:
//! - A group's lock is held from [`HeldGroups::hold`] until the operation ends. The published part is updated before
//!   the lock is released, so it is always that of a committed operation.
//! - Blocks that an operation frees are busy until the checkpoint with the operation is durable: a crash before would
//!   give them back to their file.
//! - A group is on the list of busy groups exactly once if some of its blocks were freed in the running checkpoint. It
//!   is on the list of dirty groups exactly once if its state must be written.
//!
//! Lock order: the locks of groups, in ascending order → the lists of dirty and of busy groups. Closing a checkpoint
//! takes them in reverse, which is safe because no operation holds a group then.

mod guard;
mod held;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crossbeam_utils::CachePadded;
use engine::locks::Mutex;

pub use guard::GroupGuard;
pub use held::HeldGroups;

/// The published part of a group, readable without its lock: constants, and copies of the state as of the last
/// committed operation.
pub trait Group: Sized {
    /// The number of a group.
    type Number: Copy + Ord;

    /// State that operations change. It is restored when an operation fails.
    type State: Copy;

    /// The set of busy blocks.
    type Busy: Busy;

    /// Returns the index of a group among all groups.
    fn index(number: Self::Number) -> usize;

    /// Updates the published part from the state that the lock protects.
    fn publish(&self, state: &Self::State, busy: &Self::Busy);

    /// Returns whether a group with this change of state must be written.
    fn is_changed(before: &Self::State, after: &Self::State) -> bool;
}

/// Blocks of a group that were freed and are busy until a checkpoint is durable.
///
/// Blocks join the set either when an operation frees them ([`Busy::add`]) or when it commits ([`Busy::keep`]); a
/// format implements one or the other.
pub trait Busy {
    /// Called when an operation frees blocks.
    fn add(&mut self, freed: &Range<u32>);

    /// Called when the operation that freed these blocks fails.
    fn take_back(&mut self, freed: &[Range<u32>]);

    /// Called when the operation that freed these blocks commits.
    fn keep(&mut self, freed: &[Range<u32>]);

    /// Called when the running checkpoint is being closed. Its freed blocks now wait for it to become durable.
    fn close(&mut self);

    /// Called when the last closed checkpoint is durable. Its freed blocks are no longer busy.
    fn release(&mut self);
}

/// Data protected by a group's lock.
struct Guarded<G: Group> {
    state: G::State,
    busy: G::Busy,
    /// True if the group is on the list of dirty groups.
    is_dirty: bool,
    /// True if the group is on the list of groups with busy blocks of the running checkpoint.
    is_busy: bool,
}

/// A group and its lock.
struct GroupSlot<G: Group> {
    guarded: Mutex<Guarded<G>>,
    group: G,
}

/// All groups of a file system.
pub struct Groups<G: Group> {
    /// Each slot is on separate cache lines, because threads work in different groups.
    slots: Box<[CachePadded<GroupSlot<G>>]>,
    /// Groups whose state must be written.
    dirty: Mutex<Vec<G::Number>>,
    /// Groups with busy blocks of the running checkpoint, and of the one being written.
    busy_running: Mutex<Vec<G::Number>>,
    busy_closed: Mutex<Vec<G::Number>>,
}

impl<G: Group> Groups<G> {
    /// Creates groups from the states that were read, in the order of their numbers, without busy blocks.
    pub fn new(groups: impl IntoIterator<Item = (G, G::State, G::Busy)>) -> Self {
        let slot = |(group, state, busy): (G, G::State, G::Busy)| {
            group.publish(&state, &busy);
            let guarded = Guarded { state, busy, is_dirty: false, is_busy: false };
            CachePadded::new(GroupSlot { guarded: Mutex::new(guarded), group })
        };
        Self {
            slots: groups.into_iter().map(slot).collect(),
            dirty: Mutex::default(),
            busy_running: Mutex::default(),
            busy_closed: Mutex::default(),
        }
    }

    fn slot(&self, number: G::Number) -> &GroupSlot<G> {
        &self.slots[G::index(number)]
    }

    /// Returns the published part of a group.
    pub fn group(&self, number: G::Number) -> &G {
        &self.slot(number).group
    }

    /// Returns the published parts of all groups.
    pub fn iter(&self) -> impl Iterator<Item = &G> {
        self.slots.iter().map(|slot| &slot.group)
    }

    /// Returns the state of a group. Waits for its lock.
    pub fn state(&self, number: G::Number) -> G::State {
        self.slot(number).guarded.lock().state
    }

    /// Returns the published part and the state of each group. Waits for each lock in turn.
    pub fn states(&self) -> impl Iterator<Item = (&G, G::State)> {
        self.slots.iter().map(|slot| (&slot.group, slot.guarded.lock().state))
    }

    /// Waits for a group and holds it. Operations hold groups through [`HeldGroups`] instead.
    pub fn hold(&self, number: G::Number) -> GroupGuard<'_, G> {
        GroupGuard::new(self, number, self.slot(number).guarded.lock())
    }

    /// Holds a group if its lock is free.
    fn try_hold(&self, number: G::Number) -> Option<GroupGuard<'_, G>> {
        Some(GroupGuard::new(self, number, self.slot(number).guarded.try_lock()?))
    }

    /// Returns whether there are busy blocks.
    pub fn has_busy(&self) -> bool {
        // One list after the other: a thread with a group may wait for the first list, and a thread with the second
        // list for a group.
        let is_running = !self.busy_running.lock().is_empty();
        is_running || !self.busy_closed.lock().is_empty()
    }

    /// Marks the busy blocks of the running checkpoint as waiting for the closed one. The caller must hold the
    /// checkpoint lock exclusively.
    pub fn close_busy(&self) {
        let mut closed = self.busy_closed.lock();
        for number in self.busy_running.lock().drain(..) {
            let mut guarded = self.slot(number).guarded.lock();
            guarded.is_busy = false;
            guarded.busy.close();
            closed.push(number);
        }
    }

    /// Releases the busy blocks of the last closed checkpoint, which is durable.
    pub fn release_busy(&self) {
        for number in self.busy_closed.lock().drain(..) {
            let slot = self.slot(number);
            let mut guarded = slot.guarded.lock();
            guarded.busy.release();
            slot.group.publish(&guarded.state, &guarded.busy);
        }
    }

    /// Calls `write` to bring the states of dirty groups into their blocks, in ascending order, and marks the groups as
    /// clean. Returns whether any group was dirty. The caller must hold the checkpoint lock exclusively.
    ///
    /// # Errors
    /// Returns the errors of `write`. After an error nothing more may be written, because the remaining groups are
    /// dropped from the list.
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
