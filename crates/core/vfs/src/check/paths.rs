//! Findings about inodes whose paths become known only when directories are read.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::check::{Finding, Observer};

/// Maximum number of inodes whose findings wait for a path; others are reported without one.
const WAITING_MAX: usize = 100_000;

/// A name of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Inode of the directory.
    pub directory: u64,
    /// Name of the entry.
    pub name: Vec<u8>,
}

#[derive(Debug, Default)]
struct Concerned {
    findings: Vec<Finding>,
    parent: Option<Parent>,
}

/// Findings that wait until a name of their inode is found.
#[derive(Debug, Default)]
pub struct Waiting {
    inodes: Mutex<HashMap<u64, Concerned>>,
}

impl Waiting {
    /// Stores a finding of an inode. Reports it immediately if it has no inode or too many findings are waiting.
    pub fn hold(&self, finding: Finding, observer: &dyn Observer) {
        let Some(inode) = finding.place.inode else { return observer.found(finding) };
        let mut inodes = self.inodes.lock();
        let is_full = inodes.len() >= WAITING_MAX;
        match inodes.get_mut(&inode) {
            // Limits the memory for an inode with very many faults: further ones are reported immediately.
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

    /// Returns whether no findings are waiting, so that names need not be offered.
    pub fn is_empty(&self) -> bool {
        self.inodes.lock().is_empty()
    }

    /// Records a name of an inode. Only the first one is used.
    pub fn name(&self, inode: u64, directory: u64, name: &[u8]) {
        if let Some(concerned) = self.inodes.lock().get_mut(&inode)
            && concerned.parent.is_none()
        {
            concerned.parent = Some(Parent { directory, name: name.to_vec() });
        }
    }

    /// Reports all waiting findings in the order of inodes. `path` returns the path of an inode, given a name of it if
    /// one was found.
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
