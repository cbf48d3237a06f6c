//! Writes changed blocks, atomically if the image has a journal.
//!
//! Each commit leaves an empty journal, so that a later replay cannot overwrite blocks written without it. The journal
//! stays open between commits.

use std::cmp::Ordering;
use std::sync::Arc;

use disk::BlockDevice;
use operations::repair::StepWriter;
use vfs::{Error, Result};
use zerocopy::{FromBytes, IntoBytes};

use super::draft::ChangedBlocks;
use crate::format::address::Block;
use crate::format::features::{Compat, Incompat};
use crate::format::superblock::{
    RawSuperblock, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use crate::params::read_superblock;
use crate::repair::{LogWriter, open_writer};

/// Maximum size of one write in bytes.
const WRITE_BYTES_MAX: usize = 1 << 20;

fn no_journal() -> Error {
    Error::unsupported("resizing with a damaged journal", "run diskwright repair first")
}

/// Writes blocks that nothing in the image refers to yet, durably.
///
/// # Errors
/// If the device fails.
pub(super) fn write_ahead(
    device: &dyn BlockDevice,
    block_size: usize,
    blocks: &ChangedBlocks,
) -> Result<()> {
    let mut run: Option<(u64, Vec<u8>)> = None;
    let write = |run: Option<(u64, Vec<u8>)>| {
        run.map_or(Ok(()), |(at, bytes)| device.write_at(at, &bytes).map_err(Error::Device))
    };
    for (number, bytes) in blocks {
        let at = number * block_size as u64;
        let fits = |(start, run): &(u64, Vec<u8>)| {
            start + run.len() as u64 == at && run.len() < WRITE_BYTES_MAX
        };
        if !run.as_ref().is_some_and(fits) {
            write(run.take())?;
        }
        run.get_or_insert_with(|| (at, Vec::new())).1.extend_from_slice(bytes);
    }
    write(run)?;
    device.flush().map_err(Error::Device)
}

/// Copies of the superblock and of descriptors.
///
/// e2fsck compares the superblock only with its first copy, and rewrites all copies if that one differs. So if they are
/// not written atomically, the first copy is written last: as long as any copy is old, e2fsck notices it.
#[derive(Default)]
pub(super) struct Copies {
    /// All copies except the first copy of the superblock.
    pub(super) others: ChangedBlocks,
    /// First copy of the superblock, if there is one.
    pub(super) first: ChangedBlocks,
}

impl Copies {
    fn len(&self) -> usize {
        self.others.len() + self.first.len()
    }
}

/// Destination of commits: the image's journal, or the image itself if there is none.
///
/// It must be closed; otherwise the superblock still requests recovery.
pub(super) struct Commits {
    device: Arc<dyn BlockDevice>,
    has_journal: bool,
    /// The journal, while it is open.
    log: Option<LogWriter>,
}

impl Commits {
    /// Returns the commits of an image.
    ///
    /// # Errors
    /// If the device fails or has no file system.
    pub(super) fn of(device: Arc<dyn BlockDevice>) -> Result<Self> {
        let has_journal = read_superblock(&*device)?.features.compat(Compat::HAS_JOURNAL);
        Ok(Self { device, has_journal, log: None })
    }

    fn log(&mut self) -> Result<&mut LogWriter> {
        let log = match self.log.take() {
            Some(log) => log,
            None => open_writer(self.device.clone())?.ok_or_else(no_journal)?,
        };
        Ok(self.log.insert(log))
    }

    /// Returns the journal if it has room for `blocks` blocks.
    fn log_for(&mut self, blocks: usize) -> Result<&mut LogWriter> {
        let log = self.log()?;
        let max = log.blocks_max();
        if blocks > max { Err(too_many(blocks, max)) } else { Ok(log) }
    }

    /// Returns the maximum number of blocks of a commit, or `None` if there is no limit because the image has no
    /// journal.
    ///
    /// # Errors
    /// `Unsupported` if the journal cannot be written to.
    pub(super) fn capacity(&mut self) -> Result<Option<usize>> {
        if self.has_journal { Ok(Some(self.log()?.blocks_max())) } else { Ok(None) }
    }

    /// Writes changed blocks as one transaction of the journal. Without a journal, the image is marked as not clean
    /// during the writes, and the superblock is written last.
    ///
    /// # Errors
    /// If the device fails; `Unsupported` if the journal does not have enough room.
    pub(super) fn commit(&mut self, blocks: &ChangedBlocks) -> Result<()> {
        if self.has_journal {
            return self.commit_at_once(blocks);
        }
        let sb = read_superblock(&*self.device)?;
        commit_in_place(&*self.device, &sb, blocks, &Copies::default())
    }

    /// Like [`Self::commit`], but also writes copies: in the same transaction if there is room, else after it. Without
    /// a journal they are written last, while the image is marked as not clean.
    ///
    /// # Errors
    /// Like [`Self::commit`].
    pub(super) fn commit_with_copies(
        &mut self,
        mut blocks: ChangedBlocks,
        mut copies: Copies,
    ) -> Result<()> {
        let Some(room) = self.capacity()? else {
            let sb = read_superblock(&*self.device)?;
            return commit_in_place(&*self.device, &sb, &blocks, &copies);
        };
        if blocks.len() + copies.len() <= room {
            blocks.append(&mut copies.others);
            blocks.append(&mut copies.first);
            return self.commit_at_once(&blocks);
        }
        self.commit_at_once(&blocks)?;
        let mut part = ChangedBlocks::new();
        for (block, bytes) in copies.others {
            part.insert(block, bytes);
            if part.len() >= room {
                self.commit_at_once(&std::mem::take(&mut part))?;
            }
        }
        part.append(&mut copies.first);
        if part.is_empty() { Ok(()) } else { self.commit_at_once(&part) }
    }

    fn commit_at_once(&mut self, blocks: &ChangedBlocks) -> Result<()> {
        let device = Arc::clone(&self.device);
        let before = read_superblock(&*device)?.blocks_count;
        let log = self.log_for(blocks.len())?;
        log.write(blocks)?;
        write_home(&*device, log.block_size(), before, blocks)?;
        log.settle()
    }

    /// Like [`Self::commit`], for blocks that move the journal itself. Its inode is in block `place`, which is written
    /// after all other blocks. Until then, the old journal with the whole transaction is replayed; from then on the
    /// new, empty one.
    ///
    /// # Errors
    /// Like [`Self::commit`].
    pub(super) fn commit_journal_move(
        &mut self,
        blocks: &ChangedBlocks,
        place: Block,
    ) -> Result<()> {
        let log = self.log_for(blocks.len())?;
        let block_size = log.block_size();
        log.write(blocks)?;
        let mut others = blocks.clone();
        let inode = others.remove(&place.0);
        let at = SUPERBLOCK_OFFSET as usize % block_size;
        if let Some(bytes) = others.get_mut(&(SUPERBLOCK_OFFSET / block_size as u64))
            && let Ok(raw) = RawSuperblock::mut_from_bytes(&mut bytes[at..at + SUPERBLOCK_SIZE])
        {
            let mut features = raw.features();
            features.incompat.insert(Incompat::RECOVER);
            raw.set_features(&features);
            raw.seal();
        }
        let inode = inode.map(|bytes| (place.0, bytes)).into_iter().collect();
        write_ahead(&*self.device, block_size, &others)?;
        write_ahead(&*self.device, block_size, &inode)?;
        // The journal is at another position now.
        self.close()
    }

    /// Restores the clean state of the image. The commits can be used again.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn close(&mut self) -> Result<()> {
        self.log.take().map_or(Ok(()), |log| Box::new(log).close())
    }
}

