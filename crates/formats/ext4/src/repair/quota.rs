//! Rewrites quota files: limits as far as they can be read, usage as counted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

use operations::repair::Action;
use vfs::Result;
use vfs::check::Finding;
use zerocopy::{FromBytes, IntoBytes};

use super::RepairJob;
use super::image::{StagedImage, step};
use super::system_files::make_file;
use crate::check::{InUse, find_in_use};
use crate::format::address::Block;
use crate::format::features::RoCompat;
use crate::format::quota::{
    BLOCK_SIZE, BLOCK_SIZE_LOG, DiskQuota, ENTRIES_PER_BLOCK, INFO_RANGE, Info, LeafHeader,
    QuotaKind, ROOT_BLOCK, TREE_DEPTH, entry_at, entry_range, leaf_header, parse_info,
    reference_range,
};
use crate::format::superblock::RawSuperblock;
use crate::open::superblock_copy::Copy;

/// Usual inodes of the quota files of users and groups.
const USUAL: [u32; 2] = [3, 4];
/// Maximum number of bytes of a quota file to read for limits.
const BYTES_MAX: usize = 64 << 20;

/// Rewrites quota files.
pub(super) fn repair(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let inos: BTreeSet<u64> = findings.iter().filter_map(|f| f.place.inode).collect();
    for ino in inos {
        let Some(image) = StagedImage::of(&job.staging) else { return Ok(()) };
        let own: Vec<&Finding> =
            findings.iter().filter(|f| f.place.inode == Some(ino)).copied().collect();
        make(job, &image, ino as u32, &own)?;
    }
    Ok(())
}

/// Corrects the inode number of a quota file if that inode cannot be the file. Returns whether it changed anything.
pub(super) fn repair_number(image: &StagedImage<'_>, ino: u32, finding: &Finding) -> Result<bool> {
    let sb = &image.params.sb;
    let has_quota = sb.features.ro_compat(RoCompat::QUOTA);
    let numbers = |raw: &RawSuperblock| {
        [raw.usr_quota_inum.get(), raw.grp_quota_inum.get(), raw.prj_quota_inum.get()]
    };
    let own = numbers(&sb.raw);
    let copied = Copy::find(image.staging).map(|copy| numbers(copy.raw()));
    let mut right = own;
    for kind in (0..own.len()).filter(|kind| own[*kind] == ino) {
        let can_be = |ino: u32| {
            let is_usual = kind < USUAL.len() && ino == USUAL[kind];
            is_usual || (sb.first_ino..=sb.inodes_count).contains(&ino)
        };
        if !has_quota {
            right[kind] = 0;
        } else if !can_be(ino) {
            let copied = copied.map(|copied| copied[kind]).filter(|ino| can_be(*ino));
            right[kind] = copied.or_else(|| USUAL.get(kind).copied()).unwrap_or(0);
        }
    }
    if right == own {
        return Ok(false);
    }
    step(image.staging, || {
        image.edit_superblock(|raw| {
            raw.usr_quota_inum = right[0].into();
            raw.grp_quota_inum = right[1].into();
            raw.prj_quota_inum = right[2].into();
        })?;
        let what = "The inode number of the quota file is corrected.";
        Ok(vec![Action::about(finding, what)])
    })?;
    Ok(true)
}

/// Rewrites a quota file, in its own blocks if there are enough.
pub(super) fn make(
    job: &RepairJob,
    image: &StagedImage<'_>,
    ino: u32,
    findings: &[&Finding],
) -> Result<()> {
    let raw = &image.params.sb.raw;
    let inos = [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum];
    let Some(number) = inos.iter().position(|own| own.get() == ino) else { return Ok(()) };
    let done = find_in_use(job.staging.clone(), &job.options, |in_use| {
        step(&job.staging, || {
            let usage = in_use.usage();
            let blocks =
                new_blocks(image, in_use, ino, number, usage.as_ref().map(|u| &u[number]))?;
            if !write(image, in_use, ino, &blocks)? {
                image.edit_superblock(|raw| match number {
                    0 => raw.usr_quota_inum = 0.into(),
                    1 => raw.grp_quota_inum = 0.into(),
                    _ => raw.prj_quota_inum = 0.into(),
                })?;
                let what = "The quota file is removed, because there is no space for it.";
                return Ok(findings.iter().map(|f| Action::about(f, what)).collect());
            }
            let what = "The quota file is recreated with its limits and the recomputed usage.";
            Ok(findings.iter().map(|f| Action::about(f, what)).collect())
        })
    })?;
    done.unwrap_or(Ok(()))
}

/// Returns the readable contents of a file, with zeros for unreadable blocks.
fn contents(image: &StagedImage<'_>, places: &[Block]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for place in places {
        match image.block(*place) {
            Ok(block) => bytes.extend_from_slice(&block),
            Err(_) => bytes.resize(bytes.len() + image.block_size(), 0),
        }
    }
    bytes
}

