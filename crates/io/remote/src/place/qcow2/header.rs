//! The header and its extensions, snapshot headers and bitmap directory entries. No I/O.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::damage::{Feature, Qcow2Error, Structure, damage};

const MAGIC: [u8; 4] = *b"QFI\xfb";
/// Bytes of the header of version 2; version 3 has at least [`HEADER_BYTES`].
const HEADER_BYTES_V2: u64 = 72;
pub(super) const HEADER_BYTES: usize = 104;
/// Minimum cluster size of the specification and maximum of QEMU, as powers of two.
const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
const REFCOUNT_ORDER_MAX: u32 = 6;
/// QEMU's limits: table sizes in bytes, and number of snapshots.
const L1_BYTES_MAX: u64 = 32 << 20;
const REFCOUNT_TABLE_BYTES_MAX: u64 = 8 << 20;
const SNAPSHOTS_MAX: u32 = 65536;
const BACKING_NAME_BYTES_MAX: u32 = 1023;

/// Incompatible features: refcounts may be too low (dirty), the image is marked as corrupt, the data is in another
/// file.
const DIRTY: u64 = 1;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
/// Incompatible features: compressed clusters are not deflated, L2 entries have subclusters.
const COMPRESSION_TYPE: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;
/// The autoclear feature that declares the bitmaps consistent.
const BITMAPS_CONSISTENT: u64 = 1;

const EXTENSION_END: u32 = 0;
const EXTENSION_FEATURE_NAMES: u32 = 0x6803_f857;
const EXTENSION_BITMAPS: u32 = 0x2385_2875;
const EXTENSION_DATA_FILE: u32 = 0x4441_5441;
const FEATURE_NAME_BYTES: u64 = 48;

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 4],
    version: U32,
    backing_file_offset: U64,
    backing_file_size: U32,
    cluster_bits: U32,
    size: U64,
    crypt_method: U32,
    l1_size: U32,
    l1_table_offset: U64,
    refcount_table_offset: U64,
    refcount_table_clusters: U32,
    nb_snapshots: U32,
    snapshots_offset: U64,
    incompatible_features: U64,
    compatible_features: U64,
    autoclear_features: U64,
    refcount_order: U32,
    header_length: U32,
}
const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawExtension {
    kind: U32,
    length: U32,
}
const _: () = assert!(size_of::<RawExtension>() == 8);

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawBitmaps {
    nb_bitmaps: U32,
    reserved: U32,
    directory_size: U64,
    directory_offset: U64,
}
const _: () = assert!(size_of::<RawBitmaps>() == 24);

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSnapshot {
    l1_table_offset: U64,
    l1_size: U32,
    id_str_size: U16,
    name_size: U16,
    date: U64,
    vm_clock_nsec: U64,
    vm_state_size: U32,
    extra_data_size: U32,
}
pub(super) const SNAPSHOT_BYTES: usize = 40;
const _: () = assert!(size_of::<RawSnapshot>() == SNAPSHOT_BYTES);

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawBitmap {
    table_offset: U64,
    table_size: U32,
    flags: U32,
    kind: u8,
    granularity_bits: u8,
    name_size: U16,
    extra_data_size: U32,
}
pub(super) const BITMAP_BYTES: usize = 24;
const _: () = assert!(size_of::<RawBitmap>() == BITMAP_BYTES);

/// A validated header. Table offsets are aligned, but may still be outside of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Qcow2Header {
    /// Version 2 or 3.
    pub version: u32,
    /// Cluster size as a power of two.
    pub cluster_bits: u32,
    /// Width of a refcount in bits, as a power of two.
    pub refcount_order: u32,
    /// The active L1 table.
    pub l1: TableLocation,
    /// The refcount table.
    pub refcount_table: TableLocation,
    /// Offset of the snapshot table.
    pub snapshots_offset: u64,
    /// Number of snapshots.
    pub snapshots: u32,
    /// Data clusters are in another file, where they have no refcounts.
    pub has_external_data: bool,
    /// Name of that file, set after the extensions were read; empty if the image has none.
    pub data_file: Option<String>,
    is_bitmaps_consistent: bool,
    header_bytes: u64,
    /// Offset of the backing file's name, or the end of the first cluster. Extensions end there.
    extensions_end: u64,
}

