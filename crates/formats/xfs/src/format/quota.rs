//! Quotas: records of users, groups and projects (`xfs_dqblk`) in the blocks of their quota files.
//!
//! The record of an identifier is at a fixed place of its file: `id / per_block` is the logical block. Kernels
//! initialise all records of a block when they allocate it.

use std::collections::HashMap;

use engine::Corruption;

use super::bytes::{be16, be32, be64, put16, put32, put64};
use super::checksum;
use super::features::{Features, Incompat, Version};
use super::log::dquot::{CRC_OFFSET, DQUOT_BLOCK_SIZE, MAGIC};
use super::superblock::RawSuperblock;

/// A kind of quota. The order is that of the superblock's inode numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub enum QuotaKind {
    User,
    Group,
    Project,
}

/// Bits of `d_type` with the kind.
const TYPE_MASK: u8 = 7;
/// `d_type`: the grace times have the large format.
const BIGTIME: u8 = 0x80;
/// `d_version`.
const VERSION: u8 = 1;
/// Byte offset of `d_id`.
const ID: usize = 4;
/// Byte offset of `dd_uuid`.
const UUID: usize = 120;
/// Grace times of the large format count units of 2^2 seconds.
const BIGTIME_SHIFT: u32 = 2;
/// Default grace time in seconds: seven days.
pub(crate) const GRACE_DEFAULT: u64 = 7 * 24 * 60 * 60;
/// `sb_qflags`: all kinds were counted.
pub(crate) const ALL_COUNTED: u16 = 0x4 | 0x100 | 0x400;
/// `sb_qflags` of version 4: limits of groups or projects are enforced.
const OLD_ENFORCED: u16 = 0x10;
/// `sb_qflags` of version 4: groups or projects were counted.
pub(crate) const OLD_COUNTED: u16 = 0x20;

/// Returns the bits of `sb_qflags` that belong to another version. Kernels refuse them.
pub(crate) fn flags_of_other_version(raw: &RawSuperblock) -> u16 {
    let kinds = [QuotaKind::Group, QuotaKind::Project];
    let of_version_5 = || kinds.into_iter().map(|kind| kind.enforced() | kind.counted());
    let others = match raw.features().crc() {
        true => OLD_ENFORCED | OLD_COUNTED,
        false => of_version_5().fold(0, |all, bits| all | bits),
    };
    raw.qflags.get() & others
}

impl QuotaKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Project];

    /// Returns its name.
    pub(crate) const fn name(self) -> &'static str {
        ["user", "group", "project"][self as usize]
    }

    /// Returns its number in `d_type`.
    pub const fn number(self) -> u8 {
        [1, 4, 2][self as usize]
    }

    /// Returns the bit of `sb_qflags` that says that usage is accounted.
    pub const fn accounted(self) -> u16 {
        [0x1, 0x40, 0x8][self as usize]
    }

    /// Returns the bit of `sb_qflags` that says that limits are enforced.
    pub const fn enforced(self) -> u16 {
        [0x2, 0x80, 0x200][self as usize]
    }

    /// Returns the bit of `sb_qflags` that says that usage was counted.
    pub(crate) const fn counted(self) -> u16 {
        [0x4, 0x100, 0x400][self as usize]
    }
}

/// Kinds of quota whose usage an image states, with the inode numbers of their files.
///
/// Version 4 has one file for groups or projects, and one bit that says that either was counted.
pub(crate) fn counted_files(raw: &RawSuperblock) -> [Option<u64>; 3] {
    let flags = raw.qflags.get();
    let files = [raw.uquotino.get(), raw.gquotino.get(), raw.pquotino.get()];
    let features = raw.features();
    if !features.version_bits.contains(Version::QUOTA) {
        return [None; 3];
    }
    QuotaKind::ALL.map(|kind| {
        let is_accounted = flags & kind.accounted() != 0;
        let is_old = !features.crc() && kind != QuotaKind::User;
        let counted = if is_old { OLD_COUNTED } else { kind.counted() };
        let file = if is_old { files[QuotaKind::Group as usize] } else { files[kind as usize] };
        (is_accounted && flags & counted != 0).then_some(file)
    })
}

