//! Walks the extent maps of forks: claims every extent, and reads every block of a map's tree.

use vfs::check::Finding;
use vfs::{FileType, Ino};

use super::codes::{self, TreeCodes};
use super::inodes::Inodes;
use super::links::special_inodes;
use super::owners::Owners;
use super::realtime::FileClaims;
use super::tree::{TreeOwner, TreeWalk, Visitor};
use crate::btree::Tree;
use crate::btree::records::{BmapTree, RtRefcountTree, RtRmapTree, rmap_offset};
use crate::format::address::{Block, FileBlock, FsBlock};
use crate::format::btree::TreeShape;
use crate::format::extent::{EXTENT_SIZE, Extent};
use crate::format::features::RoCompat;
use crate::format::geometry::Geometry;
use crate::format::inode::{Fork, ForkFormat, Inode, flags2};
use crate::format::metafile::MetafileType;

/// Summary of a fork.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mapped {
    pub(super) extents: u64,
    /// Number of blocks, including those of the map's tree.
    pub(super) blocks: u64,
    /// True if the map could not be read completely.
    pub(super) is_broken: bool,
}

/// Returns the first block that is read for an inode, for reading in device order.
pub(super) fn first_block(geometry: &Geometry, inode: &Inode) -> u64 {
    let of = |fork| {
        let bytes = inode.fork(fork);
        match inode.fork_format(fork) {
            ForkFormat::Extents if inode.extents(fork) > 0 && bytes.len() >= EXTENT_SIZE => {
                Some(Extent::parse(bytes).start)
            }
            ForkFormat::Btree => {
                let area = TreeShape::BMBT.root_area(bytes.len());
                (area.max > 0).then(|| FsBlock(area.pointer(bytes, 0)))
            }
            _ => None,
        }
    };
    let block = of(Fork::Data).or_else(|| of(Fork::Attr));
    block.filter(|block| geometry.contains(*block, 1)).map_or(0, |b| geometry.device_block(b).0)
}

struct Map<'m, F> {
    owners: &'m Owners,
    ino: u64,
    /// The flag of the fork in reverse-map records.
    flag: u64,
    may_share: bool,
    is_shared: bool,
    end: FileBlock,
    overlaps: bool,
    has_unwritten: bool,
    mapped: Mapped,
    /// True if the extents are on the realtime device.
    is_on_realtime: bool,
    /// Their claims, if these are of interest.
    realtime: Option<FileClaims<'m>>,
    each: F,
}

impl<F: FnMut(Extent)> Map<'_, F> {
    fn extent(&mut self, extent: Extent) {
        let state = if extent.unwritten { rmap_offset::UNWRITTEN } else { 0 };
        let offset = extent.offset.0 | self.flag | state;
        self.overlaps |= extent.offset < self.end;
        self.has_unwritten |= extent.unwritten;
        self.end = extent.end();
        if let Some(claims) = &mut self.realtime {
            self.is_shared |= claims.extent(&extent, self.may_share);
        } else if !self.is_on_realtime {
            self.is_shared |= self.owners.claim_extent(
                extent.start,
                extent.len,
                self.ino,
                offset,
                self.may_share && !extent.unwritten,
            );
        }
        self.mapped.extents += 1;
        self.mapped.blocks += extent.len;
        (self.each)(extent);
    }
}

impl<F: FnMut(Extent)> Visitor<BmapTree> for Map<'_, F> {
    fn block(&mut self, block: Block) -> bool {
        let offset = self.flag | rmap_offset::BMBT_BLOCK;
        self.owners.claim_block(block, self.ino, offset)
    }

    fn record(&mut self, record: Extent) {
        self.extent(record);
    }
}

