//! Reads quota files when an image is opened for writing. Writes nothing.

use std::collections::HashSet;

use engine::BufferRef;
use engine::locks::Mutex;
use engine::numbers::NumberMap;
use vfs::{Corruption, Error, FileType, Ino, Result};

use super::{Dquot, DquotLocation, LOG_SHARE, Ledger, Quota};
use crate::Ext4Core;
use crate::format::address::FileBlock;
use crate::format::features::RoCompat;
use crate::format::quota::{
    BLOCK_SIZE, BLOCK_SIZE_LOG, DiskQuota, ENTRIES_PER_BLOCK, INFO_BLOCK, Info, QuotaKind,
    ROOT_BLOCK, TREE_DEPTH, entry_at, entry_range, parse_info, references,
};
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::map;
use crate::op::source::BlockSource;

/// A quota file that is being read.
struct QuotaReader<'f> {
    fs: &'f Ext4Core,
    file: Handle,
    blocks: u32,
    /// Nodes read so far. A node has only one parent.
    seen: HashSet<u32>,
    usage: NumberMap<u32, Dquot>,
}

/// Returns the position of a block of a quota file. Returns `Corrupt` for a hole.
pub(super) fn place_of(
    from: &mut impl BlockSource,
    file: &Handle,
    block: u32,
) -> Result<DquotLocation> {
    let log = from.fs().volume.geometry.block_size_log;
    let byte = u64::from(block) << BLOCK_SIZE_LOG;
    let at = u32::try_from(byte >> log).map_err(|_| Error::FileTooLarge)?;
    let map::Mapping::Written(start) = map::run_at(from, file, FileBlock(at))?.place else {
        return Err(file.corrupt("quota file", "it has a hole"));
    };
    Ok(DquotLocation { block: start, offset: (byte & ((1 << log) - 1)) as usize })
}

impl Ext4Core {
    /// Reads the quota files if usage is counted.
    ///
    /// # Errors
    /// `Corrupt` if a file has holes or its tree is damaged.
    pub(crate) fn read_quota(&self) -> Result<Option<Quota>> {
        let sb = &self.volume.sb;
        if !sb.features.ro_compat(RoCompat::QUOTA) {
            return Ok(None);
        }
        let raw = &sb.raw;
        let mut files = [None; 3];
        let mut ledger = Ledger::default();
        let numbers = [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum];
        for (number, kind) in QuotaKind::ALL.into_iter().enumerate() {
            let ino = Ino(numbers[number].get().into());
            if ino.0 == 0 {
                continue;
            }
            if files.contains(&Some(ino)) {
                let damage = Corruption::new("superblock", "two quota files in one inode");
                return Err(damage.of_inode(ino.0).into());
            }
            files[number] = Some(ino);
            ledger.usage[number] = self.read_quota_file(ino, kind)?;
        }
        Ok(Some(Quota {
            files,
            ledger: Mutex::new(ledger),
            growth: Mutex::default(),
            dirty_blocks_max: (self.engine.log_blocks_max() / LOG_SHARE).max(1),
        }))
    }

    /// Reads a quota file's inode and the header in its first block.
    pub(super) fn load_quota_file(&self, ino: Ino, kind: QuotaKind) -> Result<(Handle, Info)> {
        let file = self.load(ino).map_err(|e| match e {
            Error::NotFound => {
                Corruption::new("superblock", "the inode of a quota file is not in use")
                    .of_inode(ino.0)
                    .into()
            }
            other => other,
        })?;
        // The size field is not trusted beyond the size of the device.
        let size_max = self.volume.geometry.blocks_count << self.volume.geometry.block_size_log;
        let size = file.inode.size();
        if file.file_type()? != FileType::Regular || !self.has_map(&file)? || size > size_max {
            return Err(file.corrupt("quota file", "not a file with blocks"));
        }
        let place = place_of(&mut &*self, &file, INFO_BLOCK)?;
        let bytes = self.block(place.block, BlockKind::Quota.plain())?;
        let info = parse_info(&bytes[place.offset..place.offset + BLOCK_SIZE], kind, size);
        Ok((file, info.map_err(|c| c.of_inode(ino.0).at_block(place.block.0))?))
    }

    pub(super) fn read_quota_file(
        &self,
        ino: Ino,
        kind: QuotaKind,
    ) -> Result<NumberMap<u32, Dquot>> {
        let (file, info) = self.load_quota_file(ino, kind)?;
        let blocks = info.blocks.get();
        let (seen, usage) = (HashSet::new(), NumberMap::default());
        let mut reader = QuotaReader { fs: self, file, blocks, seen, usage };
        reader.read_node(ROOT_BLOCK, 0, 0)?;
        Ok(reader.usage)
    }
}

impl QuotaReader<'_> {
    fn corrupt(&self, problem: &'static str) -> Error {
        self.file.corrupt("quota file", problem)
    }

    fn block(&self, block: u32) -> Result<(BufferRef, DquotLocation)> {
        let place = place_of(&mut &*self.fs, &self.file, block)?;
        Ok((self.fs.block(place.block, BlockKind::Quota.plain())?, place))
    }

    /// Reads the subtree of a node of `level`. `prefix` contains the id bits from the levels above.
    fn read_node(&mut self, block: u32, level: u32, prefix: u32) -> Result<()> {
        if !self.seen.insert(block) {
            return Err(self.corrupt("two pointers to one node"));
        }
        // Copy the references, because child nodes may be in the same file system block.
        let (bytes, place) = self.block(block)?;
        let node = &bytes[place.offset..place.offset + BLOCK_SIZE];
        let children: Vec<u32> = references(node).collect();
        drop(bytes);
        for (index, &child) in (0..).zip(&children).filter(|(_, child)| **child != 0) {
            if child <= ROOT_BLOCK || child >= self.blocks {
                return Err(self.corrupt("a pointer of its tree is outside the file"));
            }
            let prefix = prefix << 8 | index;
            if level + 1 == TREE_DEPTH {
                self.read_entry(child, prefix)?;
            } else {
                self.read_node(child, level + 1, prefix)?;
            }
        }
        Ok(())
    }

    fn read_entry(&mut self, block: u32, id: u32) -> Result<()> {
        let (bytes, place) = self.block(block)?;
        let leaf = &bytes[place.offset..place.offset + BLOCK_SIZE];
        let is_it = |entry: &DiskQuota| entry.id == id && !entry.is_none();
        let found = (0..ENTRIES_PER_BLOCK)
            .find_map(|index| Some((index, entry_at(leaf, index).filter(is_it)?)));
        let Some((index, entry)) = found else {
            return Err(self.corrupt("its tree points to a block without the entry"));
        };
        let offset = place.offset + entry_range(index).start;
        let place = DquotLocation { block: place.block, offset };
        let (inodes, space) = (entry.inodes.get(), entry.space.get());
        self.usage.insert(id, Dquot { inodes, space, place, is_dirty: false });
        Ok(())
    }
}
