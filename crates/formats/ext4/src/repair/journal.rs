//! Repairs the journal's inode and superblock.

use disk::BlockDevice;
use operations::repair::{Action, Staging};
use vfs::check::Finding;
use vfs::{FileType, Result};
use zerocopy::IntoBytes;

use super::RepairJob;
use super::image::{StagedImage, now, step};
use crate::format::features::{Compat, Incompat};
use crate::format::inode::{I_BLOCK_SIZE, Inode, flags};
use crate::format::jbd2::{JournalSuperblock, RawJournalSuperblock};
use crate::format::superblock::Superblock;
use crate::log::{JOURNAL_INO, JournalMap, highest_sequence, salvage};
use crate::open::superblock_copy::Copy;

/// Root of the journal's map: `i_block`, size in bytes, and whether it is an extent tree.
type MapRoot = ([u8; I_BLOCK_SIZE], u64, bool);

/// Rewrites the journal's inode if it is damaged and its contents can be determined.
pub(super) fn settle_inode(staging: &Staging) -> Result<()> {
    let Some(image) = StagedImage::of(staging) else { return Ok(()) };
    if !has_internal(&image) {
        return Ok(());
    }
    repair_inode_of(&image, &[])
}

/// Returns whether the journal is in the image.
fn has_internal(image: &StagedImage<'_>) -> bool {
    let sb = &image.params.sb;
    sb.features.compat(Compat::HAS_JOURNAL) && !sb.has_external_journal()
}

/// Sets the journal's inode number again if it is lost. For a journal on another device, the uuid is set.
pub(super) fn settle_number(staging: &Staging) -> Result<()> {
    let Some(image) = StagedImage::of(staging) else { return Ok(()) };
    let sb = &image.params.sb;
    let is_lost = sb.features.compat(Compat::HAS_JOURNAL)
        && sb.raw.journal_inum == 0
        && sb.raw.journal_uuid == [0; 16];
    if !is_lost {
        return Ok(());
    }
    step(staging, || {
        image.edit_superblock(|raw| raw.journal_inum = JOURNAL_INO.into())?;
        Ok(vec![Action::new("The journal inode number is restored.")])
    })
}

/// Returns whether the journal's inode is valid without the superblock's copy.
fn is_sound(image: &StagedImage<'_>) -> bool {
    let mut sb = image.params.sb.clone();
    sb.raw.jnl_backup_type = 0;
    match JournalMap::read(image.staging, &sb) {
        Ok(map) => map.is_some_and(|map| map.blocks() > 0),
        // An inode that cannot be read is assumed to be valid.
        Err(error) => matches!(error, vfs::Error::Device(_)),
    }
}

/// Determines the root of the journal's map, if possible.
fn root_of(image: &StagedImage<'_>, ino: u32) -> Option<MapRoot> {
    let sb = &image.params.sb;
    let from_copy = || {
        let copy = Copy::find(image.staging)?;
        let sb = Superblock { raw: copy.raw().clone(), ..sb.clone() };
        JournalMap::backup(image.staging, &sb)
    };
    let as_it_lies = || {
        let inode = image.inode(ino).ok()??;
        let map = JournalMap::of_inode(image.staging, sb, inode.i_block(), inode.size()).ok()?;
        let is_extents = crate::format::extent::ExtentNode::parse(inode.i_block(), None).is_ok();
        (map.blocks() > 0).then(|| (*inode.i_block(), inode.size(), is_extents))
    };
    JournalMap::backup(image.staging, sb).or_else(from_copy).or_else(as_it_lies)
}

/// Rewrites the journal's inode from the superblock's copy or from its readable parts.
pub(super) fn repair_inode(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some(image) = StagedImage::of(&job.staging) else { return Ok(()) };
    if !has_internal(&image) {
        return Ok(());
    }
    repair_inode_of(&image, findings)
}

fn repair_inode_of(image: &StagedImage<'_>, findings: &[&Finding]) -> Result<()> {
    if is_sound(image) {
        return Ok(());
    }
    let told = image.params.sb.raw.journal_inum.get();
    let is_usual = told == JOURNAL_INO || told >= image.params.sb.first_ino;
    let ino = if is_usual && told <= image.params.sb.inodes_count { told } else { JOURNAL_INO };
    let root = root_of(image, ino).or_else(|| root_of(image, JOURNAL_INO));
    let Some(root) = root else { return clear_inode(image, ino, findings) };
    step(image.staging, || {
        write_inode(image, ino, root)?;
        let what = "The journal inode is restored from the copy of its block map.";
        Ok(match findings {
            [] => vec![Action::new(what)],
            _ => findings.iter().map(|f| Action::about(f, what)).collect(),
        })
    })
}

