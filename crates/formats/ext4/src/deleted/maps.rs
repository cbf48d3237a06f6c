//! Contents of deleted inodes.
//!
//! A kernel empties the map of a file before it frees the inode: it clears pointers and extents, and writes the emptied
//! map blocks through the journal. So an image of an inode is combined with the images of its map blocks that are not
//! later. Without such an image, the block in place is used if it still has contents.

use vfs::deleted::{DeletedData, DeletedRun, RUNS_MAX, push_run};
use vfs::{FileType, Ino};

use super::Search;
use super::journal::Age;
use crate::format::address::Block;
use crate::format::checksum::inode_seed;
use crate::format::extent::{self, ExtentNode};
use crate::format::indirect;
use crate::format::inode::{BlockOwner, GOOD_OLD_INODE_SIZE, I_BLOCK_SIZE, Inode, flags};
use crate::format::xattr::{AttributeName, Value};
use crate::inode::Handle;
use crate::map::FILE_BLOCKS_MAX;
use crate::map::extent::step::Child;
use crate::xattr;

/// An inode whose map is read.
pub(super) struct Subject<'i> {
    pub(super) ino: Ino,
    pub(super) inode: &'i Inode,
    pub(super) slot: &'i [u8],
    /// Age of the image; `None` for the inode in its table.
    pub(super) age: Option<Age>,
    /// True if the inode still owns its blocks.
    pub(super) is_orphan: bool,
}

impl Subject<'_> {
    fn handle(&self, seed: u32) -> Handle {
        let owner = BlockOwner { ino: self.ino, seed };
        Handle { owner, inode: *self.inode, block: Block(0), offset: 0 }
    }
}

#[derive(Default)]
struct FoundMap {
    runs: Vec<DeletedRun>,
    lost: u64,
}

impl FoundMap {
    fn add(&mut self, run: DeletedRun) {
        if self.runs.len() < RUNS_MAX {
            push_run(&mut self.runs, run);
        } else {
            self.lost += 1;
        }
    }
}

