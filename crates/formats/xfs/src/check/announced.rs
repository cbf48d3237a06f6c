//! Quota counts of images whose log contains intents.
//!
//! Kernels change a quota in the transaction that changes an inode, or that logs the intent of a map change. Changes
//! that result from other intents are not counted, neither before nor when recovery finishes them: recovery runs before
//! quotas are loaded. So after intents were finished in memory, inodes have blocks that quotas need not include.

use std::sync::Arc;

use disk::{BlockDevice, OverlayDevice};
use vfs::{Ino, Result};

use super::quota::{self, Uncounted};
use crate::format::geometry::Geometry;
use crate::format::inode::{self, Inode};
use crate::format::log::intent::{BmapKind, Work};
use crate::format::superblock::Superblock;
use crate::log;
use crate::volume::read_superblock;

/// Blocks of inodes as in the log, including those that quotas already count.
pub(super) struct Announced(Uncounted);

impl Announced {
    /// Returns the counts before intents are finished, for the inodes of the intents. Does not change the device.
    ///
    /// # Errors
    /// As replaying the log.
    pub(super) fn of(device: &Arc<dyn BlockDevice>, sb: &Superblock) -> Result<Self> {
        let mut counted = Uncounted::new();
        if !quota::is_counted(sb) {
            return Ok(Self(counted));
        }
        let replayed = OverlayDevice::new(Arc::clone(device));
        let intents = log::recover(&replayed, sb)?.intents;
        let geometry = Geometry::new(&read_superblock(&replayed)?);
        let mut note = |ino: Ino, announced: i64| {
            let found = || blocks(&replayed, &geometry, ino).unwrap_or(0);
            *counted.entry(ino.0).or_insert_with(found) += announced;
        };
        for intent in &intents {
            match intent.work(&geometry)? {
                Work::Bmap(change) => {
                    let len = i64::from(change.run.len);
                    note(change.ino, if change.kind == BmapKind::Map { len } else { -len });
                }
                Work::Attribute(change) => note(change.ino, 0),
                Work::Exchange(exchange) => exchange.files.iter().for_each(|f| note(f.ino, 0)),
                Work::Free(_) | Work::Rmap(_) | Work::Refcount(_) => {}
            }
        }
        Ok(Self(counted))
    }

    /// Returns the blocks that quotas do not count on a device after its intents were finished.
    pub(super) fn uncounted(self, finished: &dyn BlockDevice, sb: &Superblock) -> Uncounted {
        let geometry = Geometry::new(sb);
        let now = |(ino, counted): (u64, i64)| {
            let left = blocks(finished, &geometry, Ino(ino))? - counted;
            (left != 0).then_some((ino, left))
        };
        self.0.into_iter().filter_map(now).collect()
    }
}

/// Returns the number of blocks of an inode.
fn blocks(device: &dyn BlockDevice, geometry: &Geometry, ino: Ino) -> Option<i64> {
    let (ag, ag_ino) = geometry.split_ino(ino)?;
    let (block, at) = geometry.inode_place(ag_ino);
    let byte = geometry.byte_of(geometry.block_of(ag, block)) + at as u64;
    let mut slot = vec![0; geometry.inode_size()];
    device.read_at(byte, &mut slot).ok()?;
    inode::verify_structure(geometry, ino, &slot).ok()?;
    i64::try_from(Inode::from_slot(&slot).nblocks()).ok()
}
