//! Superblocks of array members.

use zerocopy::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::{LayerError, Result, raw};

/// Size of a sector in bytes.
pub const SECTOR: u64 = 512;
/// Size of a version-0.90 superblock in bytes.
pub const OLD_BYTES: u64 = 4096;
/// Size of a version-1 superblock in bytes, with the roles of all devices.
pub const NEW_BYTES: u64 = 4096;
/// Name in messages.
pub(super) const SUPERBLOCK: &str = "md superblock";

const MAGIC: u32 = 0xa92b_4efc;
/// Start of the roles in a version-1 superblock.
const ROLES_AT: usize = 256;
/// Maximum number of roles, so that they end in the superblock.
const ROLES_MAX: u32 = 1920;
/// Roles from here on belong to no data device.
const ROLE_LIMIT: u16 = 0xff00;
/// The member is not fully recovered.
const RECOVERING: u32 = 2;
/// The array changes its shape.
const RESHAPING: u32 = 4;
/// Sectors of the member are listed as bad.
const BAD_BLOCKS: u32 = 8;
/// The array has a journal device.
const JOURNAL: u32 = 512;
/// The layout of a RAID 0 with members of different sizes is stored.
const RAID0_LAYOUT: u32 = 4096;
/// Feature bits that do not change the place of data: a write-intent bitmap, replacements, the direction of a reshape, a
/// new data offset, a clustered bitmap, and partial parity logs.
const HARMLESS: u32 = 1 | 16 | 32 | 64 | 128 | 256 | 1024 | 2048;

/// Version-1 superblock without roles (`mdp_superblock_1`).
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct New {
    magic: U32,
    major_version: U32,
    feature_map: U32,
    pad0: U32,
    set_uuid: [u8; 16],
    set_name: [u8; 32],
    ctime: U64,
    level: I32,
    layout: U32,
    size: U64,
    chunksize: U32,
    raid_disks: U32,
    bitmap_offset: U32,
    new_level: U32,
    reshape_position: U64,
    delta_disks: U32,
    new_layout: U32,
    new_chunk: U32,
    new_offset: U32,
    data_offset: U64,
    data_size: U64,
    super_offset: U64,
    recovery_offset: U64,
    dev_number: U32,
    corrected_reads: U32,
    device_uuid: [u8; 16],
    device_flags: u8,
    bad_block_shift: u8,
    bad_block_size: U16,
    bad_block_offset: U32,
    utime: U64,
    events: U64,
    resync_offset: U64,
    checksum: U32,
    max_dev: U32,
    pad3: [u8; 32],
}

/// Version-0.90 superblock (`mdp_super_t`).
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Old {
    magic: U32,
    major_version: U32,
    minor_version: U32,
    patch_version: U32,
    valid_words: U32,
    set_uuid0: U32,
    ctime: U32,
    level: I32,
    size_kib: U32,
    nr_disks: U32,
    raid_disks: U32,
    md_minor: U32,
    not_persistent: U32,
    set_uuid1: U32,
    set_uuid2: U32,
    set_uuid3: U32,
    constant_reserved: [U32; 16],
    utime: U32,
    state: U32,
    active_disks: U32,
    working_disks: U32,
    failed_disks: U32,
    spare_disks: U32,
    checksum: U32,
    events: [U32; 2],
    checkpoint_events: [U32; 2],
    recovery_checkpoint: U32,
    reshape_position: [U32; 2],
    new_level: U32,
    delta_disks: U32,
    new_layout: U32,
    new_chunk: U32,
    state_reserved: [U32; 14],
    layout: U32,
    chunk_bytes: U32,
    personality_reserved: [U32; 62],
    disks: [[U32; 32]; 27],
    this_disk: [U32; 32],
}

const _: () = assert!(size_of::<New>() == ROLES_AT);
const _: () = assert!(size_of::<Old>() == OLD_BYTES as usize);

/// A superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// `0.90`, `1.0`, `1.1` or `1.2`.
    pub version: &'static str,
    /// UUID of the array.
    pub array: [u8; 16],
    /// Name of the array, if it has one.
    pub name: String,
    /// Level; -1 for linear.
    pub level: i32,
    /// Order of data and parity.
    pub layout: u32,
    /// Chunk size in bytes; 0 if the level has none.
    pub chunk_bytes: u64,
    /// Number of members.
    pub members: u32,
    /// Bytes that the array uses on each member; 0 if the members differ (linear).
    pub used_bytes: u64,
    /// Start of the data in bytes.
    pub data_start: u64,
    /// Bytes that this member has for data.
    pub data_bytes: u64,
    /// Number of changes. Members with a lower number are outdated.
    pub events: u64,
    /// Place of this member, or `None` for spares, journals and failed members.
    pub role: Option<u32>,
    /// Layout of a RAID 0 with members of different sizes is known.
    pub has_raid0_layout: bool,
}

/// Returns the sum of little-endian words, with the carry added.
fn sum(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    let words = words.iter().map(|word| u64::from(u32::from_le_bytes(*word)));
    let rest = match rest {
        [low, high, ..] => u64::from(u16::from_le_bytes([*low, *high])),
        _ => 0,
    };
    let sum = words.sum::<u64>() + rest;
    (sum as u32).wrapping_add((sum >> 32) as u32)
}

/// Returns the sum of `bytes` with the four bytes of the checksum as zeros.
fn sum_without(bytes: &[u8], checksum_at: usize) -> u32 {
    let mut copy = bytes.to_vec();
    copy[checksum_at..checksum_at + 4].fill(0);
    sum(&copy)
}

