//! Traversal of the index of a hashed directory.

use vfs::{Corruption, Result};

use crate::Ext4Core;
use crate::format::address::{Block, FileBlock};
use crate::format::features::{Compat, Incompat};
use crate::format::htree::{self, Index, IndexKind, LEVELS_MAX, LEVELS_MAX_LARGE, RootInfo};
use crate::format::inode::flags;
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::op::source::BlockSource;

/// Maximum number of index blocks from the root to a leaf.
const STEPS_MAX: usize = 1 + LEVELS_MAX_LARGE as usize;

/// Returns whether a directory has an index.
pub(crate) fn is_indexed(fs: &Ext4Core, dir: &Handle) -> bool {
    fs.volume.sb.features.compat(Compat::DIR_INDEX)
        && dir.has_flag(flags::INDEX)
        && !dir.has_flag(flags::INLINE_DATA)
}

/// Returns the root information of a directory's index and the parent directory, which the root block also contains.
pub(crate) fn root(source: &mut impl BlockSource, dir: &Handle) -> Result<(RootInfo, u32)> {
    let (info, parent) = with_block(source, dir, FileBlock(0), BlockKind::HtreeRoot, |block| {
        // `..` is the second record, directly after the 12 bytes of `.`.
        let parent = block.get(12..16).unwrap_or(&[0; 4]);
        (htree::root_info(block), u32::from_le_bytes([parent[0], parent[1], parent[2], parent[3]]))
    })?;
    check_levels(source.fs(), dir, info)?;
    Ok((info, parent))
}

fn check_levels(fs: &Ext4Core, dir: &Handle, info: RootInfo) -> Result<()> {
    let large = fs.volume.sb.features.incompat(Incompat::LARGEDIR);
    let levels_max = if large { LEVELS_MAX_LARGE } else { LEVELS_MAX };
    if info.indirect_levels <= levels_max {
        return Ok(());
    }
    Err(Corruption::new("directory index root", "too many levels")
        .of_inode(dir.ino().0)
        .mismatch(format_args!("at most {levels_max}"), info.indirect_levels)
        .into())
}

/// Returns the device block of a block that the index refers to.
pub(crate) fn place_of(
    source: &mut impl BlockSource,
    dir: &Handle,
    block: FileBlock,
) -> Result<Block> {
    source.place(dir, block)?.ok_or_else(|| {
        Corruption::new("directory index", "it points to a hole")
            .of_inode(dir.ino().0)
            .mismatch("a block", format_args!("a hole at file block {block}"))
            .into()
    })
}

/// Calls `f` with a block of a directory.
pub(crate) fn with_block<T>(
    source: &mut impl BlockSource,
    dir: &Handle,
    block: FileBlock,
    kind: BlockKind,
    f: impl FnOnce(&[u8]) -> T,
) -> Result<T> {
    let place = place_of(source, dir, block)?;
    source.with(place, kind.of(dir.owner), f)
}

/// One index block on the path to a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexStep {
    /// Its block number in the directory.
    pub(crate) block: FileBlock,
    /// Position of the entry taken in it.
    pub(crate) at: usize,
}

/// The entry taken in an index block.
#[derive(Clone, Copy)]
struct TakenEntry {
    at: usize,
    below: FileBlock,
    /// Hash of the next entry of the block.
    next_hash: Option<u32>,
}

impl TakenEntry {
    fn new(index: &Index<'_>, hash: u32) -> Self {
        let at = index.position(hash);
        let next_hash = (at + 1 < index.count()).then(|| index.hash(at + 1));
        Self { at, below: index.block(at), next_hash }
    }
}

/// A position among the leaves of an index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    steps: [IndexStep; STEPS_MAX],
    /// Number of index blocks on the path: 1 if the root refers to leaves.
    count: usize,
    leaf: FileBlock,
    /// Hash of the entry after the one taken in the last index block; `None` at the end of that block.
    next_hash: Option<u32>,
}

impl Cursor {
    /// Returns the first leaf that may contain names whose major hash is `hash`.
    pub(crate) fn seek(
        source: &mut impl BlockSource,
        dir: &Handle,
        info: RootInfo,
        hash: u32,
    ) -> Result<Self> {
        let mut cursor = Self::new(info);
        cursor.descend(source, dir, 0, hash)?;
        Ok(cursor)
    }

    /// Like [`Cursor::seek`], with the root information, which is read at the same time. `hash_of` returns the major
    /// hash of the names for it. If that is `None`, there is no cursor.
    pub(crate) fn seek_root(
        source: &mut impl BlockSource,
        dir: &Handle,
        hash_of: impl FnOnce(RootInfo) -> Option<u32>,
    ) -> Result<(RootInfo, Option<(Self, u32)>)> {
        let (info, taken) = with_block(source, dir, FileBlock(0), BlockKind::HtreeRoot, |block| {
            let info = htree::root_info(block);
            let index = Index::new(block, IndexKind::Root);
            (info, hash_of(info).map(|hash| (hash, TakenEntry::new(&index, hash))))
        })?;
        check_levels(source.fs(), dir, info)?;
        let Some((hash, taken)) = taken else { return Ok((info, None)) };
        let mut cursor = Self::new(info);
        cursor.take(dir, 0, taken)?;
        cursor.descend(source, dir, 1, hash)?;
        Ok((info, Some((cursor, hash))))
    }

