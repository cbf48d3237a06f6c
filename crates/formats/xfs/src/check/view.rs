//! An image as seen by repairs of files: uses the readers of the check, without reporting findings.

use std::collections::HashSet;
use std::sync::Arc;

use disk::BlockDevice;
use parking_lot::Mutex;
use vfs::check::{BitSet, Options, Silent};
use vfs::{Error, FileType, Ino, Result};

use super::chunks::{Chunks, InodeState};
use super::context::Context;
use super::forks;
use super::groups;
use super::inodes::Inodes;
use super::links::{InodeLinks, special_inodes};
use super::metadir;
use super::names;
use super::owners::{Claim, Owners};
use super::quota::Usage;
use super::realtime::mapped_of;
use super::{attributes, fields};
use crate::btree::records::{rmap_offset, rmap_owner};
use crate::format::address::{AgBlock, AgNumber, Block};
use crate::format::dir::DirLayout;
use crate::format::extent::Extent;
use crate::format::geometry::Geometry;
use crate::format::inode::{Fork, Inode};
use crate::format::quota::UsageById;
use crate::format::superblock::Superblock;
use crate::volume::read_superblock;

/// A link to an inode, from an entry or a parent pointer: directory, its generation, name.
pub(crate) type Link = (u64, u32, Vec<u8>);

/// A run of blocks of an inode, according to the inode or the reverse map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The first block.
    pub(crate) block: Block,
    /// Number of blocks.
    pub(crate) len: u64,
    /// The inode, or another owner (`rmap_owner`).
    pub(crate) owner: u64,
    /// Logical block and flags (`rmap_offset`).
    pub(crate) offset: u64,
}

impl Mapping {
    /// Returns whether the owner is an inode.
    pub(crate) const fn is_of_inode(&self) -> bool {
        !rmap_owner::is_none_of_inodes(self.owner)
    }

    /// Returns whether they are blocks of the fork's extent tree.
    pub(crate) const fn is_of_tree(&self) -> bool {
        self.offset & rmap_offset::BMBT_BLOCK != 0
    }

    /// Returns whether both mappings assign `block` to the same owner and offset.
    pub(crate) const fn agrees(&self, other: &Self, block: u64) -> bool {
        if self.owner != other.owner {
            return false;
        }
        let flags = !rmap_offset::MASK & !rmap_offset::UNWRITTEN;
        if !self.is_of_inode() || self.is_of_tree() {
            return self.offset & flags == other.offset & flags;
        }
        self.offset & flags == other.offset & flags
            && (self.offset & rmap_offset::MASK).wrapping_add(block - self.block.0)
                == (other.offset & rmap_offset::MASK).wrapping_add(block - other.block.0)
    }

    /// Returns whether it contains a block.
    pub(crate) const fn has(&self, block: u64) -> bool {
        self.block.0 <= block && block - self.block.0 < self.len
    }
}

/// All claims of blocks, sorted by owner.
pub(crate) struct Claims {
    /// By inodes and groups.
    pub(crate) claims: Vec<Mapping>,
    /// By reverse maps.
    pub(crate) mapped: Vec<Mapping>,
    /// Records about the wanted inodes in the reverse maps of realtime groups, with blocks of the realtime device.
    pub(crate) realtime: Vec<Mapping>,
    /// Blocks that have an owner.
    pub(crate) taken: BitSet,
    /// Free blocks according to the free-space trees.
    pub(crate) free: BitSet,
}

/// An image being examined.
pub(crate) struct View<'s>(&'s Inodes<'s>);

/// Calls `look` with the image on a device, whose superblock must be valid. Damaged groups have no inodes.
///
/// # Errors
/// If the superblock is unusable, or there are too many inodes.
pub(crate) fn view<R>(
    device: Arc<dyn BlockDevice>,
    look: impl FnOnce(&View<'_>) -> R,
) -> Result<R> {
    let chunks = |ctx: &Context<'_>, owners: &Owners| {
        Chunks::new(&ctx.geometry, groups::check_inodes(ctx, owners))
    };
    with_chunks(device, Owners::new, chunks, |inodes| look(&View(inodes)))
}

