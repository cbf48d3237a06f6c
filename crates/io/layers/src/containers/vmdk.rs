//! VMDK: monolithicSparse and streamOptimized.

use std::io::{self, Read};
use std::sync::Arc;

use disk::BlockDevice;
use parking_lot::Mutex;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::CONVERT;
use super::device::{BlockMap, BlockPlace, ContainerDevice, TableFile};
use crate::{LayerError, Result, raw};

const HEADER: &str = "VMDK header";
const SECTOR: u64 = 512;
/// The grain directory is named by a footer at the end of the file.
const AT_END: u64 = u64::MAX;
/// Flag: unallocated grains and grains of zeros differ.
const HAS_ZEROS: u32 = 1 << 2;
/// Flag: grains are compressed.
const COMPRESSED: u32 = 1 << 16;
/// Maximum size of the text descriptor in bytes.
const DESCRIPTOR_BYTES_MAX: u64 = 1 << 20;
/// Maximum size of a grain in bytes. The usual size is 64 KiB.
const GRAIN_BYTES_MAX: u64 = 16 << 20;
/// Maximum size of the disk in bytes.
const DISK_BYTES_MAX: u64 = 1 << 60;

/// `SparseExtentHeader`.
#[derive(Clone, Copy, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    version: U32,
    flags: U32,
    capacity: U64,
    grain_size: U64,
    descriptor_offset: U64,
    descriptor_size: U64,
    entries_per_table: U32,
    redundant_directory: U64,
    directory: U64,
    overhead: U64,
    unclean: u8,
    line_ends: [u8; 4],
    compression: U16,
    padding: [u8; 433],
}

const _: () = assert!(size_of::<Header>() == SECTOR as usize);

/// The tables of a VMDK.
pub struct VmdkMap {
    grain: u64,
    entries: u64,
    directory: u64,
    has_zeros: bool,
    is_compressed: bool,
    /// The last decompressed grain.
    last: Mutex<Option<(u64, Arc<[u8]>)>>,
}

/// Opens the disk in a file.
///
/// # Errors
/// If the header is damaged or the disk has other files.
pub fn open(file: Arc<dyn BlockDevice>) -> Result<ContainerDevice<VmdkMap>> {
    let mut header: Header = raw::structure(&*file, HEADER, 0)?;
    if header.directory.get() == AT_END {
        // The last two sectors are the footer and the end of the stream.
        let at = file.len().saturating_sub(2 * SECTOR);
        header = raw::structure(&*file, "VMDK footer", at)?;
        if header.magic != *b"KDMV" || header.directory.get() == AT_END {
            return Err(LayerError::damaged("VMDK footer", at, "it names no grain directory"));
        }
    }
    let (map, len) = parse(&header)?;
    let (at, len_text) = (header.descriptor_offset.get(), header.descriptor_size.get());
    if at != 0 && len_text != 0 {
        let (at, len) = (at.saturating_mul(SECTOR), len_text.saturating_mul(SECTOR));
        let text = raw::bytes(&*file, "VMDK descriptor", at, len, DESCRIPTOR_BYTES_MAX)?;
        check_descriptor(&text)?;
    }
    Ok(ContainerDevice::new(file, map, len))
}

