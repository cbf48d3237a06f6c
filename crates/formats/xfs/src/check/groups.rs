//! Checks groups: their headers, and the trees of free space and inodes.

use std::collections::HashSet;
use std::mem::offset_of;

use parking_lot::Mutex;
use vfs::check::{Code, Finding, Phase};

use super::chunks::{AgChunks, Chunk, Chunks};
use super::codes::{self, TreeCodes};
use super::context::Context;
use super::owners::{Claim, Owners};
use super::sums;
use super::tree::{TreeOwner, TreeSummary, TreeWalk, Visitor};
use crate::btree::Tree;
use crate::btree::records::{
    BnoTree, CntTree, FinoTree, FreeRun, InoTree, InodeChunk, RefcountRecord, RefcountTree,
    RmapRecord, RmapTree, rmap_owner,
};
use crate::format::address::{AgBlock, AgIno, AgNumber, Block, FsBlock};
use crate::format::ag::{self, AGF_SECTOR, AGFL_SECTOR, AGI_SECTOR, RawAgf, RawAgfl, RawAgi};
use crate::format::bytes::{be32, be64};
use crate::format::checksum;
use crate::format::features::{Features2, RoCompat};
use crate::format::geometry::INODES_PER_CHUNK;

/// The superblock's counts, summed over the groups.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) icount: u64,
    pub(crate) ifree: u64,
    pub(crate) fdblocks: u64,
    /// Free blocks, without those of trees and AGFLs.
    pub(crate) free: u64,
    /// True if some counts are unknown.
    pub(crate) is_partial: bool,
}

/// Checks all groups. `None` if there are more inodes than can be numbered.
pub(super) fn check(ctx: &Context<'_>, owners: &Owners) -> Option<(Chunks, Totals)> {
    let (ags, totals) = each(ctx, |group| group.check(), owners);
    Some((Chunks::new(&ctx.geometry, ags)?, totals))
}

/// Checks headers, log and inodes of all groups, without their trees of space.
pub(super) fn check_inodes(ctx: &Context<'_>, owners: &Owners) -> Vec<AgChunks> {
    each(ctx, |group| group.check_inodes(), owners).0
}

fn each(
    ctx: &Context<'_>,
    check: impl Fn(&mut CheckedGroup<'_>) + Sync,
    owners: &Owners,
) -> (Vec<AgChunks>, Totals) {
    let count = ctx.geometry.ag_count;
    let all: Mutex<Vec<(u32, AgChunks)>> = Mutex::default();
    let totals = Mutex::new(Totals::default());
    vfs::check::each(
        ctx.threads,
        count.into(),
        Phase::Space,
        ctx.observer,
        || (),
        |(), ag| {
            let mut group = CheckedGroup::new(ctx, owners, AgNumber(ag as u32));
            check(&mut group);
            all.lock().push((ag as u32, group.chunks));
            let mut totals = totals.lock();
            totals.icount += group.totals.icount;
            totals.ifree += group.totals.ifree;
            totals.fdblocks += group.totals.fdblocks;
            totals.free += group.totals.free;
            totals.is_partial |= group.totals.is_partial;
        },
    );
    let mut all = all.into_inner();
    all.sort_by_key(|(ag, _)| *ag);
    let mut ags: Vec<AgChunks> = all.into_iter().map(|(_, chunks)| chunks).collect();
    // If the check was cancelled, groups are missing.
    ags.resize_with(count as usize, AgChunks::default);
    (ags, totals.into_inner())
}

struct CheckedGroup<'g> {
    ctx: &'g Context<'g>,
    owners: &'g Owners,
    ag: AgNumber,
    length: u32,
    chunks: AgChunks,
    totals: Totals,
}

impl<'g> CheckedGroup<'g> {
    fn new(ctx: &'g Context<'g>, owners: &'g Owners, ag: AgNumber) -> Self {
        let (chunks, totals) = (AgChunks::default(), Totals::default());
        Self { ctx, owners, ag, length: ctx.geometry.ag_len(ag), chunks, totals }
    }

    fn finding(&self, code: &'static Code) -> Finding {
        Finding::new(code).in_group(self.ag.0)
    }

    fn claim(&self, start: u32, len: u32, owner: u64) -> bool {
        self.owners.claim(Claim { ag: self.ag.0, start, len, owner, offset: 0 })
    }

