//! Checks the unlinked lists: one for each bucket of each group.

use super::chunks::InodeState;
use super::codes;
use super::context::Context;
use super::inodes::Inodes;
use crate::format::address::{AgIno, AgNumber};
use crate::format::ag::{AGI_SECTOR, RawAgi, UNLINKED_BUCKETS, raw};
use crate::format::bytes::be32;
use crate::format::inode::NEXT_UNLINKED_OFFSET;
use vfs::check::{BitSet, Finding};

/// Walks all lists. Returns the inodes that are on one.
pub(super) fn check(inodes: &Inodes<'_>) -> BitSet {
    let ctx = inodes.ctx;
    let listed = BitSet::new(inodes.chunks.inodes() as u64);
    let size = ctx.geometry.sector_size();
    let mut sector = vec![0; size];
    for ag in ctx.geometry.ags() {
        let byte = ctx.ag_byte(ag) + (u64::from(AGI_SECTOR) * size as u64);
        // An unreadable sector was already reported.
        if ctx.device.read_at(byte, &mut sector).is_err() {
            continue;
        }
        let Ok(agi) = raw::<RawAgi>(&sector) else { continue };
        if agi.magicnum.get() != crate::format::ag::AGI_MAGIC {
            continue;
        }
        let lists = agi.unlinked.iter().enumerate();
        let lists = lists.filter(|(_, first)| first.get() != AgIno::NULL.0);
        let count: u64 =
            lists.map(|(bucket, first)| list(inodes, ag, bucket, first.get(), &listed)).sum();
        if count > 0 && ctx.is_log_clean {
            let finding = Finding::new(codes::UNLINKED_LEFT).in_group(ag.0).field("agi_unlinked");
            ctx.found(finding.mismatch("not a valid inode number", count));
        }
    }
    listed
}

/// Walks a list. Returns the number of its inodes up to the first one that cannot be on it.
fn list(inodes: &Inodes<'_>, ag: AgNumber, bucket: usize, first: u32, listed: &BitSet) -> u64 {
    let ctx = inodes.ctx;
    let mut count = 0;
    let fault = |at: u32, detail: &str| {
        let finding = Finding::new(codes::UNLINKED).in_group(ag.0).field("agi_unlinked");
        ctx.found(finding.detail(format!("bucket {bucket}: {detail}")).mismatch("another", at));
    };
    let mut at = first;
    while at != AgIno::NULL.0 {
        let ino = ctx.geometry.ino(ag, AgIno(at));
        let is_here = ctx.geometry.split_ino(ino) == Some((ag, AgIno(at)));
        let InodeState::Used(number) = inodes.chunks.find(ino) else {
            fault(at, "an inode that is not in use");
            return count;
        };
        if !is_here || at as usize % UNLINKED_BUCKETS != bucket {
            fault(at, "an inode of another bucket");
            return count;
        }
        if !listed.insert(number.into()) {
            fault(at, "an inode that is already on a list");
            return count;
        }
        if inodes.links.kind(number).is_some() && !inodes.links.is_unlinked(number) {
            fault(at, "an inode with links");
        }
        count += 1;
        let Some(next) = next_of(ctx, ag, at) else { return count };
        at = next;
    }
    count
}

fn next_of(ctx: &Context<'_>, ag: AgNumber, at: u32) -> Option<u32> {
    let byte = ctx.ag_byte(ag) + (u64::from(at) << ctx.geometry.inode_log);
    let mut slot = vec![0; ctx.geometry.inode_size()];
    ctx.device.read_at(byte, &mut slot).ok()?;
    Some(be32(&slot, NEXT_UNLINKED_OFFSET))
}