/// Returns the owners of blocks, with all claims about some inodes and some blocks, which must be sorted.
///
/// # Errors
/// As [`view`].
pub(crate) fn claims(
    device: Arc<dyn BlockDevice>,
    inodes: HashSet<u64>,
    disputed: Vec<u64>,
) -> Result<Claims> {
    let wanted = inodes.clone();
    let owners = |geometry: &Geometry| Owners::searching(geometry, inodes, disputed);
    let chunks = |ctx: &Context<'_>, owners: &Owners| Some(groups::check(ctx, owners)?.0);
    with_chunks(device, owners, chunks, |inodes| {
        inodes.check();
        let (geometry, owners) = (inodes.ctx.geometry, inodes.owners);
        let copy = |set: Option<&BitSet>| {
            let copy = BitSet::new(geometry.blocks);
            for block in set.into_iter().flat_map(|set| runs(set, geometry.blocks)) {
                copy.insert_range(block, |_| {});
            }
            copy
        };
        let (taken, free) = (copy(Some(owners.taken())), copy(owners.free()));
        let (claims, mapped) = owners.listed();
        let [claims, mapped] = [claims, mapped].map(|all| mappings(&geometry, all));
        let of_device = geometry.of_realtime_device();
        let realtime = of_device.map(|device| mappings(&device, mapped_of(inodes, &wanted)));
        Claims { claims, mapped, realtime: realtime.unwrap_or_default(), taken, free }
    })
}

/// Returns claims as runs of blocks, sorted by owner.
fn mappings(geometry: &Geometry, claims: Vec<Claim>) -> Vec<Mapping> {
    let mapping = |claim: Claim| Mapping {
        block: geometry.block_of(AgNumber(claim.ag), AgBlock(claim.start)),
        len: claim.len.into(),
        owner: claim.owner,
        offset: claim.offset,
    };
    let mut all: Vec<Mapping> = claims.into_iter().map(mapping).collect();
    all.sort_by_key(|mapping| (mapping.owner, mapping.block, mapping.offset));
    all
}

/// Returns the runs of numbers in a set.
fn runs(set: &BitSet, end: u64) -> impl Iterator<Item = std::ops::Range<u64>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < end && set.word(at / 64) >> (at % 64) == 0 {
            at = (at / 64 + 1) * 64;
        }
        let first = (at..end.min(at + 64)).find(|block| set.contains(*block))?;
        let behind = (first..end).find(|block| !set.contains(*block)).unwrap_or(end);
        at = behind;
        Some(first..behind)
    })
}

