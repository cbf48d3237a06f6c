//! A short record at the end of a log whose last record is longer than kernels search.
//!
//! Earlier versions wrote records of up to 520 blocks. Kernels and xfs_repair look for the header of the last
//! record in 512 blocks before the head, and refuse the log if there is none.

use std::io;

use blockdev::BlockDevice;

use super::Position;
use super::area::Area;
use super::xfs_log::{advanced, transaction_header};
use crate::format::log::BLOCK_SIZE;
use crate::format::log::build::{RECORD_SIZE_MAX, RecordBuilder, RecordPlace};
use crate::format::log::item::ItemType;
use crate::format::log::operation::{OP_COMMIT, OP_START};
use crate::format::superblock::Superblock;

/// Number of the transaction.
const TID: u32 = 1;

/// A done item (`xfs_rud_log_format`) of an intent that no log has. It changes nothing. A transaction without
/// items is an error for kernels.
fn done_item() -> [u8; 16] {
    let mut item = [0xff; 16];
    item[..2].copy_from_slice(&(ItemType::Rud as u16).to_le_bytes());
    item[2..8].copy_from_slice(&[1, 0, 0, 0, 0, 0]);
    item
}

/// Writes a record with a transaction that changes nothing where the log goes on, if it has room. Returns where
/// the log goes on then. With intents the tail stays; without, the record is the tail.
pub(super) fn end(
    device: &dyn BlockDevice,
    sb: &Superblock,
    position: Position,
) -> io::Result<Position> {
    let Some(area) = Area::find(sb) else { return Ok(position) };
    let size = position.record_size.unwrap_or(RECORD_SIZE_MAX);
    let mut record = RecordBuilder::new(size, sb.raw.logsunit.get(), 0, BLOCK_SIZE / 2);
    record.push(TID, OP_START, &[]);
    record.push(TID, 0, &transaction_header(TID));
    record.push(TID, 0, &done_item());
    record.push(TID, OP_COMMIT, &[]);
    let (blocks, head) = (record.blocks(), position.head);
    let needed_from = position.tail.unwrap_or(head);
    if area.distance(needed_from, head) + blocks >= area.blocks {
        return Ok(position);
    }
    let place = RecordPlace {
        lsn: head,
        tail: needed_from,
        previous: position.previous,
        uuid: sb.raw.uuid,
        log_blocks: area.blocks,
    };
    area.write(device, head.block, record.finish(&place))?;
    device.flush()?;
    Ok(Position {
        head: advanced(&area, head, blocks),
        previous: Some(head.block),
        replayed_from: Some(needed_from),
        ..position
    })
}
