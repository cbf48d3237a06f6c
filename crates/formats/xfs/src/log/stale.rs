//! Overwriting the remains of torn records ahead of the head, so that they are never taken for new records. They are
//! replaced by blocks of the previous cycle, each of which is the header of a record without contents.

use disk::BlockDevice;
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

/// Number of blocks written at a time.
const BATCH: u32 = 256;

/// Like [`clear`], for a clean log with such remains. The first record after a clean end may have been torn. Programs
/// that change the UUID of an image leave blocks with other cycles there, and kernels would not find records written
/// before those. A log without remains is not changed.
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

/// Returns whether blocks ahead of the end of a clean log have its cycle: records that were torn, or follow damage.
///
/// # Errors
/// If the device fails.
pub(super) fn has_torn(ring: &Ring<'_>, bounds: &Bounds) -> Result<bool> {
    any_ahead(ring, bounds, |head, is_around, cycle| {
        cycle == if is_around { next_cycle(head.cycle) } else { head.cycle }
    })
}

/// Returns whether `is_left` is true for a block ahead of the head. Its arguments: the head, whether the block is after
/// the end of the ring, and its cycle.
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

/// Returns the number of blocks from the head to the tail.
const fn room(blocks: u32, bounds: &Bounds) -> u32 {
    let (head, tail) = (bounds.head, bounds.tail);
    match tail.block.checked_sub(head.block) {
        Some(room) if tail.cycle != head.cycle => room,
        _ => blocks - head.block + tail.block,
    }
}

/// Overwrites the blocks that may have been written to the log before a crash, up to the tail.
///
/// # Errors
/// If the device fails.
pub(super) fn clear(device: &dyn BlockDevice, sb: &Superblock, bounds: &Bounds) -> Result<()> {
    let area = Area::of(device, sb)?;
    fill(device, sb, bounds, room(area.blocks, bounds).min(IN_FLIGHT_BLOCKS))
}

/// Overwrites `count` blocks after the head.
///
/// # Errors
/// If the device fails.
pub(super) fn fill(
    device: &dyn BlockDevice,
    sb: &Superblock,
    bounds: &Bounds,
    count: u32,
) -> Result<()> {
    let area = Area::of(device, sb)?;
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

/// Returns the block `index` blocks after the head.
fn header(sb: &Superblock, area: &Area, head: Lsn, index: u32, tail: Lsn) -> RawRecordHeader {
    let block = head.block + index;
    // After the end of the ring, the previous contents have the head's own cycle.
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
