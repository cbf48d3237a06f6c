//! What names and inodes say of each other: links, types, `..`, parent pointers.
//!
//! Inodes and directories are met in the order of their place, so that a name may be met before its inode or
//! behind it. Each side adds its share to numbers of the inode, 13 bytes each, which come to nothing if both
//! agree: the links that are left, and a sum (see [`super::sums`]) of where the inode is said to be. Whichever
//! side comes second compares the types.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use ::check::{BitSet, Finding};
use parking_lot::Mutex;
use vfs::Ino;

use super::chunks::{Chunks, Known};
use super::codes;
use super::context::Context;
use super::sums;
use crate::format::features::Incompat;

/// What is known of an inode's type: the code that entries have for it.
const TYPE: u8 = 0xf;
/// Of one in use without links, the type with this bit.
const UNLINKED: u8 = 8;
/// Of one that is damaged.
pub(super) const DAMAGED: u8 = 8;
/// Bits by which the type that an entry names lies higher.
const CLAIM_SHIFT: u8 = 4;
/// What an entry has that names no type.
const NO_TYPE: u8 = 8;
/// The code of a directory.
pub(super) const DIRECTORY: u8 = 2;
/// What the share of a directory's `..` is mixed with.
const DOT_DOT: u64 = 0x2e2e;

/// A directory whose entries are gone through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Directory {
    pub(super) ino: Ino,
    pub(super) number: u32,
    pub(super) generation: u32,
    /// Whether it has no links any more.
    pub(super) is_unlinked: bool,
}

pub(super) struct Links<'c> {
    ctx: &'c Context<'c>,
    chunks: &'c Chunks,
    kinds: Box<[AtomicU8]>,
    left: Box<[AtomicU32]>,
    sums: Box<[AtomicU64]>,
    /// Directories and where their `..` leads.
    parents: Mutex<Vec<(u32, u32)>>,
    has_parents: bool,
    has_types: bool,
}

impl<'c> Links<'c> {
    pub(super) fn new(ctx: &'c Context<'c>, chunks: &'c Chunks) -> Self {
        let count = chunks.inodes();
        let links = Self {
            ctx,
            chunks,
            kinds: std::iter::repeat_with(AtomicU8::default).take(count).collect(),
            left: std::iter::repeat_with(AtomicU32::default).take(count).collect(),
            sums: std::iter::repeat_with(AtomicU64::default).take(count).collect(),
            parents: Mutex::default(),
            has_parents: ctx.geometry.features.incompat(Incompat::PARENT),
            has_types: ctx.geometry.features.ftype(),
        };
        for ino in special_inodes(ctx) {
            if let Known::Used(number) = chunks.find(ino) {
                links.left[number as usize].fetch_sub(1, Relaxed);
            }
        }
        links
    }

    pub(super) fn root(&self) -> Ino {
        Ino(self.ctx.sb.raw.rootino.get())
    }

    pub(super) const fn has_parents(&self) -> bool {
        self.has_parents
    }

    /// Whether an inode was found to be sound, and its type if so.
    pub(super) fn kind(&self, number: u32) -> Option<u8> {
        let kind = self.kinds[number as usize].load(Relaxed) & TYPE;
        (kind != 0 && kind != DAMAGED).then_some(kind & !UNLINKED)
    }

    pub(super) fn is_unlinked(&self, number: u32) -> bool {
        let kind = self.kinds[number as usize].load(Relaxed) & TYPE;
        kind > DAMAGED
    }

    /// Notes the type of an inode before anything else is looked at, where entries have none.
    pub(super) fn note_kind(&self, number: u32, code: u8) {
        self.kinds[number as usize].fetch_or(code & TYPE, Relaxed);
    }

    /// Notes that an inode cannot be used.
    pub(super) fn damaged(&self, number: u32) {
        self.kinds[number as usize].store(DAMAGED, Relaxed);
    }

    /// Notes an inode in use.
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

