//! Inodes: the core at the start of each slot, followed by the two forks.

mod slot;
mod structure;

use std::sync::OnceLock;

use engine::Corruption;
use vfs::{DeviceNumber, FileType, Ino, Timestamp};

use super::bytes::{be16, be32, be64, put16, put32, put64};
use super::checksum::{self, Zeros};
use super::geometry::Geometry;
use slot::Slot;
pub(crate) use structure::verify_structure;

/// `di_magic`: "IN".
pub const MAGIC: u16 = 0x494e;
/// Size of the core of a version 3 inode in bytes; the data fork follows.
pub const CORE_SIZE_V3: usize = 176;
/// Size of the core of a version 1 or 2 inode in bytes.
pub(crate) const CORE_SIZE_V2: usize = 100;
/// Byte offset of the checksum.
pub const CRC_OFFSET: usize = 100;
/// Byte offset of `di_changecount`.
pub(crate) const CHANGECOUNT_OFFSET: usize = 104;
/// Byte offset of `di_onlink`, the link count of version 1.
const ONLINK_OFFSET: usize = 6;
/// Number and UUID, which follow each other in version 3.
const IDENTITY: std::ops::Range<usize> = 152..CORE_SIZE_V3;
/// Byte offset of `di_gen`.
pub(crate) const GENERATION_OFFSET: usize = 92;
/// Byte offset of `di_next_unlinked`.
pub const NEXT_UNLINKED_OFFSET: usize = 96;

/// Bits of `di_flags`.
pub mod flags {
    /// The file's data is on the realtime device.
    pub const REALTIME: u16 = 1;
    /// It has preallocated space past its end.
    pub const PREALLOC: u16 = 1 << 1;
    /// New files in the directory inherit its project.
    pub const PROJINHERIT: u16 = 1 << 9;
    /// It must not be changed.
    pub const IMMUTABLE: u16 = 1 << 3;
    /// It may only be appended to.
    pub const APPEND: u16 = 1 << 4;
    /// Writes to it are synchronous.
    pub(crate) const SYNC: u16 = 1 << 5;
    /// Its access time is not updated.
    pub(crate) const NOATIME: u16 = 1 << 6;
    /// Backups skip it.
    pub(crate) const NODUMP: u16 = 1 << 7;
    /// New files in the directory are on the realtime device.
    pub(crate) const RTINHERIT: u16 = 1 << 8;
    /// Symbolic links must not be created in the directory.
    pub(crate) const NOSYMLINKS: u16 = 1 << 10;
    /// It has an extent size hint (`di_extsize`).
    pub(crate) const EXTSIZE: u16 = 1 << 11;
    /// New files in the directory inherit its extent size hint.
    pub(crate) const EXTSZINHERIT: u16 = 1 << 12;
    /// Defragmentation skips it.
    pub(crate) const NODEFRAG: u16 = 1 << 13;
    /// New files in the directory are allocated close together.
    pub(crate) const FILESTREAM: u16 = 1 << 14;
}

/// Bits of `di_flags2`.
pub mod flags2 {
    /// It is mapped without the page cache, if the device supports that.
    pub(crate) const DAX: u64 = 1;
    /// Its extents may be shared.
    pub const REFLINK: u64 = 1 << 1;
    /// It has a copy-on-write extent size hint (`di_cowextsize`); for a directory, inherited by new files.
    pub(crate) const COWEXTSIZE: u64 = 1 << 2;
    /// Its timestamps have the large format.
    pub const BIGTIME: u64 = 1 << 3;
    /// Its extent counters have the large format.
    pub const NREXT64: u64 = 1 << 4;
    /// It is metadata in the metadata directory.
    pub const METADATA: u64 = 1 << 5;
}

/// The format of a fork's contents (`di_format`, `di_aformat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ForkFormat {
    /// A device number.
    Device = 0,
    /// In the fork itself.
    Local = 1,
    /// In blocks, mapped by an extent list in the fork.
    Extents = 2,
    /// In blocks, mapped by a tree whose root is in the fork.
    Btree = 3,
    /// A tree of a realtime group, whose root is in the fork (`XFS_DINODE_FMT_META_BTREE`).
    MetaBtree = 5,
}

