//! Replay: applies the changes in the log in memory, checks the results, then writes them back.
//!
//! A replayed block gets the LSN of its last change, as if it had been written before the crash. So another crash
//! during write-back is harmless: the log is still there, and its changes are not newer than those blocks.

mod buffer;
mod cancels;
mod changes;
mod inode;
mod owner;
mod pieces;
mod small;
mod structure;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use disk::BlockDevice;
use vfs::{Error, Result};

use super::bounds::Bounds;
use super::end::Ring;
use super::recover::Report;
use crate::format::geometry::Geometry;
use crate::format::log::Lsn;
use crate::format::log::dquot::QuotaOff;
use crate::format::log::intent::Intent;
use crate::format::log::item::{Item, ItemType, RawItem};
use crate::format::log::transaction::{Assembler, Transaction};
use crate::format::superblock::Superblock;
use buffer::Touched;
use cancels::Cancels;
use changes::Changes;
pub(crate) use structure::stated_lsn;

/// The changes of the log, before they are written back.
pub(super) struct Replay<'d> {
    geometry: Geometry,
    device_len: u64,
    /// Byte range of the log, where nothing is written.
    log: Range<u64>,
    changes: Changes<'d>,
    cancels: Cancels,
    quota_off: Vec<QuotaOff>,
    /// Replayed buffers, by their byte offset.
    touched: BTreeMap<u64, Touched>,
    /// Replayed inodes, by the byte offset of their slots.
    slots: BTreeSet<u64>,
    /// Inodes that must become the owner of all blocks of their maps, by the byte offset of their slots: mask of forks,
    /// and LSN of the request.
    owner_changes: BTreeMap<u64, (u32, Lsn)>,
    intents: Intents,
    pub(super) report: Report,
}

/// Intents without a done item so far.
#[derive(Default)]
struct Intents {
    /// In the order of the log.
    open: BTreeMap<u64, Intent>,
    numbers: HashMap<(ItemType, u64), u64>,
    next: u64,
}

impl Intents {
    fn add(&mut self, item: ItemType, id: u64, raw: &RawItem<'_>) -> Result<()> {
        let regions: Vec<&[u8]> = raw.regions().collect();
        self.open.insert(self.next, Intent::parse(item, &regions)?);
        self.numbers.insert((item, id), self.next);
        self.next += 1;
        Ok(())
    }

    /// Removes an intent. It is unknown if it was logged before the tail.
    fn done(&mut self, item: ItemType, id: u64) {
        if let Some(number) = self.numbers.remove(&(item, id)) {
            self.open.remove(&number);
        }
    }
}

/// Order in which the items of a transaction are replayed: buffers before structures in them. A cancelled buffer is
/// valid until the end of its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Buffers,
    Others,
    InodeBuffers,
    Cancels,
}

impl Phase {
    const ALL: [Self; 4] = [Self::Buffers, Self::Others, Self::InodeBuffers, Self::Cancels];

    const fn of(item: &Item<'_>) -> Self {
        match item {
            Item::Buffer(item) if item.is_cancel() => Self::Cancels,
            Item::Buffer(item) if item.is_inode_buffer() => Self::InodeBuffers,
            Item::Buffer(_) | Item::Icreate(_) => Self::Buffers,
            _ => Self::Others,
        }
    }
}

impl<'d> Replay<'d> {
    /// Applies the changes in the log within `bounds`, in memory.
    ///
    /// # Errors
    /// `Corrupt` for invalid contents, `Unsupported` for unknown items.
    pub(super) fn run(
        device: &'d dyn BlockDevice,
        sb: &Superblock,
        ring: &Ring<'_>,
        bounds: &Bounds,
    ) -> Result<Self> {
        let mut replay = Self {
            geometry: Geometry::new(sb),
            device_len: device.len(),
            log: ring.place(),
            changes: Changes::new(device),
            cancels: Cancels::default(),
            quota_off: Vec::new(),
            touched: BTreeMap::new(),
            slots: BTreeSet::new(),
            owner_changes: BTreeMap::new(),
            intents: Intents::default(),
            report: Report::default(),
        };
        // Two passes, because a cancel anywhere in the log decides whether earlier items are replayed.
        each_transaction(ring, bounds, |transaction| replay.look(&transaction))?;
        each_transaction(ring, bounds, |transaction| replay.apply(&transaction))?;
        replay.finish_buffers()?;
        replay.check_slots()?;
        replay.change_owners()?;
        let geometry = replay.geometry;
        replay.intents.open.values().try_for_each(|intent| intent.check(&geometry))?;
        Ok(replay)
    }

