//! Changing the contents of files.

use transaction::Corruption;
use vfs::{AllocateMode, Error, FileType, Ino, Result};

use crate::Ext4;
use crate::format::address::{Block, FileBlock};
use crate::format::indirect::Path;
use crate::format::inode::flags;
use crate::fs::Mode;
use crate::op::{Handle, Op};

/// Blocks one operation maps at most, so that none grows without bound.
const BLOCKS_PER_OP_MAX: u32 = 1 << 18;

/// Size from which a file needs the feature large_file, in bytes.
const LARGE_FILE_FROM: u64 = 1 << 31;

impl Op<'_> {
    /// Gives a new file its first block, with `data` at its start and zeros behind.
    pub(crate) fn write_new_block(&mut self, file: &mut Handle, data: &[u8]) -> Result<()> {
        self.fill_hole(file, FileBlock(0), 1, false)?;
        let block = self.find_block(file, FileBlock(0))?.unwrap_or_default();
        let mut bytes = vec![0; self.fs.volume.block_size()];
        bytes[..data.len()].copy_from_slice(data);
        self.fs.write_data(block, 0, &bytes)
    }
}

impl Ext4 {
    /// Writes file data straight to the device.
    fn write_data(&self, block: Block, offset: usize, data: &[u8]) -> Result<()> {
        let at = self.volume.geometry.byte_of(block) + offset as u64;
        self.engine.device().write_at(at, data).map_err(Error::Device)
    }

    fn load_file(&self, ino: Ino) -> Result<Handle> {
        let file = self.load(ino)?;
        match file.inode.file_type() {
            Some(FileType::Regular) => {}
            Some(FileType::Directory) => return Err(Error::IsADirectory),
            _ => return Err(Error::Invalid("not a regular file")),
        }
        if file.inode.has_flag(flags::INLINE_DATA) {
            return Err(Error::unsupported("writing to inline data", "build without inline_data"));
        }
        if file.inode.has_flag(flags::ENCRYPT) {
            return Err(Error::Encrypted);
        }
        Ok(file)
    }

    /// The blocks that hold the bytes `offset..offset + len`; `None` past the largest file.
    fn blocks_of(&self, offset: u64, len: u64) -> Result<std::ops::Range<u32>> {
        let shift = self.volume.geometry.block_size_log;
        let end = offset.checked_add(len).ok_or(Error::FileTooLarge)?;
        let last = end.div_ceil(1 << shift);
        // The last block number means "none" in places, so that it cannot be used.
        let end_block = u32::try_from(last).map_err(|_| Error::FileTooLarge)?;
        let is_mapped =
            self.volume.extents || end_block == 0 || self.is_in_block_map(end_block - 1);
        if !is_mapped || (end >= LARGE_FILE_FROM && !self.volume.large_file) {
            return Err(Error::FileTooLarge);
        }
        Ok((offset >> shift) as u32..end_block)
    }

    /// Whether the three levels of a block map reach this block of a file.
    fn is_in_block_map(&self, block: u32) -> bool {
        Path::to(FileBlock(block), self.volume.geometry.block_size()).is_some()
    }

    pub(crate) fn allocate_range(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        mode: AllocateMode,
    ) -> Result<()> {
        self.check_writable()?;
        if len == 0 {
            return Err(Error::Invalid("an empty range"));
        }
        if mode == AllocateMode::Exposed && self.mode != Mode::Fresh {
            return Err(Error::Invalid("only a fresh image may show what its blocks held before"));
        }
        let blocks = self.blocks_of(offset, len)?;
        let unwritten = mode == AllocateMode::Unwritten && self.volume.extents;
        let _lock = self.locks.exclusive(&[ino]);
        let mut at = blocks.start;
        while at < blocks.end {
            let end = blocks.end.min(at.saturating_add(BLOCKS_PER_OP_MAX));
            let size = (offset + len).min(u64::from(end) << self.volume.geometry.block_size_log);
            self.map_range(ino, at..end, unwritten, size)?;
            at = end;
        }
        Ok(())
    }

    /// Maps what is not mapped of a range of blocks, in one operation, and raises the size.
    fn map_range(
        &self,
        ino: Ino,
        blocks: std::ops::Range<u32>,
        unwritten: bool,
        size: u64,
    ) -> Result<()> {
        let before = self.load_file(ino)?;
        self.atomically(|op| {
            let mut file = before;
            let mut at = blocks.start;
            while at < blocks.end {
                let mapped = op.mapped_run(&file, FileBlock(at), blocks.end)?;
                if mapped > at {
                    at = mapped;
                    continue;
                }
                let hole_end = op.hole_end(&file, FileBlock(at), blocks.end)?;
                op.fill_hole(&mut file, FileBlock(at), hole_end - at, unwritten)?;
                at = hole_end;
            }
            if size > file.inode.size() {
                file.inode.set_size(size);
            }
            op.stage(file);
            Ok(())
        })
    }

