//! Converting checkpoints to buffer items of the log.
//!
//! Kernels replay each item as a buffer of its own size, and verify it according to its type. So each sector of a
//! group's headers is an item, and so is a contiguous directory block of several blocks, and a cluster of inodes.

use std::collections::HashMap;

use engine::{BlockImage, Tag};
use smallvec::SmallVec;

use crate::format::address::Block;
use crate::format::bytes::{be16, be32};
use crate::format::dir::magic;
use crate::format::geometry::Geometry;
use crate::format::log::buffer::{
    BufferFormat, BufferPlace, BufferType, CHUNK, FORMAT_SIZE, runs_of,
};
use crate::format::log::build::Operations;
use crate::format::log::{BLOCK_SIZE, RawOpHeader, icreate};
use crate::format::quota::QuotaKind;
use crate::format::{ag, symlink};
use crate::kind::BlockKind;
use crate::log::cluster::Cluster;

/// Byte offset of the magic number of a directory or attribute leaf or node, after two sibling pointers.
const DA_MAGIC: usize = 8;

/// Types of the headers of a group, by sector.
const HEADER_TYPES: [BufferType; 4] =
    [BufferType::Superblock, BufferType::Agf, BufferType::Agi, BufferType::Agfl];

/// Blocks that form one buffer, collected.
#[derive(Default)]
struct Whole {
    first: u64,
    tag: Tag,
    blocks: u32,
    bytes: Vec<u8>,
}

/// A buffer that got an item.
enum Logged {
    /// A block by itself.
    Block(u64),
    /// Several blocks.
    Whole {
        first: u64,
        blocks: u32,
        /// The changed ones. The others were never anything else.
        changed: SmallVec<[u64; 8]>,
    },
}

/// Converts consecutive blocks of a checkpoint to items.
pub(super) struct Items<'g> {
    geometry: &'g Geometry,
    operations: Operations,
    logged: Vec<Logged>,
    whole: Whole,
    cluster: Cluster,
}

/// The items of consecutive blocks.
pub(super) struct PartOfItems {
    pub(super) operations: Operations,
    logged: Vec<Logged>,
}

/// Items of several blocks that may still be in the log. Items of the same blocks in other buffers must be cancelled, or a
/// replay would apply both.
#[derive(Default)]
pub(super) struct ItemHistory {
    /// The key is the first block of an item. A cancel of this block cancels the whole item.
    wholes: HashMap<u64, InLog>,
    /// Items to be cancelled in this checkpoint: first block and number of blocks.
    ended: Vec<(u64, u32)>,
    sequence: u64,
}

/// An item of several blocks.
#[derive(Clone, Copy)]
struct InLog {
    blocks: u32,
    /// The last checkpoint that contains it.
    sequence: u64,
}

impl ItemHistory {
    /// Starts the checkpoint with this sequence number.
    pub(super) fn begin(&mut self, sequence: u64) {
        self.ended.clear();
        self.sequence = sequence;
    }

    /// Called when the log has no more items from before the checkpoint with this sequence number.
    pub(super) fn advance_tail(&mut self, sequence: u64) {
        self.wholes.retain(|_, whole| whole.sequence >= sequence);
    }

    /// Cancels the item of several blocks that starts at a block, because the block is now an item by itself.
    fn end_whole(&mut self, first: u64) {
        if let Some(whole) = self.wholes.remove(&first) {
            self.ended.push((first, whole.blocks));
        }
    }

    /// Records the items of a part.
    pub(super) fn note(&mut self, part: &PartOfItems) {
        for logged in &part.logged {
            match logged {
                Logged::Block(block) => self.end_whole(*block),
                Logged::Whole { first, blocks, changed } => {
                    self.note_whole(*first, *blocks, changed);
                }
            }
        }
    }

    fn note_whole(&mut self, first: u64, blocks: u32, changed: &[u64]) {
        let is_same = self.wholes.get(&first).is_some_and(|whole| whole.blocks == blocks);
        for &block in changed {
            // Other items of several blocks may have started at any of these.
            if !(is_same && block == first) {
                self.end_whole(block);
            }
            // Each block may be in the log as a separate item with earlier contents. Its replay would overwrite part of
            // this one, so it is cancelled.
            if !is_same {
                self.ended.push((block, 1));
            }
        }
        self.wholes.insert(first, InLog { blocks, sequence: self.sequence });
    }

