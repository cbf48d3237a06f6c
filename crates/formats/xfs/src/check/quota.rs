//! Checks quotas: recounts the usage of users, groups and projects if the superblock says that it was counted.

mod usage;

use vfs::Ino;
use vfs::check::Finding;

use super::chunks::InodeState;
use super::codes;
use super::context::Context;
use super::forks;
use super::inodes::Inodes;
use super::metadir;
use crate::format::checksum;
use crate::format::inode::Fork;
use crate::format::log::dquot::{CRC_OFFSET as DQUOT_CRC_OFFSET, DQUOT_BLOCK_SIZE};
use crate::format::quota::{self, Counts, QuotaKind, Resource, UsageById};

use usage::IDS_MAX;
pub(crate) use usage::Usage;
pub(super) use usage::{Uncounted, is_counted};

impl Usage {
    /// Compares the usage with the quota files.
    pub(super) fn check(&self, inodes: &Inodes<'_>) {
        let files = match metadir::root(inodes.ctx) {
            Some(_) => metadir::quota_files(inodes).map(|file| file.unwrap_or(Ino(0))),
            None => self.files,
        };
        for (at, kind) in QuotaKind::ALL.into_iter().enumerate() {
            if let Some(counted) = &self.kinds[at] {
                let mut counted = std::mem::take(&mut *counted.lock());
                let is_partial = counted.len() >= IDS_MAX;
                if read(inodes, kind, files[at], &mut counted) && !is_partial {
                    for (id, counts) in counted {
                        differs(inodes.ctx, kind, id, counts, Counts::default());
                    }
                }
            }
        }
    }
}

fn differs(ctx: &Context<'_>, kind: QuotaKind, id: u32, counted: Counts, found: Counts) {
    if counted != found {
        let has_realtime =
            [counted, found].iter().any(|of| of[Resource::RealtimeBlocks as usize] != 0);
        let shown = |[blocks, inodes, realtime]: Counts| match has_realtime {
            true => format!("{blocks} blocks, {inodes} inodes, {realtime} realtime blocks"),
            false => format!("{blocks} blocks, {inodes} inodes"),
        };
        let finding = Finding::new(codes::QUOTA_COUNTS).detail(format!("{} {id}", kind.name()));
        ctx.found(finding.mismatch(shown(counted), shown(found)));
    }
}

/// Reads a quota file and removes its identifiers from `counted`. Returns whether all of it could be read.
fn read(inodes: &Inodes<'_>, kind: QuotaKind, ino: Ino, counted: &mut UsageById) -> bool {
    let ctx = inodes.ctx;
    let fault = |detail: &str| Finding::new(codes::QUOTA).of_inode(ino.0).detail(detail);
    if !matches!(inodes.chunks.find(ino), InodeState::Used(_)) {
        ctx.found(Finding::new(codes::QUOTA).detail(format!("no {} quota file", kind.name())));
        return false;
    }
    let Some(inode) = super::names::read_inode(ctx, ino) else { return false };
    let mut extents = Vec::new();
    let mapped = forks::map(inodes, ino, &inode, Fork::Data, |extent| extents.push(extent));
    if mapped.is_broken {
        return false;
    }
    let size = ctx.geometry.block_size();
    let per_block = size / DQUOT_BLOCK_SIZE;
    let mut block = vec![0; size];
    let blocks_max = u64::from(u32::MAX) / per_block.max(1) as u64 + 1;
    if extents.iter().any(|extent| extent.end().0 > blocks_max) {
        let finding = Finding::new(codes::INODE_MAP).of_inode(ino.0).field("extents");
        ctx.found(finding.detail("blocks past the records of all identifiers"));
        return false;
    }
    for extent in extents.iter().filter(|extent| !extent.unwritten) {
        for nth in 0..extent.len {
            let place = ctx.geometry.device_block(extent.start.plus(nth));
            if !ctx.read(place, &mut block) {
                return false;
            }
            let first = (extent.offset.0 + nth) * per_block as u64;
            for (nth, record) in block.chunks_exact(DQUOT_BLOCK_SIZE).take(per_block).enumerate() {
                // Identifiers of the last block wrap around.
                let id = (first as u32).wrapping_add(nth as u32);
                if !quota::is_valid(kind, id, &ctx.geometry.features, record) {
                    ctx.found(fault("an invalid quota record").at_block(place.0));
                    return false;
                }
                let has_checksums = ctx.geometry.features.crc();
                if has_checksums && quota::uuid(record) != ctx.geometry.meta_uuid {
                    ctx.found(fault("a quota record with another UUID").at_block(place.0));
                    return false;
                }
                let sealed = checksum::check("quota", record, DQUOT_CRC_OFFSET);
                if let Err(damage) = sealed
                    && has_checksums
                {
                    ctx.damage(codes::QUOTA, &damage.of_inode(ino.0), Some(place));
                }
                let found = Resource::ALL.map(|resource| quota::read(record, resource).count);
                let expected = counted.remove(&id).unwrap_or_default();
                differs(ctx, kind, id, expected, found);
            }
        }
    }
    true
}
