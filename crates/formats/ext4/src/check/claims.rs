//! Clusters (blocks without `bigalloc`) in use, and clusters with several claims.

use std::ops::Range;
use std::sync::OnceLock;

use vfs::check::{BitSet, Finding};

use super::codes::BLOCK_METADATA;
use super::context::Context;
use crate::format::address::{Block, Group};
use crate::format::features::{Features, RoCompat};
use crate::format::geometry::Geometry;

/// Clusters in use, counted from the first of group 0.
pub(super) struct Claims {
    used: BitSet,
    /// Clusters that were claimed more than once.
    again: OnceLock<BitSet>,
    /// Attribute blocks seen so far. Inodes may share them.
    attributes: OnceLock<BitSet>,
    /// Kinds of claims, if the file system has `shared_blocks`.
    sharing: Option<Sharing>,
    first_data_block: u64,
    cluster_blocks_log: u32,
}

/// Claims in a file system whose files may share contents (`shared_blocks`).
struct Sharing {
    /// Clusters with file contents.
    contents: BitSet,
    /// Clusters with all other claims.
    alone: BitSet,
}

impl Claims {
    pub(super) fn new(geometry: &Geometry, features: &Features) -> Self {
        let first_data_block = u64::from(geometry.first_data_block);
        let blocks = geometry.blocks_count - first_data_block;
        let clusters = blocks.div_ceil(u64::from(geometry.cluster_blocks()));
        let sharing = || Sharing { contents: BitSet::new(clusters), alone: BitSet::new(clusters) };
        Self {
            used: BitSet::new(clusters),
            sharing: features.ro_compat(RoCompat::SHARED_BLOCKS).then(sharing),
            again: OnceLock::new(),
            attributes: OnceLock::new(),
            first_data_block,
            cluster_blocks_log: geometry.cluster_blocks_log,
        }
    }

    /// Returns the clusters of a run of blocks.
    pub(super) fn clusters(&self, start: Block, len: u64) -> Range<u64> {
        let first = start.0.saturating_sub(self.first_data_block);
        let end = start.plus(len).0.saturating_sub(self.first_data_block);
        let log = self.cluster_blocks_log;
        first >> log..end.div_ceil(1_u64 << log)
    }

    /// Returns the first block of a cluster.
    pub(super) fn block_of(&self, cluster: u64) -> Block {
        Block((cluster << self.cluster_blocks_log) + self.first_data_block)
    }

    /// Returns the clusters of a group.
    pub(super) fn of_group(&self, geometry: &Geometry, group: Group) -> Range<u64> {
        self.clusters(geometry.first_block(group), geometry.blocks_in(group).into())
    }

    pub(super) const fn used(&self) -> &BitSet {
        &self.used
    }

    /// Marks blocks of the file system itself as in use.
    pub(super) fn take_system(&self, start: Block, len: u64) {
        self.used.insert_range(self.clusters(start, len), |_| {});
    }

    /// Returns the clusters that were claimed more than once, if any.
    pub(super) fn shared(&self) -> Option<&BitSet> {
        self.again.get()
    }

    /// Returns whether a block was claimed again.
    pub(super) fn is_shared(&self, block: Block) -> bool {
        self.shared().is_some_and(|shared| shared.contains(self.clusters(block, 1).start))
    }

    fn again(&self) -> &BitSet {
        self.again.get_or_init(|| BitSet::new(self.used.limit()))
    }

    /// Once all claims are known, marks clusters shared between file contents and other claims. So the result does not
    /// depend on the order of threads.
    pub(super) fn settle_sharing(&self) {
        let Some(Sharing { contents, alone }) = &self.sharing else { return };
        for word in 0..self.used.limit().div_ceil(64) {
            let mut both = contents.word(word) & alone.word(word);
            while both != 0 {
                self.again().insert(word * 64 + u64::from(both.trailing_zeros()));
                both &= both - 1;
            }
        }
    }

    /// Records an attribute block. Returns whether it is new.
    pub(super) fn meet_attributes(&self, block: Block) -> bool {
        self.attributes
            .get_or_init(|| BitSet::new(self.used.limit()))
            .insert(self.clusters(block, 1).start)
    }
}

impl Context<'_> {
    /// Claims clusters that an inode must not share. Returns whether all were free.
    pub(super) fn claim(&self, ino: u32, clusters: Range<u64>) -> bool {
        let again = |cluster| {
            self.claims.again().insert(cluster);
        };
        let Some(sharing) = &self.claims.sharing else { return self.take(ino, clusters, again) };
        sharing.alone.insert_range(clusters.clone(), again);
        self.take(ino, clusters, |_| {})
    }

    /// Claims clusters for the contents of a file, which may be shared with the feature `shared_blocks`.
    pub(super) fn claim_contents(&self, ino: u32, clusters: Range<u64>) {
        match &self.claims.sharing {
            Some(sharing) => {
                sharing.contents.insert_range(clusters.clone(), |_| {});
                self.take(ino, clusters, |_| {});
            }
            None => {
                self.claim(ino, clusters);
            }
        }
    }

    /// Marks clusters as in use. Calls `again` for each that was already in use and does not belong to the file system
    /// itself.
    fn take(&self, ino: u32, clusters: Range<u64>, again: impl Fn(u64)) -> bool {
        let mut is_new = true;
        let mut of_system = None;
        self.claims.used.insert_range(clusters.clone(), |cluster| {
            is_new = false;
            let block = self.claims.block_of(cluster);
            if self.system.overlaps(block, u64::from(self.geometry().cluster_blocks())) {
                of_system.get_or_insert(block);
            } else {
                again(cluster);
            }
        });
        if let Some(block) = of_system {
            let first = self.claims.block_of(clusters.start);
            let detail =
                format!("of {} clusters from block {first} on", clusters.end - clusters.start);
            let finding = Finding::new(BLOCK_METADATA).of_inode(ino.into()).at_block(block.0);
            self.tell(finding.detail(detail));
        }
        is_new
    }
}