    /// Adds the cancels of freed blocks.
    pub(super) fn cancel(
        &mut self,
        geometry: &Geometry,
        freed: &[u64],
        operations: &mut Operations,
    ) {
        for &block in freed {
            operations.push(BufferFormat::cancel(place_of(geometry, block, 1)).as_bytes());
            self.end_whole(block);
        }
        for (first, blocks) in self.ended.drain(..) {
            operations.push(BufferFormat::cancel(place_of(geometry, first, blocks)).as_bytes());
        }
    }
}

impl<'g> Items<'g> {
    /// Returns no items of the transaction with this number.
    pub(super) fn new(geometry: &'g Geometry, tid: u32) -> Self {
        Self {
            geometry,
            operations: Operations::of(tid),
            logged: Vec::new(),
            whole: Whole::default(),
            cluster: Cluster::default(),
        }
    }

    /// Returns whether items that start at a block never depend on the blocks before it.
    pub(super) fn may_start_at(geometry: &Geometry, image: &BlockImage<'_>) -> bool {
        match BlockKind::from_tag(image.tag) {
            BlockKind::Part => false,
            BlockKind::Inodes => Cluster::first_of(geometry, image.block) == image.block,
            _ => true,
        }
    }

    /// Returns the maximum number of log bytes for a block, in any number of pieces. Includes two cancels: of its
    /// previous item, and of an item of several blocks that contained it.
    pub(super) fn bytes_max(geometry: &Geometry) -> usize {
        let size = geometry.block_size();
        let (op, bitmap) = (size_of::<RawOpHeader>(), bitmap_len(cluster_bytes(geometry)));
        // With more runs, their headers would take more than the chunks between them.
        let headers = 4.min(size / BLOCK_SIZE) * (2 * op + FORMAT_SIZE + 4);
        let created = op + icreate::SIZE;
        let item = (2 * op + FORMAT_SIZE + bitmap + created).max(headers);
        size + item + 2 * Self::cancel_max(geometry)
    }

    /// Returns the maximum number of log bytes for a freed block, including a cancel of the item that started at it.
    pub(super) fn freed_bytes_max(geometry: &Geometry) -> usize {
        2 * Self::cancel_max(geometry)
    }

    /// Returns the maximum number of log bytes of a cancel.
    fn cancel_max(geometry: &Geometry) -> usize {
        let buffer = Self::region_max(geometry).max(cluster_bytes(geometry));
        size_of::<RawOpHeader>() + FORMAT_SIZE + bitmap_len(buffer)
    }

    /// Returns the maximum size of a region in bytes: a directory block. The blocks of a link are smaller: at most two
    /// of 1 KiB.
    pub(super) fn region_max(geometry: &Geometry) -> usize {
        geometry.dir_block_size().max(geometry.block_size()).max(2 * symlink::TARGET_LEN_MAX)
    }

    /// Adds the changes of a block.
    pub(super) fn add(&mut self, image: &BlockImage<'_>) {
        // Blocks come in ascending order, so contiguous parts of a directory block or cluster follow each other.
        let kind = BlockKind::from_tag(image.tag);
        if kind == BlockKind::Part && self.continues(image) {
            self.gather(image);
            return;
        }
        self.finish_whole();
        if kind == BlockKind::Inodes && self.geometry.cluster_blocks() > 1 {
            if self.cluster.first != Cluster::first_of(self.geometry, image.block) {
                self.finish_cluster();
            }
            self.cluster.gather(self.geometry, image);
            return;
        }
        self.finish_cluster();
        let operations = &mut self.operations;
        match kind {
            BlockKind::Part => {
                self.whole.first = image.block;
                self.whole.tag = image.tag;
                self.gather(image);
            }
            BlockKind::AgHeader => add_headers(self.geometry, image, operations),
            BlockKind::Dquots => {
                self.logged.push(Logged::Block(image.block));
                // Kernels verify each run of chunks as if it started with a record, so the block is logged whole.
                let kind = type_of_quotas(image.data);
                add_bytes(place_of(self.geometry, image.block, 1), kind, image.data, operations);
            }
            _ => {
                self.logged.push(Logged::Block(image.block));
                add_block(self.geometry, image, type_of(kind, image.data), operations);
            }
        }
    }

