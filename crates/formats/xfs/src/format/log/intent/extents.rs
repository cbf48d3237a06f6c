//! Intents that list extents: EFI (frees), RUI (reverse map), CUI (reference counts), BUI (extent map of a fork).

use engine::Corruption;
use vfs::Ino;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{HEAD_SIZE, Intent, RawHead};
use crate::format::address::{FileBlock, FsBlock};
use crate::format::features::{Features, RoCompat};
use crate::format::geometry::Geometry;
use crate::format::inode::Fork;
use crate::format::log::item::ItemType;

/// An extent of an EFI (`xfs_extent`, flags are padding) or a CUI (`xfs_phys_extent`).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawExtent {
    start: U64,
    len: U32,
    flags: U32,
}

/// An extent of an EFI as 32-bit machines write it.
#[derive(Clone, Debug, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawExtent32 {
    start: U64,
    len: U32,
}

/// An extent of a RUI or BUI (`xfs_map_extent`).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawMap {
    owner: U64,
    start: U64,
    offset: U64,
    len: U32,
    flags: U32,
}

const _: () = assert!(size_of::<RawExtent>() == 16);
const _: () = assert!(size_of::<RawExtent32>() == 12);
const _: () = assert!(size_of::<RawMap>() == 32);

/// Mask of the operation in the flags (`XFS_RMAP_EXTENT_*`, `XFS_BMAP_EXTENT_*`, `XFS_REFCOUNT_EXTENT_*`).
const OPERATION: u32 = 0xff;
const ATTR_FORK: u32 = 1 << 31;
const RMAP_BMBT_BLOCK: u32 = 1 << 30;
const RMAP_UNWRITTEN: u32 = 1 << 29;
const BMAP_UNWRITTEN: u32 = 1 << 30;
const BMAP_REALTIME: u32 = 1 << 29;

/// Contiguous blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentRun {
    /// The first one. Blocks of the realtime device are marked (`FsBlock::on_realtime`), except in a change of a map.
    pub start: FsBlock,
    /// Number of blocks, at least 1.
    pub len: u32,
}

/// The operation of a RUI (`XFS_RMAP_EXTENT_*`). Only owners that can share blocks have the shared variants;
/// [`RmapKind::Allocate`] and [`RmapKind::Free`] are for owners without logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "names as in the format documentation")]
pub enum RmapKind {
    Map = 1,
    MapShared = 2,
    Unmap = 3,
    UnmapShared = 4,
    Convert = 5,
    ConvertShared = 6,
    Allocate = 7,
    Free = 8,
}

impl RmapKind {
    /// All of them.
    pub(crate) const ALL: [Self; 8] = [
        Self::Map,
        Self::MapShared,
        Self::Unmap,
        Self::UnmapShared,
        Self::Convert,
        Self::ConvertShared,
        Self::Allocate,
        Self::Free,
    ];

    /// Returns whether other records may cover the same blocks.
    pub(crate) const fn is_shared(self) -> bool {
        matches!(self, Self::MapShared | Self::UnmapShared | Self::ConvertShared)
    }
}

/// A change of the reverse map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RmapChange {
    /// The operation.
    pub kind: RmapKind,
    /// The blocks.
    pub run: ExtentRun,
    /// Their owner: an inode, or `XFS_RMAP_OWN_*`.
    pub owner: u64,
    /// Their first logical block; meaningless for owners without logical blocks.
    pub offset: FileBlock,
    /// The fork of the inode.
    pub fork: Fork,
    /// True if they are blocks of the fork's extent tree.
    pub is_bmbt: bool,
    /// True if they are unwritten; for a conversion, afterwards.
    pub unwritten: bool,
}

/// The operation of a CUI (`XFS_REFCOUNT_EXTENT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "names as in the format documentation")]
pub enum RefcountKind {
    Increase = 1,
    Decrease = 2,
    AllocateCow = 3,
    FreeCow = 4,
}

impl RefcountKind {
    /// All of them.
    pub(crate) const ALL: [Self; 4] =
        [Self::Increase, Self::Decrease, Self::AllocateCow, Self::FreeCow];
}

/// A change of reference counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefcountChange {
    /// The operation.
    pub kind: RefcountKind,
    /// The blocks.
    pub run: ExtentRun,
}

/// The operation of a BUI (`XFS_BMAP_EXTENT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "names as in the format documentation")]
pub enum BmapKind {
    Map = 1,
    Unmap = 2,
}

impl BmapKind {
    /// All of them.
    pub(crate) const ALL: [Self; 2] = [Self::Map, Self::Unmap];
}

/// A change of the extent map of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BmapChange {
    /// The operation.
    pub kind: BmapKind,
    /// The inode.
    pub ino: Ino,
    /// The fork.
    pub fork: Fork,
    /// The first logical block.
    pub offset: FileBlock,
    /// The blocks.
    pub run: ExtentRun,
    /// True if they are unwritten.
    pub unwritten: bool,
    /// True if they are on the realtime device.
    pub is_realtime: bool,
}

