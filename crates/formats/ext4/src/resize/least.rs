//! Minimum size of a file system according to the blocks and inodes in use.

use std::ops::Range;
use std::sync::Arc;

use disk::BlockDevice;
use vfs::{Error, Result};

use super::draft::Draft;
use super::groups::DescriptorTable;
use super::target::target;
use crate::format::address::Block;
use crate::format::features::Incompat;
use crate::params::Params;

/// Minimum number of blocks to leave free: maps of files may need more blocks after a move.
const SLACK_BLOCKS: u64 = 64;
/// The same as a fraction of the blocks in use.
const SLACK_SHARE: u64 = 256;

/// Requested size for shrinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeRequest {
    /// At most this many blocks.
    Blocks(u64),
    /// The minimum size.
    Minimum,
}

/// Returns the parameters of a file system with the requested size.
///
/// # Errors
/// `NoSpace` or `NoInodes` if the contents do not fit; if the device fails, or a descriptor is damaged.
pub(super) fn choose(
    device: &Arc<dyn BlockDevice>,
    old: &Params,
    request: SizeRequest,
) -> Result<Params> {
    let draft = Draft::new(device.clone(), old.block_size());
    let usage = SpaceUsage::of(old, &DescriptorTable::read(&draft, old)?);
    match request {
        SizeRequest::Blocks(blocks) => {
            let new = target(old, blocks, device.len())?;
            if new.geometry.blocks_count < blocks_for_mmp(old) {
                let block = old.sb.raw.mmp_block.get();
                return Err(Error::unsupported(
                    format!("shrinking to {blocks} blocks, because block {block} is the MMP block"),
                    "run tune2fs -O ^mmp first, or choose a larger size",
                ));
            }
            usage.check(old, &new).map(|()| new)
        }
        SizeRequest::Minimum => usage.least(old, device.len()),
    }
}

/// Returns the minimum number of blocks for the MMP block; 0 if there is none. The block does not move, because other
/// hosts read it.
fn blocks_for_mmp(params: &Params) -> u64 {
    let sb = &params.sb;
    if sb.features.incompat(Incompat::MMP) { sb.raw.mmp_block.get().saturating_add(1) } else { 0 }
}

/// Blocks and inodes in use.
struct SpaceUsage {
    /// Clusters in use by files.
    clusters: u64,
    inodes: u64,
    /// Metadata of each group: its bitmaps and its inode table. That of removed groups stays until they are removed.
    metadata: Vec<[Range<u64>; 3]>,
}

impl SpaceUsage {
    fn of(old: &Params, groups: &DescriptorTable) -> Self {
        let geometry = &old.geometry;
        let (free_clusters, free_inodes) = groups.totals();
        let all: u64 = geometry.groups().map(|group| u64::from(geometry.clusters_in(group))).sum();
        let system = groups.system(old);
        let whole = Block(0)..Block(geometry.blocks_count);
        // Metadata of groups shares no clusters with other blocks.
        let fixed: u64 = system
            .within(whole)
            .map(|run| run.end.0.saturating_sub(run.start.0.max(geometry.first_data_block.into())))
            .sum();
        let fixed = fixed >> geometry.cluster_blocks_log;
        let table = u64::from(geometry.itable_blocks());
        let metadata = geometry.groups().map(|group| {
            let desc = groups.get(group);
            let parts = [(desc.block_bitmap, 1), (desc.inode_bitmap, 1), (desc.inode_table, table)];
            parts.map(|(start, len)| start.0..start.0 + len)
        });
        Self {
            metadata: metadata.collect(),
            clusters: (all - free_clusters).saturating_sub(fixed),
            inodes: u64::from(geometry.inodes_count) - free_inodes,
        }
    }

    /// Checks that everything fits, together with the metadata of the new groups.
    fn check(&self, old: &Params, new: &Params) -> Result<()> {
        let geometry = &new.geometry;
        if self.inodes > u64::from(geometry.inodes_count) {
            return Err(Error::NoInodes);
        }
        let base: u64 = geometry
            .groups()
            .map(|group| geometry.base_metadata(group))
            .map(|base| base.end.0 - base.start.0)
            .sum();
        let tables = (2 + u64::from(geometry.itable_blocks())) * u64::from(geometry.groups_count);
        let files = self.clusters << geometry.cluster_blocks_log;
        let is_smaller = geometry.blocks_count < old.geometry.blocks_count;
        let slack = if is_smaller { SLACK_BLOCKS + files / SLACK_SHARE } else { 0 };
        let end = geometry.blocks_count;
        let going = self.metadata.iter().skip(geometry.groups_count as usize).flatten();
        let going: u64 = going.map(|run| run.end.min(end).saturating_sub(run.start)).sum();
        let needed = u64::from(geometry.first_data_block) + base + tables + files + going + slack;
        let needed = needed.max(blocks_for_mmp(old));
        if needed > geometry.blocks_count { Err(Error::NoSpace) } else { Ok(()) }
    }

    fn least(&self, old: &Params, device_len: u64) -> Result<Params> {
        let (mut low, mut high) = (0, old.geometry.blocks_count);
        while high - low > 1 {
            let middle = low.midpoint(high);
            let fits = match target(old, middle, device_len) {
                Ok(new) => self.check(old, &new).is_ok(),
                Err(Error::NoSpace | Error::Corrupt(_)) => false,
                Err(error) => return Err(error),
            };
            if fits { high = middle } else { low = middle }
        }
        target(old, high, device_len)
    }
}
