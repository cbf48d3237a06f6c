//! Replay: the changes that the log holds, made in memory, checked, then written back.
//!
//! A block that was replayed bears the place in the log of what was done to it last, as it would if it had
//! been written before the crash. So another crash while blocks are written back does no harm: the log is still there,
//! and what it holds is older than those blocks, or the same.

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

use blockdev::BlockDevice;
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

/// The log's changes, before they are written back.
pub(super) struct Replay<'d> {
    geometry: Geometry,
    device_len: u64,
    /// The log's bytes, where nothing is written.
    log: Range<u64>,
    changes: Changes<'d>,
    cancels: Cancels,
    quota_off: Vec<QuotaOff>,
    /// Buffers that were replayed, by their first byte.
    touched: BTreeMap<u64, Touched>,
    /// Inodes that were, by the first byte of their slots.
    slots: BTreeSet<u64>,
    /// Inodes that all blocks of their maps are to name for their owner, by the first byte of their slots:
    /// the maps of which forks, and where that was asked for.
    owner_changes: BTreeMap<u64, (u32, Lsn)>,
    intents: Intents,
    pub(super) report: Report,
}

/// Intents that were not yet said to be done.
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

    /// Strikes out an intent. What was announced before the tail is not known.
    fn done(&mut self, item: ItemType, id: u64) {
        if let Some(number) = self.numbers.remove(&(item, id)) {
            self.open.remove(&number);
        }
    }
}

/// Items of a transaction are replayed in this order: buffers before what lies in them; and a buffer that
/// is given up counts up to the end of its transaction.
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
    /// Makes the changes that the log within `bounds` holds, in memory.
    ///
    /// # Errors
    /// `Corrupt` for what cannot be, `Unsupported` for items that are not known here.
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
        each_transaction(ring, bounds, |transaction| replay.look(&transaction))?;
        each_transaction(ring, bounds, |transaction| replay.apply(&transaction))?;
        replay.finish_buffers()?;
        replay.check_slots()?;
        replay.change_owners()?;
        let geometry = replay.geometry;
        replay.intents.open.values().try_for_each(|intent| intent.check(&geometry))?;
        Ok(replay)
    }

    /// The first pass: notes what makes items count or not.
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

    /// The second pass: makes the changes.
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

    /// The superblock may say that the file system is larger, for what follows.
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

    /// Writes everything to its place, durably.
    ///
    /// # Errors
    /// If the device fails. It can be tried again.
    pub(super) fn write_back(&self) -> Result<()> {
        self.changes.write_back()
    }

    /// What is to be finished, in the order of the log.
    pub(super) fn into_intents(self) -> Vec<Intent> {
        self.intents.open.into_values().collect()
    }
}

/// Calls `each` with the transactions that are complete, in the order of their ends.
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
