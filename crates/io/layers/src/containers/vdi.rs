//! VDI of version 1.1.

use std::io;
use std::sync::Arc;

use disk::BlockDevice;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::CONVERT;
use super::device::{BlockMap, BlockPlace, ContainerDevice, TableFile};
use crate::{LayerError, Result, raw};

/// Magic number at byte 64.
pub const MAGIC: u32 = 0xbeda_107f;
const HEADER: &str = "VDI header";
const VERSION: u32 = 0x0001_0001;
/// Entries of blocks without data: never written, and zeros.
const WITHOUT_DATA: [u32; 2] = [u32::MAX, u32::MAX - 1];
const BLOCK_BYTES_MAX: u64 = 256 << 20;

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    text: [u8; 64],
    magic: U32,
    version: U32,
    header_size: U32,
    kind: U32,
    flags: U32,
    description: [u8; 256],
    map_offset: U32,
    data_offset: U32,
    geometry: [U32; 3],
    sector_size: U32,
    unused: U32,
    disk_size: U64,
    block_size: U32,
    block_extra: U32,
    blocks: U32,
    blocks_allocated: U32,
}

const _: () = assert!(size_of::<Header>() == 392);

/// The block map.
pub struct VdiMap {
    table: u64,
    data: u64,
    block: u64,
    /// Distance of blocks in the file.
    distance: u64,
    /// Bytes of a block before its data.
    extra: u64,
    blocks: u64,
}

/// Opens the disk in a file.
///
/// # Errors
/// If the header is damaged, or the disk refers to another one.
pub fn open(file: Arc<dyn BlockDevice>) -> Result<ContainerDevice<VdiMap>> {
    let header: Header = raw::structure(&*file, HEADER, 0)?;
    let bad = |problem: String| LayerError::damaged(HEADER, 0, problem);
    if header.version.get() != VERSION {
        let what = format!("VDI version {:#x}", header.version);
        return Err(LayerError::unsupported(what, CONVERT));
    }
    // 1 is dynamic, 2 is fixed.
    if !matches!(header.kind.get(), 1 | 2) {
        let what = format!("a VDI of type {} (changes of another one)", header.kind);
        return Err(LayerError::unsupported(what, CONVERT));
    }
    let (block, extra) = (u64::from(header.block_size.get()), u64::from(header.block_extra.get()));
    if !block.is_power_of_two() || !(512..=BLOCK_BYTES_MAX).contains(&block) {
        return Err(bad(format!("blocks of {block} bytes")));
    }
    let (len, blocks) = (header.disk_size.get(), u64::from(header.blocks.get()));
    if len.div_ceil(block) > blocks {
        return Err(bad(format!("{blocks} blocks of {block} bytes for a disk of {len} bytes")));
    }
    let (table, data) = (header.map_offset.get().into(), header.data_offset.get().into());
    let map = VdiMap { table, data, block, distance: block + extra, extra, blocks };
    Ok(ContainerDevice::new(file, map, len))
}

impl BlockMap for VdiMap {
    fn locate(&self, file: &TableFile, offset: u64) -> io::Result<(BlockPlace, u64, u64)> {
        let (number, within) = (offset / self.block, offset % self.block);
        let entry = u32::from_le_bytes(file.entry(self.table + 4 * number)?);
        let place = match entry {
            entry if WITHOUT_DATA.contains(&entry) => BlockPlace::Zeros,
            entry if u64::from(entry) < self.blocks => {
                BlockPlace::File(self.data + u64::from(entry) * self.distance + self.extra)
            }
            entry => {
                let blocks = self.blocks;
                let what = format!("damaged VDI: block {number} is at {entry} of {blocks} blocks");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        };
        Ok((place, within, self.block - within))
    }
}