/// A table of 64-bit entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableLocation {
    /// Offset in the file.
    pub offset: u64,
    /// Number of entries.
    pub entries: u64,
}

/// The required header extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Extensions {
    pub(super) bitmaps: Option<Bitmaps>,
    pub(super) data_file: Option<String>,
}

/// The bitmaps extension, which locates the bitmap directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bitmaps {
    pub(super) count: u32,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// An entry of the snapshot table or of the bitmap directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableEntry {
    pub(super) table: TableLocation,
    /// Length including the variable part, in bytes.
    pub(super) bytes: u64,
}

impl Qcow2Header {
    /// Parses the first bytes of a file. Shorter files are padded with zeros.
    ///
    /// # Errors
    /// If it is not a header, a field is out of its range, or the image has unsupported features.
    pub(crate) fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Qcow2Error> {
        let raw: &RawHeader = zerocopy::transmute_ref!(bytes);
        if raw.magic != MAGIC {
            return Err(Qcow2Error::Magic { found: raw.magic });
        }
        let version = raw.version.get();
        let cluster_bits = raw.cluster_bits.get();
        if !(2..=3).contains(&version) {
            return Err(Qcow2Error::Unsupported(Feature::Version(version)));
        }
        within(20, "cluster_bits", &CLUSTER_BITS, cluster_bits)?;
        let is_v3 = version == 3;
        if raw.crypt_method.get() != 0 {
            return Err(Qcow2Error::Unsupported(Feature::Encryption(raw.crypt_method.get())));
        }
        let (refcount_order, header_bytes) =
            if is_v3 { raw.extent_of_v3(1 << cluster_bits)? } else { (4, HEADER_BYTES_V2) };
        let header = Self {
            version,
            cluster_bits,
            refcount_order,
            l1: TableLocation {
                offset: raw.l1_table_offset.get(),
                entries: raw.l1_size.get().into(),
            },
            refcount_table: TableLocation {
                offset: raw.refcount_table_offset.get(),
                entries: (u64::from(raw.refcount_table_clusters.get()) << cluster_bits) / 8,
            },
            snapshots_offset: raw.snapshots_offset.get(),
            snapshots: raw.nb_snapshots.get(),
            has_external_data: is_v3 && raw.incompatible_features.get() & EXTERNAL_DATA != 0,
            data_file: None,
            is_bitmaps_consistent: is_v3 && raw.autoclear_features.get() & BITMAPS_CONSISTENT != 0,
            header_bytes,
            extensions_end: raw.backing_name(cluster_bits)?,
        };
        header.check_tables()?;
        Ok(header)
    }

    fn check_tables(&self) -> Result<(), Qcow2Error> {
        self.check_l1(Structure::L1, self.l1)?;
        let clusters = self.refcount_table.entries * 8 / self.cluster_bytes();
        let max = REFCOUNT_TABLE_BYTES_MAX.max(self.cluster_bytes()) / self.cluster_bytes();
        within(56, "refcount_table_clusters", &(1..=max), clusters)?;
        self.check_aligned(Structure::RefcountTable, self.refcount_table.offset)?;
        within(60, "nb_snapshots", &(0..=SNAPSHOTS_MAX), self.snapshots)?;
        if self.snapshots > 0 {
            self.check_aligned(Structure::Snapshots, self.snapshots_offset)?;
        }
        Ok(())
    }

    /// Checks the size and the offset of an L1 table.
    pub(super) fn check_l1(
        &self,
        structure: Structure,
        table: TableLocation,
    ) -> Result<(), Qcow2Error> {
        let max = L1_BYTES_MAX / 8;
        if table.entries > max {
            let expected = format!("at most {max}");
            return Err(damage(structure, table.offset, "entries", expected, table.entries));
        }
        if table.entries == 0 { Ok(()) } else { self.check_aligned(structure, table.offset) }
    }

    /// Checks that a structure is aligned to clusters and not in the first cluster.
    pub(super) fn check_aligned(
        &self,
        structure: Structure,
        offset: u64,
    ) -> Result<(), Qcow2Error> {
        let unit = self.cluster_bytes();
        if offset.is_multiple_of(unit) && offset > 0 {
            return Ok(());
        }
        let expected = format!("a multiple of {unit} above 0");
        Err(damage(structure, offset, "place", expected, offset))
    }