impl Search<'_> {
    /// Returns the contents of an inode.
    pub(super) fn contents(&mut self, subject: &Subject<'_>) -> DeletedData {
        let inode = subject.inode;
        let has_map = match inode.file_type() {
            Some(FileType::Symlink) if inode.size() < I_BLOCK_SIZE as u64 => {
                let target = &inode.i_block()[..inode.size() as usize];
                return match target.first() {
                    Some(first) if *first != 0 => DeletedData::Inline(target.to_vec()),
                    _ => DeletedData::Lost,
                };
            }
            Some(FileType::Regular | FileType::Directory | FileType::Symlink) => true,
            _ => false,
        };
        if !has_map || inode.size() == 0 {
            return DeletedData::Lost;
        }
        if inode.has_flag(flags::INLINE_DATA) {
            return self.inline(subject).map_or(DeletedData::Lost, DeletedData::Inline);
        }
        let mut found = FoundMap::default();
        if inode.has_flag(flags::EXTENTS) {
            let Ok(root) = ExtentNode::parse(inode.i_block(), None) else {
                return DeletedData::Lost;
            };
            self.extents(subject, &root, FILE_BLOCKS_MAX, &mut found);
        } else {
            self.block_map(subject, &mut found);
        }
        if found.runs.is_empty() && found.lost == 0 {
            return DeletedData::Lost;
        }
        DeletedData::Mapped { runs: found.runs, lost: found.lost }
    }

    /// Returns contents that are in the inode itself.
    fn inline(&self, subject: &Subject<'_>) -> Option<Vec<u8>> {
        let size = usize::try_from(subject.inode.size()).ok()?;
        let mut bytes = subject.inode.i_block().to_vec();
        if size > bytes.len() {
            let handle = subject.handle(self.seed(subject));
            let fields = GOOD_OLD_INODE_SIZE + usize::from(subject.inode.extra_isize());
            let tail = subject.slot.get(fields..)?;
            let area = xattr::parse_slot_area(&handle, tail).ok()??;
            match area.find(AttributeName::INLINE_DATA)?.value {
                Value::Here(rest) => bytes.extend_from_slice(rest),
                Value::Inode { .. } => return None,
            }
        }
        bytes.get(..size).map(<[u8]>::to_vec)
    }

    fn seed(&self, subject: &Subject<'_>) -> u32 {
        let seed = self.fs.superblock().checksum_seed;
        inode_seed(seed, subject.ino, subject.inode.generation())
    }

    /// Adds the extents of a node and of all nodes below it. Each level is one lower, so the walk ends.
    fn extents(
        &mut self,
        subject: &Subject<'_>,
        node: &ExtentNode<'_>,
        end: u64,
        found: &mut FoundMap,
    ) {
        for at in 0..node.len() {
            if node.depth() == 0 {
                let extent = node.extent(at);
                if !self.fs.geometry().contains(extent.start, extent.len.into()) {
                    found.lost += 1;
                    continue;
                }
                found.add(DeletedRun {
                    first: extent.block.0.into(),
                    start: extent.start.0,
                    len: extent.len.into(),
                    unwritten: extent.unwritten,
                });
                continue;
            }
            let child = Child::at(node, at, end);
            let seed = self.fs.volume.checksums.then(|| self.seed(subject));
            let depth = node.depth() - 1;
            let first = node.index(at).block;
            let is_sound = |bytes: &[u8]| {
                extent::verify(bytes, seed).is_ok()
                    && ExtentNode::parse(bytes, Some(depth)).is_ok_and(|node| {
                        !node.is_empty() && node.check_range(first, child.end).is_ok()
                    })
            };
            match self.map_block(subject, child.leaf, &is_sound) {
                Some(bytes) => match ExtentNode::parse(&bytes, Some(depth)) {
                    Ok(below) => self.extents(subject, &below, child.end, found),
                    Err(_) => found.lost += 1,
                },
                None => found.lost += 1,
            }
        }
    }

    fn block_map(&mut self, subject: &Subject<'_>, found: &mut FoundMap) {
        let root = subject.inode.i_block();
        let direct = indirect::DIRECT_COUNT as usize * 4;
        let mut first = 0;
        self.pointers(&root[..direct], 0, &mut first, subject, found);
        for level in 1..=indirect::LEVELS_MAX {
            let at = direct + (level - 1) * 4;
            self.pointers(&root[at..at + 4], level, &mut first, subject, found);
        }
    }

    /// Adds the blocks of pointers with `levels` levels of pointer blocks below. `first` is the file block of the first
    /// pointer, and then of the one after the last.
    fn pointers(
        &mut self,
        pointers: &[u8],
        levels: usize,
        first: &mut u64,
        subject: &Subject<'_>,
        found: &mut FoundMap,
    ) {
        let geometry = self.fs.geometry();
        let span = u64::from(geometry.block_size() / 4).pow(levels as u32);
        let end = subject.inode.size().div_ceil(geometry.block_size().into());
        for index in 0..(pointers.len() / 4) as u16 {
            let start = *first;
            *first = first.saturating_add(span);
            let Some(block) = indirect::pointer(pointers, index) else { continue };
            if start >= end {
                continue;
            }
            if !self.fs.geometry().contains(block, 1) {
                found.lost += 1;
            } else if levels == 0 {
                found.add(DeletedRun { first: start, start: block.0, len: 1, unwritten: false });
            } else {
                let blocks_count = self.fs.geometry().blocks_count;
                let is_sound = |bytes: &[u8]| {
                    indirect::verify(bytes, blocks_count).is_ok() && !disk::is_zero(bytes)
                };
                match self.map_block(subject, block, &is_sound) {
                    Some(bytes) => {
                        self.pointers(&bytes, levels - 1, &mut start.clone(), subject, found);
                    }
                    None => found.lost += 1,
                }
            }
        }
    }

    /// Returns a map block as it was when the image of the inode was written.
    fn map_block(
        &mut self,
        subject: &Subject<'_>,
        block: Block,
        is_sound: &dyn Fn(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        if !self.fs.geometry().contains(block, 1) || !self.spend(1) {
            return None;
        }
        let images = self.journal.of(block);
        let newer = subject.age.map_or(0, |age| images.partition_point(|image| image.age <= age));
        let (earlier, later) = images.split_at(newer);
        let journaled =
            |image| self.journal.bytes(self.evidence, image).filter(|bytes| is_sound(bytes));
        let in_place = || {
            let may_be_own = subject.is_orphan || self.sink.is_free(block.0);
            let bytes = may_be_own.then(|| self.block(block).ok()).flatten()?;
            is_sound(&bytes).then_some(bytes)
        };
        earlier
            .iter()
            .rev()
            .find_map(journaled)
            .or_else(in_place)
            .or_else(|| later.iter().find_map(journaled))
    }
}
