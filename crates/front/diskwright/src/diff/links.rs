//! Detection of different hard links in two trees.

use std::collections::HashMap;

use super::tree::{Id, VisitedFile};

/// Relation of the two files at one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pairing {
    /// Neither was seen before: compare them.
    New,
    /// They were compared under another name.
    Same,
    /// Two names of one file in one tree are two files in the other.
    Different,
}

/// Files with several names that were seen at a path of both trees.
#[derive(Default)]
pub(super) struct LinkedFiles {
    b_of_a: HashMap<Id, Id>,
    a_of_b: HashMap<Id, Id>,
}

impl LinkedFiles {
    /// Relates the files at one path. Names that exist in one tree only are ignored, because they are reported as added
    /// or removed.
    pub(super) fn pair(&mut self, a: &VisitedFile, b: &VisitedFile) -> Pairing {
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