    /// Returns the cluster size in bytes.
    #[must_use]
    pub(crate) fn cluster_bytes(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Returns the number of refcounts in one refcount block.
    pub(super) fn refcounts_per_block(&self) -> u64 {
        (self.cluster_bytes() * 8) >> self.refcount_order
    }

    /// Reads the extensions in the first cluster.
    pub(super) fn extensions(&self, cluster: &[u8]) -> Result<Extensions, Qcow2Error> {
        let mut found = Extensions::default();
        if self.version < 3 {
            return Ok(found);
        }
        let (mut at, end) = (self.header_bytes, self.extensions_end);
        let bytes = |at: u64, len: u64| {
            let last = at.checked_add(len).filter(|last| *last <= end)?;
            cluster.get(at as usize..last as usize)
        };
        // An area without an end mark ends with the cluster or before the backing file's name.
        while let Some(head) = bytes(at, size_of::<RawExtension>() as u64) {
            let Ok(head) = RawExtension::ref_from_bytes(head) else { break };
            let (kind, len) = (head.kind.get(), u64::from(head.length.get()));
            if kind == EXTENSION_END {
                break;
            }
            let Some(data) = bytes(at + 8, len) else {
                let expected = format!("at most {}", end.saturating_sub(at + 8));
                return Err(damage(Structure::Header, at, "length of an extension", expected, len));
            };
            match kind {
                EXTENSION_FEATURE_NAMES if !len.is_multiple_of(FEATURE_NAME_BYTES) => {
                    let expected = format!("a multiple of {FEATURE_NAME_BYTES}");
                    let what = "length of the feature names";
                    return Err(damage(Structure::Header, at, what, expected, len));
                }
                EXTENSION_BITMAPS if self.is_bitmaps_consistent => {
                    found.bitmaps = Some(self.bitmaps(at, data)?);
                }
                EXTENSION_DATA_FILE => {
                    found.data_file = Some(String::from_utf8_lossy(data).into_owned());
                }
                _ => {}
            }
            at += 8 + len.next_multiple_of(8);
        }
        Ok(found)
    }

    fn bitmaps(&self, at: u64, data: &[u8]) -> Result<Bitmaps, Qcow2Error> {
        let Ok((raw, _)) = RawBitmaps::ref_from_prefix(data) else {
            let (what, found) = ("length of the bitmaps extension", data.len());
            return Err(damage(Structure::Header, at, what, "at least 24", found));
        };
        let (offset, bytes) = (raw.directory_offset.get(), raw.directory_size.get());
        self.check_aligned(Structure::BitmapDirectory, offset)?;
        Ok(Bitmaps { count: raw.nb_bitmaps.get(), offset, bytes })
    }
}

impl RawHeader {
    /// Checks the fields that version 3 added. Returns the refcount order and the header's length.
    fn extent_of_v3(&self, cluster_bytes: u64) -> Result<(u32, u64), Qcow2Error> {
        let features = self.incompatible_features.get();
        if features & DIRTY != 0 {
            let what = "the image is marked as dirty, so its refcounts may be too low";
            return Err(damage(Structure::Header, 72, what, "not marked", "the dirty bit"));
        }
        if features & CORRUPT != 0 {
            let what = "the image is marked as corrupt";
            return Err(damage(Structure::Header, 72, what, "not marked", "the corrupt bit"));
        }
        let unknown = features & !(EXTERNAL_DATA | COMPRESSION_TYPE | EXTENDED_L2);
        let feature = match () {
            () if unknown != 0 => Some(Feature::Unknown(unknown)),
            () if features & COMPRESSION_TYPE != 0 => Some(Feature::Compression),
            () if features & EXTENDED_L2 != 0 => Some(Feature::ExtendedL2),
            () => None,
        };
        if let Some(feature) = feature {
            return Err(Qcow2Error::Unsupported(feature));
        }
        within(96, "refcount_order", &(0..=REFCOUNT_ORDER_MAX), self.refcount_order.get())?;
        let header_bytes = u64::from(self.header_length.get());
        within(100, "header_length", &(HEADER_BYTES as u64..=cluster_bytes), header_bytes)?;
        Ok((self.refcount_order.get(), header_bytes))
    }

