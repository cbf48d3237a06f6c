//! Intents: items that announce changes of later transactions, and their done items.
//!
//! An intent and its done item share an id, which has no other meaning (in kernels it is an address). [`Intent::work`]
//! reads an intent, and checks everything that can be checked without reading the rest of the image. Numbers are in the
//! byte order of the machine that wrote the log; values of attributes are as on disk.

mod attribute;
mod exchange;
mod extents;
#[cfg(test)]
mod tests;

use engine::Corruption;
use vfs::Ino;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) use attribute::{AttributeChange, AttributeWork, ParentLink};
pub use exchange::{Exchange, ExchangeFile};
pub(crate) use extents::{
    BmapChange, BmapKind, ExtentRun, RefcountChange, RefcountKind, RmapChange, RmapKind,
};

use super::item::ItemType;
use crate::format::address::{FileBlock, FsBlock};
use crate::format::ag;
use crate::format::geometry::Geometry;

/// The common start of intents and done items. In some types `count` is padding.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    item_type: U16,
    /// Number of regions of the item.
    size: U16,
    /// Number of extents that follow.
    count: U32,
    id: U64,
}

/// Size of [`RawHead`] in bytes: the size of all done items except an EFD.
const HEAD_SIZE: usize = 16;

const _: () = assert!(size_of::<RawHead>() == HEAD_SIZE);

impl RawHead {
    fn new(item: ItemType, regions: u16, count: u32, id: u64) -> Self {
        Self {
            item_type: (item as u16).into(),
            size: regions.into(),
            count: count.into(),
            id: id.into(),
        }
    }
}

/// An intent without a done item in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// The id that its done item repeats.
    pub id: u64,
    /// Its type.
    pub item: ItemType,
    /// Its regions, starting with the format.
    pub regions: Vec<Vec<u8>>,
}

impl Intent {
    /// Returns whether its change leaves the usage of quotas as it is, or changes it together with the inodes. Kernels
    /// count map changes and exchanges in the transaction before them.
    pub(crate) fn is_counted(&self) -> bool {
        !matches!(self.item, ItemType::Bui | ItemType::Xmi)
    }
}

/// The change of an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Frees blocks.
    Free(Vec<ExtentRun>),
    /// Changes the reverse map.
    Rmap(Vec<RmapChange>),
    /// Changes reference counts.
    Refcount(Vec<RefcountChange>),
    /// Changes the extent map of a fork.
    Bmap(BmapChange),
    /// Changes the attributes of an inode.
    Attribute(AttributeChange),
    /// Exchanges ranges of two files.
    Exchange(Exchange),
}

impl Intent {
    /// Parses an intent. Checks its type and length; the rest is checked later.
    ///
    /// # Errors
    /// If it is not an intent, or too short.
    pub(crate) fn parse(item: ItemType, regions: &[&[u8]]) -> Result<Self, Corruption> {
        let first = regions.first().and_then(|first| RawHead::ref_from_prefix(first).ok());
        let Some((head, _)) = first else {
            return Err(Corruption::new("log item", "a truncated intent"));
        };
        let found = head.item_type.get();
        if done_type(item).is_none() || found != item as u16 {
            let damage = Corruption::new("log item", "another intent than expected");
            return Err(damage.mismatch(format_args!("{item:?}"), format_args!("{found:#x}")));
        }
        let regions = regions.iter().map(|region| region.to_vec()).collect();
        Ok(Self { id: head.id.get(), item, regions })
    }

    /// Checks everything that can be checked without reading the image: lengths, counts, operations and flags, and that
    /// blocks and inodes are within groups.
    ///
    /// # Errors
    /// The problem found.
    pub(crate) fn check(&self, geometry: &Geometry) -> Result<(), Corruption> {
        self.work(geometry).map(drop)
    }

    /// Returns its change, checked as in `Intent::check`.
    ///
    /// # Errors
    /// The problem found.
    pub fn work(&self, geometry: &Geometry) -> Result<Work, Corruption> {
        match self.item {
            ItemType::Efi | ItemType::RtEfi => self.free_work(geometry).map(Work::Free),
            ItemType::Rui | ItemType::RtRui => self.rmap_work(geometry).map(Work::Rmap),
            ItemType::Cui | ItemType::RtCui => self.refcount_work(geometry).map(Work::Refcount),
            ItemType::Bui => self.bmap_work(geometry).map(Work::Bmap),
            ItemType::Attri => self.attribute_work(geometry).map(Work::Attribute),
            ItemType::Xmi => self.exchange_work(geometry).map(Work::Exchange),
            _ => Err(self.damage("not an intent")),
        }
    }