    fn claim_fixed(&self) {
        let (last, _) = ag::sector_place(&self.ctx.geometry, AGFL_SECTOR);
        self.claim(0, last + 1, rmap_owner::FS);
        self.claim_log();
    }

    fn check_inodes(&mut self) {
        self.claim_fixed();
        let geometry = self.ctx.geometry;
        let size = geometry.sector_size();
        let mut sector = vec![0; size];
        let byte = self.ctx.ag_byte(self.ag) + u64::from(AGI_SECTOR) * size as u64;
        if !self.ctx.read_bytes(byte, &mut sector) {
            return;
        }
        let agi = self.header::<RawAgi>(AGI_SECTOR, &sector, codes::AGI, |agi| {
            ag::check_agi(&geometry, self.length, agi)
        });
        if let Some(agi) = agi {
            self.inodes(&agi);
        }
    }

    fn check(&mut self) {
        let geometry = self.ctx.geometry;
        self.claim_fixed();
        let size = geometry.sector_size();
        let mut sectors = vec![0; 4 * size];
        if !self.ctx.read_bytes(self.ctx.ag_byte(self.ag), &mut sectors) {
            self.owners.note_sharing_unknown(self.ag);
            self.totals.is_partial = true;
            return;
        }
        let sector = |number: u32| &sectors[number as usize * size..(number as usize + 1) * size];
        let agf = self.header::<RawAgf>(AGF_SECTOR, sector(AGF_SECTOR), codes::AGF, |agf| {
            if geometry.features.crc() && agf.uuid != geometry.meta_uuid {
                return Err(engine::Corruption::new("AGF", "uuid"));
            }
            ag::check_agf(&geometry, self.length, agf)
        });
        let agi = self.header::<RawAgi>(AGI_SECTOR, sector(AGI_SECTOR), codes::AGI, |agi| {
            if geometry.features.crc() && agi.uuid != geometry.meta_uuid {
                return Err(engine::Corruption::new("AGI", "uuid"));
            }
            ag::check_agi(&geometry, self.length, agi)
        });
        if geometry.features.crc() {
            self.lsns(&sectors);
        }
        match agf {
            Some(agf) => self.space(&agf, sector(AGFL_SECTOR)),
            None => {
                self.owners.note_sharing_unknown(self.ag);
                self.totals.is_partial = true;
            }
        }
        match agi {
            Some(agi) => self.inodes(&agi),
            None => self.totals.is_partial = true,
        }
    }

    /// Returns a header, checked.
    fn header<T: zerocopy::FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + Clone>(
        &self,
        sector: u32,
        bytes: &[u8],
        code: &'static Code,
        check: impl Fn(&T) -> Result<(), engine::Corruption>,
    ) -> Option<T> {
        self.checksum(sector, bytes);
        let outcome = ag::verify_start(self.ag, sector as usize, bytes)
            .and_then(|()| ag::raw::<T>(bytes))
            .and_then(|header| check(header).map(|()| header.clone()));
        match outcome {
            Ok(header) => Some(header),
            Err(damage) => {
                self.ctx.found(Finding::of_damage(code, &damage).in_group(self.ag.0));
                self.ctx.note_gap();
                None
            }
        }
    }

    fn checksum(&self, sector: u32, bytes: &[u8]) {
        let at = sector as usize;
        let outcome = match self.ctx.geometry.features.crc() {
            true => checksum::check(ag::NAMES[at], bytes, ag::CRC_OFFSETS[at]),
            false => Ok(()),
        };
        if let Err(damage) = outcome {
            let finding = Finding::of_damage(codes::AG_CHECKSUM, &damage);
            self.ctx.found(finding.in_group(self.ag.0).detail(ag::NAMES[at]));
        }
    }

    fn lsns(&self, sectors: &[u8]) {
        let size = self.ctx.geometry.sector_size();
        for (sector, at, field) in [
            (AGF_SECTOR, offset_of!(RawAgf, lsn), "agf_lsn"),
            (AGI_SECTOR, offset_of!(RawAgi, lsn), "agi_lsn"),
            (AGFL_SECTOR, offset_of!(RawAgfl, lsn), "agfl_lsn"),
        ] {
            let lsn = be64(sectors, sector as usize * size + at);
            self.ctx.check_lsn(lsn, || self.finding(codes::LSN).field(field));
        }
    }

