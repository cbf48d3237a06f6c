//! Fixes for files.

use std::cell::OnceCell;

use operations::repair::{Action, Fix};
use vfs::check::Finding;
use vfs::{Ino, Result};

use super::attributes::{self, by_inode};
use super::directory;
use super::inode::{Hints, Repaired, Repairer, free_slot};
use super::links;
use super::map::Room;
use super::metadir;
use super::rights::{self, OF_MAPS};
use super::{RepairJob, disputed, symlinks};
use crate::check::codes;
use crate::check::view::{self, View};
use crate::format::bytes::be16;
use crate::format::inode::Inode;
use crate::volume::read_superblock;

/// Inodes and their blocks.
pub(super) const INODES: &[Fix<RepairJob>] = &[
    Fix { codes: rights::OF_FILES, repair: inodes },
    Fix { codes: &[codes::INODE_FREE, codes::DIR_DANGLING], repair: free_inodes },
    Fix { codes: &[codes::SPACE_TWICE], repair: disputed::repair },
];

/// Contents of directories, attributes and symbolic links, once space can be allocated.
pub(super) const DIRECTORIES: &[Fix<RepairJob>] = &[
    Fix { codes: &[codes::SYMLINK, codes::SYMLINK_CHECKSUM], repair: symlinks::repair },
    Fix {
        codes: &[
            codes::ATTR,
            codes::ATTR_CHECKSUM,
            codes::ATTR_HASH,
            codes::ATTR_ACL,
            codes::PARENT,
        ],
        repair: attributes::repair,
    },
    Fix {
        codes: &[
            codes::DIR_SHORT,
            codes::DIR_CHECKSUM,
            codes::DIR_DATA,
            codes::DIR_LEAF,
            codes::DIR_FREE,
            codes::DIR_HASH,
            codes::DIR_BESTS,
            codes::DIR_MAP,
            codes::DIR_DOT,
            codes::DIR_NAME,
            codes::DIR_TWICE,
            codes::DIR_FTYPE,
            codes::DIR_DANGLING,
        ],
        repair: directory::repair,
    },
];

/// Flags and types of metadata files, before their names.
pub(super) const METADIR: &[Fix<RepairJob>] =
    &[Fix { codes: &[codes::METADIR_FLAG, codes::METADIR_FILE], repair: metadir::repair }];

/// Names.
pub(super) const NAMES: &[Fix<RepairJob>] = &[Fix {
    codes: &[
        codes::INODE_LOST,
        codes::INODE_LINKS,
        codes::DIR_LOOP,
        codes::DIR_DOT_DOT,
        codes::PARENT,
        codes::PARENT_STALE,
    ],
    repair: links::repair_lost,
}];

/// Parent pointers.
pub(super) const PARENTS: &[Fix<RepairJob>] = &[Fix {
    codes: &[codes::PARENT_MISSING, codes::PARENT_STALE, codes::PARENT],
    repair: links::repair_parents,
}];

/// Link counts.
pub(super) const LINKS: &[Fix<RepairJob>] =
    &[Fix { codes: &[codes::INODE_LINKS], repair: links::repair_counts }];

/// Number of inodes changed in one step.
const STEP_INODES: usize = 256;

fn hints(findings: &[&Finding]) -> Hints {
    let of_tree = codes::BMBT.all();
    Hints {
        shares: findings.iter().any(|finding| finding.place.field == Some("di_flags2"))
            && findings.iter().any(|finding| finding.code == codes::INODE_MAP),
        is_map_wrong: findings.iter().any(|finding| {
            of_tree.contains(&finding.code)
                || finding.code == codes::INODE_MAP && finding.place.field == Some("extents")
        }),
    }
}

/// Repairs inodes with unreadable extent maps, given all findings about inodes.
pub(super) fn repair_maps(job: &RepairJob, findings: &[Finding]) -> Result<()> {
    let of_maps: Vec<&Finding> =
        findings.iter().filter(|finding| OF_MAPS.contains(&finding.code)).collect();
    if of_maps.is_empty() { Ok(()) } else { inodes(job, &of_maps) }
}

