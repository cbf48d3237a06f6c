//! Images of inodes in the journal.

use std::collections::HashMap;

use vfs::deleted::IMAGES_MAX;
use vfs::{FileType, Ino};

use super::Search;
use super::journal::{Age, BlockImage};
use crate::format::address::{Block, Group};
use crate::format::checksum::inode_seed;
use crate::format::extent::ExtentNode;
use crate::format::inode::{self, GOOD_OLD_INODE_SIZE, I_BLOCK_SIZE, Inode, flags};
use crate::format::superblock::Superblock;

/// Usefulness of an image: the order of the variants is ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Usefulness {
    /// No contents, and no name.
    Empty,
    /// No contents: an empty file or a device.
    Named,
    /// Contents, but no name.
    Contents,
    /// Contents and a name.
    Whole,
}

impl Usefulness {
    pub(super) fn of(inode: &Inode) -> Self {
        match (describes_contents(inode), inode.links_count() > 0) {
            (true, true) => Self::Whole,
            (true, false) => Self::Contents,
            (false, true) => Self::Named,
            (false, false) => Self::Empty,
        }
    }
}

/// The most useful image of an inode: its slot in an image of a table block.
#[derive(Clone, Copy, Debug)]
pub(super) struct InodeImage {
    pub(super) generation: u32,
    usefulness: Usefulness,
    pub(super) block: BlockImage,
    /// Byte offset in the block.
    pub(super) offset: usize,
}

impl InodeImage {
    fn rank(&self) -> (Usefulness, Age) {
        (self.usefulness, self.block.age)
    }
}

/// The most useful image of each inode and generation in the journal.
#[derive(Default)]
pub(super) struct InodeImages {
    inodes: HashMap<u32, Vec<InodeImage>>,
    count: usize,
}

/// Maximum number of generations of one inode.
const GENERATIONS_MAX: usize = 64;

impl InodeImages {
    /// Reads all images of inode tables.
    pub(super) fn find(search: &mut Search<'_>) -> Self {
        let tables = Tables::of(search);
        let mut images = Self::default();
        let size = usize::from(search.fs.geometry().inode_size);
        let mut is_full = false;
        for block in search.journal.blocks() {
            let Some((group, first)) = tables.find(block) else { continue };
            for image in search.journal.of(block) {
                let Some(bytes) = search.journal.bytes(search.evidence, image) else { continue };
                for (nth, slot) in bytes.chunks_exact(size).enumerate() {
                    let ino = search.fs.geometry().ino_of(group, first + nth as u32);
                    let Some(inode) = plausible(search.fs.superblock(), ino, slot) else {
                        continue;
                    };
                    let found = InodeImage {
                        generation: inode.generation(),
                        usefulness: Usefulness::of(&inode),
                        block: *image,
                        offset: nth * size,
                    };
                    is_full |= !images.add(ino, found);
                }
            }
        }
        if is_full {
            search.sink.remark(format!("the journal has images of more than {IMAGES_MAX} inodes"));
        }
        images
    }

    /// Adds an image. Returns false if there are too many.
    fn add(&mut self, ino: Ino, found: InodeImage) -> bool {
        let Ok(number) = u32::try_from(ino.0) else { return true };
        let images = self.inodes.entry(number).or_default();
        if let Some(known) = images.iter_mut().find(|known| known.generation == found.generation) {
            if found.rank() >= known.rank() {
                *known = found;
            }
            return true;
        }
        if self.count >= IMAGES_MAX || images.len() >= GENERATIONS_MAX {
            return false;
        }
        images.push(found);
        self.count += 1;
        true
    }

    /// Removes and returns the images of an inode.
    pub(super) fn take(&mut self, ino: Ino) -> Vec<InodeImage> {
        u32::try_from(ino.0).ok().and_then(|ino| self.inodes.remove(&ino)).unwrap_or_default()
    }

    /// Returns the inodes whose images were not taken, in ascending order.
    pub(super) fn left(&self) -> Vec<Ino> {
        let mut left: Vec<Ino> = self.inodes.keys().map(|&ino| Ino(ino.into())).collect();
        left.sort_unstable();
        left
    }
}

/// Returns the inode in a slot if it can be one: its type is valid, and its checksum, if there is one.
pub(super) fn plausible(sb: &Superblock, ino: Ino, slot: &[u8]) -> Option<Inode> {
    let inode = Inode::from_slot(slot);
    inode.file_type()?;
    if ino < Ino(sb.first_ino.into()) || inode::check_extra_isize(slot).is_err() {
        return None;
    }
    if sb.features.metadata_csum() && slot.len() >= GOOD_OLD_INODE_SIZE {
        let seed = inode_seed(sb.checksum_seed, ino, inode.generation());
        let (computed, stored) = inode::slot_checksums(seed, slot);
        if computed != stored {
            return None;
        }
    }
    Some(inode)
}

/// Returns whether an inode has a map or contents.
fn describes_contents(inode: &Inode) -> bool {
    let root = inode.i_block();
    if inode.size() == 0 {
        return false;
    }
    match inode.file_type() {
        Some(FileType::Symlink) if inode.size() < I_BLOCK_SIZE as u64 => root[0] != 0,
        Some(FileType::Regular | FileType::Directory | FileType::Symlink) => {
            if inode.has_flag(flags::INLINE_DATA) {
                root.iter().any(|&byte| byte != 0)
            } else if inode.has_flag(flags::EXTENTS) {
                ExtentNode::parse(root, None).is_ok_and(|node| !node.is_empty())
            } else {
                root.iter().any(|&byte| byte != 0)
            }
        }
        _ => false,
    }
}

/// Positions of all inode tables, in ascending order.
pub(super) struct Tables {
    tables: Vec<(Block, Group)>,
    blocks: u64,
    per_block: u32,
}

impl Tables {
    pub(super) fn of(search: &Search<'_>) -> Self {
        let geometry = search.fs.geometry();
        let groups = &search.fs.volume.groups;
        let mut tables: Vec<_> =
            geometry.groups().map(|group| (groups.inode_table(group), group)).collect();
        tables.sort_unstable();
        Self {
            tables,
            blocks: geometry.itable_blocks().into(),
            per_block: geometry.inodes_per_block(),
        }
    }

    /// Returns the group of a table block and the index of its first inode.
    pub(super) fn find(&self, block: Block) -> Option<(Group, u32)> {
        let at = self.tables.partition_point(|(start, _)| *start <= block).checked_sub(1)?;
        let (start, group) = self.tables[at];
        let within = block.0 - start.0;
        (within < self.blocks).then_some((group, within as u32 * self.per_block))
    }
}
