//! Converting checkpoints to buffer items of the log.
//!
//! Kernels replay each item as a buffer of its own size, and verify it according to its type. So each sector of a
//! group's headers is an item, and so is a contiguous directory block of several blocks, and a cluster of inodes.

use std::collections::HashMap;
use std::io;

use engine::{BlockImage, Tag};

use crate::format::address::Block;
use crate::format::bytes::{be16, be32};
use crate::format::dir::magic;
use crate::format::geometry::Geometry;
use crate::format::log::buffer::{
    BufferFormat, BufferPlace, BufferType, CHUNK, FORMAT_SIZE, runs_of,
};
use crate::format::log::{BLOCK_SIZE, RawOpHeader, icreate};
use crate::format::quota::QuotaKind;
use crate::format::{ag, symlink};
use crate::kind::BlockKind;
use crate::log::cluster::{Cluster, Sink};

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

/// Converts blocks to items.
#[derive(Default)]
pub(super) struct Items {
    whole: Whole,
    cluster: Cluster,
    /// Items of several blocks that may still be in the log, by their first block. If that block is cancelled, all are.
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

impl Items {
    /// Starts the checkpoint with this sequence number.
    pub(super) fn begin(&mut self, sequence: u64) {
        self.whole = Whole::default();
        self.cluster.clear();
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
    pub(super) fn add(
        &mut self,
        geometry: &Geometry,
        image: &BlockImage<'_>,
        region: &mut Sink<'_>,
    ) -> io::Result<()> {
        // Blocks come in ascending order, so contiguous parts of a directory block or cluster follow each other.
        let kind = BlockKind::from_tag(image.tag);
        if kind == BlockKind::Part && self.continues(geometry, image) {
            self.gather(image);
            return Ok(());
        }
        self.finish_whole(geometry, region)?;
        if kind == BlockKind::Inodes && geometry.cluster_blocks() > 1 {
            if self.cluster.first != Cluster::first_of(geometry, image.block) {
                self.finish_cluster(geometry, region)?;
            }
            self.cluster.gather(geometry, image);
            return Ok(());
        }
        self.finish_cluster(geometry, region)?;
        match kind {
            BlockKind::Part => {
                self.whole.first = image.block;
                self.whole.tag = image.tag;
                self.gather(image);
                Ok(())
            }
            BlockKind::AgHeader => add_headers(geometry, image, region),
            BlockKind::Dquots => {
                self.end_whole(image.block);
                // Kernels verify each run of chunks as if it started with a record, so the block is logged whole.
                let kind = type_of_quotas(image.data);
                add_bytes(place_of(geometry, image.block, 1), kind, image.data, region)
            }
            _ => {
                self.end_whole(image.block);
                add_block(geometry, image, type_of(kind, image.data), region)
            }
        }
    }

    /// Returns whether a block directly follows the collected ones, in the same directory block or link.
    fn continues(&self, geometry: &Geometry, image: &BlockImage<'_>) -> bool {
        let Whole { first, tag, blocks, .. } = self.whole;
        let together = blocks > 0
            && image.block == first + u64::from(blocks)
            && image.tag.owner == tag.owner
            && image.tag.seed == tag.seed.wrapping_add(blocks);
        let is_link = type_of_whole(&self.whole.bytes) == BufferType::Symlink;
        together && (is_link || blocks < geometry.dir_block_blocks())
    }

    fn gather(&mut self, image: &BlockImage<'_>) {
        self.whole.blocks += 1;
        self.whole.bytes.extend_from_slice(image.data);
    }

    /// Writes the items of the collected blocks.
    pub(super) fn finish(&mut self, geometry: &Geometry, region: &mut Sink<'_>) -> io::Result<()> {
        self.finish_whole(geometry, region)?;
        self.finish_cluster(geometry, region)
    }

    /// Writes the item of the collected cluster of inodes, if there is one.
    fn finish_cluster(&mut self, geometry: &Geometry, region: &mut Sink<'_>) -> io::Result<()> {
        let cluster = std::mem::take(&mut self.cluster);
        let Cluster { first, blocks, .. } = cluster;
        if blocks > 0 {
            if self.wholes.get(&first).is_none_or(|whole| whole.blocks != blocks) {
                // Blocks that became inode blocks may still be in the log with other contents.
                for block in cluster.changed() {
                    self.end_whole(block);
                    self.ended.push((block, 1));
                }
            }
            self.wholes.insert(first, InLog { blocks, sequence: self.sequence });
            cluster.write(geometry, region)?;
        }
        self.cluster = cluster;
        self.cluster.clear();
        Ok(())
    }

    /// Writes the collected blocks of a directory block or link: as one item if complete, otherwise each block as plain
    /// bytes.
    fn finish_whole(&mut self, geometry: &Geometry, region: &mut Sink<'_>) -> io::Result<()> {
        let Whole { first, tag, blocks, bytes } = std::mem::take(&mut self.whole);
        if blocks == 0 {
            return Ok(());
        }
        let kind = type_of_whole(&bytes);
        let is_first = tag.seed % geometry.dir_block_blocks() == 0;
        let is_whole = kind == BufferType::Symlink
            || kind != BufferType::Unknown && is_first && blocks == geometry.dir_block_blocks();
        let is_same = is_whole && self.wholes.get(&first).is_some_and(|w| w.blocks == blocks);
        // Other items of several blocks may have started at any of these.
        (first..)
            .take(blocks as usize)
            .skip(is_same.into())
            .for_each(|block| self.end_whole(block));
        if is_whole {
            if !is_same {
                // Each block may be in the log as a separate item with earlier contents. Its replay would overwrite
                // part of this one, so it is cancelled.
                self.ended.extend((first..).take(blocks as usize).map(|block| (block, 1)));
            }
            self.wholes.insert(first, InLog { blocks, sequence: self.sequence });
            add_bytes(place_of(geometry, first, blocks), kind, &bytes, region)?;
        } else {
            for (block, bytes) in (first..).zip(bytes.chunks_exact(geometry.block_size())) {
                add_bytes(place_of(geometry, block, 1), BufferType::Unknown, bytes, region)?;
            }
        }
        Ok(())
    }

    /// Writes the cancels of freed blocks.
    pub(super) fn cancel(
        &mut self,
        geometry: &Geometry,
        freed: &[u64],
        region: &mut Sink<'_>,
    ) -> io::Result<()> {
        for &block in freed {
            region(BufferFormat::cancel(place_of(geometry, block, 1)).as_bytes())?;
            self.end_whole(block);
        }
        for (first, blocks) in self.ended.drain(..) {
            region(BufferFormat::cancel(place_of(geometry, first, blocks)).as_bytes())?;
        }
        Ok(())
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
fn add_headers(
    geometry: &Geometry,
    image: &BlockImage<'_>,
    region: &mut Sink<'_>,
) -> io::Result<()> {
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
        add_bytes(place, HEADER_TYPES[sector], &image.data[start..end], region)?;
    }
    Ok(())
}

/// Adds the changed pieces of a block.
fn add_block(
    geometry: &Geometry,
    image: &BlockImage<'_>,
    kind: BufferType,
    region: &mut Sink<'_>,
) -> io::Result<()> {
    let mut runs = runs_of(image.pieces, image.data.len());
    let (Some(first), Some(last)) = (runs.first().cloned(), runs.last().cloned()) else {
        return Ok(());
    };
    // With that many pieces, separate runs save hardly anything.
    if runs.len() * 4 > image.data.len() / CHUNK {
        runs.clear();
        runs.push(first.start..last.end);
    }
    region(BufferFormat::new(place_of(geometry, image.block, 1), kind, &runs).as_bytes())?;
    runs.iter().try_for_each(|run| region(&image.data[run.start * CHUNK..run.end * CHUNK]))
}

/// Adds a complete buffer.
fn add_bytes(
    place: BufferPlace,
    kind: BufferType,
    bytes: &[u8],
    region: &mut Sink<'_>,
) -> io::Result<()> {
    let all = 0..bytes.len() / CHUNK;
    region(BufferFormat::new(place, kind, std::slice::from_ref(&all)).as_bytes())?;
    region(bytes)
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
