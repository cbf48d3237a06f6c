//! An image as repairs of files see it: through the readers that the check has, without anybody being told of anything.

use std::collections::HashSet;
use std::sync::Arc;

use ::check::{BitSet, Options};
use blockdev::BlockDevice;
use vfs::{Error, Ino, Result};

use super::chunks::Known;
use super::context::Context;
use super::groups;
use super::inodes::Inodes;
use super::links::{Links, special_inodes};
use super::names::{self, Silent};
use super::owners::Owners;
use super::{attributes, fields};
use crate::btree::records::{rmap_offset, rmap_owner};
use crate::format::address::{AgBlock, AgNumber, Block};
use crate::format::dir::Layout;
use crate::format::extent::Extent;
use crate::format::geometry::{Geometry, INODES_PER_CHUNK};
use crate::format::inode::Inode;
use crate::format::superblock::Superblock;
use crate::volume::read_superblock;

/// A link to an inode, as an entry or a parent pointer says: directory, its generation, name.
pub(crate) type Link = (u64, u32, Vec<u8>);

/// Blocks of an inode, as the inode or the reverse map says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The first block.
    pub(crate) block: Block,
    /// Blocks.
    pub(crate) len: u64,
    /// The inode, or another owner (`rmap_owner`).
    pub(crate) owner: u64,
    /// Logical block and flags (`rmap_offset`).
    pub(crate) offset: u64,
}

impl Mapping {
    /// Whether an inode has them.
    pub(crate) const fn is_of_inode(&self) -> bool {
        !rmap_owner::is_none_of_inodes(self.owner)
    }

    /// Whether they are blocks of the tree that maps a fork.
    pub(crate) const fn is_of_tree(&self) -> bool {
        self.offset & rmap_offset::BMBT_BLOCK != 0
    }

    /// Whether it says that `block` belongs to the same as `other` says, at the same place there.
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

    /// Whether it has a block.
    pub(crate) const fn has(&self, block: u64) -> bool {
        self.block.0 <= block && block - self.block.0 < self.len
    }
}

/// What is said of who has which blocks, in the order of owners.
pub(crate) struct Claims {
    /// By inodes and groups.
    pub(crate) claims: Vec<Mapping>,
    /// By reverse maps.
    pub(crate) mapped: Vec<Mapping>,
    /// Blocks that somebody has.
    pub(crate) taken: BitSet,
    /// Blocks that are free, as the trees of free space say.
    pub(crate) free: BitSet,
}

/// An image that is looked at.
pub(crate) struct View<'s>(&'s Inodes<'s>);