/// Repairs inodes with their extent maps.
fn inodes(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let all = by_inode(findings);
    let mut claims = None;
    if findings.iter().any(|finding| OF_MAPS.contains(&finding.code)) {
        let inodes = all.keys().copied().collect();
        claims = view::claims(job.staging.clone(), inodes, Vec::new()).ok();
    }
    let repaired = view::view(job.staging.clone(), |view| {
        let room = Room::new(*view.geometry(), claims.as_ref());
        let mut repairer = Repairer {
            view,
            claims: claims.as_ref(),
            room,
            is_full: false,
            named: OnceCell::new(),
        };
        let repair = |(ino, findings): (&u64, &Vec<&Finding>)| {
            let ino = Ino(*ino);
            let made = repair_one(&mut repairer, ino, findings)?;
            Some((ino, view.slot_byte(ino)?, made))
        };
        all.iter().filter_map(repair).collect::<Vec<_>>()
    });
    let Ok(repaired) = repaired else { return Ok(()) };
    let Ok(log) = read_superblock(&*job.staging).map(|sb| sb.raw.blocklog) else { return Ok(()) };
    let write = |some: &[(Ino, u64, Repaired)]| {
        let (mut writes, mut actions) = (Vec::new(), Vec::new());
        for (ino, byte, made) in some {
            let blocks = made.blocks.iter();
            writes.extend(blocks.map(|(block, data)| (block.0 << log, data.as_slice())));
            writes.push((*byte, made.slot.as_slice()));
            actions.extend(all[&ino.0].first().map(|finding| Action::about(finding, made.what)));
        }
        job.write_step(&writes, actions)
    };
    write_steps(&repaired, write);
    Ok(())
}

/// Writes many items at once, and one by one if that is refused.
fn write_steps<T>(all: &[T], write: impl Fn(&[T]) -> bool) {
    for some in all.chunks(STEP_INODES) {
        if !write(some) && some.len() > 1 {
            for one in some {
                write(std::slice::from_ref(one));
            }
        }
    }
}

fn repair_one(
    repairer: &mut Repairer<'_, '_>,
    ino: Ino,
    findings: &[&Finding],
) -> Option<Repaired> {
    let view = repairer.view;
    let slot = view.slot(ino)?;
    match view.is_used(ino) {
        Some(true) => {}
        // The tree of inodes is repaired later.
        Some(false) if view.is_root(ino) || view.is_special(ino) => {
            return (be16(&slot, 2) == 0 || Inode::parse(view.geometry(), ino, &slot).is_err())
                .then(|| repairer.clear(ino, &slot));
        }
        Some(false) => {
            let slot = free_slot(view.geometry(), ino, &slot);
            let what = "The inode is rewritten as a free inode.";
            return Some(Repaired { slot, blocks: Vec::new(), what });
        }
        None => return None,
    }
    let is_empty = be16(&slot, 2) == 0;
    let repaired = repairer.repair(ino, &slot, hints(findings))?;
    // The inode trees are repaired to match the inodes.
    let stays_free = is_empty && be16(&repaired.slot, 2) == 0;
    let is_known = findings.iter().all(|finding| finding.code == codes::INODE_NOT_USED);
    (!(stays_free && is_known)).then_some(repaired)
}

/// Repairs free inodes with fields that only inodes in use may have.
fn free_inodes(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let is_free = |finding: &&&Finding| finding.code == codes::INODE_FREE;
    let free: Vec<&Finding> = findings.iter().filter(is_free).copied().collect();
    if free.is_empty() {
        return Ok(());
    }
    let named: Vec<&str> = (findings.iter())
        .filter(|finding| finding.code == codes::DIR_DANGLING)
        .filter_map(|finding| finding.found.as_deref())
        .collect();
    let slots = view::view(job.staging.clone(), |view| {
        let all = by_inode(&free);
        let repair = |ino: &u64| {
            let ino = Ino(*ino);
            let slot = view.slot(ino)?;
            let is_kept = view.is_root(ino)
                || view.is_special(ino)
                || named.contains(&ino.to_string().as_str())
                || is_plausible(view, ino, &slot);
            let new = free_slot(view.geometry(), ino, &slot);
            (!is_kept).then(|| Some((all[&ino.0][0].clone(), view.slot_byte(ino)?, new)))?
        };
        all.keys().filter_map(repair).collect::<Vec<_>>()
    });
    let Ok(slots) = slots else { return Ok(()) };
    let what = "The free inode is cleared.";
    write_steps(&slots, |some| {
        let writes: Vec<(u64, &[u8])> =
            some.iter().map(|(_, byte, slot)| (*byte, slot.as_slice())).collect();
        job.write_step(
            &writes,
            some.iter().map(|(finding, ..)| Action::about(finding, what)).collect(),
        )
    });
    Ok(())
}

/// Returns whether an inode that is free according to the trees may be in use.
fn is_plausible(view: &View<'_>, ino: Ino, slot: &[u8]) -> bool {
    be16(slot, 2) != 0
        && Inode::parse(view.geometry(), ino, slot)
            .is_ok_and(|inode| inode.nlink() > 0 && view.are_fields_right(ino, &inode))
}
