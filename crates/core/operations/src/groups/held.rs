//! The groups held by one operation.

use std::ops::{Index, IndexMut};

use smallvec::SmallVec;

use super::{Group, GroupGuard, Groups};
use crate::{Interrupt, Outcome};

/// The groups held by one operation, each identified by its index. Dropping it before it is
/// [kept](crate::InMemoryUndo::keep) undoes the changes in the groups.
///
/// Operations wait for groups in ascending order only, which avoids deadlocks. For a group out of order the lock is
/// only tried. If another operation has it, this operation is undone and started again with all groups that it is known
/// to need.
pub struct HeldGroups<'a, G: Group> {
    groups: &'a Groups<G>,
    guards: SmallVec<[GroupGuard<'a, G>; 2]>,
    /// The group out of order that another operation held.
    contended: Option<G::Number>,
}

impl<'a, G: Group> HeldGroups<'a, G> {
    /// Creates an empty set.
    pub fn new(groups: &'a Groups<G>) -> Self {
        Self { groups, guards: SmallVec::new(), contended: None }
    }

    /// Holds a group until the operation ends. Returns its index among those held.
    ///
    /// # Errors
    /// An interrupt to start again, if the group is out of order and another operation holds it.
    pub fn hold(&mut self, number: G::Number) -> Outcome<usize> {
        if let Some(at) = self.place_of(number) {
            return Ok(at);
        }
        let is_in_order = self.guards.iter().all(|held| held.number() < number);
        let guard =
            if is_in_order { Some(self.groups.hold(number)) } else { self.groups.try_hold(number) };
        let Some(guard) = guard else {
            self.contended = Some(number);
            return Err(Interrupt::RESTART);
        };
        self.guards.push(guard);
        Ok(self.guards.len() - 1)
    }

    /// Holds a group if it is held already or its lock is free. Returns its index among those held.
    pub fn try_hold(&mut self, number: G::Number) -> Option<usize> {
        if let Some(at) = self.place_of(number) {
            return Some(at);
        }
        self.guards.push(self.groups.try_hold(number)?);
        Some(self.guards.len() - 1)
    }

    fn place_of(&self, number: G::Number) -> Option<usize> {
        self.guards.iter().position(|held| held.number() == number)
    }

    /// Returns a group if it is held.
    pub fn find(&self, number: G::Number) -> Option<&GroupGuard<'a, G>> {
        self.guards.iter().find(|held| held.number() == number)
    }

    /// Returns the groups that the operation holds together with the contended one, or `None` if there was no
    /// contention.
    pub fn needed(&self) -> Option<SmallVec<[G::Number; 4]>> {
        let contended = self.contended?;
        Some(self.guards.iter().map(GroupGuard::number).chain([contended]).collect())
    }

    /// Makes the changes in all groups permanent and releases the groups.
    pub(crate) fn keep_all(&mut self) {
        self.guards.drain(..).for_each(GroupGuard::keep);
    }
}

impl<'a, G: Group> Index<usize> for HeldGroups<'a, G> {
    type Output = GroupGuard<'a, G>;

    fn index(&self, at: usize) -> &GroupGuard<'a, G> {
        &self.guards[at]
    }
}

impl<G: Group> IndexMut<usize> for HeldGroups<'_, G> {
    fn index_mut(&mut self, at: usize) -> &mut Self::Output {
        &mut self.guards[at]
    }
}