/// Makes an inode that of the journal.
pub(super) fn write_inode(image: &StagedImage<'_>, ino: u32, root: MapRoot) -> std::io::Result<()> {
    let (i_block, size, is_extents) = root;
    let inode = new_file(image, &i_block, size, is_extents);
    let mut slot = vec![0; usize::from(image.params.geometry.inode_size)];
    let len = inode.as_bytes().len().min(slot.len());
    slot[..len].copy_from_slice(&inode.as_bytes()[..len]);
    image.write_slot(ino, slot)?;
    image.edit_superblock(|raw| {
        raw.journal_inum = ino.into();
        raw.journal_dev = 0.into();
        raw.jnl_backup_type = 1;
        for (word, bytes) in raw.jnl_blocks.iter_mut().zip(i_block.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes).into();
        }
        (raw.jnl_blocks[15], raw.jnl_blocks[16]) =
            (((size >> 32) as u32).into(), (size as u32).into());
    })
}

/// Returns a new inode for a system file.
pub(super) fn new_file(
    image: &StagedImage<'_>,
    i_block: &[u8; I_BLOCK_SIZE],
    size: u64,
    is_extents: bool,
) -> Inode {
    let geometry = &image.params.geometry;
    let mut inode = Inode::zeroed(usize::from(geometry.inode_size));
    inode.set_mode(FileType::Regular.mode_bits() | 0o600);
    inode.set_links_count(1);
    inode.set_size(size);
    inode.set_flag(flags::EXTENTS, is_extents);
    *inode.i_block_mut() = *i_block;
    let time = vfs::Timestamp { sec: now().into(), nsec: 0 };
    use crate::format::inode::Time;
    for which in [Time::Access, Time::Change, Time::Modify] {
        inode.set_time(which, time);
    }
    inode.set_crtime(time);
    let units = (size >> geometry.block_size_log) * u64::from(geometry.block_size() / 512);
    inode.set_blocks_512(units, geometry.block_size());
    inode
}

/// Clears the slot of an unusable journal inode, so that a new journal can be created.
fn clear_inode(image: &StagedImage<'_>, ino: u32, findings: &[&Finding]) -> Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    step(image.staging, || {
        image.write_slot(ino, vec![0; usize::from(image.params.geometry.inode_size)])?;
        image.edit_superblock(|raw| {
            raw.journal_inum = JOURNAL_INO.into();
            raw.jnl_backup_type = 0;
            let mut features = raw.features();
            features.incompat.remove(Incompat::RECOVER);
            raw.set_features(&features);
        })?;
        let what = "The journal inode is cleared, because its block map is invalid; the contents \
                    of the journal are lost.";
        Ok(findings.iter().map(|f| Action::about(f, what)).collect())
    })
}

/// Rewrites the journal's superblock as that of an empty journal.
pub(super) fn repair_superblock(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    make_superblock(&job.staging, findings)
}

/// See [`repair_superblock`].
pub(super) fn make_superblock(staging: &Staging, findings: &[&Finding]) -> Result<()> {
    let Some(image) = StagedImage::of(staging) else { return Ok(()) };
    let sb = &image.params.sb;
    let Ok(Some(map)) = JournalMap::read(staging, sb) else { return Ok(()) };
    let Some((place, _)) = map.place_of(map.superblock()) else { return Ok(()) };
    step(staging, || {
        let mut block = vec![0; image.block_size()];
        staging.read_at(place, &mut block)?;
        let block_size = image.params.geometry.block_size();
        let mut raw = RawJournalSuperblock::empty(block_size, map.blocks(), sb.raw.uuid);
        if map.is_external() {
            raw.uuid = sb.raw.journal_uuid;
            raw.first = (map.superblock() + 1).into();
            raw.set_user(Some(sb.raw.uuid));
        }
        let told = RawJournalSuperblock::parse(&block).map_or(0, |old| old.sequence.get());
        raw.sequence = told.max(highest_sequence(staging, &map)).wrapping_add(1).into();
        raw.seal();
        block.fill(0);
        block[..raw.as_bytes().len()].copy_from_slice(raw.as_bytes());
        debug_assert!(JournalSuperblock::parse(&block, map.blocks()).is_ok());
        staging.write_at(place, &block)?;
        let what = "The journal superblock is recreated with an empty journal.";
        Ok(match findings {
            [] => vec![Action::new(what)],
            _ => findings.iter().map(|f| Action::about(f, what)).collect(),
        })
    })
}

/// Empties a journal with transactions although no recovery is requested.
pub(super) fn repair_pending(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    match crate::log::recover(&*job.staging).or_else(|_| {
        job.staging.abandon();
        salvage(&*job.staging)
    }) {
        Ok(_) => {
            let what = |f: &&Finding| Action::about(f, "The journal is emptied.");
            let actions = findings.iter().map(what).collect();
            job.staging.end_step(actions).map_err(vfs::Error::Device)?;
        }
        Err(_) => job.staging.abandon(),
    }
    Ok(())
}
