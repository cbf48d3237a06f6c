//! A second pass over block ownership where it is in doubt: makes and lists all claims again.

use std::collections::HashSet;

use vfs::check::{Finding, Options, Silent};

use super::codes;
use super::context::Context;
use super::groups;
use super::inodes::Inodes;
use super::links::InodeLinks;
use super::owners::{Claim, Owners, owner_name};
use super::references;
use crate::btree::records::{rmap_offset, rmap_owner};
use crate::format::address::Block;

/// Maximum number of findings about one group's reverse map.
const FINDINGS_MAX: usize = 200;

/// Calls `look` with a context to visit inodes without reporting findings.
pub(super) fn quietly(inodes: &Inodes<'_>, look: impl FnOnce(&Inodes<'_>)) {
    let threads = Options::default().threads.min(inodes.ctx.threads);
    let ctx =
        Context::new(inodes.ctx.device.clone(), inodes.ctx.sb.clone(), &Silent, threads, None);
    let owners = Owners::new(&ctx.geometry);
    let quiet = Inodes {
        ctx: &ctx,
        owners: &owners,
        chunks: inodes.chunks,
        links: inodes.links,
        usage: None,
        pointers: None,
        layout: inodes.layout,
        realtime: None,
    };
    look(&quiet);
}

/// Reports blocks that are claimed twice, wrong reverse-map records of some groups, and wrong reference counts of
/// others.
pub(super) fn claims(inodes: &Inodes<'_>, wrong: &[u32], wrong_references: &[u32]) {
    let disputed = inodes.owners.disputed();
    if disputed.is_empty() && wrong.is_empty() && wrong_references.is_empty() {
        return;
    }
    let ctx = inodes.ctx;
    let quiet = Context::new(ctx.device.clone(), ctx.sb.clone(), &Silent, ctx.threads, None);
    let groups: HashSet<u32> = wrong.iter().chain(wrong_references).copied().collect();
    let owners = Owners::listing(&ctx.geometry, groups, disputed.clone());
    let Some((chunks, _)) = groups::check(&quiet, &owners) else { return };
    let links = InodeLinks::new(&quiet, &chunks);
    let again = Inodes {
        ctx: &quiet,
        owners: &owners,
        chunks: &chunks,
        links: &links,
        usage: None,
        pointers: None,
        layout: inodes.layout,
        realtime: None,
    };
    again.check();
    let counted: Vec<_> = wrong_references.iter().map(|ag| (*ag, owners.counted(*ag))).collect();
    let is_cut = owners.is_cut();
    let (mut claims, mapped) = owners.into_claims();
    claims.sort_unstable();
    disputes(ctx, &claims, &disputed);
    for ag in wrong {
        maps(ctx, *ag, &claims, &mapped);
    }
    for (ag, counted) in &counted {
        references::tell(ctx, *ag, &claims, (counted, is_cut));
    }
}

fn disputes(ctx: &Context<'_>, claims: &[Claim], disputed: &[u64]) {
    let mut last = None;
    for &block in disputed {
        let (ag, ag_block) = ctx.geometry.locate(Block(block));
        let has = |claim: &&Claim| {
            claim.ag == ag.0 && claim.start <= ag_block.0 && ag_block.0 - claim.start < claim.len
        };
        let who: Vec<&Claim> = claims.iter().filter(has).collect();
        let names: Vec<String> =
            who.iter().map(|claim| owner_name(claim.owner, claim.offset)).collect();
        let is_free = names.len() < 2;
        let names = names.join(" and ");
        // Adjacent blocks with the same owners are one finding.
        if last.as_ref().is_some_and(|(before, same)| *before + 1 == block && *same == names) {
            last = Some((block, names));
            continue;
        }
        let code = if is_free { codes::SPACE_FREE_USED } else { codes::SPACE_TWICE };
        let mut finding = Finding::new(code).in_group(ag.0).at_block(block);
        if let Some(claim) = who.iter().find(|c| !rmap_owner::is_none_of_inodes(c.owner)) {
            finding = finding.of_inode(claim.owner);
        }
        ctx.found(finding.detail(format!("used by {names}")));
        last = Some((block, names));
    }
}

/// Returns the claims of a group, with contiguous ones joined.
pub(super) fn joined(ag: u32, claims: &[Claim]) -> Vec<Claim> {
    let mut all: Vec<Claim> = claims.iter().filter(|claim| claim.ag == ag).copied().collect();
    all.sort_unstable_by_key(|claim| (claim.kind(), claim.start));
    let mut joined: Vec<Claim> = Vec::new();
    for claim in all {
        match joined.last_mut() {
            Some(last)
                if last.kind() == claim.kind()
                    && u64::from(last.start) + u64::from(last.len) == u64::from(claim.start) =>
            {
                last.len += claim.len;
            }
            _ => joined.push(claim),
        }
    }
    joined.sort_unstable();
    joined
}

fn maps(ctx: &Context<'_>, ag: u32, claims: &[Claim], mapped: &[Claim]) {
    let (expected, found) = (joined(ag, claims), joined(ag, mapped));
    let tell = |code, claim: &Claim, expected: &str, found: &str| {
        let block = u64::from(ag) * u64::from(ctx.geometry.ag_blocks) + u64::from(claim.start);
        let mut finding = Finding::new(code).in_group(ag).at_block(block);
        if !rmap_owner::is_none_of_inodes(claim.owner) {
            finding = finding.of_inode(claim.owner);
        }
        let state = if claim.offset & rmap_offset::UNWRITTEN != 0 { ", unwritten" } else { "" };
        let name = owner_name(claim.owner, claim.offset);
        ctx.found(
            finding
                .detail(format!("{} blocks: {name}{state}", claim.len))
                .mismatch(expected, found),
        );
    };
    let missing = expected.iter().filter(|claim| found.binary_search(claim).is_err());
    for claim in missing.take(FINDINGS_MAX) {
        tell(codes::RMAP_MISSING, claim, "a record", "none, or another");
    }
    let stale = found.iter().filter(|claim| expected.binary_search(claim).is_err());
    for claim in stale.take(FINDINGS_MAX) {
        tell(codes::RMAP_STALE, claim, "none, or another", "a record");
    }
}