    fn claim_log(&self) {
        let raw = &self.ctx.sb.raw;
        let start = FsBlock(raw.logstart.get());
        let (ag, block) = self.ctx.geometry.split(start);
        let blocks = raw.logblocks.get();
        // The first group reports a log that is not within any group.
        let teller = if ag.0 < self.ctx.geometry.ag_count { ag } else { AgNumber(0) };
        if start.0 == 0 || teller != self.ag {
            return;
        }
        if self.ctx.geometry.contains(start, blocks.into()) {
            self.claim(block.0, blocks, rmap_owner::LOG);
        } else {
            let finding = Finding::new(codes::SUPERBLOCK_FIELD).in_group(0_u64);
            let finding =
                finding.field("sb_logstart").detail("the log is outside all allocation groups");
            self.ctx.found(finding.mismatch("blocks of a group", start));
        }
    }

    fn walk<T: Tree, V: Visitor<T>>(
        &self,
        codes: TreeCodes,
        (root, levels): (u32, u32),
        visitor: &mut V,
    ) -> TreeSummary {
        let walk = TreeWalk::new(self.ctx, codes, TreeOwner::Group(self.ag), visitor);
        walk.of_group(AgBlock(root), levels)
    }

    /// Compares a count in a header with the counted number.
    fn count(&self, code: &'static Code, field: &'static str, counted: u64, found: u32) {
        if counted != u64::from(found) {
            self.ctx.found(self.finding(code).field(field).mismatch(counted, found));
        }
    }

    fn space(&mut self, agf: &RawAgf, agfl: &[u8]) {
        self.agfl(agf, agfl);
        let root = |at: usize| (agf.roots[at].get(), agf.levels[at].get());
        let mut by_block = Free::new(self, true);
        let bno = self.walk::<BnoTree, _>(codes::BNOBT, root(0), &mut by_block);
        let by_block = by_block.counts;
        // If free blocks are kept separately, one tree may provide what the other cannot.
        let mut by_size = Free::new(self, self.owners.free().is_some());
        let cnt = self.walk::<CntTree, _>(codes::CNTBT, root(1), &mut by_size);
        let by_size = by_size.counts;
        if !bno.is_broken && !cnt.is_broken && by_block != by_size {
            let finding = self.finding(codes::CNTBT_DIFFERS);
            self.ctx.found(finding.mismatch(by_block.shown(), by_size.shown()));
        }
        let free = if bno.is_broken && !cnt.is_broken { by_size } else { by_block };
        self.totals.free = free.blocks;
        if bno.is_broken && cnt.is_broken {
            self.totals.is_partial = true;
        } else {
            self.count(codes::AGF_COUNTS, "agf_freeblks", free.blocks, agf.freeblks.get());
            self.count(codes::AGF_COUNTS, "agf_longest", free.longest, agf.longest.get());
        }
        let mut tree_blocks = (bno.blocks + cnt.blocks).saturating_sub(2);
        let mut is_broken = bno.is_broken || cnt.is_broken;
        let features = self.ctx.geometry.features;
        if features.ro_compat(RoCompat::RMAPBT) {
            let mut maps = Maps { group: self };
            let rmap = self.walk::<RmapTree, _>(codes::RMAPBT, root(2), &mut maps);
            tree_blocks += rmap.blocks.saturating_sub(1);
            is_broken |= rmap.is_broken;
            if !rmap.is_broken {
                let field = "agf_rmap_blocks";
                self.count(codes::AGF_COUNTS, field, rmap.blocks, agf.rmap_blocks.get());
            }
        }
        if is_broken {
            self.totals.is_partial = true;
        } else if features.crc() || features.features2.contains(Features2::LAZYSBCOUNT) {
            // Without lazy counters, nothing reads the field.
            self.count(codes::AGF_COUNTS, "agf_btreeblks", tree_blocks, agf.btreeblks.get());
        }
        self.totals.fdblocks = free.blocks + u64::from(agf.flcount.get()) + tree_blocks;
        if features.ro_compat(RoCompat::REFLINK) {
            let root = (agf.refcount_root.get(), agf.refcount_level.get());
            let mut references = References { group: self, end: (false, 0) };
            let found = self.walk::<RefcountTree, _>(codes::REFCOUNTBT, root, &mut references);
            if found.is_broken {
                self.owners.note_sharing_unknown(self.ag);
            } else {
                let field = "agf_refcount_blocks";
                self.count(codes::AGF_COUNTS, field, found.blocks, agf.refcount_blocks.get());
            }
        }
    }

