//! What a repair asks of the parts of a check: what trees hold, and who owns which blocks. Nobody is told of what is
//! found meanwhile.

use std::collections::HashSet;
use std::num::NonZero;
use std::sync::Arc;

use ::check::{Finding, Observer};
use blockdev::BlockDevice;
use parking_lot::Mutex;
use vfs::Result;

use super::chunks::Chunks;
use super::codes::TreeCodes;
use super::context::Context;
use super::groups;
use super::inodes::Inodes;
use super::links::Links;
use super::names::Silent;
use super::owners::Owners;
use super::superblock::log_head;
use super::tree::{Owner, Visitor, Walk};
use crate::btree::Tree;
use crate::format::address::{AgBlock, AgNumber, Block};
use crate::format::dir::Layout;
use crate::format::geometry::Geometry;
use crate::format::superblock::Superblock;
use crate::volume::read_superblock;

pub(crate) use super::chunks::{AgChunks, Chunk};
pub(crate) use super::groups::Totals;
pub(crate) use super::owners::Claim;

/// An image, as it lies.
pub(crate) struct Survey {
    device: Arc<dyn BlockDevice>,
    pub(crate) sb: Superblock,
    pub(crate) geometry: Geometry,
    threads: NonZero<usize>,
}

/// What a tree holds.
pub(crate) struct Contents<R> {
    /// Its records, in the order in which they were met.
    pub(crate) records: Vec<R>,
    /// Its blocks, within the group.
    pub(crate) blocks: Vec<u32>,
    /// Whether nothing is wrong with it.
    pub(crate) is_sound: bool,
}

impl<R> Default for Contents<R> {
    fn default() -> Self {
        Self { records: Vec::new(), blocks: Vec::new(), is_sound: false }
    }
}

/// Who owns blocks of some groups: headers, log, inodes and their trees, files. Trees of space are left out.
pub(crate) struct Ownership {
    /// In no order.
    pub(crate) claims: Vec<Claim>,
    /// Whether some inodes could not be looked at: they may own blocks, too.
    pub(crate) has_gaps: bool,
    /// Whether there are more claims than were asked for.
    pub(crate) is_cut: bool,
    /// What is wrong with inodes, also where a check does not look because trees of space claim what they have.
    pub(crate) findings: Vec<Finding>,
}

struct Keep<'k, R> {
    geometry: &'k Geometry,
    met: HashSet<u64>,
    contents: Contents<R>,
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

/// Most findings about inodes that are kept.
const FINDINGS_MAX: usize = 10_000;

/// One who keeps what is found.
#[derive(Default)]
struct Kept(Mutex<Vec<Finding>>);

impl Observer for Kept {
    fn found(&self, finding: Finding) {
        let mut findings = self.0.lock();
        if findings.len() < FINDINGS_MAX {
            findings.push(finding);
        }
    }
}

/// One who notes that something was found.
#[derive(Default)]
struct Noted(Mutex<bool>);

impl Observer for Noted {
    fn found(&self, _finding: Finding) {
        *self.0.lock() = true;
    }
}

impl Survey {
    /// A survey of an image, whose log is left alone.
    ///
    /// # Errors
    /// If the superblock cannot be used.
    pub(crate) fn new(device: Arc<dyn BlockDevice>, threads: NonZero<usize>) -> Result<Self> {
        let sb = read_superblock(&*device)?;
        let geometry = Geometry::new(&sb);
        Ok(Self { device, sb, geometry, threads })
    }

    fn quiet(&self) -> Context<'_> {
        Context::new(self.device.clone(), self.sb.clone(), &Silent, self.threads, None)
    }

    /// Goes through a tree of a group.
    pub(crate) fn tree<T: Tree>(
        &self,
        ag: AgNumber,
        codes: TreeCodes,
        (root, levels): (u32, u32),
    ) -> Contents<T::Record> {
        let noted = Noted::default();
        let ctx = Context::new(
            self.device.clone(),
            self.sb.clone(),
            &noted,
            self.threads,
            log_head(&*self.device, &self.sb),
        );
        let geometry = &self.geometry;
        let mut keep = Keep { geometry, met: HashSet::new(), contents: Contents::default() };
        let walk = Walk::<T, _>::new(&ctx, codes, Owner::Group(ag), &mut keep);
        let found = walk.of_group(AgBlock(root), levels);
        let mut contents = keep.contents;
        contents.is_sound = !found.is_broken && !*noted.0.lock();
        contents
    }

    /// Who owns blocks of `groups`, at most so many claims. Inodes are those of `chunks`, by group; if there are none,
    /// those that the trees of inodes have.
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
        let kept = Kept::default();
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
        let links = Links::new(ctx, chunks);
        let layout = Layout::new(&self.geometry);
        let usage = None;
        Inodes { ctx, owners, chunks, links: &links, usage, pointers: None, layout }.check();
    }

    /// The chunks that trees of inodes have, by group.
    pub(crate) fn chunks(&self) -> Vec<AgChunks> {
        groups::check_inodes(&self.quiet(), &Owners::new(&self.geometry))
    }

    /// What the superblock must count.
    pub(crate) fn totals(&self) -> Option<Totals> {
        let found = groups::check(&self.quiet(), &Owners::new(&self.geometry));
        found.map(|(_, totals)| totals).filter(|totals| !totals.is_partial)
    }

    /// The latest place in the log that any structure says it was written at.
    pub(crate) fn lsn_max(&self) -> u64 {
        self.lsns(|ctx| ctx.lsn_max())
    }

    /// The same as [`Self::lsn_max`] without places that no log has: noise does not decide where a log goes on.
    pub(crate) fn lsn_max_real(&self) -> u64 {
        self.lsns(|ctx| ctx.lsn_max_real())
    }

    fn lsns(&self, of: impl Fn(&Context<'_>) -> u64) -> u64 {
        let ctx = self.quiet();
        super::superblock::check(&ctx);
        let owners = Owners::new(&self.geometry);
        if let Some((chunks, _)) = groups::check(&ctx, &owners) {
            self.inodes(&ctx, &owners, &chunks);
        }
        of(&ctx)
    }
}
