//! Checks the records of quota files, and recounts the usage of users, groups and projects if the superblock says that it
//! was counted.

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
use crate::format::features::Version;
use crate::format::inode::Fork;
use crate::format::log::dquot::{CRC_OFFSET as DQUOT_CRC_OFFSET, DQUOT_BLOCK_SIZE};
use crate::format::quota::{self, Counts, QuotaKind, Resource, UsageById, counted_files};

use usage::IDS_MAX;
pub(crate) use usage::Usage;
pub(super) use usage::{Uncounted, is_counted};

/// Checks the quota files, and compares them with the usage of the kinds that were counted.
pub(super) fn check(inodes: &Inodes<'_>) {
    for (kind, file) in QuotaKind::ALL.into_iter().zip(files(inodes)) {
        let usage = inodes.usage.and_then(|usage| usage.kinds[kind as usize].as_ref());
        match usage.map(|usage| std::mem::take(&mut *usage.lock())) {
            Some(mut counted) => {
                let is_partial = counted.len() >= IDS_MAX;
                let file = file.unwrap_or(Ino(0));
                if read(inodes, kind, file, Some(&mut counted)) && !is_partial {
                    for (id, counts) in counted {
                        differs(inodes.ctx, kind, id, counts, Counts::default());
                    }
                }
            }
            // Kernels and xfs_repair read the records all the same.
            None => {
                let is_used = |ino: &Ino| matches!(inodes.chunks.find(*ino), InodeState::Used(_));
                if let Some(file) = file.filter(is_used) {
                    read(inodes, kind, file, None);
                }
            }
        }
    }
}

/// Returns the quota file of each kind. In version 4, where kinds share a file, only if the kind was counted.
fn files(inodes: &Inodes<'_>) -> [Option<Ino>; 3] {
    let ctx = inodes.ctx;
    let raw = &ctx.sb.raw;
    if metadir::root(ctx).is_some() {
        return metadir::quota_files(inodes);
    }
    let features = &ctx.geometry.features;
    if !features.crc() || !features.version_bits.contains(Version::QUOTA) {
        return counted_files(raw).map(|file| file.map(Ino));
    }
    raw.quota_inodes().map(|file| Some(Ino(file)))
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

/// Checks the records of a quota file. Compares them with `counted`, and removes their identifiers from it. Returns whether
/// all of the file could be read.
fn read(
    inodes: &Inodes<'_>,
    kind: QuotaKind,
    ino: Ino,
    mut counted: Option<&mut UsageById>,
) -> bool {
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
                if let Some(counted) = &mut counted {
                    let found = Resource::ALL.map(|resource| quota::read(record, resource).count);
                    let expected = counted.remove(&id).unwrap_or_default();
                    differs(ctx, kind, id, expected, found);
                }
            }
        }
    }
    true
}