    /// Returns whether a block directly follows the collected ones, in the same directory block or link.
    fn continues(&self, image: &BlockImage<'_>) -> bool {
        let Whole { first, tag, blocks, .. } = self.whole;
        let together = blocks > 0
            && image.block == first + u64::from(blocks)
            && image.tag.owner == tag.owner
            && image.tag.seed == tag.seed.wrapping_add(blocks);
        let is_link = type_of_whole(&self.whole.bytes) == BufferType::Symlink;
        together && (is_link || blocks < self.geometry.dir_block_blocks())
    }

    fn gather(&mut self, image: &BlockImage<'_>) {
        self.whole.blocks += 1;
        self.whole.bytes.extend_from_slice(image.data);
    }

    /// Returns all items.
    pub(super) fn finish(mut self) -> PartOfItems {
        self.finish_whole();
        self.finish_cluster();
        PartOfItems { operations: self.operations, logged: self.logged }
    }

    /// Adds the item of the collected cluster of inodes, if there is one.
    fn finish_cluster(&mut self) {
        let Cluster { first, blocks, .. } = self.cluster;
        if blocks > 0 {
            let changed = self.cluster.changed().collect();
            self.logged.push(Logged::Whole { first, blocks, changed });
            self.cluster.write(self.geometry, &mut self.operations);
        }
        self.cluster.clear();
    }

    /// Adds the collected blocks of a directory block or link: as one item if complete, otherwise each block as plain
    /// bytes.
    fn finish_whole(&mut self) {
        let Whole { first, tag, blocks, bytes } = std::mem::take(&mut self.whole);
        if blocks == 0 {
            return;
        }
        let geometry = self.geometry;
        let kind = type_of_whole(&bytes);
        let is_first = tag.seed % geometry.dir_block_blocks() == 0;
        let is_whole = kind == BufferType::Symlink
            || kind != BufferType::Unknown && is_first && blocks == geometry.dir_block_blocks();
        let all = (first..).take(blocks as usize);
        if is_whole {
            self.logged.push(Logged::Whole { first, blocks, changed: all.collect() });
            add_bytes(place_of(geometry, first, blocks), kind, &bytes, &mut self.operations);
        } else {
            for (block, bytes) in all.zip(bytes.chunks_exact(geometry.block_size())) {
                self.logged.push(Logged::Block(block));
                let place = place_of(geometry, block, 1);
                add_bytes(place, BufferType::Unknown, bytes, &mut self.operations);
            }
        }
    }
}

/// Returns the size of a cluster of inodes in bytes.
const fn cluster_bytes(geometry: &Geometry) -> usize {
    geometry.cluster_blocks() as usize * geometry.block_size()
}

/// Returns the size of the chunk bitmap of a buffer of `bytes` bytes.
const fn bitmap_len(bytes: usize) -> usize {
    (bytes / CHUNK).div_ceil(32) * 4
}

/// Returns the location of blocks as stored in items.
fn place_of(geometry: &Geometry, block: u64, blocks: u32) -> BufferPlace {
    BufferPlace::of_blocks(geometry, Block(block), blocks)
}

/// Adds the headers of a group that changed, each completely.
fn add_headers(geometry: &Geometry, image: &BlockImage<'_>, operations: &mut Operations) {
    let (_, block) = geometry.locate(Block(image.block));
    for (sector, start) in ag::headers_in(geometry, block.0) {
        let end = start + geometry.sector_size();
        let piece = image.data.len() / 64;
        let mask = (u64::MAX >> (63 - (end - 1) / piece)) & (u64::MAX << (start / piece));
        if image.pieces & mask == 0 {
            continue;
        }
        let daddr = geometry.daddr(Block(image.block)) + (start / BLOCK_SIZE) as u64;
        let place = BufferPlace { daddr, len: (geometry.sector_size() / BLOCK_SIZE) as u16 };
        add_bytes(place, HEADER_TYPES[sector], &image.data[start..end], operations);
    }
}

