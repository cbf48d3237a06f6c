//! Contents of deleted inodes.

use vfs::deleted::{DeletedData, DeletedRun, RUNS_MAX, push_run};
use vfs::{FileType, Ino};

use super::Search;
use crate::format::address::{FileBlock, FsBlock};
use crate::format::btree::{ROOT_HEADER_SIZE, TreeShape};
use crate::format::bytes::{be32, be64};
use crate::format::checksum;
use crate::format::extent::{EXTENT_SIZE, Extent};
use crate::format::inode::{Fork, ForkFormat, Inode, flags};
use crate::format::symlink;

/// Maximum level of the root of an extent map.
const LEVELS_MAX: u16 = 8;
/// Maximum file block of an extent whose list has no count. Larger ones are other contents of the inode.
const LEFTOVER_MAX: u64 = 1 << 40;
/// Byte offsets in a block of an extent map of version 5.
const UUID: std::ops::Range<usize> = 40..56;
const OWNER: usize = 56;

/// Extents found so far.
#[derive(Default)]
struct FoundExtents {
    runs: Vec<DeletedRun>,
    lost: u64,
    end: FileBlock,
}

impl FoundExtents {
    fn data(self) -> DeletedData {
        if self.runs.is_empty() && self.lost == 0 {
            return DeletedData::Lost;
        }
        DeletedData::Mapped { runs: self.runs, lost: self.lost }
    }
}

