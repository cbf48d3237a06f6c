//! A group held by an operation.

use std::ops::{Deref, DerefMut, Range};

use engine::locks::MutexGuard;
use smallvec::SmallVec;

use super::{Busy, Group, Groups, Guarded};

/// A group held by an operation, which dereferences to its state. Dropping it before it is kept restores the state.
pub struct GroupGuard<'a, G: Group> {
    groups: &'a Groups<G>,
    number: G::Number,
    guarded: MutexGuard<'a, Guarded<G>>,
    before: G::State,
    /// Runs that the operation made busy.
    freed: SmallVec<[Range<u32>; 2]>,
    is_kept: bool,
}

impl<'a, G: Group> GroupGuard<'a, G> {
    pub(super) fn new(
        groups: &'a Groups<G>,
        number: G::Number,
        guarded: MutexGuard<'a, Guarded<G>>,
    ) -> Self {
        let before = guarded.state;
        Self { groups, number, guarded, before, freed: SmallVec::new(), is_kept: false }
    }

    /// Returns the group's number.
    pub fn number(&self) -> G::Number {
        self.number
    }

    /// Returns the part of the group that is accessible without its lock.
    pub fn group(&self) -> &'a G {
        self.groups.group(self.number)
    }

    /// Returns the busy blocks. Whether they include blocks freed by this operation depends on the format's [`Busy`].
    pub fn busy_set(&self) -> &G::Busy {
        &self.guarded.busy
    }

    /// Returns the runs of blocks that the operation has made busy.
    pub fn own_busy(&self) -> &[Range<u32>] {
        &self.freed
    }

    /// Marks freed blocks as busy. If the operation commits, they stay busy until a checkpoint is durable.
    pub fn add_busy(&mut self, freed: Range<u32>) {
        self.guarded.busy.add(&freed);
        self.freed.push(freed);
    }

    /// Makes the changes permanent and releases the group.
    pub(super) fn keep(mut self) {
        self.is_kept = true;
        let Self { groups, number, guarded, before, freed, .. } = &mut self;
        let guarded = &mut **guarded;
        if !freed.is_empty() {
            guarded.busy.keep(freed);
            if !std::mem::replace(&mut guarded.is_busy, true) {
                groups.busy_running.lock().push(*number);
            }
        }
        if G::is_changed(before, &guarded.state) {
            groups.group(*number).publish(&guarded.state, &guarded.busy);
            if !std::mem::replace(&mut guarded.is_dirty, true) {
                groups.dirty.lock().push(*number);
            }
        }
    }
}

impl<G: Group> Deref for GroupGuard<'_, G> {
    type Target = G::State;

    fn deref(&self) -> &G::State {
        &self.guarded.state
    }
}

impl<G: Group> DerefMut for GroupGuard<'_, G> {
    fn deref_mut(&mut self) -> &mut G::State {
        &mut self.guarded.state
    }
}

impl<G: Group> Drop for GroupGuard<'_, G> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.guarded.state = self.before;
            self.guarded.busy.take_back(&self.freed);
        }
    }
}