impl ForkFormat {
    const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::Device,
            1 => Self::Local,
            2 => Self::Extents,
            3 => Self::Btree,
            5 => Self::MetaBtree,
            _ => return None,
        })
    }
}

/// One of an inode's two forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fork {
    /// Contents of files, entries of directories, targets of links.
    Data,
    /// Extended attributes.
    Attr,
}

/// A timestamp of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub enum Time {
    Access,
    Modify,
    Change,
    Create,
}

impl Time {
    const fn offset(self) -> usize {
        match self {
            Self::Access => 32,
            Self::Modify => 40,
            Self::Change => 48,
            Self::Create => 144,
        }
    }
}

/// Offset of the epoch of large timestamps, in seconds before 1970.
const BIGTIME_EPOCH_OFFSET: i64 = 1 << 31;
/// Maximum seconds of a large timestamp.
pub(crate) const BIGTIME_SEC_MAX: i64 = (u64::MAX / NSEC_PER_SEC) as i64 - BIGTIME_EPOCH_OFFSET - 1;
const NSEC_PER_SEC: u64 = 1_000_000_000;

/// A copy of an inode's slot: core and forks. Checked by `Inode::parse`.
#[derive(Clone, PartialEq, Eq)]
pub struct Inode {
    bytes: Slot,
}

impl std::fmt::Debug for Inode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inode(mode {:#o}, size {})", self.mode(), self.size())
    }
}

/// Checks the fields that all slots of a chunk have, in use or not: magic number, version, checksum and number.
pub fn verify_slot(geometry: &Geometry, ino: Ino, slot: &[u8]) -> Result<(), Corruption> {
    let at = |c: Corruption| c.of_inode(ino.0);
    structure::verify_start(geometry, slot).map_err(at)?;
    if geometry.features.crc() {
        checksum::check("inode", slot, CRC_OFFSET).map_err(at)?;
    }
    structure::verify_identity(geometry, ino, slot).map_err(at)
}

