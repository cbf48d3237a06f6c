//! Reports the blocks of inodes in use, in the order of their locations.

use std::ops::ControlFlow;

use vfs::survey::{BlockUse, FileLayout, Fragments};
use vfs::{Corruption, FileType, Ino, Result};

use super::Teller;
use super::tree::{Met, Scope, walk};
use crate::btree::records::{InoTree, InodeChunk, RefcountTree};
use crate::format::address::{AgBlock, AgIno, AgNumber, FileBlock, FsBlock};
use crate::format::btree::TreeShape;
use crate::format::extent::{EXTENT_SIZE, Extent};
use crate::format::geometry::INODES_PER_CHUNK;
use crate::format::inode::{Fork, ForkFormat, Inode, flags2};
use crate::kind;

/// The inode whose blocks are being reported.
struct SurveyedInode<'s> {
    ino: Ino,
    inode: &'s Inode,
    fork: Fork,
    kind: BlockUse,
    fragments: Fragments,
    end: FileBlock,
}

/// The subtree below a node of an extent map: the level of the node, and its range of logical blocks.
struct Below {
    level: u16,
    low: FileBlock,
    end: FileBlock,
}

impl Teller<'_> {
    /// Reports the blocks of all inodes.
    pub(super) fn inodes(&mut self) -> ControlFlow<()> {
        for ag in self.fs.geometry().ags() {
            let scope = Scope { keys: None, reads_leaves: true };
            // Damage of the tree was reported with its blocks.
            let _ = walk::<InoTree>(self.fs, ag, scope, &mut |met| {
                if let Met::Record(chunk) = met {
                    self.chunk_inodes(ag, &chunk);
                }
                Ok(())
            });
            self.progress(1, ag)?;
        }
        ControlFlow::Continue(())
    }

    fn chunk_inodes(&mut self, ag: AgNumber, chunk: &InodeChunk) {
        let fs = self.fs;
        let geometry = fs.geometry();
        let is_used = |nth: &u32| chunk.free >> nth & 1 == 0;
        let mut held: Option<(AgBlock, engine::BufferRef)> = None;
        for nth in (0..INODES_PER_CHUNK).filter(is_used) {
            let Some(number) = chunk.start.0.checked_add(nth) else { return };
            let (block, offset) = geometry.inode_place(AgIno(number));
            if block.0 >= geometry.ag_len(ag) {
                return;
            }
            if held.as_ref().is_none_or(|(held, _)| *held != block) {
                let place = geometry.block_of(ag, block);
                match fs.block(place, kind::BlockKind::Inodes.plain()) {
                    Ok(bytes) => held = Some((block, bytes)),
                    Err(error) => {
                        self.remark(format_args!("block {place} of inodes"), &error);
                        return;
                    }
                }
            }
            let Some((_, bytes)) = &held else { return };
            let ino = geometry.ino(ag, AgIno(number));
            match Inode::parse(geometry, ino, &bytes[offset..offset + geometry.inode_size()]) {
                Ok(inode) => self.inode(ino, &inode),
                Err(damage) => self.remark(format_args!("inode {ino}"), &damage),
            }
        }
    }

    fn inode(&mut self, ino: Ino, inode: &Inode) {
        let Some(file_type) = inode.file_type() else { return };
        let kind = self.kind_of(ino, inode, file_type);
        let fragments = self.fork(ino, inode, Fork::Data, kind);
        let Fragments { count: fragments, blocks, .. } = fragments;
        let is_dir = file_type == FileType::Directory;
        let is_file = is_dir && kind == BlockUse::Directories
            || file_type == FileType::Regular && kind == BlockUse::Data;
        if is_file && blocks > 0 {
            self.sink.file(FileLayout { ino, is_dir, fragments, blocks });
        }
        if inode.has_attr_fork() {
            self.fork(ino, inode, Fork::Attr, BlockUse::Attributes);
        }
    }

    fn kind_of(&self, ino: Ino, inode: &Inode, file_type: FileType) -> BlockUse {
        let raw = &self.fs.superblock().raw;
        let own = [raw.uquotino, raw.gquotino, raw.pquotino, raw.rbmino, raw.rsumino];
        match file_type {
            _ if inode.is_metadata() || own.iter().any(|own| own.get() == ino.0) => {
                BlockUse::System
            }
            FileType::Directory => BlockUse::Directories,
            _ => BlockUse::Data,
        }
    }

    /// Reports the blocks of a fork, and those of its extent map.
    fn fork(&mut self, ino: Ino, inode: &Inode, fork: Fork, kind: BlockUse) -> Fragments {
        let (fragments, end) = (Fragments::default(), FileBlock(0));
        let mut subject = SurveyedInode { ino, inode, fork, kind, fragments, end };
        let result = match inode.fork_format(fork) {
            ForkFormat::Extents => self.list(&mut subject),
            ForkFormat::Btree => self.root(&mut subject),
            ForkFormat::MetaBtree if fork == Fork::Data => self.group_tree(ino, inode),
            ForkFormat::Local | ForkFormat::Device | ForkFormat::MetaBtree => Ok(()),
        };
        if let Err(error) = result {
            self.remark(format_args!("inode {ino}"), &error);
        }
        subject.fragments
    }

    fn list(&mut self, subject: &mut SurveyedInode<'_>) -> Result<()> {
        let bytes = subject.inode.fork(subject.fork);
        let count = usize::try_from(subject.inode.extents(subject.fork)).unwrap_or(usize::MAX);
        let mut records = bytes.chunks_exact(EXTENT_SIZE).take(count);
        records.try_for_each(|record| self.extent(subject, &Extent::parse(record)))
    }

    fn root(&mut self, subject: &mut SurveyedInode<'_>) -> Result<()> {
        let bytes = subject.inode.fork(subject.fork);
        let area = TreeShape::BMBT.root_area(bytes.len());
        let level = area.level(bytes);
        if area.max == 0 || level == 0 || area.count(bytes) > area.max {
            let damage = Corruption::new("bmbt root", "level or number of entries");
            return Err(damage.of_inode(subject.ino.0).into());
        }
        self.children(
            subject,
            bytes,
            &area,
            &Below { level, low: FileBlock(0), end: FileBlock::END },
        )
    }

    fn children(
        &mut self,
        subject: &mut SurveyedInode<'_>,
        bytes: &[u8],
        area: &crate::format::btree::Area,
        place: &Below,
    ) -> Result<()> {
        let key = |at: usize| FileBlock(crate::format::bytes::be64(area.entry(bytes, at), 0));
        let count = area.count(bytes);
        for at in 0..count {
            let low = key(at);
            let end = if at + 1 < count { key(at + 1) } else { place.end };
            if low < place.low || low >= end || end > place.end {
                let damage = Corruption::new("bmbt", "keys out of order");
                return Err(damage.of_inode(subject.ino.0).into());
            }
            let below = Below { level: place.level - 1, low, end };
            self.node(subject, FsBlock(area.pointer(bytes, at)), &below)?;
        }
        Ok(())
    }

    /// Reports a block of an extent map, and the blocks below it.
    fn node(
        &mut self,
        subject: &mut SurveyedInode<'_>,
        block: FsBlock,
        place: &Below,
    ) -> Result<()> {
        let (fs, geometry) = (self.fs, self.fs.geometry());
        let ino = subject.ino;
        let fault = |problem| Corruption::new("bmbt", problem).of_inode(ino.0);
        if !geometry.contains(block, 1) {
            let damage = fault("a pointer outside the file system");
            return Err(damage.mismatch("a block", block).into());
        }
        self.spend(subject.ino, 1)?;
        self.tell_of(block, 1, BlockUse::Maps);
        let tag = kind::BlockKind::Bmbt.of_inode(subject.ino, 0);
        let bytes = fs.block(geometry.device_block(block), tag)?;
        let is_leaf = place.level == 0;
        let shape = TreeShape::BMBT;
        let area = if is_leaf { shape.leaf_area(geometry) } else { shape.node_area(geometry) };
        if area.level(&bytes) != place.level {
            return Err(fault("level").mismatch(place.level, area.level(&bytes)).into());
        }
        if !is_leaf {
            return self.children(subject, &bytes, &area, place);
        }
        for at in 0..area.count(&bytes) {
            let extent = Extent::parse(area.entry(&bytes, at));
            if extent.offset < place.low || extent.end() > place.end {
                return Err(fault("extents out of order").into());
            }
            self.extent(subject, &extent)?;
        }
        Ok(())
    }

    /// Subtracts blocks from the budget.
    pub(super) fn spend(&mut self, ino: Ino, blocks: u64) -> Result<()> {
        match self.budget.checked_sub(blocks) {
            Some(left) => self.budget = left,
            None => {
                let problem = "inodes have more blocks than are in use";
                return Err(Corruption::new("extent", problem).of_inode(ino.0).into());
            }
        }
        Ok(())
    }

    fn extent(&mut self, subject: &mut SurveyedInode<'_>, extent: &Extent) -> Result<()> {
        if subject.fork == Fork::Data && subject.inode.is_realtime() {
            return Ok(());
        }
        extent.check(self.fs.geometry()).map_err(|damage| damage.of_inode(subject.ino.0))?;
        if extent.offset < subject.end {
            let damage = Corruption::new("extent list", "extents that overlap or are out of order");
            return Err(damage.of_inode(subject.ino.0).into());
        }
        subject.end = extent.end();
        subject.fragments.add(self.fs.geometry().device_block(extent.start).0, extent.len);
        let kind = match subject.kind {
            BlockUse::Data if extent.unwritten => BlockUse::Preallocated,
            kind => kind,
        };
        let may_share = subject.inode.flags2() & flags2::REFLINK != 0;
        if kind != BlockUse::Data || !may_share {
            self.spend(subject.ino, extent.len)?;
            self.tell_of(extent.start, extent.len, kind);
            return Ok(());
        }
        self.unshared(subject.ino, extent)
    }

    /// Reports the blocks of an extent that no other file shares.
    fn unshared(&mut self, ino: Ino, extent: &Extent) -> Result<()> {
        let (ag, start) = self.fs.geometry().split(extent.start);
        // An extent is within one group, whose block numbers have 32 bits.
        let end = start.0 + extent.len as u32;
        let (mut own, mut from) = (Vec::new(), start.0);
        let keys = Some(((false, start), (false, AgBlock(end - 1))));
        let scope = Scope { keys, reads_leaves: true };
        walk::<RefcountTree>(self.fs, ag, scope, &mut |met| {
            if let Met::Record(shared) = met
                && !shared.cow
                && shared.start.0 < end
                && shared.start.0.saturating_add(shared.len) > from
            {
                own.push((from, shared.start.0.max(from)));
                from = shared.start.0.saturating_add(shared.len).min(end);
            }
            Ok(())
        })?;
        own.push((from, end));
        for (from, to) in own {
            let len = u64::from(to - from);
            self.spend(ino, len)?;
            self.tell_of(self.fs.geometry().fs_block(ag, AgBlock(from)), len, BlockUse::Data);
        }
        Ok(())
    }
}
