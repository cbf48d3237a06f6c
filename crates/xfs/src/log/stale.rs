//! What torn records left ahead of the head is written over, so that it is never taken for new records: by
//! blocks of the cycle before, each of them a header of a record without contents.

use blockdev::BlockDevice;
use vfs::{Error, Result};
use zerocopy::{FromZeros, IntoBytes};

use super::area::Area;
use super::bounds::Bounds;
use super::end::IN_FLIGHT_BLOCKS;
use crate::format::log::{
    BLOCK_SIZE, FORMAT_LITTLE_ENDIAN, Lsn, RECORD_MAGIC, RECORD_VERSION, RawRecordHeader,
};
use crate::format::superblock::Superblock;

/// Blocks written at a time.
const BATCH: u32 = 256;

/// Writes over what may have been on its way to the log in a crash, as far as the tail.
///
/// # Errors
/// If the device fails.
pub(super) fn clear(device: &dyn BlockDevice, sb: &Superblock, bounds: &Bounds) -> Result<()> {
    let area = Area::of(sb)?;
    let (head, tail) = (bounds.head, bounds.tail);
    let room = match tail.block.checked_sub(head.block) {
        Some(room) if tail.cycle != head.cycle => room,
        _ => area.blocks - head.block + tail.block,
    };
    let count = room.min(IN_FLIGHT_BLOCKS);
    let mut done = 0;
    while done < count {
        let batch = done..(done + BATCH).min(count);
        let mut bytes = Vec::with_capacity(batch.len() * BLOCK_SIZE);
        for index in batch.clone() {
            bytes.extend_from_slice(header(sb, &area, head, index, tail).as_bytes());
        }
        let first = (head.block + done) % area.blocks;
        area.write(device, first, &bytes).map_err(Error::Device)?;
        done = batch.end;
    }
    device.flush().map_err(Error::Device)
}

/// The block `index` blocks behind the head.
fn header(sb: &Superblock, area: &Area, head: Lsn, index: u32, tail: Lsn) -> RawRecordHeader {
    let block = head.block + index;
    // Behind the ring's end, the blocks before were written in the head's own cycle.
    let (cycle, block) = match block.checked_sub(area.blocks) {
        None => (head.cycle - 1, block),
        Some(block) => (head.cycle, block),
    };
    let mut header = RawRecordHeader::new_zeroed();
    header.magicno = RECORD_MAGIC.into();
    header.cycle = cycle.into();
    header.version = RECORD_VERSION.into();
    header.lsn = Lsn { cycle, block }.to_raw().into();
    header.tail_lsn = tail.to_raw().into();
    header.fmt = FORMAT_LITTLE_ENDIAN.into();
    header.fs_uuid = sb.raw.uuid;
    header
}
