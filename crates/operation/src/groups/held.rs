//! The groups that one operation holds.

use std::ops::{Index, IndexMut};

use smallvec::SmallVec;

use super::{Group, GroupGuard, Groups};
use crate::{Interrupt, Outcome};

/// The groups that one operation holds, each of which is found by its place among them. Dropped before
/// it is [kept](crate::Side::keep), it takes back what the operation did in them.
///
/// Groups are waited for in ascending order only, so operations never wait for each other in a circle. One
/// that is wanted out of order is only tried: where somebody else has it, the operation is taken back and
/// started again with all the groups it is known to need.
pub struct HeldGroups<'a, G: Group> {
    groups: &'a Groups<G>,
    guards: SmallVec<[GroupGuard<'a, G>; 2]>,
    /// The group that somebody else had when it was wanted out of order.
    contended: Option<G::Number>,
}

impl<'a, G: Group> HeldGroups<'a, G> {
    /// None of these groups yet.
    pub fn new(groups: &'a Groups<G>) -> Self {
        Self { groups, guards: SmallVec::new(), contended: None }
    }

    /// Holds a group to the end of the operation; its place among those held.
    ///
    /// # Errors
    /// An interrupt to start again, if it is wanted out of order and somebody else has it.
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

    /// Holds a group if it is held already or nobody else has it; its place among those held.
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

    /// A group, if it is held.
    pub fn find(&self, number: G::Number) -> Option<&GroupGuard<'a, G>> {
        self.guards.iter().find(|held| held.number() == number)
    }

    /// The groups that the operation holds, and the one it could not wait for, if there is one.
    pub fn needed(&self) -> Option<SmallVec<[G::Number; 4]>> {
        let contended = self.contended?;
        Some(self.guards.iter().map(GroupGuard::number).chain([contended]).collect())
    }

    /// Makes what the operation did in its groups lasting, and lets them go.
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
