//! Findings about inodes whose paths become known only when directories are read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// Minimum number of bits of a filter: 8 KiB.
const FILTER_BITS_MIN: usize = 1 << 16;
/// Number of bits of a filter per inode, so that at most one in eight other inodes passes it.
const FILTER_BITS_PER_INODE: usize = 8;

/// Receiver of names. Most inodes have no finding, so a filter rejects them without a lock.
#[derive(Debug)]
pub struct Naming<'w> {
    waiting: &'w Waiting,
    /// One bit per hash of an inode number; set for the inodes that wait for a name.
    filter: Vec<u64>,
    /// Number of low bits of a hash that are not used.
    shift: u32,
    /// Number of inodes without a name.
    left: AtomicUsize,
}

impl Naming<'_> {
    /// Returns the word of the filter and the bit for an inode.
    fn place(&self, inode: u64) -> (usize, u64) {
        let hash = inode.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift;
        ((hash / 64) as usize, 1 << (hash % 64))
    }

    /// Returns whether no inode needs a name any more.
    pub fn is_done(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Records a name of an inode. Only the first one is used.
    #[inline]
    pub fn name(&self, inode: u64, directory: u64, name: &[u8]) {
        let (word, bit) = self.place(inode);
        if self.filter[word] & bit != 0 {
            self.record(inode, directory, name);
        }
    }

    #[cold]
    fn record(&self, inode: u64, directory: u64, name: &[u8]) {
        if let Some(concerned) = self.waiting.inodes.lock().get_mut(&inode)
            && concerned.parent.is_none()
        {
            concerned.parent = Some(Parent { directory, name: name.to_vec() });
            // A finding after the start of the search is not counted.
            let _ = self
                .left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        }
    }
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

    /// Returns the receiver of names for the inodes with findings up to now.
    pub fn naming(&self) -> Naming<'_> {
        let inodes = self.inodes.lock();
        let nameless = || inodes.iter().filter(|(_, concerned)| concerned.parent.is_none());
        let count = nameless().count();
        let bits = (count * FILTER_BITS_PER_INODE).next_power_of_two().max(FILTER_BITS_MIN);
        let mut naming = Naming {
            waiting: self,
            filter: vec![0; bits / 64],
            shift: 64 - bits.trailing_zeros(),
            left: AtomicUsize::new(count),
        };
        for (inode, _) in nameless() {
            let (word, bit) = naming.place(*inode);
            naming.filter[word] |= bit;
        }
        naming
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Code, Severity};

    const CODE: &Code = &Code {
        name: "a-code",
        severity: Severity::Harmless,
        structure: "structure",
        meaning: "Meaning.",
        repair: "Repair.",
    };

    #[derive(Default)]
    struct Paths(Mutex<Vec<(u64, Option<Vec<u8>>)>>);

    impl Observer for Paths {
        fn found(&self, finding: Finding) {
            self.0.lock().push((finding.place.inode.unwrap_or(0), finding.path));
        }
    }

    #[test]
    fn each_inode_with_findings_gets_its_first_name() {
        for count in [0, 1, 300, 20_000] {
            let (waiting, paths) = (Waiting::default(), Paths::default());
            let inodes = || (0..count).map(|at| at * 37 + 5);
            inodes().for_each(|inode| {
                waiting.hold(Finding::new(CODE).of_inode(inode), &paths);
                waiting.hold(Finding::new(CODE).of_inode(inode), &paths);
            });
            let naming = waiting.naming();
            assert_eq!(naming.is_done(), count == 0);
            for name in [&b"first"[..], b"other"] {
                (0..count * 37 + 5).for_each(|inode| naming.name(inode, 2, name));
                assert!(naming.is_done());
            }
            // An inode that gets no name.
            waiting.hold(Finding::new(CODE).of_inode(1 << 40), &paths);
            waiting.release(&paths, |_, parent| parent.map(|parent| parent.name.clone()));
            let twice = |inode| [0, 1].map(|_| (inode, Some(b"first".to_vec())));
            let mut expected: Vec<_> = inodes().flat_map(twice).collect();
            expected.push((1 << 40, None));
            assert_eq!(*paths.0.lock(), expected);
        }
    }
}
