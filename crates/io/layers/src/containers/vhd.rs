//! VHD: dynamic disks. Fixed disks are raw, with a footer at the end.

use std::io;
use std::sync::Arc;

use disk::BlockDevice;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::CONVERT;
use super::device::{BlockMap, BlockPlace, ContainerDevice, TableFile};
use crate::{LayerError, Result, raw};

const FOOTER: &str = "VHD footer";
const HEADER: &str = "VHD header";
const SECTOR: u64 = 512;
const DYNAMIC: u32 = 3;
const UNUSED: u32 = u32::MAX;
const BLOCK_BYTES_MAX: u64 = 256 << 20;

/// The footer. Dynamic disks have a copy of it at the start.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Footer {
    cookie: [u8; 8],
    features: U32,
    version: U32,
    data_offset: U64,
    timestamp: U32,
    creator: [u8; 4],
    creator_version: U32,
    creator_host: U32,
    original_size: U64,
    current_size: U64,
    geometry: U32,
    kind: U32,
    checksum: U32,
    id: [u8; 16],
    saved_state: u8,
    reserved: [u8; 427],
}

/// Header of a dynamic disk.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    cookie: [u8; 8],
    data_offset: U64,
    table_offset: U64,
    version: U32,
    entries: U32,
    block_size: U32,
    checksum: U32,
    parent: [u8; 16],
    rest: [u8; 968],
}

const _: () = assert!(size_of::<Footer>() == 512);
const _: () = assert!(size_of::<Header>() == 1024);

/// Returns the inverted sum of the bytes without the checksum's own.
fn checksum(bytes: &[u8], checksum: U32) -> u32 {
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    !(sum(bytes) - sum(checksum.as_bytes()))
}

/// The block allocation table.
pub struct VhdMap {
    table: u64,
    entries: u64,
    block: u64,
    bitmap: u64,
}

/// Opens the disk in a file.
///
/// # Errors
/// If its headers are damaged, or it refers to another disk.
pub fn open(file: Arc<dyn BlockDevice>) -> Result<ContainerDevice<VhdMap>> {
    let footer: Footer = raw::structure(&*file, FOOTER, 0)?;
    let found = checksum(footer.as_bytes(), footer.checksum);
    if found != footer.checksum.get() {
        let problem = format!("checksum {found:#010x}, expected {:#010x}", footer.checksum);
        return Err(LayerError::damaged(FOOTER, 0, problem));
    }
    if footer.kind.get() != DYNAMIC {
        let what = match footer.kind.get() {
            4 => "a VHD that contains the changes of another one".into(),
            kind => format!("a VHD of type {kind}"),
        };
        return Err(LayerError::unsupported(what, CONVERT));
    }
    let at = footer.data_offset.get();
    let header: Header = raw::structure(&*file, HEADER, at)?;
    let bad = |problem: String| LayerError::damaged(HEADER, at, problem);
    let found = checksum(header.as_bytes(), header.checksum);
    if header.cookie != *b"cxsparse" || found != header.checksum.get() {
        return Err(bad(format!("checksum {found:#010x}, expected {:#010x}", header.checksum)));
    }
    let (block, len) = (u64::from(header.block_size.get()), footer.current_size.get());
    if !block.is_power_of_two() || !(SECTOR..=BLOCK_BYTES_MAX).contains(&block) {
        return Err(bad(format!("blocks of {block} bytes")));
    }
    let entries = u64::from(header.entries.get());
    if len.div_ceil(block) > entries {
        return Err(bad(format!("{entries} blocks of {block} bytes for a disk of {len} bytes")));
    }
    // A block begins with one bit per sector, in whole sectors.
    let bitmap = (block / SECTOR).div_ceil(8).next_multiple_of(SECTOR);
    let map = VhdMap { table: header.table_offset.get(), entries, block, bitmap };
    Ok(ContainerDevice::new(file, map, len))
}

impl BlockMap for VhdMap {
    fn locate(&self, file: &TableFile, offset: u64) -> io::Result<(BlockPlace, u64, u64)> {
        let (number, within) = (offset / self.block, offset % self.block);
        if number >= self.entries {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let at = self.table.saturating_add(4 * number);
        let place = match u32::from_be_bytes(file.entry(at)?) {
            UNUSED => BlockPlace::Zeros,
            sector => BlockPlace::File(u64::from(sector) * SECTOR + self.bitmap),
        };
        Ok((place, within, self.block - within))
    }
}
