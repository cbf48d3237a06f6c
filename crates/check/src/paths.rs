//! Findings about inodes whose paths become known only when directories are read.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::{Finding, Observer};

/// Most findings that wait for a path; later ones are told without.
const WAITING_MAX: usize = 100_000;

/// A name that leads to an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The directory's inode.
    pub directory: u64,
    /// The entry's name.
    pub name: Vec<u8>,
}

#[derive(Debug, Default)]
struct Concerned {
    findings: Vec<Finding>,
    parent: Option<Parent>,
}

/// Findings that wait until a name of their inode is met.
#[derive(Debug, Default)]
pub struct Waiting {
    inodes: Mutex<HashMap<u64, Concerned>>,
}

impl Waiting {
    /// Keeps a finding that names an inode, or tells of it at once if it names none or too many wait already.
    pub fn hold(&self, finding: Finding, observer: &dyn Observer) {
        let Some(inode) = finding.place.inode else { return observer.found(finding) };
        let mut inodes = self.inodes.lock();
        let is_full = inodes.len() >= WAITING_MAX;
        match inodes.get_mut(&inode) {
            // One inode with very many faults is told of piece by piece.
            Some(concerned) if concerned.findings.len() < 1000 => concerned.findings.push(finding),
            None if !is_full => {
                inodes.insert(inode, Concerned { findings: vec![finding], parent: None });
            }
            _ => {
                drop(inodes);
                observer.found(finding);
            }
        }
    }

    /// Whether nobody waits, so that names need not be offered.
    pub fn is_empty(&self) -> bool {
        self.inodes.lock().is_empty()
    }

    /// Offers a name of an inode. The first one counts.
    pub fn name(&self, inode: u64, directory: u64, name: &[u8]) {
        if let Some(concerned) = self.inodes.lock().get_mut(&inode)
            && concerned.parent.is_none()
        {
            concerned.parent = Some(Parent { directory, name: name.to_vec() });
        }
    }

    /// Tells of all that waits, in the order of inodes. `path` finds the path of an inode, given a name of it if
    /// one was met.
    pub fn release(
        &self,
        observer: &dyn Observer,
        mut path: impl FnMut(u64, Option<&Parent>) -> Option<Vec<u8>>,
    ) {
        let mut all: Vec<_> = std::mem::take(&mut *self.inodes.lock()).into_iter().collect();
        all.sort_unstable_by_key(|(inode, _)| *inode);
        for (inode, concerned) in all {
            let path = path(inode, concerned.parent.as_ref());
            for mut finding in concerned.findings {
                finding.path = finding.path.or_else(|| path.clone());
                observer.found(finding);
            }
        }
    }
}