impl Intent {
    /// Returns the extents in the only region of an intent, each of type `T`.
    fn extents<T: FromBytes + Immutable + KnownLayout + Unaligned>(
        &self,
    ) -> Result<&[T], Corruption> {
        let region = self.only_region()?;
        let head = RawHead::ref_from_prefix(region).map_err(|_| self.damage("truncated"))?.0;
        let (count, bytes) = (head.count.get(), &region[HEAD_SIZE..]);
        let extents = <[T]>::ref_from_bytes(bytes).ok();
        let extents = extents.filter(|extents| extents.len() as u64 == u64::from(count));
        match extents {
            Some([]) => Err(self.damage("no extents")),
            Some(extents) => Ok(extents),
            None => {
                let expected = format_args!("{count} extents of {} bytes", size_of::<T>());
                let len = bytes.len();
                let found = format_args!("{len} bytes");
                Err(self.damage("length of its extents").mismatch(expected, found))
            }
        }
    }

    fn run(&self, geometry: &Geometry, start: u64, len: u32) -> Result<ExtentRun, Corruption> {
        if self.is_realtime() {
            let start = self.realtime_run(geometry, FsBlock(start), len)?;
            return Ok(ExtentRun { start, len });
        }
        let run = ExtentRun { start: FsBlock(start), len };
        self.check_run(geometry, run.start, len)?;
        Ok(run)
    }

    /// Splits flags into the operation and the rest, which must be in the mask `known`.
    fn operation<K: Copy>(
        &self,
        flags: u32,
        known: u32,
        all: &[K],
        number: impl Fn(K) -> u8,
    ) -> Result<K, Corruption> {
        let rest = flags & !OPERATION;
        if rest & !known != 0 {
            let found = format_args!("{rest:#x}");
            return Err(self.damage("unknown flags").mismatch(format_args!("{known:#x}"), found));
        }
        let operation = flags & OPERATION;
        let kind = all.iter().copied().find(|kind| u32::from(number(*kind)) == operation);
        kind.ok_or_else(|| {
            let kinds = all.len();
            let expected = format_args!("1 to {kinds}");
            self.damage("unknown operation").mismatch(expected, operation)
        })
    }

    /// Checks that the file system has the feature that the intent needs.
    fn require(
        &self,
        features: &Features,
        needed: RoCompat,
        what: &'static str,
    ) -> Result<(), Corruption> {
        if features.ro_compat(needed) {
            return Ok(());
        }
        Err(self.damage(format!("the file system has no {what}")))
    }

    pub(super) fn free_work(&self, geometry: &Geometry) -> Result<Vec<ExtentRun>, Corruption> {
        if let Ok(extents) = self.extents::<RawExtent>() {
            let run = |raw: &RawExtent| self.run(geometry, raw.start.get(), raw.len.get());
            return extents.iter().map(run).collect();
        }
        match self.extents::<RawExtent32>() {
            Ok(extents) => {
                let run = |raw: &RawExtent32| self.run(geometry, raw.start.get(), raw.len.get());
                extents.iter().map(run).collect()
            }
            Err(_) => self.extents::<RawExtent>().map(|_| Vec::new()),
        }
    }

    pub(super) fn rmap_work(&self, geometry: &Geometry) -> Result<Vec<RmapChange>, Corruption> {
        self.require(&geometry.features, RoCompat::RMAPBT, "reverse map")?;
        self.extents::<RawMap>()?.iter().map(|raw| self.rmap_change(geometry, raw)).collect()
    }

    fn rmap_change(&self, geometry: &Geometry, raw: &RawMap) -> Result<RmapChange, Corruption> {
        let (flags, owner) = (raw.flags.get(), raw.owner.get());
        let known = ATTR_FORK | RMAP_BMBT_BLOCK | RMAP_UNWRITTEN;
        let kind = self.operation(flags, known, &RmapKind::ALL, |kind| kind as u8)?;
        let offset = FileBlock(raw.offset.get());
        if !is_special(owner) {
            self.check_ino(geometry, Ino(owner))?;
            self.check_offsets(offset, raw.len.get().into())?;
        }
        Ok(RmapChange {
            kind,
            run: self.run(geometry, raw.start.get(), raw.len.get())?,
            owner,
            offset,
            fork: fork_of(flags),
            is_bmbt: flags & RMAP_BMBT_BLOCK != 0,
            unwritten: flags & RMAP_UNWRITTEN != 0,
        })
    }

    pub(super) fn refcount_work(
        &self,
        geometry: &Geometry,
    ) -> Result<Vec<RefcountChange>, Corruption> {
        self.require(&geometry.features, RoCompat::REFLINK, "reference count tree")?;
        let change = |raw: &RawExtent| {
            let flags = raw.flags.get();
            let kind = self.operation(flags, 0, &RefcountKind::ALL, |kind| kind as u8)?;
            Ok(RefcountChange { kind, run: self.run(geometry, raw.start.get(), raw.len.get())? })
        };
        self.extents::<RawExtent>()?.iter().map(change).collect()
    }

