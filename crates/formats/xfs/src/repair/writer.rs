//! Writes a repair through the image's own log.
//!
//! Blocks are logged as buffers of unknown type: any replay, including a kernel's, writes them to their locations
//! without verification. A replay skips a block with an LSN after the log's head, so steps that change one are refused.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use disk::{BlockDevice, KeptDevice, end_at};
use engine::{AsTheyAre, Engine, Log};
use operations::repair::{PAGE_BYTES, Staging, Step, StepWriter, pages_of};
use vfs::{Error, Result};

use super::{begin, superblock};
use crate::check::codes;
use crate::check::superblock::log_head;
use crate::format::geometry::Geometry;
use crate::kind::BlockKind;
use crate::log::{self, XfsLog, log_is_clean, stated_lsn};
use crate::volume::read_superblock;

/// Size of the cache, in bytes.
const CACHE_BYTES: usize = 64 << 20;

struct Writer {
    device: Arc<dyn BlockDevice>,
    geometry: Geometry,
    /// Head of the log.
    head: Option<u64>,
    engine: Engine,
    log: XfsLog,
    /// Block range of the log.
    of_log: Range<u64>,
}

/// Maximum number of bytes of a log that a repair keeps in memory.
const LOG_KEPT_BYTES: u64 = 32 << 20;

/// Returns a view of an image that reads its log only once. A repair needs the end of the log for each check, before it
/// writes, and afterwards.
pub fn keep_log(device: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    let Ok(sb) = read_superblock(&*device) else { return device };
    match log::log_range(&*device, &sb) {
        Ok(Some(log)) => Arc::new(KeptDevice::new(device, log, LOG_KEPT_BYTES)),
        _ => device,
    }
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
    let head = log_head(&*device, &sb);
    let position = match log::recover(&*device, &sb) {
        Ok(recovered) => recovered.position,
        Err(Error::Device(error)) => return Err(Error::Device(error)),
        Err(_) => return Ok(None),
    };
    let Ok(log) = XfsLog::open(Arc::clone(&device), &sb, position) else { return Ok(None) };
    let geometry = Geometry::new(&sb);
    let of_log = log::log_range(&*device, &sb)?.unwrap_or_default();
    let of_log = of_log.start >> geometry.block_log..of_log.end >> geometry.block_log;
    let options = engine::Options { block_size: geometry.block_size(), cache_bytes: CACHE_BYTES };
    let hook: Box<dyn Log> = Box::new(log.clone());
    let engine = Engine::new(Arc::clone(&device), Arc::new(AsTheyAre), Some(hook), options);
    Ok(Some(Box::new(Writer { device, geometry, head, engine, log, of_log })))
}

impl Writer {
    /// Returns whether no block of a page has an LSN after the head of the log. False if the page cannot be read.
    fn is_before_head(&self, page: u64) -> bool {
        let Some(head) = self.head.filter(|_| self.geometry.features.crc()) else { return true };
        let (size, mut block) = (self.block_size() as u64, vec![0; self.block_size()]);
        let start = page * PAGE_BYTES;
        // A partial block at the end of the image is not written.
        let end = (start + PAGE_BYTES).min(end_at(&*self.device, start) / size * size);
        (start / size..end.div_ceil(size)).all(|number| {
            self.device.read_at(number * size, &mut block).is_ok()
                && stated_lsn(&self.geometry, &block).is_none_or(|lsn| lsn.to_raw() <= head)
        })
    }
}

impl StepWriter for Writer {
    fn block_size(&self) -> usize {
        self.engine.block_size()
    }

    fn blocks_max(&self) -> usize {
        // At most half of the cache may be dirty.
        (self.engine.log_blocks_max() / 2).min(CACHE_BYTES / self.block_size() / 4)
    }

    fn accepts(&self, steps: &[Step]) -> bool {
        // The fix of these findings may restart the log, whose blocks are not written.
        let mut codes = steps.iter().flat_map(|step| &step.actions).map(|action| action.code);
        !codes.any(|code| code == Some(codes::LSN))
            && pages_of(steps).into_iter().all(|page| self.is_before_head(page))
    }

    fn write(&mut self, blocks: &BTreeMap<u64, Vec<u8>>) -> Result<()> {
        let mut txn = self.engine.begin()?;
        for (&block, bytes) in blocks.iter().filter(|(block, _)| !self.of_log.contains(block)) {
            let id = txn.buffer(block, BlockKind::Raw.plain())?;
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
