//! Lists of inodes that are in use and have no name: one for each bucket of each group.

use ::check::{BitSet, Finding};
use vfs::Ino;

use super::chunks::Known;
use super::codes;
use super::context::Context;
use super::inodes::Inodes;
use crate::format::address::{AgIno, AgNumber};
use crate::format::ag::{AGI_SECTOR, RawAgi, UNLINKED_BUCKETS, raw};
use crate::format::bytes::be32;
use crate::format::inode::NEXT_UNLINKED_OFFSET;

/// Goes through all lists; which inodes are on one.
pub(super) fn check(inodes: &Inodes<'_>) -> BitSet {
    let ctx = inodes.ctx;
    let listed = BitSet::new(inodes.chunks.inodes() as u64);
    let size = ctx.geometry.sector_size();
    let mut sector = vec![0; size];
    for ag in ctx.geometry.ags() {
        let byte = ctx.ag_byte(ag) + (u64::from(AGI_SECTOR) * size as u64);
        // That it cannot be read was told of.
        if ctx.device.read_at(byte, &mut sector).is_err() {
            continue;
        }
        let Ok(agi) = raw::<RawAgi>(&sector) else { continue };
        if agi.magicnum.get() != crate::format::ag::AGI_MAGIC {
            continue;
        }
        for (bucket, first) in agi.unlinked.iter().enumerate() {
            if first.get() != AgIno::NULL.0 {
                list(inodes, ag, bucket, first.get(), &listed);
            }
        }
    }
    listed
}

fn list(inodes: &Inodes<'_>, ag: AgNumber, bucket: usize, first: u32, listed: &BitSet) {
    let ctx = inodes.ctx;
    let fault = |at: u32, detail: &str| {
        let finding = Finding::new(codes::UNLINKED).in_group(ag.0).field("agi_unlinked");
        ctx.found(finding.detail(format!("bucket {bucket}: {detail}")).mismatch("another", at));
    };
    let mut at = first;
    while at != AgIno::NULL.0 {
        let ino = ctx.geometry.ino(ag, AgIno(at));
        let is_here = ctx.geometry.split_ino(ino) == Some((ag, AgIno(at)));
        let Known::Used(number) = inodes.chunks.find(ino) else {
            return fault(at, "an inode that is not in use");
        };
        if !is_here || at as usize % UNLINKED_BUCKETS != bucket {
            return fault(at, "an inode that belongs elsewhere");
        }
        if !listed.insert(number.into()) {
            return fault(at, "an inode that is on a list already");
        }
        if inodes.links.kind(number).is_some() && !inodes.links.is_unlinked(number) {
            fault(at, "an inode with links");
        }
        let Some(next) = next_of(ctx, ag, ino, at) else { return };
        at = next;
    }
}

fn next_of(ctx: &Context<'_>, ag: AgNumber, _ino: Ino, at: u32) -> Option<u32> {
    let byte = ctx.ag_byte(ag) + (u64::from(at) << ctx.geometry.inode_log);
    let mut slot = vec![0; ctx.geometry.inode_size()];
    ctx.device.read_at(byte, &mut slot).ok()?;
    Some(be32(&slot, NEXT_UNLINKED_OFFSET))
}
