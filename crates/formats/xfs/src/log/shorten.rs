//! Appending a short record to a log whose last record is longer than kernels support.
//!
//! Earlier versions wrote records of up to 520 blocks. Kernels and xfs_repair search the header of the last record in
//! the 512 blocks before the head, and refuse the log if they find none.

use std::io;

use disk::BlockDevice;

use super::area::Area;
use crate::format::log::build::{RECORD_SIZE_MAX, RecordBuilder, RecordPlace};
use crate::format::log::item::ItemType;
use crate::format::log::operation::{OP_COMMIT, OP_START};
use crate::format::log::transaction::checkpoint_header;
use crate::format::log::{BLOCK_SIZE, Lsn};
use crate::format::superblock::Superblock;

/// Number of the transaction.
const TID: u32 = 1;

/// Returns a done item (`xfs_rud_log_format`) for an intent that does not exist. It has no effect. A transaction
/// without items is an error for kernels.
fn done_item() -> [u8; 16] {
    let mut item = [0xff; 16];
    item[..2].copy_from_slice(&(ItemType::Rud as u16).to_le_bytes());
    item[2..8].copy_from_slice(&[1, 0, 0, 0, 0, 0]);
    item
}

/// The end of a log.
pub(super) struct End {
    /// Position of the next record.
    pub(super) head: Lsn,
    /// The block of the last record's header.
    pub(super) previous: Option<u32>,
    /// The oldest position still needed; `None` if nothing is needed.
    pub(super) tail: Option<Lsn>,
}

/// Writes a record with a transaction that changes nothing. Returns the new head; `None` if the log has no room.
pub(super) fn write(
    device: &dyn BlockDevice,
    sb: &Superblock,
    end: &End,
) -> io::Result<Option<Lsn>> {
    let Ok(Some(area)) = Area::find(device, sb) else { return Ok(None) };
    // Only records of this size can be so long, and all records from the tail on have the same size.
    let mut record = RecordBuilder::new(RECORD_SIZE_MAX, sb.raw.logsunit.get(), 0, BLOCK_SIZE / 2);
    record.push(TID, OP_START, &[]);
    record.push(TID, 0, &checkpoint_header(TID));
    record.push(TID, 0, &done_item());
    record.push(TID, OP_COMMIT, &[]);
    let (head, blocks) = (end.head, record.blocks());
    let tail = end.tail.unwrap_or(head);
    if area.distance(tail, head) + blocks >= area.blocks {
        return Ok(None);
    }
    let place = RecordPlace {
        lsn: head,
        tail,
        previous: end.previous,
        uuid: sb.raw.uuid,
        log_blocks: area.blocks,
    };
    area.write(device, head.block, record.finish(&place))?;
    device.flush()?;
    Ok(Some(area.after(head, blocks)))
}
