//! A second pass over the blocks of realtime groups with doubtful owners: makes and lists all claims again.

use std::collections::HashSet;

use vfs::check::Finding;

use super::super::codes;
use super::super::context::Context;
use super::super::diagnose;
use super::super::forks;
use super::super::inodes::Inodes;
use super::super::owners::{Claim, Owners, owner_name};
use super::super::references;
use super::UsedExtents;
use super::group_files::Groups;
use crate::btree::records::{RefcountRecord, rmap_offset, rmap_owner};
use crate::format::address::{AgNumber, Block};
use crate::format::inode::Fork;

/// Maximum number of findings about each group.
const FINDINGS_MAX: usize = 200;

/// Compares the claims of blocks with each other and with the trees of groups. All inodes were visited.
pub(super) fn check(inodes: &Inodes<'_>, used: &UsedExtents, groups: &Groups) {
    let numbers = || (0..groups.files.len() as u32).map(AgNumber);
    let (mut wrong, mut wrong_references) = (Vec::new(), Vec::new());
    if !inodes.ctx.has_gaps() {
        wrong = numbers().filter(|group| !groups.is_map_right(*group)).collect();
        let is_right = |group: &AgNumber| groups.owners.are_references_right(*group);
        wrong_references = numbers().filter(|group| !is_right(group)).collect();
    }
    let disputed = groups.owners.disputed();
    if disputed.is_empty() && wrong.is_empty() && wrong_references.is_empty() {
        return;
    }
    let listed: HashSet<u32> = wrong.iter().chain(&wrong_references).map(|it| it.0).collect();
    let again = |geometry: &_| Owners::listing(geometry, listed, disputed.clone());
    let Some(again) = Groups::read(inodes, &used.realtime, again) else { return };
    let again = UsedExtents::of(used.realtime, Some(again), None);
    diagnose::quietly(inodes, |quiet| {
        let quiet = Inodes { realtime: Some(&again), ..*quiet };
        quiet.each_used(|ino, inode| {
            if inode.is_realtime() {
                forks::map(&quiet, ino, inode, Fork::Data, |_| {});
            }
        });
    });
    let Some(again) = again.groups else { return };
    let counted: Vec<_> =
        wrong_references.iter().map(|group| (*group, again.owners.counted(group.0))).collect();
    let (mut claims, mapped) = again.owners.listed();
    claims.sort_unstable();
    disputes(inodes.ctx, groups, &claims, &disputed);
    for group in wrong {
        maps(inodes.ctx, group, &claims, &mapped);
    }
    for (group, found) in counted {
        tell_references(inodes.ctx, group, &claims, &found);
    }
}

/// Reports blocks that were claimed more than once, with their owners.
fn disputes(ctx: &Context<'_>, groups: &Groups, claims: &[Claim], disputed: &[u64]) {
    let mut last: Option<(u64, Vec<u64>)> = None;
    for &block in disputed {
        let (group, at) = groups.geometry.locate(Block(block));
        let has = |claim: &&Claim| {
            claim.ag == group.0 && claim.start <= at.0 && at.0 - claim.start < claim.len
        };
        let owners: Vec<&Claim> = claims.iter().filter(has).collect();
        let inos: Vec<u64> = owners.iter().map(|claim| claim.owner).collect();
        // Adjacent blocks with the same owners are one finding.
        if !last.as_ref().is_some_and(|(before, same)| *before + 1 == block && *same == inos) {
            let names: Vec<String> =
                owners.iter().map(|claim| owner_name(claim.owner, claim.offset)).collect();
            let detail = format!("realtime block {block} is used by {}", names.join(" and "));
            let mut finding = Finding::new(codes::REALTIME_TWICE);
            if let Some(ino) = inos.iter().find(|ino| !rmap_owner::is_none_of_inodes(**ino)) {
                finding = finding.of_inode(*ino);
            }
            ctx.found(finding.detail(detail));
        }
        last = Some((block, inos));
    }
}

/// Reports wrong records of the reverse map of a group.
fn maps(ctx: &Context<'_>, group: AgNumber, claims: &[Claim], mapped: &[Claim]) {
    let (expected, found) = (diagnose::joined(group.0, claims), diagnose::joined(group.0, mapped));
    let tell = |claim: &Claim, expected: &str, found: &str| {
        let mut finding = Finding::new(codes::REALTIME_RMAP);
        if !rmap_owner::is_none_of_inodes(claim.owner) {
            finding = finding.of_inode(claim.owner);
        }
        let state = if claim.offset & rmap_offset::UNWRITTEN != 0 { ", unwritten" } else { "" };
        let name = owner_name(claim.owner, claim.offset);
        let (len, start) = (claim.len, claim.start);
        let detail = format!("realtime group {group}: {len} blocks from {start}: {name}{state}");
        ctx.found(finding.detail(detail).mismatch(expected, found));
    };
    let missing = expected.iter().filter(|claim| found.binary_search(claim).is_err());
    missing.take(FINDINGS_MAX).for_each(|claim| tell(claim, "a record", "none, or another"));
    let stale = found.iter().filter(|claim| expected.binary_search(claim).is_err());
    stale.take(FINDINGS_MAX).for_each(|claim| tell(claim, "none, or another", "a record"));
}

/// Reports wrong reference counts of a group.
fn tell_references(ctx: &Context<'_>, group: AgNumber, claims: &[Claim], found: &[RefcountRecord]) {
    let finding = || Finding::new(codes::REALTIME_REFERENCES);
    let of_group = claims.iter().filter(|claim| claim.ag == group.0);
    let differences = references::differences(&references::counted(of_group), found);
    if differences.is_empty() {
        return ctx.found(finding().detail(format!("realtime group {group}")));
    }
    for difference in differences.iter().take(FINDINGS_MAX) {
        let (len, start) = (difference.len, difference.start);
        let detail = format!("realtime group {group}: {len} blocks from {start}");
        ctx.found(finding().detail(detail).mismatch(difference.expected, difference.found));
    }
}
