//! Checks inodes in the order of their locations, with large reads.

use vfs::check::{Code, Finding, Phase};
use vfs::{FileType, Ino};

use super::attributes;
use super::chunks::Chunks;
use super::codes;
use super::context::Context;
use super::directory;
use super::fields;
use super::forks::{self, Mapped};
use super::links::{InodeLinks, VisitedDirectory};
use super::owners::Owners;
use super::quota::Usage;
use super::realtime::UsedExtents;
use super::symlink;
use crate::format::address::AgIno;
use crate::format::bytes::{be16, be64};
use crate::format::checksum;
use crate::format::dir::{DirLayout, file_type_code};
use crate::format::geometry::INODES_PER_CHUNK;
use crate::format::inode::{self, CRC_OFFSET, Fork, ForkFormat, Inode};

/// Number of chunks that a thread processes at a time.
const CHUNKS_AT_ONCE: u32 = 64;
/// Byte offset of `di_lsn` in a slot of version 3.
const LSN_OFFSET: usize = 112;
/// Maximum number of bytes per read.
const BYTES_AT_ONCE: usize = 1 << 20;

/// Callback for a parent pointer: directory, its generation, name.
pub(super) type Pointers<'c> = dyn Fn(u64, u32, &[u8]) + Sync + 'c;

/// The state for checking inodes.
pub(super) struct Inodes<'c> {
    pub(super) ctx: &'c Context<'c>,
    pub(super) owners: &'c Owners,
    pub(super) chunks: &'c Chunks,
    pub(super) links: &'c InodeLinks<'c>,
    pub(super) usage: Option<&'c Usage>,
    /// Callback that receives parent pointers instead of `links`.
    pub(super) pointers: Option<&'c Pointers<'c>>,
    pub(super) layout: DirLayout,
    /// Realtime extents in use, if there is a realtime section to check.
    pub(super) realtime: Option<&'c UsedExtents>,
}

/// Contiguous slots.
struct SlotRun {
    byte: u64,
    first: u32,
    count: u32,
}

