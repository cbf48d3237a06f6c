//! The image that is being repaired, as its superblock describes it, and steps that change it.

use std::collections::BTreeMap;
use std::io;

use disk::BlockDevice;
use operations::repair::{Action, Staging};
use vfs::check::Finding;
use vfs::{Error, Ino, Result};
use zerocopy::IntoBytes;

use crate::format::address::{Block, Group};
use crate::format::checksum::inode_seed;
use crate::format::group::GroupDescriptor;
use crate::format::inode::{self, Inode};
use crate::format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use crate::params::{Params, read_superblock};

/// Actions of a change, or the device's error.
pub(super) type Changed = io::Result<Vec<Action>>;

/// An image in a staging.
pub(super) struct StagedImage<'s> {
    pub(super) staging: &'s Staging,
    pub(super) params: Params,
}

impl<'s> StagedImage<'s> {
    /// Returns the image if its superblock can be read.
    pub(super) fn of(staging: &'s Staging) -> Option<Self> {
        let sb = read_superblock(staging).ok()?;
        Some(Self { staging, params: Params::of(sb) })
    }

    pub(super) fn block_size(&self) -> usize {
        self.params.block_size()
    }

    /// Reads one block.
    pub(super) fn block(&self, block: Block) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.block_size()];
        self.staging.read_at(self.params.geometry.byte_of(block), &mut bytes)?;
        Ok(bytes)
    }

    /// Writes to the start of a block.
    pub(super) fn write(&self, block: Block, bytes: &[u8]) -> io::Result<()> {
        self.staging.write_at(self.params.geometry.byte_of(block), bytes)
    }

    /// Reads the bytes of a group's descriptor.
    pub(super) fn descriptor_bytes(&self, group: Group) -> io::Result<Vec<u8>> {
        let (block, offset) = self.params.geometry.descriptor_position(group);
        let mut bytes = vec![0; usize::from(self.params.geometry.desc_size)];
        let at = self.params.geometry.byte_of(block) + offset as u64;
        self.staging.read_at(at, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads a group's descriptor without checks.
    pub(super) fn descriptor(&self, group: Group) -> io::Result<GroupDescriptor> {
        let bytes = self.descriptor_bytes(group)?;
        Ok(GroupDescriptor::read(&bytes).unwrap_or_default())
    }

    /// Writes a group's descriptor with its checksum.
    pub(super) fn write_descriptor(&self, group: Group, desc: &GroupDescriptor) -> io::Result<()> {
        let mut bytes = self.descriptor_bytes(group)?;
        desc.write(&mut bytes, &self.params.sb, group);
        let (block, offset) = self.params.geometry.descriptor_position(group);
        let at = self.params.geometry.byte_of(block) + offset as u64;
        self.staging.write_at(at, &bytes)
    }

    /// Returns the byte offset of an inode's slot. Returns `None` if there is no such inode.
    fn slot_place(&self, ino: u32) -> io::Result<Option<u64>> {
        let geometry = &self.params.geometry;
        let Some((group, index)) = geometry.place_of(Ino(ino.into())) else { return Ok(None) };
        let desc = self.descriptor(group)?;
        if desc.check_places(&self.params.sb).is_err() {
            return Ok(None);
        }
        let (block, offset) = geometry.inode_position(desc.inode_table, index);
        Ok(Some(geometry.byte_of(block) + offset as u64))
    }

    /// Reads the slot of an inode. Returns `None` if there is no such inode.
    pub(super) fn slot(&self, ino: u32) -> io::Result<Option<Vec<u8>>> {
        let Some(at) = self.slot_place(ino)? else { return Ok(None) };
        let mut bytes = vec![0; usize::from(self.params.geometry.inode_size)];
        self.staging.read_at(at, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Reads the fixed fields of an inode.
    pub(super) fn inode(&self, ino: u32) -> io::Result<Option<Inode>> {
        Ok(self.slot(ino)?.map(|slot| Inode::from_slot(&slot)))
    }

    /// Writes the slot of an inode with its checksum.
    pub(super) fn write_slot(&self, ino: u32, mut slot: Vec<u8>) -> io::Result<()> {
        let Some(at) = self.slot_place(ino)? else { return Ok(()) };
        if let Some(seed) = self.seed(ino, Inode::from_slot(&slot).generation()) {
            inode::seal_slot(seed, &mut slot);
        }
        self.staging.write_at(at, &slot)
    }

    /// Returns the checksum seed of an inode and its blocks, if there are checksums.
    pub(super) fn seed(&self, ino: u32, generation: u32) -> Option<u32> {
        let seed = || inode_seed(self.params.sb.checksum_seed, Ino(ino.into()), generation);
        self.params.checksums.then(seed)
    }

    /// Changes the primary superblock.
    pub(super) fn edit_superblock(
        &self,
        change: impl FnOnce(&mut RawSuperblock),
    ) -> io::Result<()> {
        let mut raw = RawSuperblock::zeroed();
        self.staging.read_at(SUPERBLOCK_OFFSET, raw.as_mut_bytes())?;
        change(&mut raw);
        raw.seal();
        self.staging.write_at(SUPERBLOCK_OFFSET, raw.as_bytes())
    }
}

/// Runs `change` as a step with the actions that it returns. If the device rejects a write, nothing changes.
///
/// # Errors
/// If the device fails when the step ends.
pub(super) fn step(staging: &Staging, change: impl FnOnce() -> Changed) -> Result<()> {
    try_step(staging, change).map(drop)
}

/// Like [`step`]. Returns whether the step was made.
fn try_step(staging: &Staging, change: impl FnOnce() -> io::Result<Vec<Action>>) -> Result<bool> {
    match change() {
        Ok(actions) => {
            staging.end_step(actions).map_err(Error::Device)?;
            Ok(true)
        }
        Err(_) => {
            staging.abandon();
            Ok(false)
        }
    }
}

/// Number of groups that are repaired in one step: their descriptors are in few blocks.
const GROUPS_IN_STEP: usize = 16;

/// Repairs groups, several in a step; one by one if the device rejects a write.
///
/// # Errors
/// If the device fails when a step ends.
pub(super) fn step_groups(
    staging: &Staging,
    findings: &[&Finding],
    change: &dyn Fn(Group, &[&Finding]) -> Changed,
) -> Result<()> {
    let by_group: Vec<(u64, Vec<&Finding>)> = by_group(findings).into_iter().collect();
    for some in by_group.chunks(GROUPS_IN_STEP) {
        let of = |(group, findings): &(u64, Vec<&Finding>)| change(Group(*group as u32), findings);
        let together = || {
            let actions: io::Result<Vec<Vec<Action>>> = some.iter().map(of).collect();
            Ok(actions?.into_iter().flatten().collect())
        };
        if !try_step(staging, together)? {
            for one in some {
                step(staging, || of(one))?;
            }
        }
    }
    Ok(())
}

/// Groups findings by block group. Skips findings without one.
pub(super) fn by_group<'f>(findings: &[&'f Finding]) -> BTreeMap<u64, Vec<&'f Finding>> {
    let mut groups: BTreeMap<u64, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        if let Some(group) = finding.place.group {
            groups.entry(group).or_default().push(finding);
        }
    }
    groups
}

/// Returns the time in seconds since the epoch; 0 without a clock.
pub(super) fn now() -> u32 {
    vfs::clock::now().map_or(0, |now| now.sec as u32)
}