    /// Returns the only region of the done item of this intent.
    pub(crate) fn done(&self) -> Vec<u8> {
        let item = done_type(self.item).unwrap_or(self.item);
        if matches!(item, ItemType::Efd | ItemType::RtEfd) {
            return self.extents_done();
        }
        RawHead::new(item, 1, 0, self.id).as_bytes().to_vec()
    }

    /// Returns the name of intents of this type.
    const fn name(&self) -> &'static str {
        match self.item {
            ItemType::Efi => "EFI",
            ItemType::Rui => "RUI",
            ItemType::Cui => "CUI",
            ItemType::Bui => "BUI",
            ItemType::Attri => "ATTRI",
            ItemType::Xmi => "XMI",
            ItemType::RtEfi => "realtime EFI",
            ItemType::RtRui => "realtime RUI",
            ItemType::RtCui => "realtime CUI",
            _ => "intent",
        }
    }

    /// Returns an error about this intent.
    fn damage(&self, problem: impl Into<String>) -> Corruption {
        Corruption::new(self.name(), problem)
    }

    /// Returns the only region of an intent.
    fn only_region(&self) -> Result<&[u8], Corruption> {
        match &*self.regions {
            [region] => Ok(region),
            more => Err(self.damage("regions").mismatch(1, more.len())),
        }
    }

    /// Checks that a run of blocks is within a group, after its headers.
    fn check_run(&self, geometry: &Geometry, start: FsBlock, len: u32) -> Result<(), Corruption> {
        let (_, block) = geometry.split(start);
        let (headers_end, _) = ag::sector_place(geometry, ag::AGFL_SECTOR);
        if len > 0 && block.0 > headers_end && geometry.contains(start, len.into()) {
            return Ok(());
        }
        let found = format_args!("{len} blocks from {start}");
        Err(self.damage("blocks").mismatch("blocks of one allocation group", found))
    }

    /// Returns blocks of the realtime device ([`FsBlock::on_realtime`]), checked to be within a group.
    fn realtime_run(
        &self,
        geometry: &Geometry,
        start: FsBlock,
        len: u32,
    ) -> Result<FsBlock, Corruption> {
        let realtime = geometry.realtime.filter(|_| len > 0);
        let block = realtime.and_then(|realtime| realtime.device_block(start, len.into()));
        block.map(FsBlock::on_realtime).ok_or_else(|| {
            let found = format_args!("{len} blocks from {start}").to_string();
            self.damage("blocks").mismatch("blocks of one realtime group", found)
        })
    }

    /// Returns whether it changes blocks of the realtime device.
    const fn is_realtime(&self) -> bool {
        matches!(self.item, ItemType::RtEfi | ItemType::RtRui | ItemType::RtCui)
    }

    /// Checks that logical blocks are in the valid range of a fork.
    fn check_offsets(&self, offset: FileBlock, len: u64) -> Result<(), Corruption> {
        if len > 0 && offset < FileBlock::END && offset.plus(len) <= FileBlock::END {
            return Ok(());
        }
        let found = format_args!("{len} from {offset}");
        Err(self.damage("logical blocks").mismatch("below 2^54", found))
    }

    /// Checks that an inode number is valid.
    fn check_ino(&self, geometry: &Geometry, ino: Ino) -> Result<(), Corruption> {
        if ino.0 != 0 && geometry.split_ino(ino).is_some() {
            return Ok(());
        }
        Err(self.damage("inode").mismatch("an inode of a group", ino))
    }
}

/// Returns the type of the done item of an intent; `None` if the type is not an intent.
pub(crate) const fn done_type(item: ItemType) -> Option<ItemType> {
    Some(match item {
        ItemType::Efi => ItemType::Efd,
        ItemType::Rui => ItemType::Rud,
        ItemType::Cui => ItemType::Cud,
        ItemType::Bui => ItemType::Bud,
        ItemType::Attri => ItemType::Attrd,
        ItemType::Xmi => ItemType::Xmd,
        ItemType::RtEfi => ItemType::RtEfd,
        ItemType::RtRui => ItemType::RtRud,
        ItemType::RtCui => ItemType::RtCud,
        _ => return None,
    })
}
