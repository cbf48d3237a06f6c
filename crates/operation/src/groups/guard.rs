//! A group that an operation holds.

use std::ops::{Deref, DerefMut, Range};

use smallvec::SmallVec;
use transaction::locks::MutexGuard;

use super::{Busy, Group, Groups, Guarded};

/// A group held by an operation, seen as its state. Dropped before it is kept, it puts the state back.
pub struct GroupGuard<'a, G: Group> {
    groups: &'a Groups<G>,
    number: G::Number,
    guarded: MutexGuard<'a, Guarded<G>>,
    before: G::State,
    /// What the operation made busy.
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

    /// Its number.
    pub fn number(&self) -> G::Number {
        self.number
    }

    /// What can be seen of it without its lock.
    pub fn group(&self) -> &'a G {
        self.groups.group(self.number)
    }

    /// Its busy blocks. Whether those are among them that the operation has freed itself, the format's
    /// [`Busy`] says.
    pub fn busy_set(&self) -> &G::Busy {
        &self.guarded.busy
    }

    /// The runs of blocks that the operation has made busy.
    pub fn own_busy(&self) -> &[Range<u32>] {
        &self.freed
    }

    /// Keeps blocks that become free from being taken until a checkpoint is durable, if the operation
    /// commits.
    pub fn add_busy(&mut self, freed: Range<u32>) {
        self.guarded.busy.add(&freed);
        self.freed.push(freed);
    }

    /// Makes what the operation did lasting, and lets the group go.
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
