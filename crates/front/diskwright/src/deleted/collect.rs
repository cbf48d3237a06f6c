//! Receiver of the candidates of a format.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use vfs::check::BitSet;
use vfs::deleted::{DeletedInode, DeletedName, DeletedSink, DeletedSource, InodeState};
use vfs::{FileSystem, Ino};

/// Maximum number of inodes and of names. More are counted in a remark.
const CANDIDATES_MAX: usize = 4 << 20;
/// Maximum number of remarks.
const REMARKS_MAX: usize = 1000;

/// Candidates of an image.
pub(super) struct Collected {
    pub(super) inodes: Vec<DeletedInode>,
    pub(super) names: Vec<DeletedName>,
    pub(super) free: BitSet,
    pub(super) remarks: Vec<String>,
    pub(super) is_complete: bool,
}

/// Names of the directory whose slack is being read. Looking up each removed name would take a time quadratic in the size
/// of a directory without an index.
struct Listed {
    dir: Ino,
    names: HashSet<(Ino, Vec<u8>)>,
}

/// Directory, inode and name of an entry.
type NameKey = (Option<Ino>, Option<Ino>, Vec<u8>);

/// Collects candidates. Names that still exist are dropped, and equal names are joined.
pub(super) struct Collector<'c> {
    fs: &'c dyn FileSystem,
    progress: &'c mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    known: HashMap<NameKey, usize>,
    listed: Option<Listed>,
    /// Names that still exist, unless their directory was deleted. The inode of a deleted directory may be readable.
    existing: Vec<DeletedName>,
    left_out: u64,
    result: Collected,
}

impl<'c> Collector<'c> {
    pub(super) fn new(
        fs: &'c dyn FileSystem,
        free: BitSet,
        progress: &'c mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Self {
        let (inodes, names, remarks) = Default::default();
        let result = Collected { inodes, names, free, remarks, is_complete: true };
        Self {
            fs,
            progress,
            known: HashMap::new(),
            listed: None,
            existing: Vec::new(),
            left_out: 0,
            result,
        }
    }

    /// Returns the candidates.
    pub(super) fn finish(mut self) -> Collected {
        if self.left_out > 0 {
            self.result.remarks.push(format!("{} further candidates were left out", self.left_out));
        }
        let is_gone = |inode: &&DeletedInode| inode.state != InodeState::Reused;
        let gone: HashSet<Ino> =
            self.result.inodes.iter().filter(is_gone).map(|inode| inode.ino).collect();
        let of_gone = |name: &DeletedName| name.dir.is_some_and(|dir| gone.contains(&dir));
        self.result.names.extend(self.existing.into_iter().filter(of_gone));
        self.result
    }

    /// Returns whether a name exists. The directory of an old image may be unknown; then a name of an inode in use may
    /// exist anywhere.
    fn exists(&mut self, name: &DeletedName) -> bool {
        match (name.dir, name.ino) {
            // Names in the slack of a directory are received together, others in any order.
            (Some(dir), Some(ino)) if matches!(name.source, DeletedSource::Slack { .. }) => {
                self.list(dir).contains(&(ino, name.name.clone()))
            }
            (Some(dir), Some(ino)) => {
                self.fs.lookup(dir, &name.name).is_ok_and(|found| found == ino)
            }
            (Some(dir), None) => self.fs.lookup(dir, &name.name).is_ok(),
            (None, Some(ino)) => self.fs.attributes(ino).is_ok(),
            (None, None) => false,
        }
    }

    /// Returns the names of a directory; none if it cannot be listed.
    fn list(&mut self, dir: Ino) -> &HashSet<(Ino, Vec<u8>)> {
        let is_listed = self.listed.as_ref().is_some_and(|listed| listed.dir == dir);
        if !is_listed {
            self.listed = None;
        }
        let fs = self.fs;
        let listed = self.listed.get_or_insert_with(|| {
            let mut names = HashSet::new();
            // Names before damage were received.
            let _ = fs.for_each_entry(dir, &mut |entry| {
                names.insert((entry.ino, entry.name.to_vec()));
                ControlFlow::Continue(())
            });
            Listed { dir, names }
        });
        &listed.names
    }
}

/// Returns the rank of a source: the lower, the later the name was removed.
const fn rank(source: &DeletedSource) -> u8 {
    match source {
        DeletedSource::Inodes | DeletedSource::Slack { .. } => 0,
        DeletedSource::Free { .. } => 1,
        DeletedSource::Log { .. } => 2,
    }
}

impl DeletedSink for Collector<'_> {
    fn inode(&mut self, inode: DeletedInode) {
        if self.result.inodes.len() < CANDIDATES_MAX {
            self.result.inodes.push(inode);
        } else {
            self.left_out += 1;
        }
    }

    fn name(&mut self, name: DeletedName) {
        let key = (name.dir, name.ino, name.name.clone());
        if let Some(&at) = self.known.get(&key) {
            if let Some(known) = self.result.names.get_mut(at)
                && rank(&name.source) < rank(&known.source)
            {
                *known = name;
            }
            return;
        }
        if self.known.len() >= CANDIDATES_MAX {
            self.left_out += 1;
        } else if self.exists(&name) {
            self.known.insert(key, usize::MAX);
            self.existing.push(name);
        } else {
            self.known.insert(key, self.result.names.len());
            self.result.names.push(name);
        }
    }

    fn remark(&mut self, remark: String) {
        if self.result.remarks.len() < REMARKS_MAX {
            self.result.remarks.push(remark);
        }
    }

    fn is_free(&self, block: u64) -> bool {
        self.result.free.contains(block)
    }

    fn progress(&mut self, done: u64, total: u64) -> ControlFlow<()> {
        let next = (self.progress)(done, total);
        self.result.is_complete &= next.is_continue();
        next
    }
}