    fn new(info: RootInfo) -> Self {
        Self {
            steps: [IndexStep { block: FileBlock(0), at: 0 }; STEPS_MAX],
            count: (usize::from(info.indirect_levels) + 1).min(STEPS_MAX),
            leaf: FileBlock(0),
            next_hash: None,
        }
    }

    /// Returns the leaf's block number in the directory.
    pub(crate) fn leaf(&self) -> FileBlock {
        self.leaf
    }

    /// Returns the index blocks on the path, starting with the root.
    pub(crate) fn steps(&self) -> &[IndexStep] {
        &self.steps[..self.count]
    }

    /// Returns whether the next leaf may contain names of the same hash, according to the last index block. At the end
    /// of that block it returns `true`, and [`Cursor::advance`] must decide.
    pub(crate) fn may_go_on_with(&self, hash: u32) -> bool {
        self.next_hash.is_none_or(|next| next & !1 == hash)
    }

    /// Returns the first hash of the next leaf, if the last index block contains it.
    pub(crate) fn next_hash(&self) -> Option<u32> {
        self.next_hash
    }

    /// Descends from the block of step `from` to a leaf.
    fn descend(
        &mut self,
        source: &mut impl BlockSource,
        dir: &Handle,
        from: usize,
        hash: u32,
    ) -> Result<()> {
        for step in from..self.count {
            let block = self.steps[step].block;
            let taken = with_index(source, dir, step, block, |index| TakenEntry::new(index, hash))?;
            self.take(dir, step, taken)?;
        }
        Ok(())
    }

    fn take(&mut self, dir: &Handle, step: usize, taken: TakenEntry) -> Result<()> {
        self.steps[step].at = taken.at;
        self.next_hash = taken.next_hash;
        self.go(dir, step, taken.below)
    }

    /// Descends one level. Rejects an index that refers back to a block on the path, such as its root: the bytes of
    /// that block would be listed as names.
    fn go(&mut self, dir: &Handle, step: usize, below: FileBlock) -> Result<()> {
        if self.steps[..=step].iter().any(|step| step.block == below) {
            return Err(Corruption::new("directory index", "it contains a loop")
                .of_inode(dir.ino().0)
                .mismatch("another block", format_args!("file block {below}"))
                .into());
        }
        if step + 1 < self.count {
            self.steps[step + 1] = IndexStep { block: below, at: 0 };
        } else {
            self.leaf = below;
        }
        Ok(())
    }

    /// Advances to the next leaf. Returns its hash in the index, or `None` if there is no next leaf.
    pub(crate) fn advance(
        &mut self,
        source: &mut impl BlockSource,
        dir: &Handle,
    ) -> Result<Option<u32>> {
        for step in (0..self.count).rev() {
            let IndexStep { block, at } = self.steps[step];
            let next = with_index(source, dir, step, block, |index| {
                let next = at + 1;
                let after = next + 1;
                let after = (after < index.count()).then(|| index.hash(after));
                (next < index.count()).then(|| (index.hash(next), index.block(next), after))
            })?;
            if let Some((hash, below, after)) = next {
                self.steps[step].at += 1;
                self.next_hash = after;
                self.go(dir, step, below)?;
                self.descend(source, dir, step + 1, 0)?;
                return Ok(Some(hash));
            }
        }
        Ok(None)
    }
}

fn with_index<T>(
    source: &mut impl BlockSource,
    dir: &Handle,
    step: usize,
    block: FileBlock,
    f: impl FnOnce(&Index<'_>) -> T,
) -> Result<T> {
    let (kind, place) = if step == 0 {
        (BlockKind::HtreeRoot, IndexKind::Root)
    } else {
        (BlockKind::HtreeNode, IndexKind::Node)
    };
    with_block(source, dir, block, kind, |bytes| f(&Index::new(bytes, place)))
}

/// Returns the file blocks of all nodes below the root, in ascending order. There are at most `blocks_max` of them.
pub(crate) fn nodes(
    source: &mut impl BlockSource,
    dir: &Handle,
    info: RootInfo,
    blocks_max: u64,
) -> Result<Vec<FileBlock>> {
    let mut all: Vec<FileBlock> = Vec::new();
    if info.indirect_levels == 0 {
        return Ok(all);
    }
    let mut level = vec![FileBlock(0)];
    for step in 0..usize::from(info.indirect_levels).min(STEPS_MAX - 1) {
        let mut below = Vec::new();
        for block in level {
            with_index(source, dir, step, block, |index| {
                below.extend((0..index.count()).map(|at| index.block(at)));
            })?;
            if all.len() as u64 + below.len() as u64 > blocks_max {
                return Err(
                    dir.corrupt("directory index", "more nodes than blocks in the directory")
                );
            }
        }
        all.extend_from_slice(&below);
        level = below;
    }
    all.sort_unstable();
    Ok(all)
}
