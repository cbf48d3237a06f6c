//! Repairs the inode of the blocks reserved for growth of the descriptor table.

use std::io;

use operations::repair::Action;
use vfs::check::Finding;
use vfs::{FileType, Result};

use super::RepairJob;
use super::image::{StagedImage, step};
use super::system_files::free_block;
use crate::check::{InUse, find_in_use};
use crate::format::address::{Block, Group};
use crate::format::features::Compat;
use crate::format::indirect::{self, DIRECT_COUNT};
use crate::format::inode::{Inode, flags};

/// Inode number.
const RESIZE_INO: u32 = 7;
/// Index of the pointer to the double indirect block.
const DOUBLE: usize = DIRECT_COUNT as usize + 1;

/// Recreates the inode. Disables the feature if there is no room for its block.
pub(super) fn repair(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some(image) = StagedImage::of(&job.staging) else { return Ok(()) };
    let done = find_in_use(job.staging.clone(), &job.options, |in_use| {
        step(&job.staging, || {
            let what = if make(&image, in_use)? {
                "The resize inode is recreated."
            } else {
                turn_off(&image)?;
                "The feature resize_inode is turned off."
            };
            Ok(findings.iter().map(|f| Action::about(f, what)).collect())
        })
    })?;
    done.unwrap_or(Ok(()))
}

/// Returns the inode's double indirect block if it can be kept, else a free block.
fn double_of(image: &StagedImage<'_>, in_use: &InUse<'_>) -> io::Result<Option<Block>> {
    let geometry = &image.params.geometry;
    let told = image.inode(RESIZE_INO)?.and_then(|inode| {
        indirect::pointer(&inode.i_block()[..], DOUBLE as u16).filter(|_| inode.links_count() > 0)
    });
    let is_own = |block: &Block| {
        let base = geometry.base_metadata(geometry.group_of(*block));
        geometry.contains(*block, 1) && !base.contains(block) && in_use.is_alone(*block)
    };
    Ok(told.filter(is_own).or_else(|| free_block(image, in_use)))
}

fn make(image: &StagedImage<'_>, in_use: &InUse<'_>) -> io::Result<bool> {
    let geometry = &image.params.geometry;
    let kept = u64::from(geometry.reserved_gdt_blocks);
    let per_block = image.block_size() / 4;
    let first = u64::from(geometry.gdt_blocks());
    let backups: Vec<Group> =
        geometry.groups().skip(1).filter(|group| geometry.has_superblock(*group)).collect();
    let fits = geometry.blocks_count <= u64::from(u32::MAX)
        && backups.len() <= per_block
        && kept <= per_block as u64
        && image.params.sb.features.compat(Compat::RESIZE_INODE);
    let Some(double) = double_of(image, in_use)?.filter(|_| fits) else { return Ok(false) };
    let mut pointers = vec![0; image.block_size()];
    for number in first..first + kept {
        let block = geometry.gdt_block(0).plus(number);
        set_pointer(&mut pointers, (number % per_block as u64) as usize, block);
        let mut bytes = vec![0; image.block_size()];
        for (at, group) in backups.iter().enumerate() {
            let group_blocks = u64::from(geometry.blocks_per_group);
            set_pointer(&mut bytes, at, block.plus(u64::from(group.0) * group_blocks));
        }
        image.write(block, &bytes)?;
    }
    image.write(double, &pointers)?;
    let reach = u64::from(DIRECT_COUNT) + per_block as u64 + (per_block * per_block) as u64;
    let size = reach << geometry.block_size_log;
    let Some(mut slot) = image.slot(RESIZE_INO)? else { return Ok(false) };
    let mut inode = Inode::from_slot(&slot);
    if inode.mode() == 0 {
        inode = super::journal::new_file(image, &[0; 60], 0, false);
    }
    inode.set_mode(FileType::Regular.mode_bits() | 0o600);
    inode.set_links_count(1);
    inode.set_dtime(0);
    inode.set_file_acl(0);
    inode.set_size(size);
    inode.set_flag(flags::EXTENTS | flags::INLINE_DATA, false);
    let units = (1 + kept * (1 + backups.len() as u64)) * u64::from(geometry.block_size() / 512);
    inode.set_blocks_512(units, geometry.block_size());
    inode.i_block_mut().fill(0);
    set_pointer(inode.i_block_mut(), DOUBLE, double);
    let count = inode.as_bytes().len().min(slot.len());
    slot[..count].copy_from_slice(&inode.as_bytes()[..count]);
    image.write_slot(RESIZE_INO, slot)?;
    Ok(true)
}

pub(super) fn turn_off(image: &StagedImage<'_>) -> io::Result<()> {
    image.write_slot(RESIZE_INO, vec![0; usize::from(image.params.geometry.inode_size)])?;
    image.edit_superblock(|raw| {
        let mut features = raw.features();
        features.compat.remove(Compat::RESIZE_INODE);
        raw.set_features(&features);
        raw.reserved_gdt_blocks = 0.into();
    })
}

/// Writes a 32-bit block number.
fn set_pointer(bytes: &mut [u8], at: usize, block: Block) {
    bytes[at * 4..at * 4 + 4].copy_from_slice(&(block.0 as u32).to_le_bytes());
}
