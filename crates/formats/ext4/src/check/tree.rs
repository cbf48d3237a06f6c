//! The index of a hashed directory, and the role that it gives each block.

use std::collections::HashMap;

use engine::Corruption;
use vfs::check::{Code, Finding};

use super::codes::{HTREE_CHECKSUM, HTREE_LEAF, HTREE_NODE, HTREE_ROOT};
use super::context::Context;
use super::directories::{CheckedDirectory, Directories};
use crate::format::address::Block;
use crate::format::features::Incompat;
use crate::format::hash::NameHasher;
use crate::format::htree::{self, Index, IndexKind, LEVELS_MAX, LEVELS_MAX_LARGE, SIPHASH};
use crate::format::inode::flags;

/// Maximum hash version of a root. The superblock determines whether bytes are signed.
const VERSION_MAX: u8 = 2;
/// Offset of `unused_flags` in a root.
const ROOT_FLAGS: usize = 0x1f;

/// Role of a directory block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Entries in any order.
    Linear,
    /// The root of the index, and the entries `.` and `..`.
    Root,
    /// A node of the index.
    Node,
    /// Entries whose hashes are in this range of the index.
    Leaf { low: u32, high: u32 },
    /// The index does not lead to the block.
    Unreached,
}

/// Plan for reading a directory.
#[derive(Default)]
pub(super) struct IndexPlan {
    /// Blocks that the index leads to. A map, so that a false size uses no memory.
    roles: HashMap<u32, Role>,
    /// Hasher of the names, if there is an index and its hash is known.
    pub(super) hasher: Option<NameHasher>,
    /// True if names are hashed with a key, and their hashes are stored after them.
    pub(super) is_keyed: bool,
    /// True if there is an index that cannot be used, so that the roles of the blocks are unknown.
    pub(super) is_broken: bool,
    has_index: bool,
}

impl IndexPlan {
    pub(super) fn role(&self, block: u32) -> Role {
        let other = if self.has_index { Role::Unreached } else { Role::Linear };
        self.roles.get(&block).copied().unwrap_or(other)
    }

    /// Makes the plan of a directory.
    pub(super) fn make(
        &mut self,
        context: &Context<'_>,
        directories: &Directories,
        directory: &CheckedDirectory,
    ) {
        self.roles.clear();
        self.hasher = None;
        self.is_keyed = false;
        self.is_broken = false;
        self.has_index = directory.has(flags::INDEX);
        if !directory.has(flags::INDEX) {
            return;
        }
        let mut walk = IndexWalk { context, directories, directory, plan: self };
        walk.is_sound_from_root();
    }

    /// Returns whether a usable index does not lead to a block of the directory.
    pub(super) fn is_unreached(&self, block: u32) -> bool {
        self.has_index && !self.is_broken && !self.roles.contains_key(&block)
    }
}

struct IndexWalk<'w, 'c> {
    context: &'w Context<'c>,
    directories: &'w Directories,
    directory: &'w CheckedDirectory,
    plan: &'w mut IndexPlan,
}

impl IndexWalk<'_, '_> {
    fn finding(&self, code: &'static Code, block: Block) -> Finding {
        Finding::new(code).of_inode(self.directory.ino.into()).at_block(block.0)
    }

