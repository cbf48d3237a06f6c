//! Configuration space of a block device.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{Immutable, IntoBytes};

use super::request::{SECTOR, SEGMENTS_MAX};

/// `struct virtio_blk_config` (VIRTIO 1.2, 5.2.4), up to the fields of `VIRTIO_BLK_F_WRITE_ZEROES`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Config {
    /// Size in sectors of 512 bytes.
    capacity: U64,
    size_max: U32,
    /// Maximum number of segments of a request.
    seg_max: U32,
    geometry: [u8; 4],
    /// Logical block size in bytes.
    blk_size: U32,
    /// Logarithm of the number of logical blocks in a physical block.
    physical_block_exp: u8,
    alignment_offset: u8,
    /// In logical blocks.
    min_io_size: U16,
    opt_io_size: U32,
    writeback: u8,
    unused0: u8,
    num_queues: U16,
    max_discard_sectors: U32,
    max_discard_seg: U32,
    discard_sector_alignment: U32,
    max_write_zeroes_sectors: U32,
    max_write_zeroes_seg: U32,
    write_zeroes_may_unmap: u8,
    unused1: [u8; 3],
}

const _: () = assert!(size_of::<Config>() == 60);

impl Config {
    /// Describes a device of `len` bytes. An incomplete last sector is not accessible.
    pub(super) fn new(len: u64, queues: u16, queue_size: u16) -> Self {
        Self {
            capacity: (len / SECTOR).into(),
            size_max: 0.into(),
            // The other two descriptors of a chain contain header and status.
            seg_max: u32::from(queue_size - 2).into(),
            geometry: [0; 4],
            blk_size: (SECTOR as u32).into(),
            // Blocks of the file systems and of most devices have 4 KiB.
            physical_block_exp: 3,
            alignment_offset: 0,
            min_io_size: 8.into(),
            opt_io_size: 0.into(),
            writeback: 1,
            unused0: 0,
            num_queues: queues.into(),
            max_discard_sectors: (u32::MAX / SECTOR as u32).into(),
            max_discard_seg: SEGMENTS_MAX.into(),
            discard_sector_alignment: 8.into(),
            max_write_zeroes_sectors: (u32::MAX / SECTOR as u32).into(),
            max_write_zeroes_seg: SEGMENTS_MAX.into(),
            write_zeroes_may_unmap: 1,
            unused1: [0; 3],
        }
    }
}