    pub(super) fn bmap_work(&self, geometry: &Geometry) -> Result<BmapChange, Corruption> {
        let raw = match self.extents::<RawMap>()? {
            [raw] => raw,
            more => return Err(self.damage("extents").mismatch(1, more.len())),
        };
        let flags = raw.flags.get();
        let known = ATTR_FORK | BMAP_UNWRITTEN | BMAP_REALTIME;
        let kind = self.operation(flags, known, &BmapKind::ALL, |kind| kind as u8)?;
        let (ino, offset) = (Ino(raw.owner.get()), FileBlock(raw.offset.get()));
        self.check_ino(geometry, ino)?;
        self.check_offsets(offset, raw.len.get().into())?;
        let is_realtime = flags & BMAP_REALTIME != 0;
        let run = match is_realtime {
            true => {
                let (start, len) = (FsBlock(raw.start.get()), raw.len.get());
                self.realtime_run(geometry, start, len)?;
                ExtentRun { start, len }
            }
            false => self.run(geometry, raw.start.get(), raw.len.get())?,
        };
        Ok(BmapChange {
            kind,
            ino,
            fork: fork_of(flags),
            offset,
            run,
            is_realtime,
            unwritten: flags & BMAP_UNWRITTEN != 0,
        })
    }

    /// Returns an EFD, which repeats the extents of its EFI in the same layout.
    pub(super) fn extents_done(&self) -> Vec<u8> {
        let extents = self.regions.first().and_then(|region| region.get(HEAD_SIZE..));
        let extents = extents.unwrap_or_default();
        let count = self.regions.first().and_then(|region| RawHead::ref_from_prefix(region).ok());
        let count = count.map_or(0, |(head, _)| head.count.get());
        let item = super::done_type(self.item).unwrap_or(ItemType::Efd);
        let mut done = RawHead::new(item, 1, count, self.id).as_bytes().to_vec();
        done.extend_from_slice(extents);
        done
    }
}

/// Intents as the kernel writes them.
#[cfg(test)]
impl Intent {
    /// Returns an intent to free blocks.
    pub(crate) fn free(id: u64, runs: &[ExtentRun]) -> Self {
        let raw = |run: &ExtentRun| RawExtent {
            start: run.start.0.into(),
            len: run.len.into(),
            flags: 0.into(),
        };
        Self::of_extents(ItemType::Efi, id, runs.iter().map(raw))
    }

    /// Returns an intent to change the reverse map.
    pub(crate) fn rmap(id: u64, changes: &[RmapChange]) -> Self {
        let raw = |change: &RmapChange| RawMap {
            owner: change.owner.into(),
            start: change.run.start.0.into(),
            offset: change.offset.0.into(),
            len: change.run.len.into(),
            flags: (change.kind as u32
                | flag(change.fork == Fork::Attr, ATTR_FORK)
                | flag(change.is_bmbt, RMAP_BMBT_BLOCK)
                | flag(change.unwritten, RMAP_UNWRITTEN))
            .into(),
        };
        Self::of_extents(ItemType::Rui, id, changes.iter().map(raw))
    }

    /// Returns an intent to change reference counts.
    pub(crate) fn refcount(id: u64, changes: &[RefcountChange]) -> Self {
        let raw = |change: &RefcountChange| RawExtent {
            start: change.run.start.0.into(),
            len: change.run.len.into(),
            flags: (change.kind as u32).into(),
        };
        Self::of_extents(ItemType::Cui, id, changes.iter().map(raw))
    }

    /// Returns an intent to change the extent map of a fork.
    pub(crate) fn bmap(id: u64, change: &BmapChange) -> Self {
        let raw = RawMap {
            owner: change.ino.0.into(),
            start: change.run.start.0.into(),
            offset: change.offset.0.into(),
            len: change.run.len.into(),
            flags: (change.kind as u32
                | flag(change.fork == Fork::Attr, ATTR_FORK)
                | flag(change.unwritten, BMAP_UNWRITTEN)
                | flag(change.is_realtime, BMAP_REALTIME))
            .into(),
        };
        Self::of_extents(ItemType::Bui, id, std::iter::once(raw))
    }

    fn of_extents<T: IntoBytes + Immutable>(
        item: ItemType,
        id: u64,
        extents: impl ExactSizeIterator<Item = T>,
    ) -> Self {
        let head = RawHead::new(item, 1, extents.len() as u32, id);
        let mut region = head.as_bytes().to_vec();
        extents.for_each(|extent| region.extend_from_slice(extent.as_bytes()));
        Self { id, item, regions: vec![region] }
    }
}

#[cfg(test)]
const fn flag(is_set: bool, bit: u32) -> u32 {
    if is_set { bit } else { 0 }
}

const fn fork_of(flags: u32) -> Fork {
    if flags & ATTR_FORK != 0 { Fork::Attr } else { Fork::Data }
}

/// Returns whether an owner is not an inode (`XFS_RMAP_NON_INODE_OWNER`).
const fn is_special(owner: u64) -> bool {
    owner >> 63 != 0
}
