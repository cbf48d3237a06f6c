//! Writing changed blocks: all of them or none, where the image has a journal.
//!
//! Each commit leaves an empty journal, so what is written past it later is not overwritten by a replay. It stays open
//! from one commit to the next.

use std::cmp::Ordering;
use std::sync::Arc;

use ::repair::StepWriter;
use blockdev::BlockDevice;
use vfs::{Error, Result};
use zerocopy::{FromBytes, IntoBytes};

use super::draft::Blocks;
use crate::format::address::Block;
use crate::format::features::{Compat, Incompat};
use crate::format::superblock::{
    RawSuperblock, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use crate::params::read_superblock;
use crate::repair::{LogWriter, open_writer};

/// Most bytes of one write.
const WRITE_BYTES_MAX: usize = 1 << 20;

fn no_journal() -> Error {
    Error::unsupported(
        "changing the size with a journal that is damaged",
        "run diskwright repair first",
    )
}

/// Writes blocks that nothing in the image leads to yet. They are durable when it returns.
///
/// # Errors
/// If the device fails.
pub(super) fn write_ahead(
    device: &dyn BlockDevice,
    block_size: usize,
    blocks: &Blocks,
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
/// e2fsck compares the superblock with its first copy alone, and writes all copies anew if that one differs. So where
/// they are not written all at once, the first copy comes last: as long as any is old, e2fsck finds that it is.
#[derive(Default)]
pub(super) struct Copies {
    /// All but the first copy of the superblock.
    pub(super) others: Blocks,
    /// The first copy of the superblock, if there is one.
    pub(super) first: Blocks,
}

impl Copies {
    fn len(&self) -> usize {
        self.others.len() + self.first.len()
    }
}

/// Where changes are committed: the image's journal, or the image itself if it has none.
///
/// It must be closed, or the superblock goes on to call for recovery.
pub(super) struct Commits {
    device: Arc<dyn BlockDevice>,
    has_journal: bool,
    /// The journal, while it is open.
    log: Option<LogWriter>,
}

impl Commits {
    /// Those of an image.
    ///
    /// # Errors
    /// If the device fails, or has no file system.
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

    /// The journal, with room for so many blocks.
    fn log_for(&mut self, blocks: usize) -> Result<&mut LogWriter> {
        let log = self.log()?;
        let max = log.blocks_max();
        if blocks > max { Err(too_many(blocks, max)) } else { Ok(log) }
    }

    /// How many blocks can change at once. `None` if the image has no journal, and so nothing sets a limit.
    ///
    /// # Errors
    /// `Unsupported` if it has a journal that cannot be written to.
    pub(super) fn capacity(&mut self) -> Result<Option<usize>> {
        if self.has_journal { Ok(Some(self.log()?.blocks_max())) } else { Ok(None) }
    }

    /// Writes changed blocks, as one transaction of the journal. Without a journal the image is marked as not clean
    /// while they are written, and the superblock comes last.
    ///
    /// # Errors
    /// If the device fails; `Unsupported` if the journal has no room for so many.
    pub(super) fn commit(&mut self, blocks: &Blocks) -> Result<()> {
        if self.has_journal {
            return self.commit_at_once(blocks);
        }
        let sb = read_superblock(&*self.device)?;
        commit_in_place(&*self.device, &sb, blocks, &Copies::default())
    }

    /// As [`Self::commit`], with copies of what is changed: in the same transaction if there is room for them, else after
    /// it. Without a journal they are written after all else, while the image is marked as not clean.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub(super) fn commit_with_copies(
        &mut self,
        mut blocks: Blocks,
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
        let mut part = Blocks::new();
        for (block, bytes) in copies.others {
            part.insert(block, bytes);
            if part.len() >= room {
                self.commit_at_once(&std::mem::take(&mut part))?;
            }
        }
        part.append(&mut copies.first);
        if part.is_empty() { Ok(()) } else { self.commit_at_once(&part) }
    }

    fn commit_at_once(&mut self, blocks: &Blocks) -> Result<()> {
        let device = Arc::clone(&self.device);
        let before = read_superblock(&*device)?.blocks_count;
        let log = self.log_for(blocks.len())?;
        log.write(blocks)?;
        write_home(&*device, log.block_size(), before, blocks)?;
        log.settle()
    }

    /// As [`Self::commit`], where the journal itself is moved by it: its inode lies in block `place`. That block is
    /// written to its place after all the others: until then the old journal is the one that is replayed, and has all of
    /// them; from then on the new one, which is empty.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub(super) fn commit_journal_move(&mut self, blocks: &Blocks, place: Block) -> Result<()> {
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
        // It is another one from now on.
        self.close()
    }

    /// Leaves the image as clean as it was. It can be used again.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn close(&mut self) -> Result<()> {
        self.log.take().map_or(Ok(()), |log| Box::new(log).close())
    }
}

/// Brings blocks that the journal has to their places, where they change the number of blocks from `before`. Kernels
/// and e2fsck look at the descriptors of all groups before they replay the journal, so these have to be there whenever the
/// superblock says so: it comes last where groups are added, and first where they go.
fn write_home(
    device: &dyn BlockDevice,
    block_size: usize,
    before: u64,
    blocks: &Blocks,
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

/// The superblock among blocks.
fn superblock_in(blocks: &Blocks, block_size: usize) -> Option<RawSuperblock> {
    let at = SUPERBLOCK_OFFSET as usize % block_size;
    let bytes = blocks.get(&(SUPERBLOCK_OFFSET / block_size as u64))?;
    RawSuperblock::read_from_bytes(bytes.get(at..at + SUPERBLOCK_SIZE)?).ok()
}

/// Why so many blocks cannot change.
pub(super) fn too_many(blocks: usize, max: usize) -> Error {
    Error::unsupported(
        format!("changing {blocks} blocks at once with a journal that has room for {max}"),
        "change the size in smaller steps, or make a new image: diskwright build",
    )
}

fn commit_in_place(
    device: &dyn BlockDevice,
    sb: &Superblock,
    blocks: &Blocks,
    copies: &Copies,
) -> Result<()> {
    let block_size = sb.block_size() as usize;
    let mut raw = superblock_in(blocks, block_size).unwrap_or_else(|| sb.raw.clone());
    // As in `write_home`.
    let is_less = raw.blocks_count() < sb.blocks_count;
    write_not_clean(device, if is_less { raw.clone() } else { sb.raw.clone() })?;
    let mut others = blocks.clone();
    others.remove(&(SUPERBLOCK_OFFSET / block_size as u64));
    write_ahead(device, block_size, &others)?;
    if copies.len() > 0 {
        // The copies tell of the old state, all of them, until the new one is complete.
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