fn with_chunks<R>(
    device: Arc<dyn BlockDevice>,
    owners: impl FnOnce(&Geometry) -> Owners,
    chunks: impl FnOnce(&Context<'_>, &Owners) -> Option<Chunks>,
    look: impl FnOnce(&Inodes<'_>) -> R,
) -> Result<R> {
    let sb = read_superblock(&*device)?;
    let ctx = Context::new(device, sb, &Silent, Options::default().threads, None);
    let owners = owners(&ctx.geometry);
    let Some(chunks) = chunks(&ctx, &owners) else {
        return Err(Error::unsupported("more than 2^32 inodes", "xfs_repair repairs such images"));
    };
    let links = InodeLinks::new(&ctx, &chunks);
    let inodes = Inodes {
        ctx: &ctx,
        owners: &owners,
        chunks: &chunks,
        links: &links,
        usage: None,
        pointers: None,
        layout: DirLayout::new(&ctx.geometry),
        realtime: None,
    };
    Ok(look(&inodes))
}

impl View<'_> {
    /// Returns the superblock.
    pub(crate) fn superblock(&self) -> &Superblock {
        &self.0.ctx.sb
    }

    /// Returns the geometry of the image.
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.0.ctx.geometry
    }

    /// Returns the layout of directories.
    pub(crate) fn layout(&self) -> &DirLayout {
        &self.0.layout
    }

    /// Returns the root directory.
    pub(crate) fn root(&self) -> Ino {
        self.0.links.root()
    }

    /// Returns whether an inode is the root of the ordinary tree or of the metadata directory.
    pub(crate) fn is_root(&self, ino: Ino) -> bool {
        self.0.links.is_root(ino)
    }

    /// Returns whether an inode is the root of the metadata directory.
    pub(crate) fn is_metadir_root(&self, ino: Ino) -> bool {
        metadir::root(self.0.ctx) == Some(ino)
    }

    /// Returns the readable files of the metadata directory, with their paths below its root.
    pub(crate) fn metafiles(&self) -> Vec<(Vec<u8>, Ino)> {
        metadir::walk(self.0).into_iter().map(|file| (file.path, file.ino)).collect()
    }

    /// Returns whether an inode is named by the superblock instead of a directory.
    pub(crate) fn is_special(&self, ino: Ino) -> bool {
        special_inodes(self.0.ctx).any(|special| special == ino)
    }

    /// Returns whether an inode is a file of users: a regular one that belongs neither to the metadata directory nor to
    /// the superblock.
    pub(crate) fn is_user_file(&self, ino: Ino, inode: &Inode) -> bool {
        inode.file_type() == Some(FileType::Regular)
            && !inode.is_metadata()
            && !self.is_special(ino)
    }

    /// Calls `look` with the valid inodes in use according to the inode trees, by several threads, with large reads.
    /// Returns the results in the order of inodes.
    pub(crate) fn each_used<R: Send>(
        &self,
        look: impl Fn(Ino, &Inode) -> Option<R> + Sync,
    ) -> impl Iterator<Item = R> {
        let found = Mutex::new(Vec::new());
        self.0.each_used(|ino, inode| {
            if let Some(result) = look(ino, inode) {
                found.lock().push((ino, result));
            }
        });
        let mut found = found.into_inner();
        found.sort_unstable_by_key(|(ino, _)| *ino);
        found.into_iter().map(|(_, result)| result)
    }

    /// Returns the usage of users, groups and projects; `None` if there are too many of one kind. Must be called once,
    /// because it claims the blocks of maps.
    pub(crate) fn usage(&self) -> Option<[UsageById; 3]> {
        let raw = &self.0.ctx.sb.raw;
        let files = [raw.uquotino.get(), raw.gquotino.get(), raw.pquotino.get()].map(Ino);
        let usage = Usage::of_all_kinds(files);
        self.0.each_used(|ino, inode| {
            let mut realtime = 0;
            if inode.is_realtime() {
                forks::map(self.0, ino, inode, Fork::Data, |extent| realtime += extent.len);
            }
            usage.add(ino, inode, realtime);
        });
        usage.into_kinds()
    }

    /// Returns whether an inode is in use according to the trees. `None` if unknown.
    pub(crate) fn is_used(&self, ino: Ino) -> Option<bool> {
        match self.0.chunks.find(ino) {
            InodeState::Used(_) => Some(true),
            InodeState::Free | InodeState::None => Some(false),
            InodeState::Unknown => None,
        }
    }

    /// Returns the byte offset of an inode on the device. `None` if the number is invalid.
    pub(crate) fn slot_byte(&self, ino: Ino) -> Option<u64> {
        let geometry = &self.0.ctx.geometry;
        let (ag, ag_ino) = geometry.split_ino(ino)?;
        Some(self.0.ctx.ag_byte(ag) + (u64::from(ag_ino.0) << geometry.inode_log))
    }

    /// Returns an inode's slot as on disk.
    pub(crate) fn slot(&self, ino: Ino) -> Option<Vec<u8>> {
        let mut slot = vec![0; self.0.ctx.geometry.inode_size()];
        self.0.ctx.device.read_at(self.slot_byte(ino)?, &mut slot).ok()?;
        Some(slot)
    }

    /// Returns an inode in use, if its slot is valid.
    pub(crate) fn inode(&self, ino: Ino) -> Option<Inode> {
        (self.is_used(ino) != Some(false)).then(|| names::read_inode(self.0.ctx, ino))?
    }

    /// Calls `each` with the entries of a directory except `.` and `..`, as far as its data blocks are valid, until it
    /// returns false.
    pub(crate) fn entries(
        &self,
        dir: Ino,
        inode: &Inode,
        extents: &[Extent],
        mut each: impl FnMut(&[u8], Ino) -> bool,
    ) {
        names::for_each_in(self.0, dir, inode, extents, |_, name, ino| each(name, ino));
    }

    /// Returns the readable parent pointers of an inode.
    pub(crate) fn parents(&self, ino: Ino, inode: &Inode, extents: &[Extent]) -> Vec<Link> {
        match self.0.chunks.find(ino) {
            InodeState::Used(number) => attributes::parents_in(self.0, number, ino, inode, extents),
            _ => Vec::new(),
        }
    }

    /// Reads blocks of the device. Returns false if that fails.
    pub(crate) fn read(&self, block: Block, bytes: &mut [u8]) -> bool {
        let byte = self.0.ctx.geometry.byte_of(block);
        self.0.ctx.device.read_at(byte, bytes).is_ok()
    }

    /// Returns whether the fields of a structurally valid inode in use have valid values.
    pub(crate) fn are_fields_right(&self, ino: Ino, inode: &Inode) -> bool {
        let silent = Context::new(
            Arc::clone(&self.0.ctx.device),
            self.0.ctx.sb.clone(),
            &Silent,
            self.0.ctx.threads,
            None,
        );
        if let Some(file_type) = inode.file_type() {
            fields::check_used(&silent, ino, inode, file_type);
        }
        silent.waiting.is_empty()
    }
}