/// Something that quotas limit. The value is the index of its fields in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Blocks of the file system.
    Blocks,
    /// Inodes.
    Inodes,
    /// Blocks of the realtime section.
    RealtimeBlocks,
}

/// Number of resources.
pub const RESOURCES: usize = 3;

impl Resource {
    /// All resources.
    pub const ALL: [Self; RESOURCES] = [Self::Blocks, Self::Inodes, Self::RealtimeBlocks];
    const HARD: [usize; RESOURCES] = [8, 24, 72];
    const SOFT: [usize; RESOURCES] = [16, 32, 80];
    const COUNT: [usize; RESOURCES] = [40, 48, 88];
    const TIMER: [usize; RESOURCES] = [60, 56, 96];
}

/// Usage of an identifier, indexed by [`Resource`].
pub(crate) type Counts = [u64; RESOURCES];

/// Usage by identifier.
pub(crate) type UsageById = HashMap<u32, Counts>;

/// Usage and limits of one resource. A limit of 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Usage.
    pub count: u64,
    /// Limit that is never exceeded.
    pub hard: u64,
    /// Limit that may be exceeded for the grace time.
    pub soft: u64,
    /// End of the grace time in seconds since the epoch, or 0 if it does not run. In the record of identifier 0, the
    /// length of the grace time in seconds.
    pub timer: u64,
}

impl Quota {
    /// Returns whether the usage exceeds a limit.
    pub const fn is_over(&self) -> bool {
        self.soft != 0 && self.count > self.soft || self.hard != 0 && self.count > self.hard
    }

    /// Returns whether the grace time runs if it must.
    pub(crate) const fn has_timer(&self) -> bool {
        self.soft == 0 || self.count <= self.soft || self.timer != 0
    }
}

/// Returns the number of records in a block.
pub const fn per_block(block_size: usize) -> u32 {
    (block_size / DQUOT_BLOCK_SIZE) as u32
}

/// Returns whether bytes are the record of an identifier, without its checksum.
///
/// # Panics
/// If there are fewer bytes than a record has.
pub fn is_record(kind: QuotaKind, id: u32, record: &[u8]) -> bool {
    be16(record, 0) == MAGIC && record[3] & TYPE_MASK == kind.number() && be32(record, ID) == id
}

/// Returns whether kernels accept a record of an identifier, without its checksum. The kernel refuses the whole block
/// otherwise.
pub(crate) fn is_valid(kind: QuotaKind, id: u32, features: &Features, record: &[u8]) -> bool {
    let has_large = record[3] & BIGTIME != 0;
    is_record(kind, id, record)
        && record[2] == VERSION
        && record[3] & !(TYPE_MASK | BIGTIME) == 0
        && (!has_large || id != 0 && features.incompat(Incompat::BIGTIME))
        && (id == 0 || Resource::ALL.iter().all(|resource| read(record, *resource).has_timer()))
}

/// Returns usage and limits of a resource in a record.
pub fn read(record: &[u8], resource: Resource) -> Quota {
    let at = resource as usize;
    let field = |offsets: [usize; RESOURCES]| be64(record, offsets[at]);
    let (count, hard, soft) =
        (field(Resource::COUNT), field(Resource::HARD), field(Resource::SOFT));
    let timer = u64::from(be32(record, Resource::TIMER[at]));
    let is_large = record[3] & BIGTIME != 0 && be32(record, ID) != 0;
    Quota { count, hard, soft, timer: if is_large { timer << BIGTIME_SHIFT } else { timer } }
}

/// Changes usage and limits of a resource in a record. The caller seals the record.
pub fn write(record: &mut [u8], resource: Resource, quota: &Quota) {
    let at = resource as usize;
    put64(record, Resource::COUNT[at], quota.count);
    put64(record, Resource::HARD[at], quota.hard);
    put64(record, Resource::SOFT[at], quota.soft);
    let is_large = record[3] & BIGTIME != 0 && be32(record, ID) != 0;
    // Rounded up, so that a running timer is never 0.
    let slack = (1 << BIGTIME_SHIFT) - 1;
    let timer = if is_large { (quota.timer + slack) >> BIGTIME_SHIFT } else { quota.timer };
    put32(record, Resource::TIMER[at], u32::try_from(timer).unwrap_or(u32::MAX));
}