impl Search<'_> {
    /// Returns the contents of an image with its core and data fork.
    pub(super) fn contents(&mut self, ino: Ino, inode: &Inode, is_orphan: bool) -> DeletedData {
        if inode.size() == 0 || inode.flags() & flags::REALTIME != 0 {
            return DeletedData::Lost;
        }
        let fork = inode.fork(Fork::Data);
        let mut found = FoundExtents::default();
        match inode.format() {
            ForkFormat::Local => {
                let size = usize::try_from(inode.size()).unwrap_or(usize::MAX);
                return match (inode.file_type(), fork.get(..size)) {
                    (Some(FileType::Symlink | FileType::Directory), Some(bytes)) => {
                        DeletedData::Inline(bytes.to_vec())
                    }
                    _ => DeletedData::Lost,
                };
            }
            ForkFormat::Extents => {
                let count = usize::try_from(inode.extents(Fork::Data)).unwrap_or(usize::MAX);
                let room = fork.len() / EXTENT_SIZE;
                found.lost += u64::from(count > room);
                for record in fork.chunks_exact(EXTENT_SIZE).take(count) {
                    if !self.add(&Extent::parse(record), &mut found) {
                        found.lost += 1;
                    }
                }
            }
            ForkFormat::Btree => {
                let area = TreeShape::BMBT.root_area(fork.len());
                let (level, count) = (area.level(fork), area.count(fork));
                if area.max == 0 || count > area.max || !(1..=LEVELS_MAX).contains(&level) {
                    return DeletedData::Lost;
                }
                for at in 0..count {
                    let child = FsBlock(area.pointer(fork, at));
                    self.node(ino, child, level - 1, is_orphan, &mut found);
                }
            }
            ForkFormat::Device | ForkFormat::MetaBtree => return DeletedData::Lost,
        }
        let data = found.data();
        match inode.file_type() {
            Some(FileType::Symlink) => self.target(ino, inode, &data).unwrap_or(data),
            _ => data,
        }
    }

    /// Returns the target of a symbolic link in blocks.
    fn target(&self, ino: Ino, inode: &Inode, data: &DeletedData) -> Option<DeletedData> {
        let geometry = self.fs.geometry();
        let header = symlink::header_size(geometry);
        let size = usize::try_from(inode.size()).ok()?;
        let mut target = Vec::new();
        for run in data.runs() {
            for nth in 0..run.len.min(4) {
                let bytes = self.block(crate::format::address::Block(run.start + nth)).ok()?;
                let is_own = header == 0
                    || nth > 0
                    || be32(&bytes, 0) == symlink::MAGIC && be64(&bytes, 32) == ino.0;
                let start = if nth == 0 { header } else { 0 };
                target.extend_from_slice(bytes.get(start..).filter(|_| is_own)?);
            }
        }
        target.get(..size).map(|target| DeletedData::Inline(target.to_vec()))
    }

    /// Returns the contents that the area after the core of a freed inode still describes. Neither their size nor the
    /// number of extents is known.
    pub(super) fn leftover(&mut self, ino: Ino, inode: &Inode) -> DeletedData {
        let area = &inode.as_bytes()[inode.core_size()..];
        let mut found = FoundExtents::default();
        for record in area.chunks_exact(EXTENT_SIZE) {
            let extent = Extent::parse(record);
            if extent.end().0 > LEFTOVER_MAX || !self.add(&extent, &mut found) {
                break;
            }
        }
        if !found.runs.is_empty() {
            return found.data();
        }
        self.leftover_tree(ino, area).data()
    }

    /// Returns the extents below a root whose size is unknown. A pointer is recognized by the block to which it points.
    fn leftover_tree(&mut self, ino: Ino, area: &[u8]) -> FoundExtents {
        let layout = TreeShape::BMBT.root_area(area.len());
        let (level, count) = (layout.level(area), layout.count(area));
        let mut found = FoundExtents::default();
        if !(1..=LEVELS_MAX).contains(&level) || count == 0 || count > layout.max {
            return found;
        }
        for max in count..=layout.max {
            let pointers = ROOT_HEADER_SIZE + max * 8;
            let pointer = |at: usize| FsBlock(be64(area, pointers + at * 8));
            if pointers + count * 8 > area.len() || !self.is_node(ino, pointer(0), level - 1) {
                continue;
            }
            for at in 0..count {
                self.node(ino, pointer(at), level - 1, false, &mut found);
            }
            break;
        }
        found
    }

    fn is_node(&mut self, ino: Ino, block: FsBlock, level: u16) -> bool {
        self.node_bytes(ino, block, level, false).is_some()
    }

    /// Returns a block of the extent map of an inode, if it still is one.
    fn node_bytes(
        &mut self,
        ino: Ino,
        block: FsBlock,
        level: u16,
        is_orphan: bool,
    ) -> Option<Vec<u8>> {
        let geometry = *self.fs.geometry();
        if block.0 == 0 || !geometry.contains(block, 1) {
            return None;
        }
        let place = geometry.device_block(block);
        if !(is_orphan || self.sink.is_free(place.0)) || !self.spend(1) {
            return None;
        }
        let bytes = self.block(place).ok()?;
        let crc = geometry.features.crc();
        let shape = TreeShape::BMBT;
        let is_own = !crc
            || bytes[UUID] == geometry.meta_uuid
                && be64(&bytes, OWNER) == ino.0
                && checksum::check(shape.name, &bytes, shape.crc_offset()).is_ok();
        let area = match level {
            0 => shape.leaf_area(&geometry),
            _ => shape.node_area(&geometry),
        };
        let is_sound = shape.magics.contains(&be32(&bytes, 0))
            && area.level(&bytes) == level
            && area.count(&bytes) <= area.max;
        (is_own && is_sound).then_some(bytes)
    }

    /// Adds the extents below a block of an extent map. Each level is one lower, so the walk ends.
    fn node(
        &mut self,
        ino: Ino,
        block: FsBlock,
        level: u16,
        is_orphan: bool,
        found: &mut FoundExtents,
    ) {
        let Some(bytes) = self.node_bytes(ino, block, level, is_orphan) else {
            found.lost += 1;
            return;
        };
        let geometry = *self.fs.geometry();
        if level == 0 {
            let area = TreeShape::BMBT.leaf_area(&geometry);
            for at in 0..area.count(&bytes) {
                if !self.add(&Extent::parse(area.entry(&bytes, at)), found) {
                    found.lost += 1;
                }
            }
            return;
        }
        let area = TreeShape::BMBT.node_area(&geometry);
        for at in 0..area.count(&bytes) {
            self.node(ino, FsBlock(area.pointer(&bytes, at)), level - 1, is_orphan, found);
        }
    }

    /// Adds an extent. Returns false if it is invalid.
    fn add(&self, extent: &Extent, found: &mut FoundExtents) -> bool {
        let geometry = self.fs.geometry();
        let is_sound = extent.len > 0
            && extent.start.0 != 0
            && extent.offset >= found.end
            && extent.end() <= FileBlock::END
            && geometry.contains(extent.start, extent.len)
            && found.runs.len() < RUNS_MAX;
        if is_sound {
            found.end = extent.end();
            push_run(
                &mut found.runs,
                DeletedRun {
                    first: extent.offset.0,
                    start: geometry.device_block(extent.start).0,
                    len: extent.len,
                    unwritten: extent.unwritten,
                },
            );
        }
        is_sound
    }
}
