//! Repairs targets of symbolic links: rewrites their readable part. A link without a readable target is removed with
//! its names, because a link must have one.

use std::collections::HashSet;

use operations::orphans::inactivate_all;
use operations::repair::Action;
use vfs::check::Finding;
use vfs::{Ino, Result};
use zerocopy::FromBytes;

use super::attributes::by_inode;
use super::engine::{Session, change};
use super::links::gather;
use super::{RepairJob, map};
use crate::XfsCore;
use crate::check::view::{Link, View, view};
use crate::format::address::Block;
use crate::format::inode::{Fork, ForkFormat, Inode};
use crate::format::symlink::{self, HEADER_SIZE, TARGET_LEN_MAX};

/// A damaged link.
struct Damaged {
    ino: Ino,
    /// The part of the target that can be read.
    target: Vec<u8>,
    /// The names that lead to it.
    names: Vec<Link>,
}

/// Rewrites targets of symbolic links, and removes links without one.
pub(super) fn repair(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let inodes = by_inode(findings);
    let all = view(job.staging.clone(), |view| {
        let read = |ino: &u64| Some((Ino(*ino), target(view, Ino(*ino), &view.inode(Ino(*ino))?)));
        let targets: Vec<(Ino, Vec<u8>)> = inodes.keys().filter_map(read).collect();
        let lost = targets.iter().filter(|(_, target)| target.is_empty());
        let lost: HashSet<u64> = lost.map(|(ino, _)| ino.0).collect();
        let mut names = if lost.is_empty() { Default::default() } else { gather(view, &lost) };
        let damaged = |(ino, target): (Ino, Vec<u8>)| {
            let names = names.remove(&ino.0).unwrap_or_default();
            Damaged { ino, target, names }
        };
        targets.into_iter().map(damaged).collect::<Vec<_>>()
    });
    let Ok(all) = all else { return Ok(()) };
    let Some(mut session) = Session::open(job) else { return Ok(()) };
    for damaged in all {
        let what = match damaged.target.is_empty() {
            true => "The symbolic link is removed, because its target cannot be read.",
            false => "The readable part of the target is rewritten.",
        };
        let actions = inodes[&damaged.ino.0].iter().take(1);
        let actions = actions.map(|finding| Action::about(finding, what)).collect();
        session.step(actions, |fs| match damaged.target.is_empty() {
            true => remove(fs, &damaged),
            false => rewrite(fs, &damaged),
        });
    }
    Ok(())
}

fn rewrite(fs: &XfsCore, damaged: &Damaged) -> Result<()> {
    change(fs, damaged.ino, |op, handle| {
        let mut budget = u32::MAX;
        op.drop_data(handle, &mut budget)?;
        op.init_symlink(handle, &damaged.target)
    })
}

fn remove(fs: &XfsCore, damaged: &Damaged) -> Result<()> {
    for (dir, _, name) in &damaged.names {
        change(fs, Ino(*dir), |op, handle| op.remove_entry(handle, name, None).map(drop))?;
    }
    change(fs, damaged.ino, |op, handle| {
        if handle.inode.nlink() > 0 {
            handle.inode.set_nlink(0);
            op.add_unlinked(handle);
        }
        Ok(())
    })?;
    inactivate_all(fs).map(drop)
}

/// Returns the readable part of a target.
fn target(view: &View<'_>, ino: Ino, inode: &Inode) -> Vec<u8> {
    let size = usize::try_from(inode.size()).unwrap_or(usize::MAX).min(TARGET_LEN_MAX - 1);
    let mut target = match inode.format() {
        ForkFormat::Local => inode.fork(Fork::Data).to_vec(),
        _ => remote_target(view, ino, inode),
    };
    target.truncate(size);
    let end = target.iter().position(|byte| *byte == 0).unwrap_or(target.len());
    target.truncate(end);
    target
}

fn remote_target(view: &View<'_>, ino: Ino, inode: &Inode) -> Vec<u8> {
    let geometry = view.geometry();
    let mut target = Vec::new();
    for extent in map::read(view, ino, inode, Fork::Data).extents {
        if target.len() >= TARGET_LEN_MAX {
            break;
        }
        let most = symlink::blocks_for(geometry, TARGET_LEN_MAX).into();
        let mut run = vec![0; (extent.len.min(most) as usize) << geometry.block_log];
        let block = geometry.device_block(extent.start);
        if !view.read(block, &mut run) {
            break;
        }
        if !geometry.features.crc() {
            target.extend_from_slice(&run);
            continue;
        }
        match symlink::verify_structure(geometry, ino, block, &run) {
            Ok(range) if range.start as usize == target.len() => {
                target.extend_from_slice(&run[HEADER_SIZE..HEADER_SIZE + range.len()]);
            }
            // The header is damaged, so the length of the target is taken from the inode.
            _ if is_likely(view, ino, block, &run) => {
                target.extend_from_slice(&run[HEADER_SIZE..]);
            }
            _ => break,
        }
    }
    target
}

/// Returns whether a damaged header is probably that of a link: at least half of its identifying fields are right, and
/// no other inode in use owns it.
fn is_likely(view: &View<'_>, ino: Ino, block: Block, run: &[u8]) -> bool {
    let geometry = view.geometry();
    let Ok((header, _)) = symlink::RawHeader::ref_from_prefix(run) else { return false };
    let owner = Ino(header.owner.get());
    let signs = [
        header.magic.get() == symlink::MAGIC,
        owner == ino,
        header.blkno.get() == geometry.daddr(block),
        header.uuid == geometry.meta_uuid,
    ];
    let is_others = owner != ino && view.is_used(owner) == Some(true);
    !is_others && signs.into_iter().filter(|sign| *sign).count() >= 2
}
