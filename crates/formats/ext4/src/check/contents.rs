//! Blocks that inodes claim.

use vfs::check::Finding;

use super::codes::{EXTENT_CLUSTER, EXTENT_UNWRITTEN, SUPERBLOCK_FEATURE};
use super::context::{Context, InodeUnderCheck};
use super::mapping::{FileExtent, MapVisitor, walk};
use super::survey::Scanner;
use crate::format::address::Block;
use crate::format::features::{Compat, RoCompat};
use crate::format::indirect::DIRECT_COUNT;
use crate::format::inode::flags;

/// Result of claiming the blocks of an inode's map.
#[derive(Default)]
pub(super) struct Claimed {
    /// Number of clusters of contents and map blocks.
    pub(super) clusters: u64,
    /// End of the mapped file blocks, exclusive.
    pub(super) end: u64,
    /// End of the written file blocks, exclusive.
    pub(super) written_end: u64,
    /// Device block of file block 0.
    pub(super) first: Option<Block>,
    /// True if part of the map could not be walked.
    pub(super) is_cut: bool,
    /// True if the map has nodes in blocks.
    pub(super) has_nodes: bool,
}

/// Claims the blocks of a map.
struct Claimer<'s, 'c> {
    context: &'s Context<'c>,
    ino: u32,
    claimed: Claimed,
    /// True if all blocks must be written, not just allocated.
    is_written: bool,
    /// True for a file, whose contents may be shared.
    is_file: bool,
    runs: Option<Vec<FileExtent>>,
    /// The last cluster: its number in the file and on the device.
    last: Option<(u64, u64)>,
}

impl<'s, 'c> Claimer<'s, 'c> {
    fn new(context: &'s Context<'c>, ino: u32, is_written: bool) -> Self {
        let claimed = Claimed::default();
        Self { context, ino, claimed, is_written, is_file: false, runs: None, last: None }
    }

    fn tell(&self, finding: Finding) {
        self.context.tell(finding.of_inode(self.ino.into()));
    }

    /// Returns the clusters of a run, except one that the previous run already covers.
    fn new_clusters(&mut self, run: FileExtent) -> std::ops::Range<u64> {
        let mut clusters = self.context.claims.clusters(run.start, run.len.into());
        let log = self.context.geometry().cluster_blocks_log;
        if log == 0 {
            return clusters;
        }
        let within = (1 << log) - 1;
        let logical = u64::from(run.first) >> log;
        let goes_on = self.last.is_some_and(|last| last.0 == logical);
        let is_same = self.last == Some((logical, clusters.start));
        if run.start.0 & within != u64::from(run.first) & within || goes_on && !is_same {
            let finding = Finding::new(EXTENT_CLUSTER).at_block(run.start.0);
            self.tell(finding.detail(format!("file block {}", run.first)));
        }
        let last_block = u64::from(run.first) + u64::from(run.len) - 1;
        self.last = Some((last_block >> log, clusters.end - 1));
        clusters.start += u64::from(is_same);
        clusters
    }
}

impl MapVisitor for Claimer<'_, '_> {
    fn run(&mut self, run: FileExtent) {
        let end = u64::from(run.first) + u64::from(run.len);
        self.claimed.end = self.claimed.end.max(end);
        if run.first == 0 {
            self.claimed.first = Some(run.start);
        }
        if !run.unwritten {
            self.claimed.written_end = self.claimed.written_end.max(end);
        } else if self.is_written {
            let finding = Finding::new(EXTENT_UNWRITTEN).at_block(run.start.0);
            self.tell(finding.detail(format!("file block {}", run.first)));
        }
        let clusters = self.new_clusters(run);
        self.claimed.clusters += clusters.end - clusters.start;
        if self.is_file {
            self.context.claim_contents(self.ino, clusters);
        } else {
            self.context.claim(self.ino, clusters);
        }
        if let Some(runs) = &mut self.runs {
            runs.push(run);
        }
    }

    fn node(&mut self, block: Block) -> bool {
        let clusters = self.context.claims.clusters(block, 1);
        self.claimed.clusters += 1;
        self.claimed.has_nodes = true;
        let is_new = self.context.claim(self.ino, clusters);
        // A shared node is walked only for the inode that claimed it first, so that each node is read once.
        self.claimed.is_cut |= !is_new;
        is_new
    }

    fn fault(&mut self, context: &Context<'_>, finding: Finding) {
        if ![super::codes::EXTENT_START.name, super::codes::EXTENT_CHECKSUM.name]
            .contains(&finding.code.name)
        {
            self.claimed.is_cut = true;
        }
        context.tell(finding);
    }
}

