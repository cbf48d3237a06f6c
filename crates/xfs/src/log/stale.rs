//! What torn records left ahead of the head is written over, so that it is never taken for new records: by
//! blocks of the cycle before, each of them a header of a record without contents.

use blockdev::BlockDevice;
use vfs::{Error, Result};
use zerocopy::{FromZeros, IntoBytes};

use super::area::Area;
use super::bounds::Bounds;
use super::end::{IN_FLIGHT_BLOCKS, Ring};
use crate::format::log::build::next_cycle;
use crate::format::log::{
    BLOCK_SIZE, FORMAT_LITTLE_ENDIAN, Lsn, RECORD_MAGIC, RECORD_VERSION, RawRecordHeader, cycle_of,
};
use crate::format::superblock::Superblock;

/// Blocks written at a time.
const BATCH: u32 = 256;

/// The same where the log is clean, if there is anything: the first record behind a clean end may have been
/// torn, and programs that gave the image another uuid leave blocks of no cycle there, so that kernels do not find
/// what is written before those. A log without such leftovers is not touched.
///
/// # Errors
/// If the device fails.
pub(super) fn clear_leftovers(
    device: &dyn BlockDevice,
    sb: &Superblock,
    ring: &Ring<'_>,
    bounds: &Bounds,
) -> Result<()> {
    let expected = |head: Lsn, is_around: bool| match is_around {
        true => head.cycle,
        false => head.cycle.wrapping_sub(1),
    };
    if any_ahead(ring, bounds, |head, is_around, cycle| cycle != expected(head, is_around))? {
        clear(device, sb, bounds)?;
    }
    Ok(())
}

/// Whether blocks ahead of the end of a clean log are of its cycle: records that were torn, or come after damage.
///
/// # Errors
/// If the device fails.
pub(super) fn has_torn(ring: &Ring<'_>, bounds: &Bounds) -> Result<bool> {
    any_ahead(ring, bounds, |head, is_around, cycle| {
        cycle == if is_around { next_cycle(head.cycle) } else { head.cycle }
    })
}

/// Whether `is_left` holds of a block ahead of the head, given the head, whether the block is behind the end of the
/// ring, and its cycle.
fn any_ahead(
    ring: &Ring<'_>,
    bounds: &Bounds,
    is_left: impl Fn(Lsn, bool, u32) -> bool,
) -> Result<bool> {
    let head = bounds.head;
    let count = room(ring.blocks, bounds).min(IN_FLIGHT_BLOCKS);
    let mut bytes = vec![0; count as usize * BLOCK_SIZE];
    ring.read_around(head.block, &mut bytes)?;
    let mut ahead = (0..).zip(bytes.chunks_exact(BLOCK_SIZE));
    Ok(ahead.any(|(index, block): (u32, &[u8])| {
        is_left(head, head.block + index >= ring.blocks, cycle_of(block))
    }))
}

/// Blocks from the head to the tail.
const fn room(blocks: u32, bounds: &Bounds) -> u32 {
    let (head, tail) = (bounds.head, bounds.tail);
    match tail.block.checked_sub(head.block) {
        Some(room) if tail.cycle != head.cycle => room,
        _ => blocks - head.block + tail.block,
    }
}

/// Writes over what may have been on its way to the log in a crash, as far as the tail.
///
/// # Errors
/// If the device fails.
pub(super) fn clear(device: &dyn BlockDevice, sb: &Superblock, bounds: &Bounds) -> Result<()> {
    let area = Area::of(sb)?;
    fill(device, sb, bounds, room(area.blocks, bounds).min(IN_FLIGHT_BLOCKS))
}

/// Writes over so many blocks behind the head.
///
/// # Errors
/// If the device fails.
pub(super) fn fill(
    device: &dyn BlockDevice,
    sb: &Superblock,
    bounds: &Bounds,
    count: u32,
) -> Result<()> {
    let area = Area::of(sb)?;
    let (head, tail) = (bounds.head, bounds.tail);
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
