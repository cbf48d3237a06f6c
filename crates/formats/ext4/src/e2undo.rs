//! Undo files of e2fsprogs: the old contents of all blocks that a program changes. e2undo(8) writes them back.
//!
//! # Format
//! Numbers are little-endian. Checksums are CRC-32C without the final inversion. The file consists of blocks of the
//! file system's block size: the header, a copy of the superblock, and key blocks, each followed by its data.
//!
//! ```text
//! header bytes   field
//! 0..8           E2UNDO02
//! 8..16          number of keys
//! 16..24         block of the superblock copy
//! 24..32         first key block
//! 32..36         block size of this file
//! 36..40         size of the blocks that keys count
//! 40..44         checksum of the superblock
//! 44..48         1 if the program completed
//! 48..52         1 if the file system has an offset in the image
//! 64..72         this offset, in bytes
//! 508..512       checksum of bytes 0..508
//! ```
//!
//! A key block begins with the magic number, its checksum (computed with 0 in its place) and 8 zero bytes. A key has 16
//! bytes: the first block, the checksum of the data, and their length in bytes. Data start at whole blocks. In the copy
//! of the superblock, the magic number is inverted. It is a copy of the superblock after the change, which e2undo compares
//! with the image.
//!
//! INVARIANT: a block changes in the image only after its old contents are durable here. After a write error of the
//! undo file, nothing more is written to the image.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use disk::{BlockDevice, FileAt};
use parking_lot::Mutex;

use crate::format::superblock::SUPERBLOCK_SIZE;

const MAGIC: &[u8; 8] = b"E2UNDO02";
const KEY_BLOCK_MAGIC: u32 = 0xcade_cade;
const HEADER_BYTES: usize = 512;
/// Size of the header of a key block, and of a key.
const KEY_BYTES: usize = 16;
/// Blocks of the superblock copy and of the first key block.
const SUPERBLOCK_AT: u64 = 1;
const KEYS_AT: u64 = 2;
/// Position of the magic number in the superblock.
const SUPERBLOCK_MAGIC: Range<usize> = 56..58;
/// Maximum number of blocks of a key.
const KEY_BLOCKS_MAX: u64 = 256;
/// Maximum size of a range that is saved and then cleared, in bytes.
const ZEROS_BYTES_MAX: u64 = 1 << 20;

/// An undo file that is being written.
pub struct UndoFile {
    state: Mutex<UndoState>,
}

struct UndoState {
    file: File,
    /// Byte offset of the file system in the image.
    offset: u64,
    block_size: u32,
    /// Blocks with saved contents.
    saved: BTreeSet<u64>,
    keys: u64,
    superblock_checksum: u32,
    key_block: Vec<u8>,
    key_block_at: u64,
    /// End of the file, in blocks.
    end: u64,
    /// True after a write error.
    is_broken: bool,
}

impl UndoFile {
    /// Starts an undo file in an empty file. `offset` is the byte offset of the file system in the image.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn begin(
        file: File,
        offset: u64,
        block_size: u32,
        superblock: &[u8; SUPERBLOCK_SIZE],
    ) -> io::Result<Self> {
        let mut state = UndoState {
            file,
            offset,
            block_size,
            saved: BTreeSet::new(),
            keys: 0,
            superblock_checksum: 0,
            key_block: vec![0; block_size as usize],
            key_block_at: KEYS_AT,
            end: KEYS_AT + 1,
            is_broken: false,
        };
        state.write_superblock(superblock)?;
        state.write_header(false)?;
        state.file.sync_all()?;
        Ok(Self { state: Mutex::new(state) })
    }

    /// Returns whether any contents were saved.
    pub fn has_contents(&self) -> bool {
        self.state.lock().keys > 0
    }

    /// Marks the file as complete. `superblock` is that after the change.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(&self, superblock: &[u8; SUPERBLOCK_SIZE]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check()?;
        state.write_superblock(superblock)?;
        state.write_header(true)?;
        state.file.sync_all()
    }

    /// Saves the contents of a range of the file system's device, except for blocks saved before.
    fn save(&self, device: &dyn BlockDevice, offset: u64, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let block = u64::from(state.block_size);
        let blocks = offset / block..offset.saturating_add(len).div_ceil(block);
        let missing: Vec<u64> = blocks.filter(|block| !state.saved.contains(block)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        state.check()?;
        let saved = state.add(device, &missing);
        state.is_broken = saved.is_err();
        saved?;
        state.saved.extend(missing);
        Ok(())
    }
}

impl fmt::Debug for UndoFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UndoFile").finish_non_exhaustive()
    }
}

impl UndoState {
    fn check(&self) -> io::Result<()> {
        match self.is_broken {
            true => Err(io::Error::other("an earlier write to the undo file failed")),
            false => Ok(()),
        }
    }