/// Rewrites the header of a record, and keeps its limits and usage. The caller seals the record.
pub(crate) fn set_header(
    kind: QuotaKind,
    id: u32,
    has_bigtime: bool,
    uuid: &[u8; 16],
    record: &mut [u8],
) {
    put16(record, 0, MAGIC);
    let large = if has_bigtime && id != 0 { BIGTIME } else { 0 };
    (record[2], record[3]) = (VERSION, kind.number() | large);
    put32(record, ID, id);
    record[UUID..UUID + 16].copy_from_slice(uuid);
}

/// Returns the UUID of a record.
pub(crate) fn uuid(record: &[u8]) -> &[u8] {
    &record[UUID..UUID + 16]
}

/// Fills a block with empty records, starting with identifier `first`.
pub(crate) fn init_block(
    kind: QuotaKind,
    first: u32,
    has_bigtime: bool,
    uuid: &[u8; 16],
    bytes: &mut [u8],
) {
    bytes.fill(0);
    for (nth, record) in (0..).zip(bytes.chunks_exact_mut(DQUOT_BLOCK_SIZE)) {
        set_header(kind, first.wrapping_add(nth), has_bigtime, uuid, record);
        checksum::seal(record, CRC_OFFSET);
    }
}

/// Checks the records of a block, without checksums. The first one has identifier `first`.
///
/// # Errors
/// If one is invalid.
pub(crate) fn verify_structure(first: u32, bytes: &[u8]) -> Result<(), Corruption> {
    let kind = bytes[3] & TYPE_MASK;
    for (nth, record) in (0..).zip(bytes.chunks_exact(DQUOT_BLOCK_SIZE)) {
        let id = first.wrapping_add(nth);
        let found = (be16(record, 0), record[2], record[3] & TYPE_MASK, be32(record, ID));
        if found != (MAGIC, VERSION, kind, id) || !matches!(kind, 1 | 2 | 4) {
            let damage = Corruption::new("quota file", "an invalid quota record");
            let shown = format!("{:#06x} {} {} {}", found.0, found.1, found.2, found.3);
            return Err(damage.mismatch(format_args!("{MAGIC:#06x} {VERSION} {kind} {id}"), shown));
        }
    }
    Ok(())
}

/// Checks the records of a block, with their checksums.
///
/// # Errors
/// If one is invalid.
pub fn verify(first: u32, bytes: &[u8]) -> Result<(), Corruption> {
    verify_structure(first, bytes)?;
    let mut records = bytes.chunks_exact(DQUOT_BLOCK_SIZE);
    records.try_for_each(|record| checksum::check("quota file", record, CRC_OFFSET))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_a_block_start_with_its_first_identifier() {
        for (size, records) in [(1024, 7), (4096, 30), (65536, 481)] {
            let mut block = vec![0xee; size];
            init_block(QuotaKind::Group, 60, true, &[7; 16], &mut block);
            assert_eq!(per_block(size), records);
            verify(60, &block).unwrap();
            assert!(verify(61, &block).is_err());
            block[DQUOT_BLOCK_SIZE + 40] ^= 1;
            assert!(verify(60, &block).is_err() && verify_structure(60, &block).is_ok());
        }
    }

    /// A timer of 0 does not run, and kernels refuse records over a soft limit without a timer.
    #[test]
    fn times_keep_their_value_and_are_never_rounded_to_0() {
        for has_bigtime in [false, true] {
            let mut block = vec![0; 1024];
            init_block(QuotaKind::User, 0, has_bigtime, &[0; 16], &mut block);
            for (id, timer, stored) in [(0, 5, 5), (1, 1, if has_bigtime { 4 } else { 1 })] {
                let record = &mut block[id * DQUOT_BLOCK_SIZE..(id + 1) * DQUOT_BLOCK_SIZE];
                let quota = Quota { count: 3, hard: 4, soft: 2, timer };
                write(record, Resource::Inodes, &quota);
                assert_eq!(read(record, Resource::Inodes), Quota { timer: stored, ..quota });
                assert_eq!(read(record, Resource::Blocks), Quota::default());
            }
        }
    }
}