/// Returns the new blocks of the file, in the format's block size.
fn new_blocks(
    image: &StagedImage<'_>,
    in_use: &InUse<'_>,
    ino: u32,
    number: usize,
    usage: Option<&HashMap<u32, (u64, u64)>>,
) -> io::Result<Vec<[u8; BLOCK_SIZE]>> {
    let kind = QuotaKind::ALL[number];
    let places = in_use.places(ino, BYTES_MAX / image.block_size());
    let bytes = contents(image, &places);
    let blocks: Vec<&[u8]> = bytes.chunks_exact(BLOCK_SIZE).collect();
    let before = blocks.first().and_then(|block| {
        parse_info(block, kind, bytes.len() as u64).ok()?;
        Info::read_from_bytes(&block[INFO_RANGE]).ok()
    });
    let mut entries = old_entries(&blocks, before.is_some(), usage);
    if let Some(usage) = usage {
        entries.retain(|id, entry| entry.has_limits() || usage.contains_key(id));
        for (id, entry) in &mut entries {
            let (inodes, space) = usage.get(id).copied().unwrap_or_default();
            (entry.inodes, entry.space) = (inodes.into(), space.into());
        }
        for (&id, &(inodes, space)) in usage {
            let entry = entries.entry(id).or_insert_with(|| DiskQuota::new(id));
            (entry.inodes, entry.space) = (inodes.into(), space.into());
        }
    }
    Ok(tree(kind, &entries, before.as_ref()))
}

/// Returns the entries of a file. Blocks are examined one by one, because the tree may be damaged. All entries of a
/// leaf count if their number matches its header. An entry in another block counts if its usage equals the counted one.
fn old_entries(
    blocks: &[&[u8]],
    is_known: bool,
    usage: Option<&HashMap<u32, (u64, u64)>>,
) -> BTreeMap<u32, DiskQuota> {
    let mut entries = BTreeMap::new();
    let is_counted = |entry: &DiskQuota| {
        let counted = usage.and_then(|usage| usage.get(&entry.id.get()));
        let told = (entry.inodes.get(), entry.space.get());
        told != (0, 0) && counted == Some(&told)
    };
    for block in blocks.iter().skip(ROOT_BLOCK as usize + 1) {
        let found: Vec<DiskQuota> = (0..ENTRIES_PER_BLOCK)
            .filter_map(|index| entry_at(block, index))
            .filter(|entry| !entry.is_none())
            .collect();
        let is_whole = is_known && found.len() == usize::from(leaf_header(block).entries.get());
        for entry in found.into_iter().filter(|entry| is_whole || is_counted(entry)) {
            entries.entry(entry.id.get()).or_insert(entry);
        }
    }
    entries
}

/// Returns the blocks of a file with these entries.
fn tree(
    kind: QuotaKind,
    entries: &BTreeMap<u32, DiskQuota>,
    before: Option<&Info>,
) -> Vec<[u8; BLOCK_SIZE]> {
    let mut blocks = vec![[0; BLOCK_SIZE]; ROOT_BLOCK as usize + 1];
    let (mut leaf, mut count) = (0, ENTRIES_PER_BLOCK);
    for (&id, entry) in entries {
        if count == ENTRIES_PER_BLOCK {
            (leaf, count) = (blocks.len(), 0);
            blocks.push([0; BLOCK_SIZE]);
        }
        blocks[leaf][entry_range(count)].copy_from_slice(entry.stored().as_bytes());
        count += 1;
        let mut header = LeafHeader::default();
        header.entries = (count as u16).into();
        let bytes = header.as_bytes();
        blocks[leaf][..bytes.len()].copy_from_slice(bytes);
        let mut node = ROOT_BLOCK as usize;
        for level in 0..TREE_DEPTH {
            let range = reference_range(level, id);
            let next =
                u32::from_le_bytes(blocks[node][range.clone()].try_into().unwrap_or_default());
            let below = match (level + 1 == TREE_DEPTH, next) {
                (true, _) => leaf,
                (false, 0) => {
                    blocks.push([0; BLOCK_SIZE]);
                    blocks.len() - 1
                }
                (false, next) => next as usize,
            };
            blocks[node][range].copy_from_slice(&(below as u32).to_le_bytes());
            node = below;
        }
    }
    let free_leaf = if count < ENTRIES_PER_BLOCK { leaf as u32 } else { 0 };
    let info = Info::new(kind, blocks.len() as u32, free_leaf, before);
    blocks[0][INFO_RANGE].copy_from_slice(info.as_bytes());
    blocks
}

/// Writes the contents of a file. Returns whether there was room.
fn write(
    image: &StagedImage<'_>,
    in_use: &InUse<'_>,
    ino: u32,
    blocks: &[[u8; BLOCK_SIZE]],
) -> io::Result<bool> {
    let per_block = image.block_size() / BLOCK_SIZE;
    let needed = blocks.len().div_ceil(per_block);
    let contents = |number: usize| {
        let mut bytes = vec![0; image.block_size()];
        let own = blocks.iter().skip(number * per_block).take(per_block);
        for (to, from) in bytes.chunks_exact_mut(BLOCK_SIZE).zip(own) {
            to.copy_from_slice(from);
        }
        bytes
    };
    let places = in_use.places(ino, needed);
    let inode = image.inode(ino)?;
    let is_large = inode.is_some_and(|inode| {
        inode.file_type() == Some(vfs::FileType::Regular)
            && inode.links_count() > 0
            && inode.size() >> BLOCK_SIZE_LOG >= blocks.len() as u64
    });
    // Two files that share blocks would overwrite each other in every round.
    let is_alone = places.iter().all(|place| in_use.is_alone(*place));
    if is_large && is_alone && places.len() == needed {
        for (number, place) in places.iter().enumerate() {
            image.write(*place, &contents(number))?;
        }
        return Ok(true);
    }
    let made = make_file(image, in_use, ino, (needed as u64, None), |number, _| {
        Some(contents(number as usize))
    })?;
    Ok(made.is_some())
}
