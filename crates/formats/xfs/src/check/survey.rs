//! Access to parts of the check for repairs: contents of trees, and owners of blocks. Reports no findings.

use std::collections::HashSet;
use std::num::NonZero;
use std::sync::Arc;

use disk::BlockDevice;
use parking_lot::Mutex;
use vfs::Result;
use vfs::check::{Finding, Observer, Silent};

use super::chunks::Chunks;
use super::codes::TreeCodes;
use super::context::Context;
use super::groups;
use super::inodes::Inodes;
use super::links::InodeLinks;
use super::owners::Owners;
use super::realtime::{self, UsedExtents};
use super::superblock::log_head;
use super::tree::{TreeOwner, TreeWalk, Visitor};
use crate::btree::Tree;
use crate::format::address::{AgBlock, AgNumber, Block};
use crate::format::dir::DirLayout;
use crate::format::geometry::Geometry;
use crate::format::log::Lsn;
use crate::format::superblock::Superblock;
use crate::volume::read_superblock;

pub(crate) use super::chunks::{AgChunks, Chunk};
pub(crate) use super::groups::Totals;
pub(crate) use super::owners::Claim;

/// An image, without replaying its log.
pub(crate) struct Survey {
    device: Arc<dyn BlockDevice>,
    pub(crate) sb: Superblock,
    pub(crate) geometry: Geometry,
    threads: NonZero<usize>,
}

/// Contents of a tree.
pub(crate) struct TreeContents<R> {
    /// Its records, in the order in which they were visited.
    pub(crate) records: Vec<R>,
    /// Its blocks, within the group.
    pub(crate) blocks: Vec<u32>,
    /// True if there were no findings.
    pub(crate) is_sound: bool,
}

impl<R> Default for TreeContents<R> {
    fn default() -> Self {
        Self { records: Vec::new(), blocks: Vec::new(), is_sound: false }
    }
}

/// Owners of blocks of some groups: headers, log, inodes and their trees, files. Does not include trees of space.
pub(crate) struct Ownership {
    /// Unsorted.
    pub(crate) claims: Vec<Claim>,
    /// True if some inodes could not be visited: they may own blocks, too.
    pub(crate) has_gaps: bool,
    /// True if there are more claims than requested.
    pub(crate) is_cut: bool,
    /// Findings about inodes, including inodes that a check skips because trees of space claim their blocks.
    pub(crate) findings: Vec<Finding>,
}

struct Keep<'k, R> {
    geometry: &'k Geometry,
    met: HashSet<u64>,
    contents: TreeContents<R>,
}

impl<T: Tree> Visitor<T> for Keep<'_, T::Record> {
    fn block(&mut self, block: Block) -> bool {
        let is_new = self.met.insert(block.0);
        if is_new {
            self.contents.blocks.push(self.geometry.locate(block).1.0);
        }
        is_new
    }

    fn record(&mut self, record: T::Record) {
        self.contents.records.push(record);
    }
}

/// Maximum number of findings about inodes that are kept.
const FINDINGS_MAX: usize = 10_000;

/// An observer that keeps findings.
#[derive(Default)]
struct KeptFindings(Mutex<Vec<Finding>>);

impl Observer for KeptFindings {
    fn found(&self, finding: Finding) {
        let mut findings = self.0.lock();
        if findings.len() < FINDINGS_MAX {
            findings.push(finding);
        }
    }
}

/// An observer that records whether there were findings.
#[derive(Default)]
struct Noted(Mutex<bool>);

impl Observer for Noted {
    fn found(&self, _finding: Finding) {
        *self.0.lock() = true;
    }
}

impl Survey {
    /// Returns a survey of an image. The log is not replayed.
    ///
    /// # Errors
    /// If the superblock is unusable.
    pub(crate) fn new(device: Arc<dyn BlockDevice>, threads: NonZero<usize>) -> Result<Self> {
        let sb = read_superblock(&*device)?;
        let geometry = Geometry::new(&sb);
        Ok(Self { device, sb, geometry, threads })
    }