    /// Notes a parent pointer.
    pub(super) fn parent_pointer(&self, number: u32, dir: u64, generation: u32, name: &[u8]) {
        let share = pointer_sum(dir, generation, name);
        self.sums[number as usize].fetch_add(share, Relaxed);
    }

    /// Notes where a directory's `..` leads.
    pub(super) fn dot_dot(&self, dir: &Directory, parent: Ino) {
        if dir.is_unlinked {
            return;
        }
        self.left[dir.number as usize].fetch_sub(1, Relaxed);
        if dir.ino == self.root() && parent != dir.ino {
            let finding = Finding::new(codes::DIR_DOT_DOT).of_inode(dir.ino.0).named(b"..");
            self.ctx.found(finding.mismatch(dir.ino, parent));
        }
        match self.chunks.find(parent) {
            Known::Used(number) => {
                self.left[number as usize].fetch_sub(1, Relaxed);
                self.parents.lock().push((dir.number, number));
                if dir.ino != self.root() {
                    let share = sums::mix(DOT_DOT, parent.0);
                    self.sums[dir.number as usize].fetch_add(share, Relaxed);
                }
            }
            Known::Unknown => {}
            Known::Free | Known::None => {
                let finding = Finding::new(codes::DIR_DOT_DOT).of_inode(dir.ino.0).named(b"..");
                self.ctx.found(finding.mismatch("a directory", parent));
            }
        }
    }

    /// Notes an entry other than `.` and `..`; `code` is what it has for a type.
    pub(super) fn entry(&self, dir: &Directory, name: &[u8], child: Ino, code: u8) {
        let number = match self.chunks.find(child) {
            Known::Used(number) => number,
            Known::Unknown => return,
            Known::Free | Known::None => {
                let finding = Finding::new(codes::DIR_DANGLING).of_inode(dir.ino.0).named(name);
                return self.ctx.found(finding.mismatch("an inode in use", child));
            }
        };
        self.left[number as usize].fetch_sub(1, Relaxed);
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
                    // One of the two is wrong, whichever it is.
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

    /// The links of an inode that nobody accounts for; negative if there are too few.
    pub(super) fn left(&self, number: u32) -> i64 {
        i64::from(self.left[number as usize].load(Relaxed) as i32)
    }

    /// Whether what an inode says of its parents is what directories say.
    pub(super) fn are_parents_right(&self, number: u32) -> bool {
        self.sums[number as usize].load(Relaxed) == 0
    }

    /// Directories that do not hang from the root: those of them that are parts of loops.
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

    /// Where a directory's `..` leads, once all were met and [`Self::loops`] was called.
    pub(super) fn parent_of(&self, number: u32) -> Option<u32> {
        let parents = self.parents.lock();
        let at = parents.binary_search_by_key(&number, |(dir, _)| *dir).ok()?;
        Some(parents[at].1)
    }
}

/// What a parent pointer adds.
pub(super) fn pointer_sum(dir: u64, generation: u32, name: &[u8]) -> u64 {
    sums::mix_bytes(sums::mix(dir, generation.into()), name)
}

/// Inodes that the superblock names beside the root: no directory does.
pub(super) fn special_inodes(ctx: &Context<'_>) -> impl Iterator<Item = Ino> + use<> {
    let raw = &ctx.sb.raw;
    let has_quota = ctx.geometry.features.version_bits;
    let has_quota = has_quota.contains(crate::format::features::Version::QUOTA);
    let mut all = vec![raw.rbmino.get(), raw.rsumino.get()];
    if has_quota {
        let crc = ctx.geometry.features.crc();
        let project = if crc { raw.pquotino.get() } else { 0 };
        all.extend([raw.uquotino.get(), raw.gquotino.get(), project]);
    }
    all.sort_unstable();
    all.dedup();
    all.into_iter().filter(|ino| ![0, u64::MAX].contains(ino)).map(Ino)
}