    fn agfl(&self, agf: &RawAgf, sector: &[u8]) {
        let geometry = &self.ctx.geometry;
        if geometry.features.crc() {
            self.checksum(AGFL_SECTOR, sector);
            let outcome = ag::verify_start(self.ag, AGFL_SECTOR as usize, sector);
            let outcome = outcome.and_then(|()| match sector[8..24] == geometry.meta_uuid {
                true => Ok(()),
                false => Err(engine::Corruption::new("AGFL", "uuid")),
            });
            let outcome = outcome.and_then(|()| ag::check_agfl(geometry, self.length, sector));
            if let Err(damage) = outcome {
                self.ctx.found(Finding::of_damage(codes::AGFL, &damage).in_group(self.ag.0));
            }
        }
        let (entries, capacity) = (ag::agfl_entries(geometry), ag::agfl_capacity(geometry));
        let end = u64::from(agf.flfirst.get()) + u64::from(agf.flcount.get());
        let last = (end + u64::from(capacity - 1)) % u64::from(capacity);
        self.count(codes::AGF_COUNTS, "agf_fllast", last, agf.fllast.get());
        for nth in 0..agf.flcount.get() {
            let at = (agf.flfirst.get() + nth) % capacity;
            let block = be32(sector, entries + at as usize * 4);
            let (first, _) = ag::sector_place(geometry, AGFL_SECTOR);
            if block <= first || block >= self.length {
                let finding = self.finding(codes::AGFL).field("bno");
                self.ctx.found(finding.mismatch("a block of the group", block));
            } else {
                self.claim(block, 1, rmap_owner::AG);
            }
        }
    }

    /// Checks the inode numbers in an AGI outside of its trees. Kernels no longer use the second one.
    fn named_inodes(&self, agi: &RawAgi) {
        for (field, found) in [("agi_newino", agi.newino.get()), ("agi_dirino", agi.dirino.get())] {
            let ino = self.ctx.geometry.ino(self.ag, AgIno(found));
            let is_here = self.ctx.geometry.split_ino(ino) == Some((self.ag, AgIno(found)));
            if found != AgIno::NULL.0 && !is_here {
                let finding = self.finding(codes::AGI_COUNTS).field(field);
                self.ctx.found(finding.mismatch("an inode of the group, or none", found));
            }
        }
    }

    fn inodes(&mut self, agi: &RawAgi) {
        self.named_inodes(agi);
        let mut trees = Records {
            group: self,
            met: HashSet::new(),
            chunks: Vec::new(),
            last_block: None,
            inodes: 0,
            free: 0,
        };
        let root = (agi.root.get(), agi.level.get());
        let found = self.walk::<InoTree, _>(codes::INOBT, root, &mut trees);
        let Records { chunks, inodes, free, .. } = trees;
        (self.totals.icount, self.totals.ifree) = (inodes, free);
        self.totals.is_partial |= found.is_broken;
        let features = self.ctx.geometry.features;
        let has_counts = features.ro_compat(RoCompat::INOBTCOUNT);
        if !found.is_broken {
            self.count(codes::AGI_COUNTS, "agi_count", inodes, agi.count.get());
            self.count(codes::AGI_COUNTS, "agi_freecount", free, agi.freecount.get());
            if has_counts {
                self.count(codes::AGI_COUNTS, "agi_iblocks", found.blocks, agi.iblocks.get());
            }
        }
        if features.ro_compat(RoCompat::FINOBT) {
            let mut free =
                FreeRecords { group: self, chunks: &chunks, count: 0, is_whole: !found.is_broken };
            let root = (agi.free_root.get(), agi.free_level.get());
            let fino = self.walk::<FinoTree, _>(codes::FINOBT, root, &mut free);
            let count = free.count;
            let expected = chunks.iter().filter(|chunk| has_free(chunk)).count() as u64;
            if !found.is_broken && !fino.is_broken && count != expected {
                let finding = self.finding(codes::FINOBT_DIFFERS).detail("number of records");
                self.ctx.found(finding.mismatch(expected, count));
            }
            if has_counts && !fino.is_broken {
                self.count(codes::AGI_COUNTS, "agi_fblocks", fino.blocks, agi.fblocks.get());
            }
        }
        self.chunks = AgChunks { chunks, is_whole: !found.is_broken };
    }
}

