//! Writes a repair through the image's own log.
//!
//! Blocks are logged as buffers of unknown type: any replay, including a kernel's, writes them to their locations
//! without verification. A block with an LSN after the log's head would be skipped by a replay, so this is checked
//! before.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use disk::BlockDevice;
use engine::{AsTheyAre, Engine, Log};
use operations::repair::{Staging, StepWriter};
use vfs::check::Options;
use vfs::{Error, Result};

use super::{begin, superblock};
use crate::check::superblock::log_head;
use crate::check::survey::Survey;
use crate::format::address::FsBlock;
use crate::format::geometry::Geometry;
use crate::kind::Kind;
use crate::log::{self, XfsLog, log_is_clean};
use crate::volume::read_superblock;

/// Size of the cache, in bytes.
const CACHE_BYTES: usize = 64 << 20;

struct Writer {
    engine: Engine,
    log: XfsLog,
    /// Block range of the log.
    of_log: Range<u64>,
}

/// Opens the log of an image to write a repair through it, after replaying it. `None` if the superblock or the log
/// itself needs repair, or the log is unreliable for another reason.
///
/// # Errors
/// If the device fails.
pub fn open_log(device: Arc<dyn BlockDevice>) -> Result<Option<Box<dyn StepWriter>>> {
    let tried = Arc::new(Staging::new(Arc::clone(&device)));
    match superblock::make_readable(&tried) {
        Ok(()) if tried.step_count() == 0 => {}
        Ok(()) | Err(Error::Unsupported(_)) => return Ok(None),
        Err(error) => return Err(error),
    }
    let Ok(sb) = read_superblock(&*device) else { return Ok(None) };
    if sb.read_only_because().is_some() {
        return Ok(None);
    }
    match log_is_clean(&*device, &sb) {
        Ok(true) => {}
        // In memory first: if the log cannot be replayed, nothing is written.
        Ok(false) if begin::whole(tried).is_ok() => drop(begin::whole(Arc::clone(&device))?),
        Err(Error::Device(error)) => return Err(Error::Device(error)),
        _ => return Ok(None),
    }
    let sb = read_superblock(&*device)?;
    let survey = Survey::new(Arc::clone(&device), Options::default().threads)?;
    let head = log_head(&*device, &sb);
    if head.is_some_and(|head| survey.lsn_max() > head) {
        return Ok(None);
    }
    let position = match log::recover(&*device, &sb) {
        Ok(recovered) => recovered.position,
        Err(Error::Device(error)) => return Err(Error::Device(error)),
        Err(_) => return Ok(None),
    };
    let Ok(log) = XfsLog::open(Arc::clone(&device), &sb, position) else { return Ok(None) };
    let geometry = Geometry::new(&sb);
    let start = geometry.device_block(FsBlock(sb.raw.logstart.get())).0;
    let of_log = start..start + u64::from(sb.raw.logblocks.get());
    let options = engine::Options { block_size: geometry.block_size(), cache_bytes: CACHE_BYTES };
    let hook: Box<dyn Log> = Box::new(log.clone());
    let engine = Engine::new(device, Arc::new(AsTheyAre), Some(hook), options);
    Ok(Some(Box::new(Writer { engine, log, of_log })))
}

impl StepWriter for Writer {
    fn block_size(&self) -> usize {
        self.engine.block_size()
    }

    fn blocks_max(&self) -> usize {
        // At most half of the cache may be dirty.
        (self.engine.log_blocks_max() / 2).min(CACHE_BYTES / self.block_size() / 4)
    }

    fn write(&mut self, blocks: &BTreeMap<u64, Vec<u8>>) -> Result<()> {
        let mut txn = self.engine.begin()?;
        for (&block, bytes) in blocks.iter().filter(|(block, _)| !self.of_log.contains(block)) {
            let id = txn.buffer(block, Kind::Raw.plain())?;
            let end = bytes.len().min(self.engine.block_size());
            txn.edit(id, 0..end).copy_from_slice(&bytes[..end]);
        }
        txn.commit();
        Ok(self.engine.checkpoint()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.engine.checkpoint()?;
        self.engine.empty_log()?;
        self.log.close()
    }
}