/// Adds the changed pieces of a block.
fn add_block(
    geometry: &Geometry,
    image: &BlockImage<'_>,
    kind: BufferType,
    operations: &mut Operations,
) {
    let mut runs = runs_of(image.pieces, image.data.len());
    let (Some(first), Some(last)) = (runs.first().cloned(), runs.last().cloned()) else {
        return;
    };
    // With that many pieces, separate runs save hardly anything.
    if runs.len() * 4 > image.data.len() / CHUNK {
        runs.clear();
        runs.push(first.start..last.end);
    }
    let place = place_of(geometry, image.block, 1);
    operations.push(BufferFormat::new(place, kind, &runs).as_bytes());
    runs.iter().for_each(|run| operations.push(&image.data[run.start * CHUNK..run.end * CHUNK]));
}

/// Adds a complete buffer.
fn add_bytes(place: BufferPlace, kind: BufferType, bytes: &[u8], operations: &mut Operations) {
    let all = 0..bytes.len() / CHUNK;
    operations.push(BufferFormat::new(place, kind, std::slice::from_ref(&all)).as_bytes());
    operations.push(bytes);
}

/// Returns the type of a block that is a buffer by itself.
fn type_of(kind: BlockKind, data: &[u8]) -> BufferType {
    match kind {
        BlockKind::Inodes => BufferType::Dinode,
        BlockKind::BnoBtree
        | BlockKind::CntBtree
        | BlockKind::RmapBtree
        | BlockKind::RefcountBtree
        | BlockKind::InoBtree
        | BlockKind::FinoBtree
        | BlockKind::RtRmapBtree
        | BlockKind::RtRefcountBtree
        | BlockKind::Bmbt => BufferType::Btree,
        BlockKind::DirData | BlockKind::DirFree | BlockKind::DirLeaf | BlockKind::AttrLeaf => {
            type_of_da(data)
        }
        BlockKind::AttrRemote => BufferType::AttrRemote,
        BlockKind::Symlink => BufferType::Symlink,
        BlockKind::RealtimeBitmap => BufferType::RealtimeBitmap,
        BlockKind::RealtimeSummary => BufferType::RealtimeSummary,
        BlockKind::AgHeader | BlockKind::Part | BlockKind::Dquots | BlockKind::Raw => {
            BufferType::Unknown
        }
    }
}

/// Returns the type of a block of quotas.
fn type_of_quotas(data: &[u8]) -> BufferType {
    const TYPE: usize = 3;
    let number = data.get(TYPE).map_or(0, |of| of & 7);
    match QuotaKind::ALL.into_iter().find(|kind| kind.number() == number) {
        Some(QuotaKind::User) => BufferType::UserDquot,
        Some(QuotaKind::Group) => BufferType::GroupDquot,
        Some(QuotaKind::Project) => BufferType::ProjectDquot,
        None => BufferType::Unknown,
    }
}

/// Returns the type of a buffer of several blocks.
fn type_of_whole(bytes: &[u8]) -> BufferType {
    match bytes.get(..4) {
        Some(start) if be32(start, 0) == symlink::MAGIC => BufferType::Symlink,
        Some(_) => type_of_da(bytes),
        None => BufferType::Unknown,
    }
}

/// Returns the type of a directory or attribute block according to its magic number.
fn type_of_da(data: &[u8]) -> BufferType {
    let at_start = be32(data, 0);
    let behind = be16(data, DA_MAGIC);
    match () {
        () if at_start == magic::BLOCK[0] => BufferType::DirBlock,
        () if at_start == magic::DATA[0] => BufferType::DirData,
        () if at_start == magic::FREE[0] => BufferType::DirFree,
        () if behind == magic::LEAF1[0] => BufferType::DirLeaf1,
        () if behind == magic::LEAFN[0] => BufferType::DirLeafN,
        () if behind == magic::NODE[0] => BufferType::DaNode,
        () if behind == crate::format::attr::LEAF_MAGIC => BufferType::AttrLeaf,
        () => BufferType::Unknown,
    }
}