/// Returns whether a chunk has a free inode with blocks.
fn has_free(chunk: &Chunk) -> bool {
    (0..INODES_PER_CHUNK).any(|nth| chunk.has(nth) && chunk.is_free(nth))
}

/// Totals of a free-space tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FreeCounts {
    runs: u64,
    blocks: u64,
    longest: u64,
    sum: u64,
}

impl FreeCounts {
    fn shown(&self) -> String {
        format!("{} runs of {} blocks (sum {:016x})", self.runs, self.blocks, self.sum)
    }
}

struct Free<'v, 'g> {
    group: &'v CheckedGroup<'g>,
    counts: FreeCounts,
    /// True if blocks are claimed, which is done for only one of the two trees.
    takes: bool,
}

impl<'v, 'g> Free<'v, 'g> {
    fn new(group: &'v CheckedGroup<'g>, takes: bool) -> Self {
        Self { group, counts: FreeCounts::default(), takes }
    }

    fn run(&mut self, run: FreeRun) {
        let len = u64::from(run.len);
        self.counts.runs += 1;
        self.counts.blocks += len;
        self.counts.longest = self.counts.longest.max(len);
        let share = sums::mix(run.start.0.into(), len);
        self.counts.sum = self.counts.sum.wrapping_add(share);
        if self.takes {
            self.group.owners.take_free(self.group.ag, run.start.0, run.len);
        }
    }
}

macro_rules! claims_blocks {
    ($owner:ident) => {
        fn block(&mut self, block: Block) -> bool {
            self.group.owners.claim_block(block, rmap_owner::$owner, 0)
        }
    };
}

impl Visitor<BnoTree> for Free<'_, '_> {
    claims_blocks!(AG);

    fn record(&mut self, record: FreeRun) {
        self.run(record);
    }
}

impl Visitor<CntTree> for Free<'_, '_> {
    claims_blocks!(AG);

    fn record(&mut self, record: FreeRun) {
        self.run(record);
    }
}

struct Maps<'v, 'g> {
    group: &'v CheckedGroup<'g>,
}

impl Visitor<RmapTree> for Maps<'_, '_> {
    claims_blocks!(AG);

    fn record(&mut self, record: RmapRecord) {
        let RmapRecord { start, len, owner, offset } = record;
        let claim = Claim { ag: self.group.ag.0, start: start.0, len, owner, offset };
        self.group.owners.mapped(&claim);
    }
}

struct References<'v, 'g> {
    group: &'v CheckedGroup<'g>,
    /// End of the previous record, and whether it was staged for copy on write.
    end: (bool, u32),
}

impl Visitor<RefcountTree> for References<'_, '_> {
    claims_blocks!(REFC);

    fn record(&mut self, record: RefcountRecord) {
        let RefcountRecord { start, cow, len, count } = record;
        let group = self.group;
        let is_right = if cow { count == 1 } else { count >= 2 };
        let overlaps = self.end.0 == cow && start.0 < self.end.1;
        if !is_right || overlaps {
            let finding = group.finding(codes::REFCOUNTBT.records);
            let expected = if cow { "1 reference" } else { "2 or more references" };
            group.ctx.found(finding.mismatch(expected, format_args!("{record:?}")));
        }
        self.end = (cow, start.0.saturating_add(len));
        if cow {
            group.claim(start.0, len, rmap_owner::COW);
        } else {
            group.owners.share(group.ag, &record);
        }
    }
}

struct Records<'v, 'g> {
    group: &'v CheckedGroup<'g>,
    /// Blocks of the tree that were visited.
    met: HashSet<u64>,
    chunks: Vec<Chunk>,
    last_block: Option<u32>,
    inodes: u64,
    free: u64,
}

