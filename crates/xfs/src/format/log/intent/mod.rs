//! Intents: items that announce changes which later transactions make, and the items that say these
//! are done.
//!
//! An intent and its done item share an id, which means nothing else (in kernels it is an address). What
//! an intent announces is read by [`Intent::work`], which checks all that can be checked without looking
//! at the rest of the image. Numbers are in the byte order of the machine that wrote the log; values of
//! attributes are as on disk.

mod attribute;
mod exchange;
mod extents;
#[cfg(test)]
mod tests;

use transaction::Corruption;
use vfs::Ino;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use attribute::{AttributeChange, AttributeWork, ParentLink};
pub use exchange::{Exchange, ExchangeFile};
pub use extents::{
    BmapChange, BmapKind, ExtentRun, RefcountChange, RefcountKind, RmapChange, RmapKind,
};

use super::item::ItemType;
use crate::format::address::{FileBlock, FsBlock};
use crate::format::ag;
use crate::format::geometry::Geometry;

/// What intents and done items start with. In the others `count` is padding.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    item_type: U16,
    /// Regions of the item.
    size: U16,
    /// Extents that follow.
    count: U32,
    id: U64,
}

/// Bytes of [`RawHead`]: all of a done item but an EFD.
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

/// An intent that the log has no done item for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// What the done item names.
    pub id: u64,
    /// Its type.
    pub item: ItemType,
    /// Its regions, the one with the format first.
    pub regions: Vec<Vec<u8>>,
}

/// What an intent announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Blocks become free.
    Free(Vec<ExtentRun>),
    /// The reverse map changes.
    Rmap(Vec<RmapChange>),
    /// Counts of references change.
    Refcount(Vec<RefcountChange>),
    /// The map of a fork changes.
    Bmap(BmapChange),
    /// The attributes of an inode change.
    Attribute(AttributeChange),
    /// Two files exchange ranges.
    Exchange(Exchange),
}

impl Intent {
    /// Reads an intent: the type and the id are checked, the rest later.
    ///
    /// # Errors
    /// If it is none, or too short.
    pub fn parse(item: ItemType, regions: &[&[u8]]) -> Result<Self, Corruption> {
        let first = regions.first().and_then(|first| RawHead::ref_from_prefix(first).ok());
        let Some((head, _)) = first else {
            return Err(Corruption::new("log item", "an intent cut short"));
        };
        let found = head.item_type.get();
        if done_type(item).is_none() || found != item as u16 {
            let damage = Corruption::new("log item", "not the intent it was taken for");
            return Err(damage.mismatch(format_args!("{item:?}"), format_args!("{found:#x}")));
        }
        let regions = regions.iter().map(|region| region.to_vec()).collect();
        Ok(Self { id: head.id.get(), item, regions })
    }

    /// Checks all that can be known of an intent without reading the image: lengths, counts, operations
    /// and flags, and that blocks and inodes are within groups.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, geometry: &Geometry) -> Result<(), Corruption> {
        self.work(geometry).map(drop)
    }

    /// What it announces, checked as [`Intent::check`] does.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn work(&self, geometry: &Geometry) -> Result<Work, Corruption> {
        match self.item {
            ItemType::Efi => self.free_work(geometry).map(Work::Free),
            ItemType::Rui => self.rmap_work(geometry).map(Work::Rmap),
            ItemType::Cui => self.refcount_work(geometry).map(Work::Refcount),
            ItemType::Bui => self.bmap_work(geometry).map(Work::Bmap),
            ItemType::Attri => self.attribute_work(geometry).map(Work::Attribute),
            ItemType::Xmi => self.exchange_work(geometry).map(Work::Exchange),
            _ => Err(self.damage("no intent")),
        }
    }

    /// The item that says that this intent is done: its one region.
    pub fn done(&self) -> Vec<u8> {
        let item = done_type(self.item).unwrap_or(self.item);
        if item == ItemType::Efd {
            return self.extents_done();
        }
        RawHead::new(item, 1, 0, self.id).as_bytes().to_vec()
    }

    /// What an intent of this type is called.
    const fn name(&self) -> &'static str {
        match self.item {
            ItemType::Efi => "EFI",
            ItemType::Rui => "RUI",
            ItemType::Cui => "CUI",
            ItemType::Bui => "BUI",
            ItemType::Attri => "ATTRI",
            ItemType::Xmi => "XMI",
            _ => "intent",
        }
    }

    /// Damage to this intent.
    fn damage(&self, problem: impl Into<String>) -> Corruption {
        Corruption::new(self.name(), problem)
    }

    /// The one region of an intent that has no more.
    fn only_region(&self) -> Result<&[u8], Corruption> {
        match &*self.regions {
            [region] => Ok(region),
            more => Err(self.damage("regions").mismatch(1, more.len())),
        }
    }

    /// Checks that a run of blocks lies in a group, behind its headers.
    fn check_run(&self, geometry: &Geometry, start: FsBlock, len: u32) -> Result<(), Corruption> {
        let (_, block) = geometry.split(start);
        let (headers_end, _) = ag::sector_place(geometry, ag::AGFL_SECTOR);
        if len > 0 && block.0 > headers_end && geometry.contains(start, len.into()) {
            return Ok(());
        }
        let found = format_args!("{len} blocks from {start} on");
        Err(self.damage("blocks").mismatch("blocks of one allocation group", found))
    }

    /// Checks that logical blocks are such as a fork can have.
    fn check_offsets(&self, offset: FileBlock, len: u64) -> Result<(), Corruption> {
        if len > 0 && offset < FileBlock::END && offset.plus(len) <= FileBlock::END {
            return Ok(());
        }
        let found = format_args!("{len} from {offset} on");
        Err(self.damage("logical blocks").mismatch("below 2^54", found))
    }

    /// Checks that there can be an inode of this number.
    fn check_ino(&self, geometry: &Geometry, ino: Ino) -> Result<(), Corruption> {
        if ino.0 != 0 && geometry.split_ino(ino).is_some() {
            return Ok(());
        }
        Err(self.damage("inode").mismatch("an inode of a group", ino))
    }
}

/// The type of the item that says that an intent is done; `None` if the type is none of an intent.
pub const fn done_type(item: ItemType) -> Option<ItemType> {
    Some(match item {
        ItemType::Efi => ItemType::Efd,
        ItemType::Rui => ItemType::Rud,
        ItemType::Cui => ItemType::Cud,
        ItemType::Bui => ItemType::Bud,
        ItemType::Attri => ItemType::Attrd,
        ItemType::Xmi => ItemType::Xmd,
        _ => return None,
    })
}