    /// Checks the location of the backing file's name. Returns its offset, or the end of the first cluster if there is
    /// none.
    fn backing_name(&self, cluster_bits: u32) -> Result<u64, Qcow2Error> {
        let (offset, len) = (self.backing_file_offset.get(), self.backing_file_size.get());
        let end = 1 << cluster_bits;
        if offset == 0 {
            return Ok(end);
        }
        if len > BACKING_NAME_BYTES_MAX {
            let expected = format!("at most {BACKING_NAME_BYTES_MAX}");
            return Err(damage(Structure::BackingName, offset, "length", expected, len));
        }
        if offset < HEADER_BYTES_V2 || offset.checked_add(len.into()).is_none_or(|last| last > end)
        {
            let expected = format!("between the header and byte {end}");
            let found = format!("bytes {offset}+{len}");
            return Err(damage(Structure::BackingName, offset, "place", expected, found));
        }
        Ok(offset)
    }
}

/// Parses the fixed part of a snapshot.
pub(super) fn snapshot(bytes: &[u8; SNAPSHOT_BYTES]) -> TableEntry {
    let raw: &RawSnapshot = zerocopy::transmute_ref!(bytes);
    let rest = u64::from(raw.extra_data_size.get())
        + u64::from(raw.id_str_size.get())
        + u64::from(raw.name_size.get());
    let table =
        TableLocation { offset: raw.l1_table_offset.get(), entries: raw.l1_size.get().into() };
    TableEntry { table, bytes: (SNAPSHOT_BYTES as u64 + rest).next_multiple_of(8) }
}

/// Parses the fixed part of a bitmap's entry.
pub(super) fn bitmap(bytes: &[u8; BITMAP_BYTES]) -> TableEntry {
    let raw: &RawBitmap = zerocopy::transmute_ref!(bytes);
    let rest = u64::from(raw.extra_data_size.get()) + u64::from(raw.name_size.get());
    let table =
        TableLocation { offset: raw.table_offset.get(), entries: raw.table_size.get().into() };
    TableEntry { table, bytes: (BITMAP_BYTES as u64 + rest).next_multiple_of(8) }
}

/// Checks a field of the header.
fn within<T: PartialOrd + std::fmt::Display>(
    offset: u64,
    field: &'static str,
    range: &std::ops::RangeInclusive<T>,
    value: T,
) -> Result<(), Qcow2Error> {
    if range.contains(&value) {
        return Ok(());
    }
    let expected = format!("{} to {}", range.start(), range.end());
    Err(damage(Structure::Header, offset, field, expected, value))
}

/// An entry of an L1 or L2 table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClusterMapping {
    /// Not allocated.
    None,
    /// A table or a data cluster.
    Cluster {
        offset: u64,
        /// The only reference (`COPIED`): the cluster is changed in place.
        is_exclusive: bool,
    },
    /// Compressed data: offset and length. The length is rounded up to sectors.
    Compressed { offset: u64, bytes: u64 },
    /// Reserved bits are set.
    Reserved(u64),
}

const EXCLUSIVE: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;

/// Parses an entry of an L1 table.
pub(super) fn l1_entry(raw: u64) -> ClusterMapping {
    standard(raw, !(OFFSET | EXCLUSIVE))
}

/// Parses an entry of an L2 table.
pub(super) fn l2_entry(raw: u64, header: &Qcow2Header) -> ClusterMapping {
    if raw & COMPRESSED == 0 {
        // In version 3, bit 0 means that the cluster reads as zeros, whatever it contains.
        let reserved = !(OFFSET | EXCLUSIVE | u64::from(header.version == 3));
        return standard(raw, reserved);
    }
    if raw & EXCLUSIVE != 0 {
        return ClusterMapping::Reserved(EXCLUSIVE);
    }
    let descriptor = raw & (COMPRESSED - 1);
    let bits = 62 - (header.cluster_bits - 8);
    let offset = descriptor & ((1 << bits) - 1) & 0x00ff_ffff_ffff_ffff;
    let sectors = (descriptor >> bits) + 1;
    ClusterMapping::Compressed { offset, bytes: sectors * 512 - offset % 512 }
}

fn standard(raw: u64, reserved: u64) -> ClusterMapping {
    match (raw & reserved, raw & OFFSET) {
        (0, 0) => ClusterMapping::None,
        (0, offset) => ClusterMapping::Cluster { offset, is_exclusive: raw & EXCLUSIVE != 0 },
        (bits, _) => ClusterMapping::Reserved(bits),
    }
}