fn parse(header: &Header) -> Result<(VmdkMap, u64)> {
    let bad = |problem: String| LayerError::damaged(HEADER, 0, problem);
    if !(1..=3).contains(&header.version.get()) {
        let what = format!("a VMDK of version {}", header.version);
        return Err(LayerError::unsupported(what, CONVERT));
    }
    let flags = header.flags.get();
    let is_compressed = flags & COMPRESSED != 0;
    if is_compressed && header.compression.get() != 1 {
        let what = format!("a VMDK with compression {}", header.compression);
        return Err(LayerError::unsupported(what, CONVERT));
    }
    let in_bytes = |what: &str, sectors: u64, max: u64| {
        let bytes = sectors.checked_mul(SECTOR).filter(|bytes| *bytes > 0 && *bytes <= max);
        bytes.ok_or_else(|| bad(format!("{what} of {sectors} sectors")))
    };
    let grain = in_bytes("grains", header.grain_size.get(), GRAIN_BYTES_MAX)?;
    let len = in_bytes("a disk", header.capacity.get(), DISK_BYTES_MAX)?;
    let directory =
        in_bytes("a grain directory at an offset", header.directory.get(), DISK_BYTES_MAX)?;
    let entries = u64::from(header.entries_per_table.get());
    if entries == 0 {
        return Err(bad("grain tables without entries".into()));
    }
    let has_zeros = flags & HAS_ZEROS != 0;
    let map =
        VmdkMap { grain, entries, directory, has_zeros, is_compressed, last: Mutex::default() };
    Ok((map, len))
}

/// Refuses disks whose contents are also in other files.
fn check_descriptor(text: &[u8]) -> Result<()> {
    let text = String::from_utf8_lossy(text);
    let lines = || text.lines().map(str::trim);
    let value = |key: &str| {
        lines()
            .find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='))
            .map(str::trim)
    };
    if value("parentCID").is_some_and(|parent| !parent.eq_ignore_ascii_case("ffffffff")) {
        let what = "a VMDK that contains the changes of another one";
        return Err(LayerError::unsupported(what, CONVERT));
    }
    let extents = lines()
        .filter(|line| ["RW ", "RDONLY ", "NOACCESS "].iter().any(|it| line.starts_with(it)));
    if extents.count() > 1 {
        return Err(LayerError::unsupported("a VMDK in several files", CONVERT));
    }
    Ok(())
}

fn damaged(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("damaged VMDK: {problem}"))
}

impl VmdkMap {
    /// Decompresses the grain at an offset of the file.
    fn decompress(&self, file: &TableFile, at: u64) -> io::Result<Arc<[u8]>> {
        if let Some((found, bytes)) = &*self.last.lock()
            && *found == at
        {
            return Ok(Arc::clone(bytes));
        }
        // A marker: the number of the first sector, and the number of compressed bytes.
        let marker: [u8; 12] = file.entry(at)?;
        let len = u32::from_le_bytes([marker[8], marker[9], marker[10], marker[11]]);
        if u64::from(len) > 2 * self.grain + 1024 {
            return Err(damaged(format!("a grain of {len} compressed bytes at byte {at}")));
        }
        let mut compressed = vec![0; len as usize];
        file.device().read_at(at + 12, &mut compressed)?;
        let mut grain = Vec::new();
        let decoder = flate2::read::ZlibDecoder::new(&*compressed);
        decoder.take(self.grain + 1).read_to_end(&mut grain)?;
        if grain.len() as u64 > self.grain {
            return Err(damaged(format!("the grain at byte {at} is too long")));
        }
        // The last grain may be shorter.
        grain.resize(self.grain as usize, 0);
        let grain: Arc<[u8]> = grain.into();
        *self.last.lock() = Some((at, Arc::clone(&grain)));
        Ok(grain)
    }
}

impl BlockMap for VmdkMap {
    fn locate(&self, file: &TableFile, offset: u64) -> io::Result<(BlockPlace, u64, u64)> {
        let (number, within) = (offset / self.grain, offset % self.grain);
        let (table, entry) = (number / self.entries, number % self.entries);
        let word = |at: u64| file.entry(at).map(|entry| u64::from(u32::from_le_bytes(entry)));
        let table = word(self.directory + 4 * table)?;
        let grain = if table == 0 { 0 } else { word(table * SECTOR + 4 * entry)? };
        let place = match grain {
            0 => BlockPlace::Zeros,
            1 if self.has_zeros => BlockPlace::Zeros,
            _ if self.is_compressed => BlockPlace::Bytes(self.decompress(file, grain * SECTOR)?),
            _ => BlockPlace::File(grain * SECTOR),
        };
        Ok((place, within, self.grain - within))
    }
}