    /// First pass: collects what decides whether items are replayed.
    fn look(&mut self, transaction: &Transaction) -> Result<()> {
        for raw in transaction.items() {
            match Item::parse(&raw)? {
                Item::Buffer(item) if item.is_cancel() => self.cancels.add(item.daddr, item.blocks),
                Item::QuotaOff(item) => self.quota_off.push(item),
                _ => {}
            }
        }
        Ok(())
    }

    /// Second pass: applies the changes.
    fn apply(&mut self, transaction: &Transaction) -> Result<()> {
        let parse = |raw| Ok((Item::parse(&raw)?, raw));
        let items = transaction.items().map(parse).collect::<Result<Vec<_>>>()?;
        for phase in Phase::ALL {
            for (item, raw) in items.iter().filter(|(item, _)| Phase::of(item) == phase) {
                self.item(transaction.start, item, raw)?;
            }
        }
        self.report.transactions += 1;
        Ok(())
    }

    fn item(&mut self, lsn: Lsn, item: &Item<'_>, raw: &RawItem<'_>) -> Result<()> {
        match item {
            Item::Buffer(item) if item.is_cancel() => self.cancels.pass(item.daddr, item.blocks),
            Item::Buffer(item) => self.buffer(lsn, item)?,
            Item::Inode(item) => self.inode(lsn, item)?,
            Item::Dquot(item) => self.dquot(lsn, item)?,
            Item::Icreate(item) => self.icreate(item)?,
            Item::QuotaOff(_) => {}
            Item::Intent(item, id) => self.intents.add(*item, *id, raw)?,
            Item::Done(intent, id) => self.intents.done(*intent, *id),
        }
        Ok(())
    }

    /// The superblock may have grown the file system. Later items are checked against the new size.
    fn superblock_changed(&mut self, touched: Touched) -> Result<()> {
        self.finish_buffer(0, touched)?;
        let sector = self.changes.read(0, self.geometry.sector_size())?;
        let geometry = Geometry::new(&Superblock::parse(&sector, self.device_len)?);
        let sizes = |g: &Geometry| {
            (g.block_log, g.sector_log, g.inode_log, g.dir_block_log, g.ag_blocks, g.meta_uuid)
        };
        if sizes(&geometry) != sizes(&self.geometry) {
            let damage = vfs::Corruption::new("superblock", "the log changes its sizes");
            return Err(Error::Corrupt(damage));
        }
        self.geometry = geometry;
        Ok(())
    }

    /// Writes all changes to the device, durably.
    ///
    /// # Errors
    /// If the device fails. The call may be retried.
    pub(super) fn write_back(&self) -> Result<()> {
        self.changes.write_back()
    }

    /// Returns the intents to be finished, in the order of the log.
    pub(super) fn into_intents(self) -> Vec<Intent> {
        self.intents.open.into_values().collect()
    }
}

/// Calls `each` with the complete transactions, ordered by their ends.
fn each_transaction(
    ring: &Ring<'_>,
    bounds: &Bounds,
    mut each: impl FnMut(Transaction) -> Result<()>,
) -> Result<()> {
    let mut assembler = Assembler::default();
    bounds.each(ring, |whole| {
        let at = whole.record.lsn;
        assembler.take(at, whole.operations(), &mut each).map_err(|error| match error {
            Error::Corrupt(c) => Error::Corrupt(c),
            other => other,
        })
    })
}
