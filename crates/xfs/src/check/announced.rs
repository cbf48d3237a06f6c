//! What finishing the intents of a log changes of what quotas count.
//!
//! A quota is changed in the transaction that changes an inode, or announces a change of its map. What comes of the other
//! intents is counted by nobody before they are finished, nor when they are: whoever recovers a log has no quotas yet. So
//! where intents were finished in memory, inodes have blocks that quotas need not know of.

use std::sync::Arc;

use blockdev::{BlockDevice, OverlayDevice};
use vfs::{Ino, Result};

use super::quota::{self, Uncounted};
use crate::format::geometry::Geometry;
use crate::format::inode::{self, Inode};
use crate::format::log::intent::{BmapKind, Work};
use crate::format::superblock::Superblock;
use crate::log;
use crate::volume::read_superblock;

/// Blocks that inodes have as the log holds them, with those that quotas know of already.
pub(super) struct Announced(Uncounted);

impl Announced {
    /// What there is before intents are finished, of those inodes that they are about. The device is not changed.
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

    /// What quotas do not know of on a device on which the intents are finished.
    pub(super) fn uncounted(self, finished: &dyn BlockDevice, sb: &Superblock) -> Uncounted {
        let geometry = Geometry::new(sb);
        let now = |(ino, counted): (u64, i64)| {
            let left = blocks(finished, &geometry, Ino(ino))? - counted;
            (left != 0).then_some((ino, left))
        };
        self.0.into_iter().filter_map(now).collect()
    }
}

/// How many blocks an inode has.
fn blocks(device: &dyn BlockDevice, geometry: &Geometry, ino: Ino) -> Option<i64> {
    let (ag, ag_ino) = geometry.split_ino(ino)?;
    let (block, at) = geometry.inode_place(ag_ino);
    let byte = geometry.byte_of(geometry.block_of(ag, block)) + at as u64;
    let mut slot = vec![0; geometry.inode_size()];
    device.read_at(byte, &mut slot).ok()?;
    inode::verify_structure(geometry, ino, &slot).ok()?;
    i64::try_from(Inode::from_slot(&slot).nblocks()).ok()
}
