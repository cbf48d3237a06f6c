//! A group of the image being repaired: reads and writes its blocks and headers.

use disk::BlockDevice;
use operations::repair::Staging;
use vfs::{Error, Result};

use super::bulk::{self, Fill};
use crate::btree::records::{BnoTree, FreeRun, RmapTree};
use crate::format::address::{AgBlock, AgNumber};
use crate::format::features::RoCompat;
use crate::format::geometry::Geometry;

/// A group.
pub(super) struct GroupDevice<'g> {
    pub(super) staging: &'g Staging,
    pub(super) geometry: &'g Geometry,
    pub(super) ag: AgNumber,
}

impl<'g> GroupDevice<'g> {
    pub(super) const fn new(staging: &'g Staging, geometry: &'g Geometry, ag: AgNumber) -> Self {
        Self { staging, geometry, ag }
    }

    fn byte(&self, block: AgBlock) -> u64 {
        self.geometry.byte_of(self.geometry.block_of(self.ag, block))
    }

    /// Reads a block; `None` if the device fails.
    pub(super) fn read_block(&self, block: AgBlock) -> Option<Vec<u8>> {
        let mut bytes = vec![0; self.geometry.block_size()];
        self.staging.read_at(self.byte(block), &mut bytes).ok().map(|()| bytes)
    }

    pub(super) fn write_block(&self, block: AgBlock, bytes: &[u8]) -> Result<()> {
        self.staging.write_at(self.byte(block), bytes).map_err(Error::Device)
    }

    fn sector_byte(&self, sector: u32) -> u64 {
        self.byte(AgBlock(0)) + (u64::from(sector) << self.geometry.sector_log)
    }

    /// Reads one of the group's header sectors; `None` if the device fails.
    pub(super) fn read_sector(&self, sector: u32) -> Option<Vec<u8>> {
        let mut bytes = vec![0; self.geometry.sector_size()];
        self.staging.read_at(self.sector_byte(sector), &mut bytes).ok().map(|()| bytes)
    }

    pub(super) fn write_sector(&self, sector: u32, bytes: &[u8]) -> Result<()> {
        self.staging.write_at(self.sector_byte(sector), bytes).map_err(Error::Device)
    }

    /// Returns whether a whole run is readable, and so can be written.
    fn is_readable(&self, run: FreeRun) -> bool {
        (run.start.0..run.start.0 + run.len).all(|block| self.read_block(AgBlock(block)).is_some())
    }

    /// Takes `count` blocks from the starts of free runs: of the first one with more blocks than that, otherwise of the
    /// longest ones. The result is sorted; `None` if there are too few.
    pub(super) fn take(&self, free: &[FreeRun], count: usize) -> Option<Vec<FreeRun>> {
        let whole = |run: &FreeRun| {
            let taken = FreeRun { start: run.start, len: count as u32 };
            (run.len as usize > count && self.is_readable(taken)).then_some(taken)
        };
        if let Some(taken) = free.iter().find_map(whole) {
            return Some(vec![taken]);
        }
        let mut longest: Vec<FreeRun> = free.to_vec();
        longest.sort_unstable_by_key(|run| std::cmp::Reverse((run.len, run.start)));
        let (mut taken, mut left) = (Vec::new(), count as u32);
        for run in longest {
            let part = FreeRun { start: run.start, len: run.len.min(left) };
            if left > 0 && self.is_readable(part) {
                left -= part.len;
                taken.push(part);
            }
        }
        taken.sort_unstable_by_key(|run| run.start);
        (left == 0).then_some(taken)
    }
}

/// Levels of the trees to be built.
pub(super) struct Levels {
    /// Total of both free-space trees and the reverse map.
    pub(super) of_space: u32,
}

impl Levels {
    pub(super) fn of(device: &GroupDevice<'_>, free: usize, owners: usize, fill: Fill) -> Self {
        let geometry = device.geometry;
        let space = bulk::levels::<BnoTree>(geometry, free, fill).len() as u32;
        let rmap = match geometry.features.ro_compat(RoCompat::RMAPBT) {
            true => bulk::levels::<RmapTree>(geometry, owners, fill).len() as u32,
            false => 0,
        };
        Self { of_space: 2 * space + rmap }
    }
}
