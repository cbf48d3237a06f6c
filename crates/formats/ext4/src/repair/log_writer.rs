//! Writes arbitrary whole blocks to an image through its own journal.

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::BlockDevice;
use engine::{AsTheyAre, Engine, Log, Options, Tag};
use operations::repair::StepWriter;
use vfs::{Error, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::format::features::{Compat, Incompat};
use crate::format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use crate::log::{self, Journal, JournalMap};
use crate::params::read_superblock;

/// Maximum number of blocks of a transaction, however large the journal is.
const BLOCKS_MAX: usize = 16 << 10;
/// Number of cache blocks per block of a transaction.
const CACHE_SHARE: usize = 8;

/// Writer of blocks through an image's journal.
///
/// While it is open, the superblock on disk requests recovery, whatever the written blocks contain.
pub(crate) struct LogWriter {
    engine: Engine,
    map: JournalMap,
    blocks_max: usize,
    /// True if the superblock must still request recovery at the end.
    needs_recovery: bool,
}

/// Opens the journal of an image to write a repair through it. First replays its contents. Returns `None` if the image
/// has no internal journal or it cannot be trusted; nothing was written then.
///
/// # Errors
/// If the device fails.
pub fn open_log(device: Arc<dyn BlockDevice>) -> Result<Option<Box<dyn StepWriter>>> {
    Ok(open_writer(device)?.map(|writer| Box::new(writer) as Box<dyn StepWriter>))
}

/// Like [`open_log`], for callers that also write without the journal between transactions.
///
/// # Errors
/// Like [`open_log`].
pub(crate) fn open_writer(device: Arc<dyn BlockDevice>) -> Result<Option<LogWriter>> {
    let Some(journal) = open_journal(&device)? else { return Ok(None) };
    let (journal, map, mut sb) = journal;
    let block_size = sb.block_size() as usize;
    // Leave room for the additional blocks of a checkpoint.
    let blocks_max = (journal.blocks_max() / 8 * 7).min(BLOCKS_MAX);
    if blocks_max == 0 {
        return Ok(None);
    }
    let cache_bytes = CACHE_SHARE * blocks_max * block_size;
    let options = Options { block_size, cache_bytes };
    set_recovery(&mut sb.raw, true);
    write_superblock(&*device, &sb.raw)?;
    let engine = Engine::new(device, Arc::new(AsTheyAre), Some(Box::new(journal)), options);
    Ok(Some(LogWriter { engine, map, blocks_max, needs_recovery: false }))
}

/// Returns the empty journal. Returns `None` if it cannot be trusted.
fn open_journal(
    device: &Arc<dyn BlockDevice>,
) -> Result<Option<(Journal, JournalMap, Superblock)>> {
    let Some(sb) = trusted(read_superblock(&**device))? else { return Ok(None) };
    if !sb.features.compat(Compat::HAS_JOURNAL) {
        return Ok(None);
    }
    // Other programs that replay it after a crash may not use the copy of its inode.
    let mut alone = sb;
    alone.raw.jnl_backup_type = 0;
    let Some(Some(map)) = trusted(JournalMap::read(&**device, &alone))? else { return Ok(None) };
    // Journal blocks cannot be written through the journal, so its superblock must not need repairs.
    let users = trusted(log::users_count(&**device, &map))?;
    let has_users = if map.is_external() { users == Some(1) } else { users.is_some_and(|n| n < 2) };
    if !has_users {
        return Ok(None);
    }
    let Some(report) = trusted(log::recover(&**device))? else { return Ok(None) };
    if !report.fast_commits.is_empty() {
        return Ok(None);
    }
    let Some(sb) = trusted(read_superblock(&**device))? else { return Ok(None) };
    let journal = trusted(Journal::open(Arc::clone(device), map.clone(), &sb, None))?;
    Ok(journal.map(|journal| (journal, map, sb)))
}

/// Returns the result, or `None` if the structure is damaged or unsupported.
fn trusted<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(Error::Device(error)) => Err(Error::Device(error)),
        Err(_) => Ok(None),
    }
}

fn set_recovery(raw: &mut RawSuperblock, on: bool) {
    let mut features = raw.features();
    features.incompat.set(Incompat::RECOVER, on);
    raw.set_features(&features);
    raw.seal();
}

fn write_superblock(device: &dyn BlockDevice, raw: &RawSuperblock) -> Result<()> {
    device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).map_err(Error::Device)?;
    device.flush().map_err(Error::Device)
}

impl LogWriter {
    /// Writes everything in place and empties the log. Until the next transaction, a replay cannot overwrite blocks
    /// written without it. The log stays open.
    ///
    /// # Errors
    /// If the device fails; nothing can be written any more then.
    pub(crate) fn settle(&mut self) -> Result<()> {
        Ok(self.engine.empty_log()?)
    }

    /// Sets the recovery flag in a superblock that is about to be written, and records its former value.
    fn keep_recovery(&mut self, bytes: &mut [u8]) {
        let at = SUPERBLOCK_OFFSET as usize % self.block_size();
        let Some(bytes) = bytes.get_mut(at..at + SUPERBLOCK_SIZE) else { return };
        let Ok(raw) = RawSuperblock::mut_from_bytes(bytes) else { return };
        self.needs_recovery = raw.features().incompat(Incompat::RECOVER);
        set_recovery(raw, true);
    }
}

impl StepWriter for LogWriter {
    fn block_size(&self) -> usize {
        self.engine.block_size()
    }

    fn blocks_max(&self) -> usize {
        self.blocks_max
    }

    fn write(&mut self, blocks: &BTreeMap<u64, Vec<u8>>) -> Result<()> {
        const TAG: Tag = Tag { kind: 0, seed: 0, owner: 0 };
        let own = SUPERBLOCK_OFFSET / self.block_size() as u64;
        let superblock = blocks.get(&own).map(|bytes| {
            let mut bytes = bytes.clone();
            self.keep_recovery(&mut bytes);
            bytes
        });
        let mut txn = self.engine.begin()?;
        for (&block, bytes) in blocks {
            if self.map.contains(crate::format::address::Block(block)) {
                continue;
            }
            let bytes = superblock.as_ref().filter(|_| block == own).unwrap_or(bytes);
            let id = txn.create(block, TAG)?;
            txn.edit(id, 0..bytes.len()).copy_from_slice(bytes);
        }
        txn.commit();
        Ok(self.engine.checkpoint()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.engine.empty_log()?;
        let device = self.engine.device();
        let mut raw = RawSuperblock::zeroed();
        device.read_at(SUPERBLOCK_OFFSET, raw.as_mut_bytes()).map_err(Error::Device)?;
        set_recovery(&mut raw, self.needs_recovery);
        write_superblock(&**device, &raw)
    }
}