/// Walks the extent map of a fork and calls `each` with each extent. The inode must have been verified.
pub(super) fn map(
    inodes: &Inodes<'_>,
    ino: Ino,
    inode: &Inode,
    fork: Fork,
    each: impl FnMut(Extent),
) -> Mapped {
    let ctx = inodes.ctx;
    let is_file = fork == Fork::Data && inode.file_type() == Some(FileType::Regular);
    let is_on_realtime =
        fork == Fork::Data && inode.is_realtime() && ctx.geometry.realtime.is_some();
    let may_share = is_file && ctx.geometry.features.ro_compat(RoCompat::REFLINK);
    let mut map = Map {
        owners: inodes.owners,
        ino: ino.0,
        flag: if fork == Fork::Attr { rmap_offset::ATTR_FORK } else { 0 },
        may_share,
        is_shared: false,
        end: FileBlock(0),
        overlaps: false,
        has_unwritten: false,
        mapped: Mapped::default(),
        is_on_realtime,
        realtime: is_on_realtime.then(|| inodes.realtime.map(|all| all.of_file(ino.0))).flatten(),
        each,
    };
    let bytes = inode.fork(fork);
    match inode.fork_format(fork) {
        ForkFormat::Extents => {
            let count = inode.extents(fork) as usize;
            let records = bytes.chunks_exact(EXTENT_SIZE).take(count);
            records.for_each(|record| map.extent(Extent::parse(record)));
        }
        ForkFormat::Btree if !bytes.is_empty() => {
            let walk =
                TreeWalk::<BmapTree, _>::new(ctx, codes::BMBT, TreeOwner::Inode(ino.0), &mut map);
            let found = walk.of_fork(bytes);
            map.mapped.blocks += found.blocks;
            map.mapped.is_broken = found.is_broken;
        }
        ForkFormat::MetaBtree => group_tree(inodes, ino, inode, &mut map.mapped),
        _ => {}
    }
    let fault = |field| Finding::new(codes::INODE_MAP).of_inode(ino.0).field(field);
    if let Some(claims) = map.realtime.take() {
        claims.finish(ctx);
    }
    if map.overlaps {
        ctx.found(fault("extents").detail("extents overlap or are out of order"));
    }
    let is_of_file_system =
        || inode.is_metadata() || special_inodes(ctx).any(|special| special == ino);
    if map.has_unwritten && (!is_file || is_of_file_system()) {
        ctx.found(fault("extents").detail("an unwritten extent in metadata"));
    }
    if map.is_shared && inode.flags2() & flags2::REFLINK == 0 {
        ctx.found(fault("di_flags2").detail("it shares blocks, but the reflink flag is not set"));
    }
    map.mapped
}

/// Claims the blocks of a tree of a realtime group. Its records are compared with files elsewhere.
struct TreeBlocks<'t> {
    owners: &'t Owners,
    ino: u64,
}

impl<T: Tree> Visitor<T> for TreeBlocks<'_> {
    fn block(&mut self, block: Block) -> bool {
        self.owners.claim_block(block, self.ino, rmap_offset::BMBT_BLOCK)
    }

    fn record(&mut self, _: T::Record) {}
}

/// Checks the tree of a realtime group.
fn group_tree(inodes: &Inodes<'_>, ino: Ino, inode: &Inode, mapped: &mut Mapped) {
    fn walk<T: Tree>(inodes: &Inodes<'_>, codes: TreeCodes, ino: Ino, fork: &[u8]) -> (u64, bool) {
        let mut blocks = TreeBlocks { owners: inodes.owners, ino: ino.0 };
        let walk = TreeWalk::<T, _>::new(inodes.ctx, codes, TreeOwner::Inode(ino.0), &mut blocks);
        let found = walk.of_fork(fork);
        (found.blocks, found.is_broken)
    }
    let fork = inode.fork(Fork::Data);
    (mapped.blocks, mapped.is_broken) = match inode.metafile_type() {
        MetafileType::RtRmap => walk::<RtRmapTree>(inodes, codes::RTRMAPBT, ino, fork),
        _ => walk::<RtRefcountTree>(inodes, codes::RTREFCOUNTBT, ino, fork),
    };
}