/// Writes journaled blocks in place when they change the number of blocks from `before`. Kernels and e2fsck check the
/// descriptors of all groups before they replay the journal, so the descriptors must always match the superblock on
/// disk. It is therefore written last if groups are added, and first if groups are removed.
fn write_home(
    device: &dyn BlockDevice,
    block_size: usize,
    before: u64,
    blocks: &ChangedBlocks,
) -> Result<()> {
    let Some(mut raw) = superblock_in(blocks, block_size) else { return Ok(()) };
    match raw.blocks_count().cmp(&before) {
        Ordering::Less => {
            let mut features = raw.features();
            features.incompat.insert(Incompat::RECOVER);
            raw.set_features(&features);
            write_superblock(device, &mut raw)
        }
        Ordering::Equal => Ok(()),
        Ordering::Greater => {
            let mut others = blocks.clone();
            others.remove(&(SUPERBLOCK_OFFSET / block_size as u64));
            write_ahead(device, block_size, &others)
        }
    }
}

/// Returns the superblock among `blocks`.
fn superblock_in(blocks: &ChangedBlocks, block_size: usize) -> Option<RawSuperblock> {
    let at = SUPERBLOCK_OFFSET as usize % block_size;
    let bytes = blocks.get(&(SUPERBLOCK_OFFSET / block_size as u64))?;
    RawSuperblock::read_from_bytes(bytes.get(at..at + SUPERBLOCK_SIZE)?).ok()
}

/// Returns the error for more blocks than fit into the journal.
pub(super) fn too_many(blocks: usize, max: usize) -> Error {
    Error::unsupported(
        format!("changing {blocks} blocks atomically with a journal that can store {max}"),
        "resize in smaller steps, or create a new image with diskwright build",
    )
}

fn commit_in_place(
    device: &dyn BlockDevice,
    sb: &Superblock,
    blocks: &ChangedBlocks,
    copies: &Copies,
) -> Result<()> {
    let block_size = sb.block_size() as usize;
    let mut raw = superblock_in(blocks, block_size).unwrap_or_else(|| sb.raw.clone());
    // The same order as in `write_home`.
    let is_less = raw.blocks_count() < sb.blocks_count;
    write_not_clean(device, if is_less { raw.clone() } else { sb.raw.clone() })?;
    let mut others = blocks.clone();
    others.remove(&(SUPERBLOCK_OFFSET / block_size as u64));
    write_ahead(device, block_size, &others)?;
    if copies.len() > 0 {
        // All copies describe the old state until the new one is complete.
        write_not_clean(device, raw.clone())?;
        write_ahead(device, block_size, &copies.others)?;
        write_ahead(device, block_size, &copies.first)?;
    }
    write_superblock(device, &mut raw)
}

fn write_not_clean(device: &dyn BlockDevice, mut raw: RawSuperblock) -> Result<()> {
    raw.state = (raw.state.get() & !STATE_VALID).into();
    write_superblock(device, &mut raw)
}

fn write_superblock(device: &dyn BlockDevice, raw: &mut RawSuperblock) -> Result<()> {
    raw.seal();
    device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).map_err(Error::Device)?;
    device.flush().map_err(Error::Device)
}