impl Inodes<'_> {
    /// Checks all inodes, and everything that they own.
    pub(super) fn check(&self) {
        if !self.ctx.geometry.features.ftype() {
            self.each(|number, slot| {
                if let Some(file_type) = FileType::from_mode(be16(slot, 2)) {
                    self.links.note_kind(number, file_type_code(file_type));
                }
                None
            });
        }
        self.each(|number, slot| self.slot(number, slot));
    }

    /// Calls `show` with the valid inodes in use, by several threads, with large reads.
    pub(super) fn each_used(&self, show: impl Fn(Ino, &Inode) + Sync) {
        let geometry = &self.ctx.geometry;
        self.each(|number, slot| {
            let (ag, chunk) = self.chunks.chunk(number / INODES_PER_CHUNK);
            let nth = number % INODES_PER_CHUNK;
            let ino = geometry.ino(ag, AgIno(chunk.start + nth));
            if !chunk.is_free(nth) && inode::verify_structure(geometry, ino, slot).is_ok() {
                let inode = Inode::from_slot(slot);
                if inode.file_type().is_some() {
                    show(ino, &inode);
                }
            }
            None
        });
    }

    /// Calls `show` with each slot and its number. Slots for which it returns a block are visited in the order of these
    /// blocks, after all others of a piece.
    fn each(&self, show: impl Fn(u32, &[u8]) -> Option<u64> + Sync) {
        let count = self.chunks.count();
        vfs::check::each(
            self.ctx.threads,
            count.div_ceil(CHUNKS_AT_ONCE).into(),
            Phase::Inodes,
            self.ctx.observer,
            Vec::new,
            |buffer, batch| {
                let first = batch as u32 * CHUNKS_AT_ONCE;
                for run in self.runs(first..(first + CHUNKS_AT_ONCE).min(count)) {
                    self.run(buffer, &run, &show);
                }
            },
        );
    }

    fn runs(&self, chunks: std::ops::Range<u32>) -> Vec<SlotRun> {
        let log = self.ctx.geometry.inode_log;
        let mut runs: Vec<SlotRun> = Vec::new();
        for number in chunks {
            let (ag, chunk) = self.chunks.chunk(number);
            for nth in (0..INODES_PER_CHUNK).filter(|nth| chunk.has(*nth)) {
                let byte = self.ctx.ag_byte(ag) + (u64::from(chunk.start + nth) << log);
                let at = number * INODES_PER_CHUNK + nth;
                match runs.last_mut() {
                    Some(run)
                        if run.byte + (u64::from(run.count) << log) == byte
                            && run.first + run.count == at
                            && (run.count as usize) << log < BYTES_AT_ONCE =>
                    {
                        run.count += 1;
                    }
                    _ => runs.push(SlotRun { byte, first: at, count: 1 }),
                }
            }
        }
        runs
    }

    fn run(
        &self,
        buffer: &mut Vec<u8>,
        run: &SlotRun,
        show: &(impl Fn(u32, &[u8]) -> Option<u64> + Sync),
    ) {
        let size = self.ctx.geometry.inode_size();
        buffer.resize(run.count as usize * size, 0);
        if !self.ctx.read_bytes(run.byte, buffer) {
            return (run.first..run.first + run.count).for_each(|n| self.links.damaged(n));
        }
        let mut later = Vec::new();
        for (number, slot) in (run.first..).zip(buffer.chunks_exact(size)) {
            if let Some(block) = show(number, slot) {
                later.push((block, number));
            }
        }
        later.sort_unstable();
        for (_, number) in later {
            let at = (number - run.first) as usize * size;
            self.blocks_of(number, &Inode::from_slot(&buffer[at..at + size]));
        }
    }

    fn found(&self, code: &'static Code, ino: Ino) -> Finding {
        Finding::new(code).of_inode(ino.0)
    }

    /// Checks a slot. Returns the first block to read for it, if any.
    fn slot(&self, number: u32, slot: &[u8]) -> Option<u64> {
        let (ctx, geometry) = (self.ctx, &self.ctx.geometry);
        let (ag, chunk) = self.chunks.chunk(number / INODES_PER_CHUNK);
        let nth = number % INODES_PER_CHUNK;
        let ino = geometry.ino(ag, AgIno(chunk.start + nth));
        if geometry.features.crc()
            && let Err(damage) = checksum::check("inode", slot, CRC_OFFSET)
        {
            ctx.damage(codes::INODE_CHECKSUM, &damage.of_inode(ino.0), None);
        }
        if geometry.features.crc() {
            ctx.check_lsn(be64(slot, LSN_OFFSET), || self.found(codes::LSN, ino).field("di_lsn"));
        }
        if let Err(damage) = inode::verify_structure(geometry, ino, slot) {
            ctx.damage(codes::INODE, &damage, None);
            if !chunk.is_free(nth) {
                ctx.note_gap();
                self.links.damaged(number);
            }
            return None;
        }
        let mode = be16(slot, 2);
        match (mode != 0, chunk.is_free(nth)) {
            (false, true) => {
                fields::check_free(ctx, ino, slot);
                return None;
            }
            (true, false) => {}
            (true, true) => {
                let finding = self.found(codes::INODE_FREE, ino).field("di_mode");
                ctx.found(finding.mismatch("0", format_args!("{mode:#o}")));
                return None;
            }
            (false, false) => {
                let finding = self.found(codes::INODE_NOT_USED, ino).field("di_mode");
                ctx.found(finding.mismatch("a type", "0"));
                self.links.damaged(number);
                return None;
            }
        }
        self.used(number, ino, slot)
    }

    fn used(&self, number: u32, ino: Ino, slot: &[u8]) -> Option<u64> {
        let inode = Inode::from_slot(slot);
        let file_type = inode.file_type()?;
        fields::check_used(self.ctx, ino, &inode, file_type);
        self.links.inode(number, file_type_code(file_type), inode.nlink());
        if let Some(trees) = self.links.trees().filter(|_| inode.is_metadata()) {
            trees.mark(number);
        }
        if !fields::is_next_unlinked_right(&self.ctx.geometry, ino, &inode) {
            let found = inode.next_unlinked();
            let finding = self.found(codes::INODE_FIELD, ino).field("di_next_unlinked");
            self.ctx.found(finding.mismatch("none", found));
        }
        // Blocks of realtime files are counted with their maps.
        if let Some(usage) = self.usage.filter(|_| !inode.is_realtime()) {
            usage.add(ino, &inode, 0);
        }
        let has_blocks = |fork| match inode.fork_format(fork) {
            ForkFormat::Btree | ForkFormat::MetaBtree => true,
            ForkFormat::Extents => {
                inode.extents(fork) > 0 && (fork == Fork::Attr || file_type != FileType::Regular)
            }
            _ => false,
        };
        if has_blocks(Fork::Data) || has_blocks(Fork::Attr) {
            return Some(forks::first_block(&self.ctx.geometry, &inode));
        }
        self.forks(number, ino, &inode, file_type);
        None
    }

    /// Checks an inode whose blocks must be read.
    fn blocks_of(&self, number: u32, inode: &Inode) {
        let ino = self.chunks.ino(number);
        if let Some(file_type) = inode.file_type() {
            self.forks(number, ino, inode, file_type);
        }
    }

    fn forks(&self, number: u32, ino: Ino, inode: &Inode, file_type: FileType) {
        let is_data = file_type == FileType::Regular;
        let (mut data, mut data_blocks) = (Vec::new(), 0);
        let mapped = forks::map(self, ino, inode, Fork::Data, |extent| {
            data_blocks += extent.len;
            if !is_data {
                data.push(extent);
            }
        });
        if let Some(usage) = self.usage.filter(|_| inode.is_realtime()) {
            usage.add(ino, inode, data_blocks);
        }
        let mut attr = Vec::new();
        let attr_mapped = forks::map(self, ino, inode, Fork::Attr, |extent| attr.push(extent));
        self.check_blocks(ino, inode, &mapped, &attr_mapped);
        if inode.has_attr_fork() && !attr_mapped.is_broken {
            attributes::check(self, number, ino, inode, &attr);
        }
        if mapped.is_broken {
            return;
        }
        match file_type {
            FileType::Directory => {
                let generation = inode.generation();
                let is_unlinked = inode.nlink() == 0;
                let is_metadata = inode.is_metadata();
                let dir = VisitedDirectory { ino, number, generation, is_unlinked, is_metadata };
                directory::check(self, &dir, inode, &data);
            }
            FileType::Symlink => symlink::check(self.ctx, ino, inode, &data),
            _ => {}
        }
    }

    fn check_blocks(&self, ino: Ino, inode: &Inode, data: &Mapped, attr: &Mapped) {
        if data.is_broken || attr.is_broken {
            return;
        }
        for (field, mapped, fork) in
            [("di_nextents", data, Fork::Data), ("di_anextents", attr, Fork::Attr)]
        {
            if mapped.extents != inode.extents(fork) {
                let finding = self.found(codes::INODE_COUNTS, ino).field(field);
                self.ctx.found(finding.mismatch(mapped.extents, inode.extents(fork)));
            }
        }
        let blocks = data.blocks + attr.blocks;
        if blocks != inode.nblocks() {
            let finding = self.found(codes::INODE_COUNTS, ino).field("di_nblocks");
            self.ctx.found(finding.mismatch(blocks, inode.nblocks()));
        }
    }
}