    pub(crate) fn write_file(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        self.check_writable()?;
        if data.is_empty() {
            return Ok(());
        }
        let blocks = self.blocks_of(offset, data.len() as u64)?;
        let _lock = self.locks.exclusive(&[ino]);
        let before = self.load_file(ino)?;
        let shift = self.volume.geometry.block_size_log;
        self.atomically(|op| {
            let mut file = before;
            let mut at = blocks.start;
            while at < blocks.end {
                let mut end = op.mapped_run(&file, FileBlock(at), blocks.end)?;
                let fresh = end == at;
                if fresh {
                    end = op.hole_end(&file, FileBlock(at), blocks.end)?;
                    op.fill_hole(&mut file, FileBlock(at), end - at, false)?;
                }
                let from = (u64::from(at) << shift).max(offset);
                let to = (u64::from(end) << shift).min(offset + data.len() as u64);
                let part = &data[(from - offset) as usize..(to - offset) as usize];
                op.write_mapped(&file, from, part, fresh)?;
                at = end;
            }
            if offset + data.len() as u64 > file.inode.size() {
                file.inode.set_size(offset + data.len() as u64);
            }
            op.stage(file);
            Ok(())
        })
    }

    pub(crate) fn resize_file(&self, ino: Ino, size: u64) -> Result<()> {
        self.check_writable()?;
        let _lock = self.locks.exclusive(&[ino]);
        let mut file = self.load_file(ino)?;
        self.blocks_of(0, size)?;
        if size < file.inode.size() {
            return Err(Error::unsupported("making a file smaller", "build the image anew"));
        }
        file.inode.set_size(size);
        self.atomically(|op| {
            op.stage(file);
            Ok(())
        })
    }
}

impl Op<'_> {
    /// The end of the run of written blocks that starts at `block`; `block` itself if it is a
    /// hole.
    fn mapped_run(&mut self, file: &Handle, block: FileBlock, limit: u32) -> Result<u32> {
        if !file.inode.has_flag(flags::EXTENTS) {
            let mapped = self.find_indirect(file, block)?.is_some();
            return Ok(block.0 + u32::from(mapped));
        }
        match self.find_extent(file, block)? {
            None => Ok(block.0),
            Some(extent) if extent.unwritten => Err(Error::unsupported(
                "writing into preallocated space",
                "build the image without preallocation",
            )),
            Some(extent) => Ok(extent.end().min(u64::from(limit)) as u32),
        }
    }

    /// The first block from `block`, a hole, on that is mapped.
    fn hole_end(&mut self, file: &Handle, block: FileBlock, limit: u32) -> Result<u32> {
        let shift = self.fs.volume.geometry.block_size_log;
        // Nothing is mapped past the size in files that are only ever extended.
        let past_size = file.inode.size().div_ceil(1 << shift);
        let mut at = block.0 + 1;
        while at < limit {
            if u64::from(at) >= past_size {
                return Ok(limit);
            }
            if self.mapped_run(file, FileBlock(at), limit)? > at {
                break;
            }
            at += 1;
        }
        Ok(at)
    }

    /// Writes bytes into mapped blocks. Blocks that are `fresh` get zeros around them.
    fn write_mapped(&mut self, file: &Handle, offset: u64, data: &[u8], fresh: bool) -> Result<()> {
        let geometry = self.fs.volume.geometry;
        let block_size = u64::from(geometry.block_size());
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let number = FileBlock((at >> geometry.block_size_log) as u32);
            let (block, run) = self.contiguous(file, number, data.len() as u64 - done as u64)?;
            let within = at % block_size;
            let len = (run * block_size - within).min((data.len() - done) as u64) as usize;
            if fresh && within > 0 {
                self.fs.write_data(block, 0, &vec![0; within as usize])?;
            }
            self.fs.write_data(block, within as usize, &data[done..done + len])?;
            let tail = (within + len as u64) % block_size;
            if fresh && tail > 0 {
                let zeros = vec![0; (block_size - tail) as usize];
                self.fs.write_data(block, (within + len as u64) as usize, &zeros)?;
            }
            done += len;
        }
        Ok(())
    }

    /// The device block of a mapped block, and how many blocks from there on lie in one piece, up
    /// to those that hold `len` more bytes.
    fn contiguous(&mut self, file: &Handle, block: FileBlock, len: u64) -> Result<(Block, u64)> {
        let missing = || Corruption::new("block map", "a block just mapped is missing");
        if !file.inode.has_flag(flags::EXTENTS) {
            let found = self.find_indirect(file, block)?.ok_or_else(missing)?;
            return Ok((found, 1));
        }
        let extent = self.find_extent(file, block)?.ok_or_else(missing)?;
        let skip = u64::from(block.0 - extent.block.0);
        let run = u64::from(extent.len) - skip;
        let wanted = (len >> self.fs.volume.geometry.block_size_log) + 2;
        Ok((extent.start.plus(skip), run.min(wanted)))
    }
}
