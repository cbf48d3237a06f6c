//! Chunks of inodes in version 4 that no tree contains.
//!
//! Inodes of version 4 do not contain their number, and an image in a file may contain inodes, too. The names in such
//! an image refer to other numbers. So a run of blocks full of inodes is a chunk only in one of these cases:
//! - the superblock names the root directory in it;
//! - directory entries name most of its inodes in use;
//! - connected directories name some of its inodes. The inode of a connected directory maps the directory's first block.
//! - all such runs of a group together contain exactly the inodes that its header counts.
//!
//! A directory in an image in a file is not connected, because the inode with its number is another one.

use std::collections::HashSet;
use std::ops::Range;

use disk::BlockDevice;
use vfs::Ino;

use super::RepairJob;
use super::directory;
use super::group::GroupDevice;
use super::map;
use crate::check::survey::Survey;
use crate::check::view::view;
use crate::format::address::{AgBlock, AgIno, Block, FileBlock};
use crate::format::ag::{AGFL_SECTOR, sector_place};
use crate::format::bytes::{be16, be32};
use crate::format::dir::short::Short;
use crate::format::dir::{DirLayout, magic};
use crate::format::extent::Extent;
use crate::format::geometry::{Geometry, INODES_PER_CHUNK};
use crate::format::inode::{self, Fork, ForkFormat, Inode};

/// Number of bytes read at a time.
const PIECE_BYTES: usize = 1 << 20;
/// Maximum number of damaged slots in a chunk.
const DAMAGED_MAX: u32 = INODES_PER_CHUNK / 8;
/// Number of names in connected directories that are enough for a chunk. One may be a damaged number.
const CONNECTED_MIN: usize = 2;

/// Inodes that directory entries name.
pub(super) struct NamedInodes {
    /// In any directory, or in the superblock.
    all: HashSet<u64>,
    /// In connected directories.
    connected: HashSet<u64>,
}

impl RepairJob {
    /// Returns the inodes that the superblock or any directory entry in the image names.
    pub(super) fn named_inodes(&self, survey: &Survey) -> &NamedInodes {
        self.named_inodes.get_or_init(|| {
            let raw = &survey.sb.raw;
            let special = [&raw.rootino, &raw.rbmino, &raw.rsumino, &raw.uquotino, &raw.gquotino];
            let all = special.into_iter().map(|ino| ino.get()).collect();
            let (mut all, mut firsts): (HashSet<u64>, Vec<_>) = (all, Vec::new());
            let geometry = &survey.geometry;
            for_each_block(self, geometry, |block, bytes| {
                add_names(self, geometry, (block, bytes), (&mut all, &mut firsts));
            });
            NamedInodes { all, connected: connected(self, &firsts) }
        })
    }
}

/// Calls `visit` with each readable block of the file system.
fn for_each_block(job: &RepairJob, geometry: &Geometry, mut visit: impl FnMut(Block, &[u8])) {
    let size = geometry.block_size();
    let per = (PIECE_BYTES / size) as u64;
    let mut piece = vec![0; per as usize * size];
    for first in (0..geometry.blocks).step_by(per as usize) {
        let count = per.min(geometry.blocks - first);
        let bytes = &mut piece[..count as usize * size];
        let is_read = job.staging.read_at(geometry.byte_of(Block(first)), bytes).is_ok();
        for (block, bytes) in (first..).map(Block).zip(bytes.chunks_exact_mut(size)) {
            // One unreadable block does not hide its neighbours.
            if is_read || job.staging.read_at(geometry.byte_of(block), bytes).is_ok() {
                visit(block, bytes);
            }
        }
    }
}

/// Adds the inodes that the entries in a block name, and the directory that starts with the block.
fn add_names(
    job: &RepairJob,
    geometry: &Geometry,
    (block, bytes): (Block, &[u8]),
    (all, firsts): (&mut HashSet<u64>, &mut Vec<(Ino, Block)>),
) {
    let layout = DirLayout::new(geometry);
    let kind = be32(bytes, 0);
    if [magic::BLOCK[1], magic::DATA[1]].contains(&kind) {
        let mut whole = vec![0; layout.size()];
        whole[..bytes.len()].copy_from_slice(bytes);
        if whole.len() > bytes.len()
            && job.staging.read_at(geometry.byte_of(block), &mut whole).is_err()
        {
            return;
        }
        let (own, entries) = directory::named_in(&layout, geometry, &whole);
        all.extend(entries.map(|ino| ino.0));
        firsts.extend(own.map(|own| (own, block)));
    } else if be16(bytes, 0) == inode::MAGIC {
        for slot in bytes.chunks_exact(geometry.inode_size()) {
            let is_inode = inode::verify_structure(geometry, Ino(0), slot).is_ok();
            let inode = Inode::from_slot(slot);
            if !is_inode || !inode.is_dir() || inode.format() != ForkFormat::Local {
                continue;
            }
            let contents = inode.fork(Fork::Data).get(..inode.size() as usize).unwrap_or_default();
            if let Ok(short) = Short::parse(&layout, geometry, contents) {
                all.extend(short.entries().map(|entry| entry.ino.0));
            }
        }
    }
}