    /// Adds blocks, which are in ascending order, and makes them durable.
    fn add(&mut self, device: &dyn BlockDevice, blocks: &[u64]) -> io::Result<()> {
        let adjoins = |before: &u64, after: &u64| before + 1 == *after;
        for run in blocks.chunk_by(adjoins).flat_map(|run| run.chunks(KEY_BLOCKS_MAX as usize)) {
            if let [first, ..] = run {
                self.add_key(device, *first, run.len() as u64)?;
            }
        }
        self.write_header(false)?;
        self.file.sync_data()
    }

    fn add_key(&mut self, device: &dyn BlockDevice, first: u64, blocks: u64) -> io::Result<()> {
        let block = u64::from(self.block_size);
        let start = first * block;
        // The last block of the device may be incomplete.
        let len = (blocks * block).min(device.len().saturating_sub(start)) as usize;
        let mut data = vec![0; (blocks * block) as usize];
        device.read_at(start, &mut data[..len])?;
        let in_block = self.block_size as usize / KEY_BYTES - 1;
        let nth = (self.keys % in_block as u64) as usize;
        if nth == 0 && self.keys > 0 {
            self.key_block.fill(0);
            self.key_block_at = self.end;
            self.end += 1;
        }
        self.file.write_all_at(&data, self.end * block)?;
        self.end += blocks;
        let key = &mut self.key_block[(nth + 1) * KEY_BYTES..(nth + 2) * KEY_BYTES];
        key[..8].copy_from_slice(&first.to_le_bytes());
        key[8..12].copy_from_slice(&checksum(&data[..len]).to_le_bytes());
        key[12..].copy_from_slice(&(len as u32).to_le_bytes());
        self.key_block[..4].copy_from_slice(&KEY_BLOCK_MAGIC.to_le_bytes());
        self.key_block[4..8].fill(0);
        let seal = checksum(&self.key_block);
        self.key_block[4..8].copy_from_slice(&seal.to_le_bytes());
        self.keys += 1;
        self.file.write_all_at(&self.key_block, self.key_block_at * block)
    }

    fn write_superblock(&mut self, superblock: &[u8; SUPERBLOCK_SIZE]) -> io::Result<()> {
        self.superblock_checksum = checksum(superblock);
        let mut copy = vec![0; self.block_size as usize];
        copy[..SUPERBLOCK_SIZE].copy_from_slice(superblock);
        copy[SUPERBLOCK_MAGIC].iter_mut().for_each(|byte| *byte = !*byte);
        self.file.write_all_at(&copy, SUPERBLOCK_AT * u64::from(self.block_size))
    }

    fn write_header(&self, is_complete: bool) -> io::Result<()> {
        let mut header = vec![0; self.block_size as usize];
        let numbers = [self.keys, SUPERBLOCK_AT, KEYS_AT];
        header[..8].copy_from_slice(MAGIC);
        for (field, number) in header[8..32].chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        let has_offset = self.offset > 0;
        let numbers = [
            self.block_size,
            self.block_size,
            self.superblock_checksum,
            is_complete.into(),
            has_offset.into(),
        ];
        for (field, number) in header[32..52].chunks_exact_mut(4).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        header[64..72].copy_from_slice(&self.offset.to_le_bytes());
        let seal = checksum(&header[..HEADER_BYTES - 4]);
        header[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&seal.to_le_bytes());
        self.file.write_all_at(&header, 0)
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    !crc32c::crc32c(bytes)
}

/// A device that saves old contents in an undo file before it changes them.
pub struct UndoneDevice {
    inner: Arc<dyn BlockDevice>,
    undo: Arc<UndoFile>,
}

impl UndoneDevice {
    /// Wraps the device of a file system.
    pub fn new(inner: Arc<dyn BlockDevice>, undo: Arc<UndoFile>) -> Self {
        Self { inner, undo }
    }

    fn save(&self, offset: u64, len: u64) -> io::Result<()> {
        // The device itself rejects a range past its end.
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.inner.len());
        if is_inside && len > 0 { self.undo.save(&*self.inner, offset, len) } else { Ok(()) }
    }
}

impl BlockDevice for UndoneDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.save(offset, data.len() as u64)?;
        self.inner.write_at(offset, data)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut done = 0;
        while done < len {
            let count = ZEROS_BYTES_MAX.min(len - done);
            self.save(offset.saturating_add(done), count)?;
            self.inner.zero_range(offset.saturating_add(done), count)?;
            done += count;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn has_long_flushes(&self) -> bool {
        self.inner.has_long_flushes()
    }

    fn barrier(&self) -> io::Result<()> {
        self.inner.barrier()
    }

    fn drop_cache(&self, offset: u64, len: u64) {
        self.inner.drop_cache(offset, len);
    }
}
