//! VHDX.

use std::io;
use std::sync::Arc;

use disk::BlockDevice;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::CONVERT;
use super::device::{BlockMap, BlockPlace, ContainerDevice, TableFile};
use crate::{LayerError, Result, raw};

const HEADER: &str = "VHDX header";
const REGIONS: &str = "VHDX region table";
const METADATA: &str = "VHDX metadata table";
const HEADER_PLACES: [u64; 2] = [64 << 10, 128 << 10];
const REGION_PLACES: [u64; 2] = [192 << 10, 256 << 10];
const TABLE_BYTES: u64 = 64 << 10;
const HEADER_BYTES: usize = 4096;
const ENTRIES_MAX: usize = 2047;
const MIB: u64 = 1 << 20;
/// Sizes that the specification permits.
const BLOCK_BYTES_MAX: u64 = 256 * MIB;
const DISK_BYTES_MAX: u64 = 64 << 40;

/// GUIDs in the byte order of the file.
const BAT: [u8; 16] = guid(0x2dc2_7766, 0xf623, 0x4200, 0x9d64_115e_9bfd_4a08);
const METADATA_REGION: [u8; 16] = guid(0x8b7c_a206, 0x4790, 0x4b9a, 0xb8fe_575f_050f_886e);
const FILE_PARAMETERS: [u8; 16] = guid(0xcaa1_6737, 0xfa36, 0x4d43, 0xb3b6_33f0_aa44_e76b);
const DISK_SIZE: [u8; 16] = guid(0x2fa5_4224, 0xcd1b, 0x4876, 0xb211_5dbe_d83b_f4b8);
const SECTOR_SIZE: [u8; 16] = guid(0x8141_bf1d, 0xa96f, 0x4709, 0xba47_f233_a8fa_ab5f);
const PHYSICAL_SECTOR_SIZE: [u8; 16] = guid(0xcda3_48c7, 0x445d, 0x4471, 0x9cc9_e988_5251_c556);
const DISK_ID: [u8; 16] = guid(0xbeca_12ab, 0xb2e6, 0x4523, 0x93ef_c309_e000_c746);

const fn guid(a: u32, b: u16, c: u16, d: u64) -> [u8; 16] {
    let (a, b, c, d) = (a.to_le_bytes(), b.to_le_bytes(), c.to_le_bytes(), d.to_be_bytes());
    [a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]]
}

/// Fields of a header. The rest of its 4 KiB is reserved.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    signature: [u8; 4],
    checksum: U32,
    sequence: U64,
    file_write: [u8; 16],
    data_write: [u8; 16],
    log: [u8; 16],
    log_version: U16,
    version: U16,
    log_length: U32,
    log_offset: U64,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RegionTable {
    signature: [u8; 4],
    checksum: U32,
    entries: U32,
    reserved: U32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RegionEntry {
    id: [u8; 16],
    offset: U64,
    length: U32,
    flags: U32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct MetadataTable {
    signature: [u8; 8],
    reserved: U16,
    entries: U16,
    reserved2: [u8; 20],
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct MetadataEntry {
    id: [u8; 16],
    offset: U32,
    length: U32,
    flags: U32,
    reserved: U32,
}

const _: () = assert!(size_of::<Header>() == 80);
const _: () = assert!(size_of::<RegionTable>() == 16);
const _: () = assert!(size_of::<RegionEntry>() == 32);
const _: () = assert!(size_of::<MetadataTable>() == 32);
const _: () = assert!(size_of::<MetadataEntry>() == 32);

/// Flag of a region or item that a reader must know.
const REGION_REQUIRED: u32 = 1;
const ITEM_REQUIRED: u32 = 4;
const HAS_PARENT: u32 = 2;

/// The block allocation table.
pub struct VhdxMap {
    table: u64,
    block: u64,
    /// Number of payload blocks per entry of a sector bitmap.
    ratio: u64,
}

/// Returns the CRC-32C of bytes with the checksum at byte 4 as zeros.
fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(&bytes[..4]), &[0; 4]), &bytes[8..])
}

/// Opens the disk in a file.
///
/// # Errors
/// If its structures are damaged, its log is not empty, or it refers to another disk.
pub fn open(file: Arc<dyn BlockDevice>) -> Result<ContainerDevice<VhdxMap>> {
    check_header(&*file)?;
    let (table, metadata) = read_regions(&*file)?;
    let (block, len, sector) = read_metadata(&*file, metadata)?;
    let ratio = (1 << 23) * sector / block;
    Ok(ContainerDevice::new(file, VhdxMap { table, block, ratio }, len))
}