impl Scanner<'_, '_> {
    fn claim_map(&self, subject: &InodeUnderCheck, is_file: bool) -> Claimed {
        let mut claimer = Claimer::new(self.context, subject.ino, !is_file);
        claimer.is_file = is_file;
        walk(self.context, subject, &mut claimer);
        claimer.claimed
    }

    /// The inode of the bad block list claims blocks that nothing else may use.
    pub(super) fn check_bad_blocks(&self, subject: &InodeUnderCheck) {
        if subject.inode.i_block().iter().any(|&byte| byte != 0) {
            let mut claimer = Claimer::new(self.context, subject.ino, false);
            walk(self.context, subject, &mut claimer);
        }
    }

    pub(super) fn claim_symlink(&self, subject: &InodeUnderCheck) -> Claimed {
        self.claim_map(subject, false)
    }

    pub(super) fn claim_file(&self, subject: &InodeUnderCheck) -> Claimed {
        let claimed = self.claim_map(subject, true);
        let geometry = self.context.geometry();
        let (log, size) = (geometry.block_size_log, subject.inode.size());
        let is_protected = subject.has(flags::VERITY);
        // An orphan may have an unfinished truncation.
        let has_more = claimed.written_end > 0 && size < (claimed.written_end - 1) << log;
        if has_more && !is_protected && !subject.is_orphan && !claimed.is_cut {
            self.tell_size(subject, format_args!("at least {}", (claimed.written_end - 1) << log));
        }
        let most = if subject.has(flags::EXTENTS) {
            1 << (32 + log)
        } else {
            self.context.largest_mapped()
        };
        if size > most {
            self.tell_size(subject, format_args!("at most {most}"));
        }
        if size >= 1 << 31 {
            self.context.has_large_file.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        claimed
    }

    pub(super) fn claim_directory(&mut self, subject: &InodeUnderCheck) -> Claimed {
        let context = self.context;
        let mut claimer = Claimer::new(context, subject.ino, true);
        claimer.runs = Some(Vec::new());
        walk(context, subject, &mut claimer);
        let Claimer { claimed, runs, .. } = claimer;
        let mut runs = runs.unwrap_or_default();
        let (log, size) = (context.geometry().block_size_log, subject.inode.size());
        let blocks = size >> log;
        let preallocated = u64::from(context.params.sb.raw.prealloc_dir_blocks);
        let is_right = size.is_multiple_of(1 << log)
            && blocks > 0
            && claimed.end >= blocks
            && claimed.end - blocks <= preallocated;
        // An orphan directory may be partly freed.
        if !is_right && !claimed.is_cut && !subject.is_orphan {
            self.tell_size(subject, claimed.end << log);
        }
        runs.retain(|run| !run.unwritten);
        self.add_directory(subject, &runs);
        claimed
    }
}

impl Scanner<'_, '_> {
    /// Adds a directory whose entries are to be read. Recovery frees removed directories, with or without names in
    /// them, so their entries do not count.
    pub(super) fn add_directory(&mut self, subject: &InodeUnderCheck, runs: &[FileExtent]) {
        if !subject.is_removed() {
            self.directories.add(subject, runs, self.context.geometry().block_size_log);
        }
    }
}

impl Context<'_> {
    /// Returns the maximum size of a file with a block map, in bytes.
    pub(super) fn largest_mapped(&self) -> u64 {
        let pointers = u64::from(self.geometry().block_size() / 4);
        let blocks = u64::from(DIRECT_COUNT) + pointers + pointers.pow(2) + pointers.pow(3);
        blocks.min((1 << 32) - 1) << self.geometry().block_size_log
    }

    /// Checks that the superblock has the features that files were found to use.
    pub(super) fn check_used_features(&self) {
        let features = &self.params.sb.features;
        let has_large = self.has_large_file.load(std::sync::atomic::Ordering::Relaxed);
        if has_large && !features.ro_compat(RoCompat::LARGE_FILE) {
            self.tell(
                Finding::new(SUPERBLOCK_FEATURE).field("feature_ro_compat").detail("large_file"),
            );
        }
        let has_attributes = self.has_attribute_block.load(std::sync::atomic::Ordering::Relaxed);
        if has_attributes && !features.compat(Compat::EXT_ATTR) {
            self.tell(Finding::new(SUPERBLOCK_FEATURE).field("feature_compat").detail("ext_attr"));
        }
    }
}