    fn quiet(&self) -> Context<'_> {
        Context::new(self.device.clone(), self.sb.clone(), &Silent, self.threads, None)
    }

    /// Walks a tree of a group.
    pub(crate) fn tree<T: Tree>(
        &self,
        ag: AgNumber,
        codes: TreeCodes,
        (root, levels): (u32, u32),
    ) -> TreeContents<T::Record> {
        let noted = Noted::default();
        let ctx = Context::new(
            self.device.clone(),
            self.sb.clone(),
            &noted,
            self.threads,
            log_head(&*self.device, &self.sb),
        );
        let geometry = &self.geometry;
        let mut keep = Keep { geometry, met: HashSet::new(), contents: TreeContents::default() };
        let walk = TreeWalk::<T, _>::new(&ctx, codes, TreeOwner::Group(ag), &mut keep);
        let found = walk.of_group(AgBlock(root), levels);
        let mut contents = keep.contents;
        contents.is_sound = !found.is_broken && !*noted.0.lock();
        contents
    }

    /// Returns the owners of blocks of `groups`, with at most `claims_max` claims. Inodes are taken from `chunks`, by
    /// group; if that is `None`, from the inode trees.
    pub(crate) fn ownership(
        &self,
        groups: HashSet<u32>,
        chunks: Option<Vec<AgChunks>>,
        claims_max: usize,
    ) -> Ownership {
        let ctx = self.quiet();
        let owners = Owners::listing_at_most(&self.geometry, groups, Vec::new(), claims_max);
        let by_trees = groups::check_inodes(&ctx, &owners);
        let has_unknown = chunks.is_none() && by_trees.iter().any(|ag| !ag.is_whole);
        let mut has_gaps = has_unknown;
        let kept = KeptFindings::default();
        let (device, sb) = (self.device.clone(), self.sb.clone());
        let ctx = Context::new(device, sb, &kept, self.threads, None);
        if let Some(chunks) = Chunks::new(&self.geometry, chunks.unwrap_or(by_trees)) {
            self.inodes(&ctx, &owners, &chunks);
        } else {
            has_gaps = true;
        }
        has_gaps |= ctx.has_gaps();
        ctx.waiting.release(&kept, |_, _| None);
        drop(ctx);
        let (is_cut, findings) = (owners.is_cut(), kept.0.into_inner());
        Ownership { claims: owners.into_claims().0, has_gaps, is_cut, findings }
    }

    fn inodes(&self, ctx: &Context<'_>, owners: &Owners, chunks: &Chunks) {
        let links = InodeLinks::new(ctx, chunks);
        let layout = DirLayout::new(&self.geometry);
        let usage = None;
        Inodes {
            ctx,
            owners,
            chunks,
            links: &links,
            usage,
            pointers: None,
            layout,
            realtime: None,
        }
        .check();
    }

    /// Returns the chunks in the inode trees, by group.
    pub(crate) fn chunks(&self) -> Vec<AgChunks> {
        groups::check_inodes(&self.quiet(), &Owners::new(&self.geometry))
    }

    /// Returns the correct totals of the superblock.
    pub(crate) fn totals(&self) -> Option<Totals> {
        let found = groups::check(&self.quiet(), &Owners::new(&self.geometry));
        found.map(|(_, totals)| totals).filter(|totals| !totals.is_partial)
    }

    /// Calls `write` with the place and the new contents of each block of the realtime bitmap and of the summary that
    /// differs from the extents of files. Returns the number of free realtime extents. `None` without a realtime
    /// section, or if some of it could not be read.
    pub(crate) fn rebuild_realtime(&self, write: &mut dyn FnMut(Block, &[u8])) -> Option<u64> {
        let rebuild =
            |inodes: &Inodes<'_>, used: &UsedExtents| realtime::rebuild(inodes, used, write);
        self.used_extents(UsedExtents::new, rebuild).map(|used| used.free())
    }

    /// Returns the claims of all blocks of realtime groups, sorted. Ignores the trees of the groups: blocks of files that
    /// may share some may have several owners. `None` without groups, if some inode could not be read, or if other
    /// blocks have several owners.
    pub(crate) fn realtime_claims(&self) -> Option<Vec<Claim>> {
        let used = self.used_extents(UsedExtents::listing, |_, _| true)?;
        let mut claims = used.into_claims()?;
        claims.sort_unstable();
        Some(claims)
    }

    /// Returns the realtime extents of all inodes, collected in the set that `make` returns. `None` if there is no such
    /// set, if some inode could not be read, if extents are disputed, or if `is_accepted` refuses the complete set.
    fn used_extents(
        &self,
        make: impl FnOnce(&Inodes<'_>) -> Option<UsedExtents>,
        is_accepted: impl FnOnce(&Inodes<'_>, &UsedExtents) -> bool,
    ) -> Option<UsedExtents> {
        let ctx = self.quiet();
        let owners = Owners::new(&self.geometry);
        let chunks = Chunks::new(&self.geometry, groups::check_inodes(&ctx, &owners))?;
        let links = InodeLinks::new(&ctx, &chunks);
        let mut inodes = Inodes {
            ctx: &ctx,
            owners: &owners,
            chunks: &chunks,
            links: &links,
            usage: None,
            pointers: None,
            layout: DirLayout::new(&self.geometry),
            realtime: None,
        };
        let used = make(&inodes)?;
        inodes.realtime = Some(&used);
        inodes.check();
        let is_known = !ctx.has_gaps() && used.is_undisputed();
        (is_known && is_accepted(&inodes, &used)).then_some(used)
    }

    /// Returns the highest plausible LSN of all structures.
    pub(crate) fn lsn_plausible_max(&self) -> Lsn {
        let ctx = self.quiet();
        super::superblock::check(&ctx);
        let owners = Owners::new(&self.geometry);
        if let Some((chunks, _)) = groups::check(&ctx, &owners) {
            self.inodes(&ctx, &owners, &chunks);
        }
        ctx.lsn_plausible_max()
    }
}