/// Checks the current header: the valid one with the higher sequence number.
fn check_header(file: &dyn BlockDevice) -> Result<()> {
    let mut current: Option<(u64, Header)> = None;
    let mut problem = None;
    for at in HEADER_PLACES {
        match read_header(file, at) {
            Ok(header)
                if current.as_ref().is_none_or(|(newest, _)| header.sequence.get() > *newest) =>
            {
                current = Some((header.sequence.get(), header));
            }
            Ok(_) => {}
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    let Some((_, header)) = current else {
        return Err(problem.unwrap_or_else(|| LayerError::damaged(HEADER, 0, "none is valid")));
    };
    if header.version.get() != 1 {
        return Err(LayerError::unsupported(format!("VHDX version {}", header.version), CONVERT));
    }
    if header.log != [0; 16] {
        let what = "a VHDX whose log was not applied";
        return Err(LayerError::unsupported(what, "apply it with: qemu-img check -r all IMAGE"));
    }
    Ok(())
}

fn read_header(file: &dyn BlockDevice, at: u64) -> Result<Header> {
    let bytes = raw::bytes(file, HEADER, at, HEADER_BYTES as u64, HEADER_BYTES as u64)?;
    let header: Header = raw::structure(file, HEADER, at)?;
    let found = checksum(&bytes);
    if header.signature != *b"head" || found != header.checksum.get() {
        let problem = format!("checksum {found:#010x}, expected {:#010x}", header.checksum);
        return Err(LayerError::damaged(HEADER, at, problem));
    }
    Ok(header)
}

/// Returns the offsets of the block allocation table and of the metadata.
fn read_regions(file: &dyn BlockDevice) -> Result<(u64, u64)> {
    let [first, second] = REGION_PLACES.map(|at| read_regions_at(file, at));
    first.or_else(|error| second.map_err(|_| error))
}

fn read_regions_at(file: &dyn BlockDevice, at: u64) -> Result<(u64, u64)> {
    let bytes = raw::bytes(file, REGIONS, at, TABLE_BYTES, TABLE_BYTES)?;
    let bad = |problem: String| LayerError::damaged(REGIONS, at, problem);
    let (table, rest) = raw::prefix::<RegionTable>(&bytes, REGIONS, at)?;
    let (found, count) = (checksum(&bytes), table.entries.get() as usize);
    if table.signature != *b"regi" || found != table.checksum.get() {
        return Err(bad(format!("checksum {found:#010x}, expected {:#010x}", table.checksum)));
    }
    if count > ENTRIES_MAX {
        return Err(bad(format!("{count} entries, expected at most {ENTRIES_MAX}")));
    }
    let (mut table, mut metadata, mut rest) = (None, None, rest);
    for _ in 0..count {
        let (entry, after) = raw::prefix::<RegionEntry>(rest, REGIONS, at)?;
        rest = after;
        match entry.id {
            BAT => table = Some(entry.offset.get()),
            METADATA_REGION => metadata = Some(entry.offset.get()),
            _ if entry.flags.get() & REGION_REQUIRED != 0 => {
                let what = "a VHDX with an unknown region";
                return Err(LayerError::unsupported(what, CONVERT));
            }
            _ => {}
        }
    }
    table
        .zip(metadata)
        .ok_or_else(|| bad("it lists no block allocation table or no metadata".into()))
}

/// Returns the sizes of a block, of the disk and of a sector, in bytes.
fn read_metadata(file: &dyn BlockDevice, at: u64) -> Result<(u64, u64, u64)> {
    let bytes = raw::bytes(file, METADATA, at, TABLE_BYTES, TABLE_BYTES)?;
    let bad = |problem: String| LayerError::damaged(METADATA, at, problem);
    let (table, mut rest) = raw::prefix::<MetadataTable>(&bytes, METADATA, at)?;
    let count = usize::from(table.entries.get());
    if table.signature != *b"metadata" || count > ENTRIES_MAX {
        return Err(bad(format!("{count} entries, expected at most {ENTRIES_MAX}")));
    }
    let (mut block, mut disk, mut sector) = (None, None, None);
    for _ in 0..count {
        let (entry, after) = raw::prefix::<MetadataEntry>(rest, METADATA, at)?;
        rest = after;
        let place = at.saturating_add(entry.offset.get().into());
        match entry.id {
            FILE_PARAMETERS => {
                let [size, flags]: [U32; 2] = raw::structure(file, "VHDX file parameters", place)?;
                if flags.get() & HAS_PARENT != 0 {
                    let what = "a VHDX that contains the changes of another one";
                    return Err(LayerError::unsupported(what, CONVERT));
                }
                block = Some(u64::from(size.get()));
            }
            DISK_SIZE => disk = Some(raw::structure::<U64>(file, "VHDX disk size", place)?.get()),
            SECTOR_SIZE => {
                let size = raw::structure::<U32>(file, "VHDX sector size", place)?;
                sector = Some(u64::from(size.get()));
            }
            PHYSICAL_SECTOR_SIZE | DISK_ID => {}
            _ if entry.flags.get() & ITEM_REQUIRED != 0 => {
                let what = "a VHDX with unknown metadata";
                return Err(LayerError::unsupported(what, CONVERT));
            }
            _ => {}
        }
    }
    let (Some(block), Some(disk), Some(sector)) = (block, disk, sector) else {
        return Err(bad("it lacks the size of blocks, sectors or the disk".into()));
    };
    if !block.is_power_of_two() || !(MIB..=BLOCK_BYTES_MAX).contains(&block) {
        return Err(bad(format!("blocks of {block} bytes")));
    }
    if disk > DISK_BYTES_MAX || !matches!(sector, 512 | 4096) {
        return Err(bad(format!("a disk of {disk} bytes in sectors of {sector}")));
    }
    Ok((block, disk, sector))
}

impl BlockMap for VhdxMap {
    fn locate(&self, file: &TableFile, offset: u64) -> io::Result<(BlockPlace, u64, u64)> {
        let (number, within) = (offset / self.block, offset % self.block);
        // An entry for a sector bitmap follows each `ratio` entries of blocks.
        let index = number + number / self.ratio;
        let entry = u64::from_le_bytes(file.entry(self.table.saturating_add(8 * index))?);
        let place = match entry & 7 {
            0..=3 => BlockPlace::Zeros,
            6 => BlockPlace::File(entry & !(MIB - 1)),
            state => {
                let what = format!("damaged VHDX: block {number} has state {state}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        };
        Ok((place, within, self.block - within))
    }
}