/// Initializes a zeroed slot as a free inode.
pub(crate) fn init_free_slot(geometry: &Geometry, ino: Ino, slot: &mut [u8]) {
    // The generation may be any number that differs from that of other file systems' inodes. It is computed, so that
    // images are reproducible.
    let mut identity = [0; 24];
    identity[..8].copy_from_slice(&ino.0.to_be_bytes());
    identity[8..].copy_from_slice(&geometry.meta_uuid);
    init_identity(geometry, ino, crc32c::crc32c(&identity), slot);
    if !geometry.features.crc() {
        return;
    }
    let crc = checksum_of_empty(slot);
    slot[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Writes the non-zero fields of a free inode except its checksum.
fn init_identity(geometry: &Geometry, ino: Ino, generation: u32, slot: &mut [u8]) {
    put16(slot, 0, MAGIC);
    put32(slot, GENERATION_OFFSET, generation);
    put32(slot, NEXT_UNLINKED_OFFSET, u32::MAX);
    if !geometry.features.crc() {
        slot[4] = 2;
        return;
    }
    slot[4] = 3;
    put64(slot, 152, ino.0);
    slot[160..176].copy_from_slice(&geometry.meta_uuid);
}

/// Returns a mask of the pieces of `PIECE` bytes of a slot that differ from a free inode made by `init_free_slot`, with
/// the given generation. The checksum is in the first piece, so that differs whenever another does.
///
/// # Panics
/// If the slot is shorter than two pieces.
pub(crate) fn pieces_beside_free<const PIECE: usize>(
    geometry: &Geometry,
    ino: Ino,
    generation: u32,
    slot: &[u8],
) -> u32 {
    let mut free = [0; SIZE_MIN];
    init_identity(geometry, ino, generation, &mut free);
    free[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&slot[CRC_OFFSET..CRC_OFFSET + 4]);
    let mut mask = 0;
    for (at, piece) in slot.as_chunks::<PIECE>().0.iter().enumerate() {
        // After the core there are only zeros.
        let differs = match free.get(at * PIECE..(at + 1) * PIECE) {
            Some(free) => piece != free,
            None => piece != &[0; PIECE],
        };
        mask |= u32::from(differs) << at;
    }
    if mask == 0 { 0 } else { mask | 1 }
}

/// Returns the checksum of a slot with zeroed forks and checksum field. Optimized, because slots are initialized in
/// chunks of 64.
fn checksum_of_empty(slot: &[u8]) -> u32 {
    static BEHIND_CORE: [OnceLock<Box<Zeros>>; SIZES] = [const { OnceLock::new() }; SIZES];
    let (core, forks) = slot.split_at(CORE_SIZE_V3);
    let size = (0..SIZES).find(|size| slot.len() == SIZE_MIN << size);
    let Some(size) = size else { return checksum::compute(slot, CRC_OFFSET) };
    let zeros = BEHIND_CORE[size].get_or_init(|| Box::new(Zeros::new(forks.len())));
    zeros.append(crc32c::crc32c(core))
}

/// Minimum size of an inode of version 5 in bytes.
const SIZE_MIN: usize = 512;
/// Number of inode sizes: 512, 1024 and 2048 bytes.
const SIZES: usize = 3;

/// Checks that a slot contains the free inode `ino`. Skips the checksum, because hardly any of its fields are used.
pub(crate) fn check_free_slot(
    geometry: &Geometry,
    ino: Ino,
    slot: &[u8],
) -> Result<(), Corruption> {
    let at = |c: Corruption| c.of_inode(ino.0);
    let magic = be16(slot, 0);
    let versions = if geometry.features.crc() { 3..=3 } else { 1..=2 };
    if magic != MAGIC || !versions.contains(&slot[4]) {
        let found = format_args!("{magic:#06x}, version {}", slot[4]);
        let damage = Corruption::new("inode", "a free inode that was never initialised");
        let version = versions.end();
        return Err(at(damage.mismatch(format_args!("{MAGIC:#06x}, version {version}"), found)));
    }
    if geometry.features.crc() && be64(slot, 152) != ino.0 {
        let damage = Corruption::new("inode", "it contains another inode number");
        return Err(at(damage.mismatch(ino, be64(slot, 152))));
    }
    if be16(slot, 2) != 0 {
        let damage = Corruption::new("inode", "in use, but its chunk marks it as free");
        return Err(at(damage.mismatch("mode 0", format_args!("{:#o}", be16(slot, 2)))));
    }
    Ok(())
}

/// Updates the checksum of a slot.
pub fn seal_slot(slot: &mut [u8]) {
    if slot[4] == 3 {
        checksum::seal(slot, CRC_OFFSET);
    }
}

impl Inode {
    /// Parses a slot in use, and checks that its forks are within it and have formats that fit its type.
    pub(crate) fn parse(geometry: &Geometry, ino: Ino, slot: &[u8]) -> Result<Self, Corruption> {
        verify_slot(geometry, ino, slot)?;
        Self::of_verified(ino, slot)
    }

    /// Like [`Inode::parse`], for a slot whose checksum is known to be valid.
    pub(crate) fn parse_sealed(
        geometry: &Geometry,
        ino: Ino,
        slot: &[u8],
    ) -> Result<Self, Corruption> {
        let verified = structure::verify_start(geometry, slot)
            .and_then(|()| structure::verify_identity(geometry, ino, slot));
        verified.map_err(|c| c.of_inode(ino.0))?;
        Self::of_verified(ino, slot)
    }

    fn of_verified(ino: Ino, slot: &[u8]) -> Result<Self, Corruption> {
        structure::check_core(slot).map_err(|c| c.of_inode(ino.0))?;
        Ok(Self { bytes: Slot::copy_of(slot) })
    }

    /// Copies a slot, which may be free, without checking it.
    pub fn from_slot(slot: &[u8]) -> Self {
        Self { bytes: Slot::copy_of(slot) }
    }

    /// Returns all bytes of the slot.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns all bytes of the slot for changing.
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Returns the size of its core, after which the data fork starts.
    pub(crate) fn core_size(&self) -> usize {
        if self.bytes[4] == 3 { CORE_SIZE_V3 } else { CORE_SIZE_V2 }
    }

    fn is_v3(&self) -> bool {
        self.bytes[4] == 3
    }

    /// Makes the slot a new inode: everything except number and UUID, which version 3 has, is zeroed, and both forks are
    /// empty extent lists. Version 1 becomes version 2, as in kernels.
    pub(crate) fn reset(&mut self, file_type: FileType, permissions: u16, generation: u32) {
        let is_v3 = self.is_v3();
        let identity = <[u8; 24]>::try_from(&self.bytes[IDENTITY]).ok().filter(|_| is_v3);
        self.bytes[2..].fill(0);
        if let Some(identity) = identity {
            self.bytes[IDENTITY].copy_from_slice(&identity);
        }
        self.bytes[4] = if is_v3 { 3 } else { 2 };
        put16(&mut self.bytes, 2, file_type.mode_bits() | permissions & 0o7777);
        put32(&mut self.bytes, 92, generation);
        put32(&mut self.bytes, NEXT_UNLINKED_OFFSET, u32::MAX);
        self.set_format(Fork::Data, ForkFormat::Extents);
        self.set_format(Fork::Attr, ForkFormat::Extents);
    }

    /// Makes the slot a free inode: mode and link count are zero, and the generation is incremented.
    pub(crate) fn clear(&mut self) {
        let generation = self.generation();
        let is_v3 = self.is_v3();
        let flags2 = if is_v3 { self.flags2() } else { 0 };
        self.reset(FileType::Regular, 0, generation.wrapping_add(1));
        put16(&mut self.bytes, 2, 0);
        if is_v3 {
            // The flags for the formats of timestamps and counts are kept, as in a new chunk.
            self.set_flags2(flags2 & (flags2::BIGTIME | flags2::NREXT64));
        }
    }

    /// Returns the extent size hint, in blocks (`di_extsize`); 0 for none.
    pub(crate) fn extent_size_hint(&self) -> u32 {
        be32(&self.bytes, 72)
    }

    /// Sets [`Inode::extent_size_hint`].
    pub(crate) fn set_extent_size_hint(&mut self, blocks: u32) {
        put32(&mut self.bytes, 72, blocks);
    }

    /// Returns the copy-on-write extent size hint, in blocks (`di_cowextsize`); 0 for none.
    pub(crate) fn cow_extent_size_hint(&self) -> u32 {
        if self.is_v3() { be32(&self.bytes, 128) } else { 0 }
    }

    /// Returns the number of used blocks in a zone (`di_used_blocks`). The inode of the zone's reverse map stores it where
    /// other inodes store [`Inode::cow_extent_size_hint`].
    pub(crate) fn zone_used_blocks(&self) -> u32 {
        self.cow_extent_size_hint()
    }

    /// Sets [`Inode::cow_extent_size_hint`], which only version 3 has.
    pub(crate) fn set_cow_extent_size_hint(&mut self, blocks: u32) {
        if !self.is_v3() {
            return;
        }
        put32(&mut self.bytes, 128, blocks);
    }

    /// Returns the mode: type and permissions.
    pub fn mode(&self) -> u16 {
        be16(&self.bytes, 2)
    }

    /// Returns the file type in its mode.
    pub fn file_type(&self) -> Option<FileType> {
        FileType::from_mode(self.mode())
    }

    /// Returns whether the data is on the realtime device.
    pub(crate) fn is_realtime(&self) -> bool {
        self.file_type() == Some(FileType::Regular) && self.flags() & flags::REALTIME != 0
    }

    /// Returns whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type() == Some(FileType::Directory)
    }

    /// Sets type and permission bits.
    pub fn set_mode(&mut self, file_type: FileType, permissions: u16) {
        put16(&mut self.bytes, 2, file_type.mode_bits() | permissions & 0o7777);
    }

    /// Sets the permission bits.
    pub fn set_permissions(&mut self, permissions: u16) {
        let mode = self.mode() & vfs::S_IFMT | permissions & 0o7777;
        put16(&mut self.bytes, 2, mode);
    }

    /// Returns the format of the data fork.
    pub fn format(&self) -> ForkFormat {
        ForkFormat::from_raw(self.bytes[5]).unwrap_or(ForkFormat::Extents)
    }

    /// Returns the format of the attribute fork, or `None` if there is no such fork.
    pub fn attr_format(&self) -> Option<ForkFormat> {
        self.has_attr_fork()
            .then(|| ForkFormat::from_raw(self.bytes[83]).unwrap_or(ForkFormat::Extents))
    }

    /// Returns the format of a fork. A missing attribute fork is an empty list.
    pub fn fork_format(&self, fork: Fork) -> ForkFormat {
        match fork {
            Fork::Data => self.format(),
            Fork::Attr => self.attr_format().unwrap_or(ForkFormat::Extents),
        }
    }

    /// Sets the format of a fork.
    pub(crate) fn set_format(&mut self, fork: Fork, format: ForkFormat) {
        match fork {
            Fork::Data => self.bytes[5] = format as u8,
            Fork::Attr => self.bytes[83] = format as u8,
        }
    }

    /// Returns the link count.
    pub fn nlink(&self) -> u32 {
        if self.bytes[4] == 1 {
            be16(&self.bytes, ONLINK_OFFSET).into()
        } else {
            be32(&self.bytes, 16)
        }
    }

    /// Sets the link count. Version 1 has another field (`di_onlink`), with 16 bits; the inode becomes one of version 2
    /// if the count does not fit.
    pub fn set_nlink(&mut self, nlink: u32) {
        if self.bytes[4] == 1 {
            if let Ok(nlink) = u16::try_from(nlink) {
                return put16(&mut self.bytes, ONLINK_OFFSET, nlink);
            }
            self.bytes[4] = 2;
            put16(&mut self.bytes, ONLINK_OFFSET, 0);
        }
        put32(&mut self.bytes, 16, nlink);
    }

    /// Returns the owner.
    pub fn uid(&self) -> u32 {
        be32(&self.bytes, 8)
    }

    /// Sets the owner.
    pub fn set_uid(&mut self, uid: u32) {
        put32(&mut self.bytes, 8, uid);
    }

    /// Returns the group.
    pub fn gid(&self) -> u32 {
        be32(&self.bytes, 12)
    }

    /// Sets the group.
    pub(crate) fn set_gid(&mut self, gid: u32) {
        put32(&mut self.bytes, 12, gid);
    }

    /// Returns the project ID.
    pub fn projid(&self) -> u32 {
        u32::from(be16(&self.bytes, 22)) << 16 | u32::from(be16(&self.bytes, 20))
    }

    /// Sets the project ID.
    pub fn set_projid(&mut self, projid: u32) {
        put16(&mut self.bytes, 20, projid as u16);
        put16(&mut self.bytes, 22, (projid >> 16) as u16);
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        be64(&self.bytes, 56)
    }

    /// Sets the size.
    pub fn set_size(&mut self, size: u64) {
        put64(&mut self.bytes, 56, size);
    }

    /// Returns the number of blocks of both forks, including trees.
    pub fn nblocks(&self) -> u64 {
        be64(&self.bytes, 64)
    }

    /// Sets the number of blocks.
    pub(crate) fn set_nblocks(&mut self, nblocks: u64) {
        put64(&mut self.bytes, 64, nblocks);
    }

    fn has_large_counts(&self) -> bool {
        self.flags2() & flags2::NREXT64 != 0
    }

    /// Returns the number of extents of a fork. Meaningless for local contents or a device number.
    pub fn extents(&self, fork: Fork) -> u64 {
        match (fork, self.has_large_counts()) {
            (Fork::Data, true) => be64(&self.bytes, 24),
            (Fork::Data, false) => be32(&self.bytes, 76).into(),
            (Fork::Attr, true) => be32(&self.bytes, 76).into(),
            (Fork::Attr, false) => be16(&self.bytes, 80).into(),
        }
    }

    /// Sets the number of extents of a fork. Returns false if it does not fit.
    #[must_use]
    pub(crate) fn set_extents(&mut self, fork: Fork, count: u64) -> bool {
        match (fork, self.has_large_counts()) {
            (Fork::Data, true) if count < 1 << 48 => put64(&mut self.bytes, 24, count),
            (Fork::Data, false) if count < 1 << 31 => put32(&mut self.bytes, 76, count as u32),
            (Fork::Attr, true) if count < 1 << 32 => put32(&mut self.bytes, 76, count as u32),
            (Fork::Attr, false) if count < 1 << 15 => put16(&mut self.bytes, 80, count as u16),
            _ => return false,
        }
        true
    }

    /// Returns whether it has an attribute fork.
    pub fn has_attr_fork(&self) -> bool {
        self.bytes[82] != 0
    }

    /// Returns the offset of the attribute fork after the core in bytes, a multiple of 8; 0 without one.
    pub fn forkoff_bytes(&self) -> usize {
        usize::from(self.bytes[82]) * 8
    }

    /// Moves the boundary between the forks to `bytes` after the core, a multiple of 8 within the slot. Does not move
    /// the contents of the forks.
    pub(crate) fn set_forkoff_bytes(&mut self, bytes: usize) {
        debug_assert!(bytes.is_multiple_of(8) && bytes < self.literal_size());
        self.bytes[82] = (bytes / 8) as u8;
    }

    /// Returns the total size of both forks in bytes.
    pub(crate) fn literal_size(&self) -> usize {
        self.bytes.len() - self.core_size()
    }

    /// Returns `di_flags`.
    pub fn flags(&self) -> u16 {
        be16(&self.bytes, 90)
    }

    /// Sets `di_flags`.
    pub fn set_flags(&mut self, flags: u16) {
        put16(&mut self.bytes, 90, flags);
    }

    /// Returns the generation, which differs each time the slot is reused.
    pub fn generation(&self) -> u32 {
        be32(&self.bytes, 92)
    }

    /// Returns the next inode of the unlinked list; all ones for none.
    pub fn next_unlinked(&self) -> u32 {
        be32(&self.bytes, NEXT_UNLINKED_OFFSET)
    }

    /// Increments the change counter (version 3).
    pub(crate) fn bump_changecount(&mut self) {
        if self.is_v3() {
            let count = be64(&self.bytes, CHANGECOUNT_OFFSET).wrapping_add(1);
            put64(&mut self.bytes, CHANGECOUNT_OFFSET, count);
        }
    }

    /// Returns `di_flags2` (version 3).
    pub fn flags2(&self) -> u64 {
        if self.is_v3() { be64(&self.bytes, 120) } else { 0 }
    }

    /// Sets `di_flags2`, which only version 3 has.
    pub fn set_flags2(&mut self, flags2: u64) {
        if !self.is_v3() {
            return;
        }
        put64(&mut self.bytes, 120, flags2);
    }

    /// Returns a timestamp. Version 2 has no creation time.
    pub fn time(&self, which: Time) -> Option<Timestamp> {
        if which == Time::Create && !self.is_v3() {
            return None;
        }
        let raw = be64(&self.bytes, which.offset());
        if self.flags2() & flags2::BIGTIME != 0 {
            let sec = (raw / NSEC_PER_SEC) as i64 - BIGTIME_EPOCH_OFFSET;
            return Some(Timestamp { sec, nsec: (raw % NSEC_PER_SEC) as u32 });
        }
        let nsec = (raw as u32).min(NSEC_PER_SEC as u32 - 1);
        Some(Timestamp { sec: ((raw >> 32) as i32).into(), nsec })
    }

    /// Sets a timestamp, clamped to the range of its format.
    pub(crate) fn set_time(&mut self, which: Time, time: Timestamp) {
        if which == Time::Create && !self.is_v3() {
            return;
        }
        let raw = if self.flags2() & flags2::BIGTIME != 0 {
            let sec = time.sec.clamp(-BIGTIME_EPOCH_OFFSET, BIGTIME_SEC_MAX);
            (sec + BIGTIME_EPOCH_OFFSET) as u64 * NSEC_PER_SEC + u64::from(time.nsec)
        } else {
            let sec = time.sec.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
            u64::from(sec as u32) << 32 | u64::from(time.nsec)
        };
        put64(&mut self.bytes, which.offset(), raw);
    }

    /// Returns the bytes of a fork; empty for a missing attribute fork.
    pub fn fork(&self, fork: Fork) -> &[u8] {
        let range = self.fork_range(fork);
        &self.bytes[range]
    }

    /// Returns the bytes of a fork for changing.
    pub fn fork_mut(&mut self, fork: Fork) -> &mut [u8] {
        let range = self.fork_range(fork);
        &mut self.bytes[range]
    }

    fn fork_range(&self, fork: Fork) -> std::ops::Range<usize> {
        let (core, end) = (self.core_size(), self.bytes.len());
        let boundary = if self.has_attr_fork() { core + self.forkoff_bytes() } else { end };
        let boundary = boundary.min(end);
        match fork {
            Fork::Data => core..boundary,
            Fork::Attr => boundary..end,
        }
    }

    /// Returns the device number in the data fork of a device.
    pub fn device(&self) -> DeviceNumber {
        // System V's encoding: 14 bits of major, 18 of minor.
        let raw = be32(self.fork(Fork::Data), 0);
        DeviceNumber { major: raw >> 18, minor: raw & 0x3_ffff }
    }

    /// Sets the device number. Returns false if it does not fit: 14 bits of major, 18 of minor.
    #[must_use]
    pub(crate) fn set_device(&mut self, device: DeviceNumber) -> bool {
        self.set_format(Fork::Data, ForkFormat::Device);
        put32(self.fork_mut(Fork::Data), 0, device.major << 18 | device.minor & 0x3_ffff);
        device.major < 1 << 14 && device.minor < 1 << 18
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v3() -> Inode {
        let mut inode = Inode::from_slot(&[0; 512]);
        inode.bytes[4] = 3;
        inode.reset(FileType::Regular, 0o644, 7);
        inode
    }

    #[test]
    fn times_of_both_kinds_come_back() {
        let mut inode = v3();
        let old = Timestamp { sec: -5, nsec: 999_999_999 };
        inode.set_time(Time::Modify, old);
        assert_eq!(inode.time(Time::Modify), Some(old));
        inode.set_flags2(flags2::BIGTIME);
        let late = Timestamp { sec: 1 << 33, nsec: 1 };
        for time in [old, late] {
            inode.set_time(Time::Create, time);
            assert_eq!(inode.time(Time::Create), Some(time));
        }
        inode.set_time(Time::Create, Timestamp { sec: i64::MAX, nsec: 0 });
        assert_eq!(inode.time(Time::Create).map(|t| t.sec), Some(BIGTIME_SEC_MAX));
    }

    #[test]
    fn link_counts_of_version_1_have_16_bits() {
        let mut inode = Inode::from_slot(&[0; 256]);
        inode.bytes[4] = 1;
        inode.set_nlink(5);
        assert_eq!((inode.bytes[4], inode.nlink(), be16(&inode.bytes, 6)), (1, 5, 5));
        inode.set_nlink(70_000);
        assert_eq!((inode.bytes[4], inode.nlink(), be16(&inode.bytes, 6)), (2, 70_000, 0));
    }

    #[test]
    fn new_inodes_of_version_2_keep_nothing() {
        let mut inode = Inode::from_slot(&[0xee; 256]);
        inode.bytes[4] = 2;
        inode.reset(FileType::Directory, 0o755, 7);
        inode.set_flags2(flags2::BIGTIME);
        assert_eq!((inode.bytes[4], inode.mode(), inode.generation()), (2, 0o40_755, 7));
        assert!(inode.bytes[CORE_SIZE_V2..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn counts_of_extents_know_their_limits() {
        let mut inode = v3();
        assert!(!inode.set_extents(Fork::Attr, 1 << 15));
        inode.set_flags2(flags2::NREXT64);
        assert!(inode.set_extents(Fork::Attr, 1 << 15) && inode.set_extents(Fork::Data, 1 << 40));
        assert_eq!((inode.extents(Fork::Attr), inode.extents(Fork::Data)), (1 << 15, 1 << 40));
    }
}