/// Returns whether bytes begin with the magic number.
#[must_use]
pub fn has_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC.to_le_bytes())
}

/// Parses a version-1 superblock of [`NEW_BYTES`] bytes at the offset `at`.
///
/// # Errors
/// If it is damaged, or has unsupported features.
pub fn parse_new(bytes: &[u8], at: u64, device_bytes: u64) -> Result<Superblock> {
    let bad = |problem: String| LayerError::damaged(SUPERBLOCK, at, problem);
    let (found, _) = raw::prefix::<New>(bytes, SUPERBLOCK, at)?;
    if found.magic.get() != MAGIC || found.major_version.get() != 1 {
        return Err(bad(format!("version {}, expected 1", found.major_version)));
    }
    let roles = found.max_dev.get();
    if roles > ROLES_MAX {
        return Err(bad(format!("{roles} devices, expected at most {ROLES_MAX}")));
    }
    let Some(checked) = bytes.get(..ROLES_AT + 2 * roles as usize) else {
        return Err(bad(format!("{} bytes long", bytes.len())));
    };
    let computed = sum_without(checked, 216);
    if computed != found.checksum.get() {
        return Err(bad(format!("checksum {computed:#010x}, expected {:#010x}", found.checksum)));
    }
    if found.super_offset.get().checked_mul(SECTOR) != Some(at) {
        return Err(bad(format!("it names sector {} as its place", found.super_offset)));
    }
    let features = found.feature_map.get();
    check_features(features)?;
    let number = found.dev_number.get() as usize;
    let role =
        checked[ROLES_AT..].as_chunks::<2>().0.get(number).map(|role| u16::from_le_bytes(*role));
    let role = role.filter(|role| *role < ROLE_LIMIT && features & RECOVERING == 0);
    let bytes_of = |what: &str, sectors: u64| {
        let bytes = sectors.checked_mul(SECTOR).filter(|bytes| *bytes <= 1 << 62);
        bytes.ok_or_else(|| bad(format!("{what} of {sectors} sectors")))
    };
    let data_start = bytes_of("data offset", found.data_offset.get())?;
    let data_bytes = bytes_of("data size", found.data_size.get())?;
    if data_start + data_bytes > device_bytes {
        let problem =
            format!("data at {data_start}+{data_bytes} on a device of {device_bytes} bytes");
        return Err(bad(problem));
    }
    let version = match at {
        0 => "1.1",
        4096 => "1.2",
        _ => "1.0",
    };
    Ok(Superblock {
        version,
        array: found.set_uuid,
        name: raw::ascii(&found.set_name).unwrap_or_default().to_owned(),
        level: found.level.get(),
        layout: found.layout.get(),
        chunk_bytes: u64::from(found.chunksize.get()) * SECTOR,
        members: found.raid_disks.get(),
        used_bytes: bytes_of("size", found.size.get())?,
        data_start,
        data_bytes,
        events: found.events.get(),
        role: role.map(u32::from),
        has_raid0_layout: features & RAID0_LAYOUT != 0,
    })
}

fn check_features(features: u32) -> Result<()> {
    let problem = if features & RESHAPING != 0 {
        "an md array that changes its shape"
    } else if features & JOURNAL != 0 {
        "an md array with a journal device"
    } else if features & !(HARMLESS | RECOVERING | BAD_BLOCKS | RAID0_LAYOUT) != 0 {
        let what = format!("an md array with features {features:#x}");
        return Err(LayerError::unsupported(what, ASSEMBLE));
    } else {
        return Ok(());
    };
    Err(LayerError::unsupported(problem, ASSEMBLE))
}

/// Advice for arrays that only the kernel can read.
pub(super) const ASSEMBLE: &str = "assemble it with: mdadm --assemble";

/// Parses a version-0.90 superblock at the offset `at`. Data is before it.
///
/// # Errors
/// If it is damaged, or the array changes its shape.
pub fn parse_old(bytes: &[u8], at: u64) -> Result<Superblock> {
    let bad = |problem: String| LayerError::damaged(SUPERBLOCK, at, problem);
    let (found, _) = raw::prefix::<Old>(bytes, SUPERBLOCK, at)?;
    let version = (found.major_version.get(), found.minor_version.get());
    if found.magic.get() != MAGIC || version.0 != 0 {
        return Err(bad(format!("version {}, expected 0", version.0)));
    }
    if version.1 != 90 {
        let what = format!("an md array with superblock version 0.{}", version.1);
        return Err(LayerError::unsupported(what, ASSEMBLE));
    }
    let computed = sum_without(&bytes[..OLD_BYTES as usize], 152);
    if computed != found.checksum.get() {
        return Err(bad(format!("checksum {computed:#010x}, expected {:#010x}", found.checksum)));
    }
    let mut array = [0; 16];
    let words = [found.set_uuid0, found.set_uuid1, found.set_uuid2, found.set_uuid3];
    for (part, word) in array.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *part = word.get().to_be_bytes();
    }
    let [_, _, _, role, state, ..] = found.this_disk;
    // Active and in sync.
    let is_active = state.get() & 7 == 6;
    Ok(Superblock {
        version: "0.90",
        array,
        name: String::new(),
        level: found.level.get(),
        layout: found.layout.get(),
        chunk_bytes: found.chunk_bytes.get().into(),
        members: found.raid_disks.get(),
        used_bytes: u64::from(found.size_kib.get()) << 10,
        data_start: 0,
        data_bytes: at,
        // Little-endian hosts store the low word first.
        events: u64::from(found.events[0].get()) | u64::from(found.events[1].get()) << 32,
        role: is_active.then_some(role.get()),
        has_raid0_layout: false,
    })
}