/// Calls `look` with the image on a device, of which the superblock must be right. Groups that are damaged have
/// no inodes.
///
/// # Errors
/// If the superblock cannot be used, or there are too many inodes.
pub(crate) fn view<R>(
    device: Arc<dyn BlockDevice>,
    look: impl FnOnce(&View<'_>) -> R,
) -> Result<R> {
    with_owners(device, Owners::new, |inodes| look(&View(inodes)))
}

/// Who has which blocks, with all that is said of some inodes and of some blocks, which are in order.
///
/// # Errors
/// As [`view`].
pub(crate) fn claims(
    device: Arc<dyn BlockDevice>,
    inodes: HashSet<u64>,
    disputed: Vec<u64>,
) -> Result<Claims> {
    let owners = |geometry: &Geometry| Owners::searching(geometry, inodes, disputed);
    with_owners(device, owners, |inodes| {
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
        let mapping = |claim: super::owners::Claim| Mapping {
            block: geometry.block_of(AgNumber(claim.ag), AgBlock(claim.start)),
            len: claim.len.into(),
            owner: claim.owner,
            offset: claim.offset,
        };
        let [claims, mapped] = [claims, mapped].map(|all| {
            let mut all: Vec<Mapping> = all.into_iter().map(mapping).collect();
            all.sort_by_key(|mapping| (mapping.owner, mapping.block, mapping.offset));
            all
        });
        Claims { claims, mapped, taken, free }
    })
}

/// The runs of numbers that are in a set.
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

fn with_owners<R>(
    device: Arc<dyn BlockDevice>,
    owners: impl FnOnce(&Geometry) -> Owners,
    look: impl FnOnce(&Inodes<'_>) -> R,
) -> Result<R> {
    let sb = read_superblock(&*device)?;
    let ctx = Context::new(device, sb, &Silent, Options::default().threads, None);
    let owners = owners(&ctx.geometry);
    let Some((chunks, _)) = groups::check(&ctx, &owners) else {
        return Err(Error::unsupported("more than 2^32 inodes", "xfs_repair repairs such images"));
    };
    let links = Links::new(&ctx, &chunks);
    let inodes = Inodes {
        ctx: &ctx,
        owners: &owners,
        chunks: &chunks,
        links: &links,
        usage: None,
        pointers: None,
        layout: Layout::new(&ctx.geometry),
    };
    Ok(look(&inodes))
}

impl View<'_> {
    /// The superblock.
    pub(crate) fn superblock(&self) -> &Superblock {
        &self.0.ctx.sb
    }

    /// The shape of the image.
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.0.ctx.geometry
    }

    /// The layout of directories.
    pub(crate) fn layout(&self) -> &Layout {
        &self.0.layout
    }

    /// The root directory.
    pub(crate) fn root(&self) -> Ino {
        self.0.links.root()
    }

    /// Whether the superblock names an inode, which no directory does.
    pub(crate) fn is_special(&self, ino: Ino) -> bool {
        special_inodes(self.0.ctx).any(|special| special == ino)
    }

    /// All inodes that trees say are in use.
    pub(crate) fn used(&self) -> impl Iterator<Item = Ino> {
        let chunks = self.0.chunks;
        (0..chunks.count()).flat_map(move |number| {
            let (_, chunk) = chunks.chunk(number);
            (0..INODES_PER_CHUNK)
                .filter(move |nth| chunk.has(*nth) && !chunk.is_free(*nth))
                .map(move |nth| chunks.ino(number * INODES_PER_CHUNK + nth))
        })
    }

    /// Whether trees say that an inode is in use. `None` if that is not known.
    pub(crate) fn is_used(&self, ino: Ino) -> Option<bool> {
        match self.0.chunks.find(ino) {
            Known::Used(_) => Some(true),
            Known::Free | Known::None => Some(false),
            Known::Unknown => None,
        }
    }

    /// The place of an inode on the device, in bytes. `None` if there can be no such inode.
    pub(crate) fn slot_byte(&self, ino: Ino) -> Option<u64> {
        let geometry = &self.0.ctx.geometry;
        let (ag, ag_ino) = geometry.split_ino(ino)?;
        Some(self.0.ctx.ag_byte(ag) + (u64::from(ag_ino.0) << geometry.inode_log))
    }

    /// An inode's slot as it lies there.
    pub(crate) fn slot(&self, ino: Ino) -> Option<Vec<u8>> {
        let mut slot = vec![0; self.0.ctx.geometry.inode_size()];
        self.0.ctx.device.read_at(self.slot_byte(ino)?, &mut slot).ok()?;
        Some(slot)
    }

    /// An inode in use, if its slot can be used.
    pub(crate) fn inode(&self, ino: Ino) -> Option<Inode> {
        (self.is_used(ino) != Some(false)).then(|| names::read_inode(self.0.ctx, ino))?
    }

    /// Shows the entries of a directory but for `.` and `..`, as far as its data blocks are right, until false is
    /// returned.
    pub(crate) fn entries(
        &self,
        dir: Ino,
        inode: &Inode,
        extents: &[Extent],
        mut each: impl FnMut(&[u8], Ino) -> bool,
    ) {
        names::for_each_in(self.0, dir, inode, extents, |_, name, ino| each(name, ino));
    }

    /// The parent pointers of an inode, as far as they can be read.
    pub(crate) fn parents(&self, ino: Ino, inode: &Inode, extents: &[Extent]) -> Vec<Link> {
        match self.0.chunks.find(ino) {
            Known::Used(number) => attributes::parents_in(self.0, number, ino, inode, extents),
            _ => Vec::new(),
        }
    }

    /// Reads blocks of the device. False if that fails.
    pub(crate) fn read(&self, block: Block, bytes: &mut [u8]) -> bool {
        let byte = self.0.ctx.geometry.byte_of(block);
        self.0.ctx.device.read_at(byte, bytes).is_ok()
    }

    /// Whether the fields of an inode in use, whose structure is right, say what they can.
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
