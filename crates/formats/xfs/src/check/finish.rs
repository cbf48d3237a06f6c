//! The final part of a check, after everything was visited.

use vfs::Ino;
use vfs::check::{Finding, Phase, Summary};

use super::chunks::InodeState;
use super::codes;
use super::diagnose;
use super::groups::Totals;
use super::inodes::Inodes;
use super::links::DIRECTORY;
use super::metadir;
use super::names;
use super::quota;
use super::realtime;
use super::unlinked;
use crate::format::features::RoCompat;

/// Maximum number of inodes whose parents are compared name by name.
const IN_DOUBT_MAX: usize = 10_000;

/// Does the remaining checks, and reports all findings that were held.
pub(super) fn finish(inodes: &Inodes<'_>, totals: &Totals) -> Summary {
    let ctx = inodes.ctx;
    let mut summary = Summary {
        blocks: ctx.geometry.blocks,
        blocks_used: ctx.geometry.blocks.saturating_sub(totals.free),
        ..Summary::default()
    };
    if !ctx.observer.is_cancelled() {
        ctx.observer.progress(Phase::Directories, 0, 1);
        let in_doubt = links(inodes, &mut summary);
        ctx.observer.progress(Phase::Directories, 1, 1);
        ctx.observer.progress(Phase::Counts, 0, 1);
        counters(inodes, totals);
        space(inodes);
        if let Some(used) = inodes.realtime {
            realtime::check(inodes, used);
        }
        quota::check(inodes);
        if !ctx.waiting.is_empty() || !in_doubt.is_empty() {
            explain(inodes, &in_doubt);
        }
        ctx.observer.progress(Phase::Counts, 1, 1);
    }
    ctx.waiting.release(ctx.observer, |_, _| None);
    summary.is_complete = !ctx.observer.is_cancelled() && !ctx.has_gaps() && !ctx.has_names_gaps();
    summary
}

/// Finds names for all held findings, and reports them.
fn explain(inodes: &Inodes<'_>, in_doubt: &[u32]) {
    diagnose::quietly(inodes, |quiet| {
        let names = names::gather(inodes, quiet, in_doubt);
        names::compare(inodes, quiet, in_doubt, names);
        let mut paths = names::Paths::new(inodes, quiet);
        let ctx = inodes.ctx;
        ctx.waiting.release(ctx.observer, |ino, parent| paths.path(ino, parent));
    });
}

/// Compares link counts with names. Returns the inodes whose parents do not match their names.
fn links(inodes: &Inodes<'_>, summary: &mut Summary) -> Vec<u32> {
    let (ctx, links, chunks) = (inodes.ctx, inodes.links, inodes.chunks);
    let listed = unlinked::check(inodes);
    let mut in_doubt = Vec::new();
    for chunk in 0..chunks.count() {
        for number in chunk * 64..(chunk + 1) * 64 {
            let Some(kind) = links.kind(number) else { continue };
            summary.inodes += 1;
            summary.directories += u64::from(kind == DIRECTORY);
            let finding = |code| Finding::new(code).of_inode(chunks.ino(number).0);
            let is_unlinked = links.is_unlinked(number);
            if is_unlinked && !listed.contains(number.into()) {
                ctx.found(
                    finding(codes::INODE_LOST).detail("no links and not on an unlinked list"),
                );
            }
            let left = links.left(number);
            if left != 0 {
                let nlink = names::read_inode(ctx, chunks.ino(number)).map_or(0, |i| i.nlink());
                // The remainder is kept in 32 bits, and a damaged count may use all of them.
                let counted = nlink.wrapping_sub(left as u32);
                let is_nameless = kind == DIRECTORY && counted < 2 || counted < 1;
                let is_lost = is_nameless && !is_unlinked && !links.is_root(chunks.ino(number));
                let code = if is_lost { codes::INODE_LOST } else { codes::INODE_LINKS };
                ctx.found(finding(code).field("di_nlink").mismatch(counted, nlink));
            }
            if !is_unlinked && !links.are_parents_right(number) && in_doubt.len() < IN_DOUBT_MAX {
                in_doubt.push(number);
            }
        }
    }
    for number in links.loops() {
        let finding = Finding::new(codes::DIR_LOOP).of_inode(chunks.ino(number).0);
        ctx.found(finding);
    }
    let root = links.root();
    let is_dir = match chunks.find(root) {
        InodeState::Used(number) => {
            links.kind(number) == Some(DIRECTORY) && !links.is_unlinked(number)
        }
        InodeState::Unknown => true,
        _ => false,
    };
    if !is_dir {
        ctx.found(Finding::new(codes::ROOT).of_inode(root.0));
    }
    special(inodes);
    metadir::check(inodes);
    in_doubt
}

/// Checks that inodes in the superblock exist.
fn special(inodes: &Inodes<'_>) {
    for ino in super::links::special_inodes(inodes.ctx) {
        let (finding, detail) = match inodes.chunks.find(ino) {
            InodeState::None => {
                let finding = Finding::new(codes::SUPERBLOCK_FIELD).in_group(0_u64);
                (finding, "it refers to an inode that is not in use")
            }
            InodeState::Free => {
                let finding = Finding::new(codes::INODE).of_inode(ino.0);
                (finding, "the superblock refers to it, but it is not in use")
            }
            _ => continue,
        };
        inodes.ctx.found(finding.detail(detail).mismatch("an inode in use", Ino(ino.0)));
    }
}

fn counters(inodes: &Inodes<'_>, totals: &Totals) {
    let raw = &inodes.ctx.sb.raw;
    if totals.is_partial {
        return;
    }
    for (field, counted, found) in [
        ("sb_icount", totals.icount, raw.icount.get()),
        ("sb_ifree", totals.ifree, raw.ifree.get()),
        ("sb_fdblocks", totals.fdblocks, raw.fdblocks.get()),
    ] {
        if counted != found {
            let finding = Finding::new(codes::SUPERBLOCK_COUNTS).in_group(0_u64).field(field);
            inodes.ctx.found(finding.mismatch(counted, found));
        }
    }
}

/// Compares the claims with the trees.
fn space(inodes: &Inodes<'_>) {
    let (ctx, owners) = (inodes.ctx, inodes.owners);
    if ctx.has_gaps() {
        // Structures that could not be visited own blocks, too.
        return diagnose::claims(inodes, &[], &[]);
    }
    let has_maps = ctx.geometry.features.ro_compat(RoCompat::RMAPBT);
    let (mut wrong, mut wrong_references) = (Vec::new(), Vec::new());
    for ag in ctx.geometry.ags() {
        if let Some((count, first)) = owners.unclaimed(ag) {
            let finding = Finding::new(codes::SPACE_LOST).in_group(ag.0).at_block(first.0);
            ctx.found(finding.detail(format!("{count} blocks, the first of them here")));
        }
        if has_maps && !owners.is_map_right(ag) {
            wrong.push(ag.0);
        }
        if !owners.are_references_right(ag) {
            wrong_references.push(ag.0);
        }
    }
    diagnose::claims(inodes, &wrong, &wrong_references);
}