/// Returns the inodes that the root and connected directories name. `firsts` contains inodes, and the first blocks that
/// state them.
fn connected(job: &RepairJob, firsts: &[(Ino, Block)]) -> HashSet<u64> {
    let names = view(job.staging.clone(), |view| {
        let mut named = HashSet::new();
        let mut add = |dir: Ino, inode: &Inode, extents: &[Extent]| {
            view.entries(dir, inode, extents, |_, child| {
                named.insert(child.0);
                true
            });
        };
        let root = view.root();
        if let Some(inode) = view.inode(root).filter(Inode::is_dir) {
            add(root, &inode, &map::read(view, root, &inode, Fork::Data).extents);
        }
        for (ino, block) in firsts {
            let geometry = view.geometry();
            let slot = geometry.split_ino(*ino).and_then(|_| view.slot(*ino));
            let is_inode = |slot: &Vec<u8>| inode::verify_structure(geometry, *ino, slot).is_ok();
            let Some(slot) = slot.filter(is_inode) else { continue };
            let inode = Inode::from_slot(&slot);
            let extents = map::read(view, *ino, &inode, Fork::Data).extents;
            let starts_there = |extent: &Extent| {
                extent.offset == FileBlock(0) && geometry.device_block(extent.start) == *block
            };
            if inode.is_dir() && extents.first().is_some_and(starts_there) {
                add(*ino, &inode, &extents);
            }
        }
        named
    });
    names.unwrap_or_default()
}

/// Returns the blocks of a group that are not taken and contain a run of inodes accepted by `is_chunk`.
pub(super) fn blocks(
    device: &GroupDevice<'_>,
    alignment: u32,
    is_taken: impl Fn(u32) -> bool,
    is_chunk: impl Fn(&Run) -> bool,
) -> Vec<u32> {
    let geometry = device.geometry;
    let (headers_end, _) = sector_place(geometry, AGFL_SECTOR);
    let (length, chunk) = (geometry.ag_len(device.ag), geometry.chunk_blocks());
    let mut found = Vec::new();
    let mut start = (headers_end + 1).next_multiple_of(alignment);
    while start.saturating_add(chunk) <= length {
        let blocks = start..start + chunk;
        let is_free = !blocks.clone().any(&is_taken);
        if is_free && Run::read(device, blocks.clone()).is_some_and(|run| is_chunk(&run)) {
            found.extend(blocks);
            start = (start + chunk).next_multiple_of(alignment);
        } else {
            start = start.saturating_add(alignment);
        }
    }
    found
}

/// A run of blocks full of inodes, as long as a chunk.
pub(super) struct Run {
    /// Inodes in use, according to the location.
    used: Vec<Ino>,
    /// All inodes are in this range.
    all: Range<u64>,
}

impl Run {
    /// Returns the inodes of a run. `None` if too many are damaged, or if the first block or the last one contains none, so
    /// that no chunk starts before its first inode.
    fn read(device: &GroupDevice<'_>, blocks: Range<u32>) -> Option<Self> {
        let geometry = device.geometry;
        let number = |ino: u32| geometry.ino(device.ag, AgIno(ino));
        let mut used = Vec::new();
        let mut damaged = 0;
        for block in blocks.clone() {
            let bytes = device.read_block(AgBlock(block))?;
            let first = geometry.first_ino(AgBlock(block)).0;
            let (mut count, before) = (0, damaged);
            for (nth, slot) in (0..).zip(bytes.chunks_exact(geometry.inode_size())) {
                count += 1;
                if be16(slot, 0) != inode::MAGIC || !(1..=2).contains(&slot[4]) {
                    damaged += 1;
                } else if be16(slot, 2) != 0 {
                    used.push(number(first.saturating_add(nth)));
                }
            }
            let is_at_end = block == blocks.start || block == blocks.end - 1;
            if damaged > DAMAGED_MAX || is_at_end && damaged - before == count {
                return None;
            }
        }
        let start = number(geometry.first_ino(AgBlock(blocks.start)).0).0;
        Some(Self { used, all: start..start + u64::from(INODES_PER_CHUNK) })
    }

    /// Returns whether at least half of the inodes in use have names, or some have them in connected directories, or one is
    /// the root.
    pub(super) fn is_named(&self, named: &NamedInodes, root: u64) -> bool {
        let count = |of: &HashSet<u64>| self.used.iter().filter(|ino| of.contains(&ino.0)).count();
        let (used, known) = (self.used.len(), count(&named.all));
        self.all.contains(&root)
            || count(&named.connected) >= CONNECTED_MIN
            || used > 0 && known >= used.div_ceil(2)
    }
}