impl Visitor<InoTree> for Records<'_, '_> {
    // Inodes must be numbered even if something else claims a block of their tree.
    fn block(&mut self, block: Block) -> bool {
        self.group.owners.claim_block(block, rmap_owner::INOBT, 0);
        self.met.insert(block.0)
    }

    fn record(&mut self, record: InodeChunk) {
        if let Err(what) = self.group.check_chunk(&record) {
            let finding = self.group.finding(codes::INOBT.records).detail(what);
            self.group.ctx.found(finding.mismatch("a chunk of the group", record.start));
            if what != MISALIGNED {
                return;
            }
        }
        if self.chunks.last().is_some_and(|last| record.start.0 < last.start + INODES_PER_CHUNK) {
            return;
        }
        let chunk = Chunk::new(&record);
        self.inodes += u64::from(record.inodes());
        self.free += u64::from(record.freecount);
        self.claim_blocks(&chunk);
        self.chunks.push(chunk);
    }
}

const MISALIGNED: &str = "not aligned";

impl CheckedGroup<'_> {
    fn check_chunk(&self, record: &InodeChunk) -> Result<(), &'static str> {
        let geometry = &self.ctx.geometry;
        let chunk = Chunk::new(record);
        let has_holes = (0..INODES_PER_CHUNK).any(|nth| !chunk.has(nth));
        if has_holes && !geometry.features.incompat(crate::format::features::Incompat::SPINODES) {
            return Err("holes without sparse inodes");
        }
        let per_block_log = geometry.inodes_per_block_log();
        let first = record.start.0 >> per_block_log;
        for nth in 0..INODES_PER_CHUNK {
            let block = record.start.0.checked_add(nth).map(|ino| ino >> per_block_log);
            if chunk.has(nth) && block.is_none_or(|block| block >= self.length) {
                return Err("it extends past the group");
            }
            if !chunk.has(nth) && !chunk.is_free(nth) {
                return Err("inodes in use without blocks");
            }
        }
        let alignment = self.ctx.sb.raw.inoalignmt.get().max(1);
        let unit = INODES_PER_CHUNK.min(1 << per_block_log);
        if !record.start.0.is_multiple_of(unit) || !first.is_multiple_of(alignment) {
            return Err(MISALIGNED);
        }
        let (headers_end, _) = ag::sector_place(geometry, AGFL_SECTOR);
        if first <= headers_end { Err("it overlaps the group's headers") } else { Ok(()) }
    }
}

impl Records<'_, '_> {
    fn claim_blocks(&mut self, chunk: &Chunk) {
        let log = self.group.ctx.geometry.inodes_per_block_log();
        let mut run: Option<(u32, u32)> = None;
        for nth in (0..INODES_PER_CHUNK).filter(|nth| chunk.has(*nth)) {
            let block = (chunk.start + nth) >> log;
            if self.last_block == Some(block) {
                continue;
            }
            self.last_block = Some(block);
            match &mut run {
                Some((first, len)) if *first + *len == block => *len += 1,
                _ => {
                    if let Some((first, len)) = run.replace((block, 1)) {
                        self.group.claim(first, len, rmap_owner::INODES);
                    }
                }
            }
        }
        if let Some((first, len)) = run {
            self.group.claim(first, len, rmap_owner::INODES);
        }
    }
}

struct FreeRecords<'v, 'g> {
    group: &'v CheckedGroup<'g>,
    chunks: &'v [Chunk],
    count: u64,
    /// True if all chunks are known.
    is_whole: bool,
}

impl Visitor<FinoTree> for FreeRecords<'_, '_> {
    claims_blocks!(INOBT);

    fn record(&mut self, record: InodeChunk) {
        self.count += 1;
        let found = Chunk::new(&record);
        let at = self.chunks.binary_search_by_key(&found.start, |chunk| chunk.start);
        let same = at.is_ok_and(|at| {
            let chunk = self.chunks[at];
            (chunk.holes, chunk.free) == (found.holes, found.free) && has_free(&chunk)
        });
        if !same && self.is_whole {
            let finding = self.group.finding(codes::FINOBT_DIFFERS);
            let expected =
                at.ok().map_or("no record".to_owned(), |at| format!("{:?}", self.chunks[at]));
            self.group.ctx.found(finding.mismatch(expected, format_args!("{found:?}")));
        }
    }
}
