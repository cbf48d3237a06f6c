//! Compares names with inodes: links, types, `..`, parent pointers.
//!
//! Inodes and directories are visited in the order of their locations, so a name may be met before or after its inode.
//! Each side adds its share to counters of the inode, 13 bytes each, which become zero if both agree: the remaining
//! links, and a sum (see [`super::sums`]) over the inode's parents. The side that comes second compares the types.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use vfs::Ino;
use vfs::check::{BitSet, Finding};

use super::chunks::{Chunks, InodeState};
use super::codes;
use super::context::Context;
use super::metadir::{Trees, root};
use super::sums;
use crate::format::features::Incompat;

/// Bits of an inode's type: its code in entries.
const TYPE: u8 = 0xf;
/// Flag in the type of an inode in use without links.
const UNLINKED: u8 = 8;
/// Type of a damaged inode.
pub(super) const DAMAGED: u8 = 8;
/// Position of the type according to an entry.
const CLAIM_SHIFT: u8 = 4;
/// Code of an entry without a type.
const NO_TYPE: u8 = 8;
/// The code of a directory.
pub(super) const DIRECTORY: u8 = 2;
/// Mixed into the share of a directory's `..`.
const DOT_DOT: u64 = 0x2e2e;

/// A directory whose entries are visited.
#[derive(Clone, Copy, Debug)]
pub(super) struct VisitedDirectory {
    pub(super) ino: Ino,
    pub(super) number: u32,
    pub(super) generation: u32,
    /// True if it has no links.
    pub(super) is_unlinked: bool,
    /// True if it has the metadata flag.
    pub(super) is_metadata: bool,
}

pub(super) struct InodeLinks<'c> {
    ctx: &'c Context<'c>,
    chunks: &'c Chunks,
    kinds: Box<[AtomicU8]>,
    left: Box<[AtomicU32]>,
    sums: Box<[AtomicU64]>,
    /// Directories and the inodes of their `..`.
    parents: Mutex<Vec<(u32, u32)>>,
    /// The metadata directory tree and the ordinary tree, if there is the former.
    trees: Option<Trees>,
    has_parents: bool,
    has_types: bool,
}

impl<'c> InodeLinks<'c> {
    pub(super) fn new(ctx: &'c Context<'c>, chunks: &'c Chunks) -> Self {
        let count = chunks.inodes();
        let links = Self {
            ctx,
            chunks,
            kinds: std::iter::repeat_with(AtomicU8::default).take(count).collect(),
            left: std::iter::repeat_with(AtomicU32::default).take(count).collect(),
            sums: std::iter::repeat_with(AtomicU64::default).take(count).collect(),
            parents: Mutex::default(),
            trees: Trees::new(ctx, count),
            has_parents: ctx.geometry.features.incompat(Incompat::PARENT),
            has_types: ctx.geometry.features.ftype(),
        };
        for ino in special_inodes(ctx) {
            if let InodeState::Used(number) = chunks.find(ino) {
                links.left[number as usize].fetch_sub(1, Relaxed);
            }
        }
        links
    }

    pub(super) fn root(&self) -> Ino {
        Ino(self.ctx.sb.raw.rootino.get())
    }

    /// Returns whether an inode is the root of the ordinary tree or of the metadata directory tree.
    pub(super) fn is_root(&self, ino: Ino) -> bool {
        ino == self.root() || Some(ino) == root(self.ctx)
    }

    pub(super) const fn trees(&self) -> Option<&Trees> {
        self.trees.as_ref()
    }

    pub(super) const fn has_parents(&self) -> bool {
        self.has_parents
    }

    /// Returns the type of an inode that is valid.
    pub(super) fn kind(&self, number: u32) -> Option<u8> {
        let kind = self.kinds[number as usize].load(Relaxed) & TYPE;
        (kind != 0 && kind != DAMAGED).then_some(kind & !UNLINKED)
    }

    pub(super) fn is_unlinked(&self, number: u32) -> bool {
        let kind = self.kinds[number as usize].load(Relaxed) & TYPE;
        kind > DAMAGED
    }

    /// Records the type of an inode before all else, in images whose entries have no types.
    pub(super) fn note_kind(&self, number: u32, code: u8) {
        self.kinds[number as usize].fetch_or(code & TYPE, Relaxed);
    }

    /// Records that an inode is unusable.
    pub(super) fn damaged(&self, number: u32) {
        self.kinds[number as usize].store(DAMAGED, Relaxed);
    }

    /// Records an inode in use.
    pub(super) fn inode(&self, number: u32, code: u8, nlink: u32) {
        let kind = if nlink == 0 { code | UNLINKED } else { code };
        let update = |old: u8| Some(old & !TYPE | kind);
        let old = self.kinds[number as usize].fetch_update(Relaxed, Relaxed, update);
        self.left[number as usize].fetch_add(nlink, Relaxed);
        let claimed = old.unwrap_or_default() >> CLAIM_SHIFT;
        if claimed != 0 && claimed != code && self.has_types {
            self.wrong_type(number, code, claimed, None);
        }
    }

    fn wrong_type(&self, number: u32, code: u8, claimed: u8, entry: Option<(Ino, &[u8])>) {
        let mut finding = Finding::new(codes::DIR_FTYPE).of_inode(self.chunks.ino(number).0);
        if let Some((dir, name)) = entry {
            finding = finding.named(name).detail(format!("in directory {dir}"));
        }
        self.ctx.found(finding.mismatch(code, claimed));
    }

    /// Records a parent pointer.
    pub(super) fn parent_pointer(&self, number: u32, dir: u64, generation: u32, name: &[u8]) {
        let share = pointer_sum(dir, generation, name);
        self.sums[number as usize].fetch_add(share, Relaxed);
    }

