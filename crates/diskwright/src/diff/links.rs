//! Which files of both trees are the same file under several names.

use std::collections::HashMap;

use super::tree::{Id, Node};

/// How the files that one path leads to in both trees go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pairing {
    /// They were not seen before: they are to be compared.
    New,
    /// They were compared under another name.
    Same,
    /// Names that lead to one file in one tree lead to two in the other.
    Different,
}

/// Files with several names that were seen under a path that both trees have.
#[derive(Default)]
pub(super) struct Links {
    b_of_a: HashMap<Id, Id>,
    a_of_b: HashMap<Id, Id>,
}

impl Links {
    /// Pairs what one path leads to. Names that only one tree has do not count: that they are there or gone says it.
    pub(super) fn pair(&mut self, a: &Node, b: &Node) -> Pairing {
        if !a.is_linked() && !b.is_linked() {
            return Pairing::New;
        }
        match (self.b_of_a.get(&a.id()), self.a_of_b.get(&b.id())) {
            (None, None) => {
                self.b_of_a.insert(a.id(), b.id());
                self.a_of_b.insert(b.id(), a.id());
                Pairing::New
            }
            (Some(of_a), Some(of_b)) if *of_a == b.id() && *of_b == a.id() => Pairing::Same,
            _ => Pairing::Different,
        }
    }
}
