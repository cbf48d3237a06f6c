//! Blocks and inodes that a survey of all inodes found in use, for rebuilding bitmaps and counts.

use std::ops::Range;
use std::sync::Arc;

use disk::BlockDevice;
use vfs::Result;
use vfs::check::{BitSet, Options, Silent};

use super::bitmaps::{set_bit, set_padding, words_from};
use super::context::Context;
use super::mapping::walk;
use super::references::Runs;
use super::tally::QuotaUsage;
use super::{superblock, survey};
use crate::format::address::{Block, Group};
use crate::format::group::GroupDescriptor;
use crate::params::Params;

/// Result of a survey of all inodes.
pub(crate) struct InUse<'c>(Context<'c>);

/// Counts of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupCounts {
    /// Number of free clusters.
    pub(crate) free_clusters: u32,
    /// Number of free inodes.
    pub(crate) free_inodes: u32,
    /// Number of directories.
    pub(crate) directories: u32,
    /// Number of inodes up to the last one in use.
    pub(crate) inodes_to_last: u32,
}

/// Surveys an image like a check, without reporting findings. Returns `None` if there is no superblock.
///
/// # Errors
/// Like [`super::check`].
pub(crate) fn find_in_use<R>(
    device: Arc<dyn BlockDevice>,
    options: &Options,
    job: impl FnOnce(&InUse<'_>) -> R,
) -> Result<Option<R>> {
    let Some(start) = superblock::begin(device, options, &Silent)? else { return Ok(None) };
    let mut context = Context::new(start.device, &Silent, options.threads, Params::of(start.sb));
    context.check_groups();
    context.check_superblock();
    context.find_orphans();
    survey::survey(&context);
    context.take_beneath_shared();
    Ok(Some(job(&InUse(context))))
}

impl InUse<'_> {
    /// Returns whether everything could be read. Otherwise more may be in use than is known.
    pub(crate) fn is_complete(&self) -> bool {
        self.0.is_complete()
    }

    /// Returns a group's descriptor, if its positions can be used.
    pub(crate) fn descriptor(&self, group: Group) -> Option<GroupDescriptor> {
        self.0.group(group).filter(|facts| facts.is_usable).map(|facts| facts.desc)
    }

    /// Returns the clusters in use, counted from the first of group 0.
    pub(crate) fn clusters(&self) -> &BitSet {
        self.0.claims.used()
    }

    /// Returns whether a block has at most one claim and does not belong to the file system itself.
    pub(crate) fn is_alone(&self, block: Block) -> bool {
        let cluster = self.0.claims.clusters(block, 1).start;
        let is_shared = self.0.claims.shared().is_some_and(|shared| shared.contains(cluster));
        !is_shared && !self.0.system.overlaps(block, 1)
    }

    /// Returns the cluster of a block.
    pub(crate) fn cluster_of(&self, block: Block) -> u64 {
        self.0.claims.clusters(block, 1).start
    }

    /// Returns the first block of a cluster.
    pub(crate) fn block_of(&self, cluster: u64) -> Block {
        self.0.claims.block_of(cluster)
    }

    /// Returns the usage per owner, for each kind of quota; `None` if it could not be counted.
    pub(crate) fn usage(&self) -> Option<QuotaUsage> {
        self.0.tally.is_wanted().then(|| self.0.tally.take())
    }

    /// Returns the first blocks of a small file, up to the first hole and at most `max`.
    pub(crate) fn places(&self, ino: u32, max: usize) -> Vec<Block> {
        let Some(slot) = self.0.slot(ino) else { return Vec::new() };
        let mut runs = Runs::default();
        walk(&self.0, &self.0.subject(ino, &slot), &mut runs);
        let mut places = Vec::new();
        for run in runs.all {
            if run.unwritten || run.first as usize != places.len() || places.len() >= max {
                break;
            }
            let count = (run.len as usize).min(max - places.len()) as u64;
            places.extend((0..count).map(|at| run.start.plus(at)));
        }
        places
    }

    /// Returns the counts of a group.
    pub(crate) fn counts(&self, group: Group) -> GroupCounts {
        let geometry = self.0.geometry();
        let clusters = geometry.clusters_in(group);
        let used = self.clusters().count(self.0.claims.of_group(geometry, group)) as u32;
        let states = self.0.inodes.of(group);
        let in_use = (0..).zip(states).filter(|(_, state)| state.is_used());
        let reserved = self.reserved_in(group);
        let used_inodes = in_use.clone().filter(|(index, _)| *index >= reserved).count() as u32;
        let last = in_use.clone().last().map_or(0, |(index, _)| index + 1);
        GroupCounts {
            free_clusters: clusters - used.min(clusters),
            free_inodes: geometry.inodes_per_group - reserved - used_inodes,
            directories: in_use.filter(|(_, state)| state.is_dir()).count() as u32,
            inodes_to_last: last.max(reserved),
        }
    }

    /// Returns the number of reserved inodes at the start of a group.
    fn reserved_in(&self, group: Group) -> u32 {
        let geometry = self.0.geometry();
        let first = geometry.ino_of(group, 0).0;
        let reserved = u64::from(self.0.params.sb.first_ino).saturating_sub(first);
        reserved.min(u64::from(geometry.inodes_per_group)) as u32
    }

    /// Returns the block bitmap that a group must have.
    pub(crate) fn block_bitmap(&self, group: Group) -> Vec<u8> {
        let geometry = self.0.geometry();
        let clusters: Range<u64> = self.0.claims.of_group(geometry, group);
        let count = geometry.clusters_in(group);
        let mut bytes = Vec::with_capacity(self.0.block_size());
        for word in words_from(self.clusters(), clusters.start, count) {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.resize(self.0.block_size(), 0);
        set_padding(&mut bytes, count as usize);
        bytes
    }

    /// Returns the number of inodes at the start of a group's table that were read. Those after them were never used.
    pub(crate) fn inodes_read(&self, group: Group) -> u32 {
        self.0.group(group).map_or(0, |facts| facts.inodes_to_read(&self.0))
    }

    /// Returns the inode bitmap that a group must have.
    pub(crate) fn inode_bitmap(&self, group: Group) -> Vec<u8> {
        let mut bytes = vec![0; self.0.block_size()];
        for (index, state) in self.0.inodes.of(group).iter().enumerate() {
            if state.is_used() {
                set_bit(&mut bytes, index);
            }
        }
        (0..self.reserved_in(group)).for_each(|bit| set_bit(&mut bytes, bit as usize));
        set_padding(&mut bytes, self.0.geometry().inodes_per_group as usize);
        bytes
    }
}