    /// Records the `..` of a directory.
    pub(super) fn dot_dot(&self, dir: &VisitedDirectory, parent: Ino) {
        if dir.is_unlinked {
            return;
        }
        self.left[dir.number as usize].fetch_sub(1, Relaxed);
        if self.is_root(dir.ino) && parent != dir.ino {
            let finding = Finding::new(codes::DIR_DOT_DOT).of_inode(dir.ino.0).named(b"..");
            self.ctx.found(finding.mismatch(dir.ino, parent));
        }
        match self.chunks.find(parent) {
            InodeState::Used(number) => {
                self.left[number as usize].fetch_sub(1, Relaxed);
                self.parents.lock().push((dir.number, number));
                if !self.is_root(dir.ino) {
                    let share = sums::mix(DOT_DOT, parent.0);
                    self.sums[dir.number as usize].fetch_add(share, Relaxed);
                }
            }
            InodeState::Unknown => {}
            InodeState::Free | InodeState::None => {
                let finding = Finding::new(codes::DIR_DOT_DOT).of_inode(dir.ino.0).named(b"..");
                self.ctx.found(finding.mismatch("a directory", parent));
            }
        }
    }

    /// Records an entry other than `.` and `..`; `code` is its type.
    pub(super) fn entry(&self, dir: &VisitedDirectory, name: &[u8], child: Ino, code: u8) {
        let number = match self.chunks.find(child) {
            InodeState::Used(number) => number,
            InodeState::Unknown => return,
            InodeState::Free | InodeState::None => {
                let finding = Finding::new(codes::DIR_DANGLING).of_inode(dir.ino.0).named(name);
                return self.ctx.found(finding.mismatch("an inode in use", child));
            }
        };
        self.left[number as usize].fetch_sub(1, Relaxed);
        if let Some(trees) = &self.trees {
            trees.name(number, dir.is_metadata);
        }
        let is_dir = if self.has_types {
            self.claim_type(number, code, (dir.ino, name));
            code == DIRECTORY
        } else {
            self.kind(number) == Some(DIRECTORY)
        };
        let mut share = 0_u64;
        if self.has_parents {
            share = pointer_sum(dir.ino.0, dir.generation, name);
        }
        if is_dir {
            share = share.wrapping_add(sums::mix(DOT_DOT, dir.ino.0));
        }
        if share != 0 {
            self.sums[number as usize].fetch_sub(share, Relaxed);
        }
    }

    fn claim_type(&self, number: u32, code: u8, entry: (Ino, &[u8])) {
        let code = if (1..=7).contains(&code) { code } else { NO_TYPE };
        let kind = &self.kinds[number as usize];
        let mut old = kind.load(Relaxed);
        loop {
            let (actual, claimed) = (old & TYPE, old >> CLAIM_SHIFT);
            if actual != 0 {
                let actual = actual & !UNLINKED;
                if actual != 0 && actual != code {
                    self.wrong_type(number, actual, code, Some(entry));
                }
                return;
            }
            if claimed != 0 {
                if claimed != code {
                    // One of the two is wrong; it is unknown which.
                    self.wrong_type(number, claimed, code, Some(entry));
                }
                return;
            }
            match kind.compare_exchange(old, code << CLAIM_SHIFT, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// Returns the links of an inode without a name; negative if there are too few links.
    pub(super) fn left(&self, number: u32) -> i64 {
        i64::from(self.left[number as usize].load(Relaxed) as i32)
    }

    /// Returns whether the parents of an inode match the directories.
    pub(super) fn are_parents_right(&self, number: u32) -> bool {
        self.sums[number as usize].load(Relaxed) == 0
    }

    /// Returns directories that are not connected to the root: those that are parts of loops.
    pub(super) fn loops(&self) -> Vec<u32> {
        let mut parents = std::mem::take(&mut *self.parents.lock());
        parents.sort_unstable();
        parents.dedup_by_key(|(dir, _)| *dir);
        let parent_of = |dir: u32| {
            let at = parents.binary_search_by_key(&dir, |(dir, _)| *dir).ok()?;
            Some(parents[at].1).filter(|parent| *parent != dir)
        };
        let (done, mut found) = (BitSet::new(self.kinds.len() as u64), Vec::new());
        for (dir, _) in &parents {
            let (mut at, mut way) = (*dir, Vec::new());
            while done.insert(at.into()) {
                way.push(at);
                let Some(parent) = parent_of(at) else { break };
                at = parent;
            }
            if let Some(first) = way.iter().position(|on_way| *on_way == at)
                && parent_of(at).is_some()
            {
                found.extend_from_slice(&way[first..]);
            }
        }
        *self.parents.lock() = parents;
        found
    }

    /// Returns the inode of a directory's `..`. Only valid after all directories were visited and [`Self::loops`] was
    /// called.
    pub(super) fn parent_of(&self, number: u32) -> Option<u32> {
        let parents = self.parents.lock();
        let at = parents.binary_search_by_key(&number, |(dir, _)| *dir).ok()?;
        Some(parents[at].1)
    }
}

/// Returns the share of a parent pointer.
pub(super) fn pointer_sum(dir: u64, generation: u32, name: &[u8]) -> u64 {
    sums::mix_bytes(sums::mix(dir, generation.into()), name)
}

/// Returns the inodes that are named by the superblock instead of a directory, except the root.
pub(super) fn special_inodes(ctx: &Context<'_>) -> impl Iterator<Item = Ino> + use<> {
    let raw = &ctx.sb.raw;
    let mut all: Vec<u64> = raw.realtime_inodes().into_iter().chain(raw.quota_inodes()).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter().filter(|ino| ![0, u64::MAX].contains(ino)).map(Ino)
}