    fn is_sound_from_root(&mut self) {
        let Some(place) = self.directories.place(self.directory, 0) else {
            self.plan.is_broken = true;
            return;
        };
        if self.directory.blocks == 0 {
            self.plan.is_broken = true;
            return;
        }
        self.plan.roles.insert(0, Role::Root);
        let Some(bytes) = self.read(place, IndexKind::Root, HTREE_ROOT) else {
            self.plan.is_broken = true;
            return;
        };
        let info = htree::root_info(&bytes);
        let is_large = self.context.params.sb.features.incompat(Incompat::LARGEDIR);
        let levels_max = if is_large { LEVELS_MAX_LARGE } else { LEVELS_MAX };
        let tell = |field: &'static str, expected: String, found: u8| {
            let finding = self.finding(HTREE_ROOT, place).field(field);
            self.context.tell(finding.mismatch(expected, found));
        };
        if info.indirect_levels > levels_max {
            tell("indirect_levels", format!("at most {levels_max}"), info.indirect_levels);
            self.plan.is_broken = true;
            return;
        }
        if bytes[ROOT_FLAGS] & 1 != 0 {
            tell("unused_flags", "0".to_owned(), bytes[ROOT_FLAGS]);
        }
        let has_key = self.directory.has(flags::ENCRYPT) && self.directory.has(flags::CASEFOLD);
        let is_keyed = has_key && info.hash_version == SIPHASH;
        if !is_keyed && info.hash_version > VERSION_MAX {
            tell("hash_version", format!("0 to {VERSION_MAX}"), info.hash_version);
        }
        self.plan.is_keyed = is_keyed;
        if info.hash_version <= VERSION_MAX {
            self.plan.hasher = self.context.params.hasher(info.hash_version);
        }
        self.node(&bytes, (place, IndexKind::Root), info.indirect_levels, (0, u32::MAX));
    }

    /// Reads and checks an index block.
    fn read(&self, place: Block, kind: IndexKind, code: &'static Code) -> Option<Vec<u8>> {
        let context = self.context;
        let bytes = context.block(place)?;
        let has_checksums = context.params.checksums;
        let shape = check_shape(&bytes, kind);
        if let Err(damage) =
            shape.and_then(|()| htree::verify_structure(&bytes, kind, has_checksums))
        {
            let finding = Finding::of_damage(code, &damage).of_inode(self.directory.ino.into());
            context.tell(finding.at_block(place.0));
            return None;
        }
        let seed = has_checksums.then_some(self.directory.seed);
        if let Err(damage) = htree::verify(&bytes, kind, seed) {
            let finding = Finding::of_damage(HTREE_CHECKSUM, &damage);
            context.tell(finding.of_inode(self.directory.ino.into()).at_block(place.0));
        }
        Some(bytes)
    }

    /// Records the targets of a node's entries. Each block is reached once, so the walk ends.
    fn node(
        &mut self,
        bytes: &[u8],
        (place, kind): (Block, IndexKind),
        levels: u8,
        range: (u32, u32),
    ) {
        let index = Index::new(bytes, kind);
        for at in 0..index.count() {
            let low = if at == 0 { range.0 } else { index.hash(at) };
            let high = if at + 1 < index.count() { index.hash(at + 1) } else { range.1 };
            if low < range.0 || high > range.1 {
                let finding = self.finding(HTREE_NODE, place);
                let expected = format!("{:#x} to {:#x}", range.0, range.1);
                self.context.tell(finding.mismatch(expected, format!("{low:#x} to {high:#x}")));
            }
            let child = index.block(at).0;
            let is_there = child < self.directory.blocks;
            let child_place = self.directories.place(self.directory, child).filter(|_| is_there);
            let is_new = !self.plan.roles.contains_key(&child);
            let Some(child_place) = child_place.filter(|_| is_new) else {
                let problem = if is_new { "is missing" } else { "was reached before" };
                let finding = self.finding(HTREE_LEAF, place);
                self.context
                    .tell(finding.detail(format!("it points to block {child}, which {problem}")));
                continue;
            };
            if levels == 0 {
                self.plan.roles.insert(child, Role::Leaf { low, high });
                continue;
            }
            self.plan.roles.insert(child, Role::Node);
            match self.read(child_place, IndexKind::Node, HTREE_NODE) {
                Some(bytes) => {
                    self.node(&bytes, (child_place, IndexKind::Node), levels - 1, (low, high));
                }
                None => self.plan.is_broken = true,
            }
        }
    }
}

/// Checks the fields that make an index block look like a block of an ordinary directory.
fn check_shape(bytes: &[u8], kind: IndexKind) -> Result<(), Corruption> {
    let len = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let bad = |problem| Err(Corruption::new("directory index", problem));
    // 65536 does not fit; 65535 or 0 represents it.
    let is_whole =
        |len: usize| len == bytes.len() || bytes.len() == 1 << 16 && (len == 0 || len == 0xffff);
    match kind {
        IndexKind::Root if len(4) != 12 || len(16) != bytes.len() - 12 => {
            bad("the entries . and .. do not fill the root")
        }
        IndexKind::Node if bytes[..4] != [0; 4] || !is_whole(len(4)) || bytes[6] != 0 => {
            bad("it does not start with an unused, unnamed entry of the block's length")
        }
        _ => Ok(()),
    }
}
