//! Inodes: the core at the start of each slot, and the two forks behind it.

mod slot;
mod structure;

use std::sync::OnceLock;

use transaction::Corruption;
use vfs::{DeviceNumber, FileType, Ino, Timestamp};

use super::bytes::{be16, be32, be64, put16, put32, put64};
use super::checksum::{self, Zeros};
use super::geometry::Geometry;
use slot::Slot;
pub use structure::verify_structure;

/// `di_magic`: "IN".
pub const MAGIC: u16 = 0x494e;
/// Size of the core of a version 3 inode in bytes; the data fork follows.
pub const CORE_SIZE_V3: usize = 176;
/// Size of the core of a version 1 or 2 inode in bytes.
pub const CORE_SIZE_V2: usize = 100;
/// Bytes of the checksum.
pub const CRC_OFFSET: usize = 100;
/// Byte of `di_gen`.
pub const GENERATION_OFFSET: usize = 92;
/// Byte of `di_next_unlinked`.
pub const NEXT_UNLINKED_OFFSET: usize = 96;

/// Bits of `di_flags`.
pub mod flags {
    /// The file's data is on the realtime device.
    pub const REALTIME: u16 = 1;
    /// It has space past its end on purpose.
    pub const PREALLOC: u16 = 1 << 1;
    /// New files in the directory get its project.
    pub const PROJINHERIT: u16 = 1 << 9;
    /// Nothing about it may change.
    pub const IMMUTABLE: u16 = 1 << 3;
    /// It may only be appended to.
    pub const APPEND: u16 = 1 << 4;
    /// What is written to it is durable at once.
    pub const SYNC: u16 = 1 << 5;
    /// Its access time stays.
    pub const NOATIME: u16 = 1 << 6;
    /// Backups leave it out.
    pub const NODUMP: u16 = 1 << 7;
    /// New files in the directory have their data on the realtime device.
    pub const RTINHERIT: u16 = 1 << 8;
    /// No symbolic links may be made in the directory.
    pub const NOSYMLINKS: u16 = 1 << 10;
    /// It has a hint of how much to allocate at once (`di_extsize`).
    pub const EXTSIZE: u16 = 1 << 11;
    /// New files in the directory get its hint.
    pub const EXTSZINHERIT: u16 = 1 << 12;
    /// Its extents stay where they are.
    pub const NODEFRAG: u16 = 1 << 13;
    /// What is made in the directory is to be allocated together.
    pub const FILESTREAM: u16 = 1 << 14;
}

/// Bits of `di_flags2`.
pub mod flags2 {
    /// It is to be mapped without a cache, where devices can.
    pub const DAX: u64 = 1;
    /// Its extents may be shared.
    pub const REFLINK: u64 = 1 << 1;
    /// It has a hint of how much to copy at once (`di_cowextsize`); in a directory, for new files.
    pub const COWEXTSIZE: u64 = 1 << 2;
    /// Its times are of the large kind.
    pub const BIGTIME: u64 = 1 << 3;
    /// Its counts of extents are of the large kind.
    pub const NREXT64: u64 = 1 << 4;
    /// It is metadata in the metadata directory.
    pub const METADATA: u64 = 1 << 5;
}

/// How a fork's contents are kept (`di_format`, `di_aformat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Format {
    /// A device number.
    Device = 0,
    /// In the fork itself.
    Local = 1,
    /// In blocks, listed in the fork.
    Extents = 2,
    /// In blocks, listed in a tree whose root is in the fork.
    Btree = 3,
}

impl Format {
    const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::Device,
            1 => Self::Local,
            2 => Self::Extents,
            3 => Self::Btree,
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

/// Which time of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
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

/// Seconds before 1970 at which large timestamps start to count nanoseconds.
const BIGTIME_EPOCH_OFFSET: i64 = 1 << 31;
/// Last second of a large timestamp.
pub const BIGTIME_SEC_MAX: i64 = (u64::MAX / NSEC_PER_SEC) as i64 - BIGTIME_EPOCH_OFFSET - 1;
const NSEC_PER_SEC: u64 = 1_000_000_000;

/// A copy of an inode's slot: core and forks. It was checked by [`Inode::parse`].
#[derive(Clone, PartialEq, Eq)]
pub struct Inode {
    bytes: Slot,
}

impl std::fmt::Debug for Inode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inode(mode {:#o}, size {})", self.mode(), self.size())
    }
}

/// Checks what all slots of a chunk have, in use or not: magic number, version, checksum and number.
pub fn verify_slot(geometry: &Geometry, ino: Ino, slot: &[u8]) -> Result<(), Corruption> {
    let at = |c: Corruption| c.of_inode(ino.0);
    structure::verify_start(geometry, slot).map_err(at)?;
    if geometry.features.crc() {
        checksum::check("inode", slot, CRC_OFFSET).map_err(at)?;
    }
    structure::verify_identity(geometry, ino, slot).map_err(at)
}

/// Makes a zero-filled slot of a version 5 file system a free inode.
pub fn init_free_slot(geometry: &Geometry, ino: Ino, slot: &mut [u8]) {
    // Any number will do that another file system's inode does not have, too: the same image comes
    // out of the same source each time.
    let mut identity = [0; 24];
    identity[..8].copy_from_slice(&ino.0.to_be_bytes());
    identity[8..].copy_from_slice(&geometry.meta_uuid);
    init_identity(geometry, ino, crc32c::crc32c(&identity), slot);
    let crc = checksum_of_empty(slot);
    slot[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Writes what a free inode has that is not zero, but for its checksum.
fn init_identity(geometry: &Geometry, ino: Ino, generation: u32, slot: &mut [u8]) {
    put16(slot, 0, MAGIC);
    slot[4] = 3;
    put32(slot, GENERATION_OFFSET, generation);
    put32(slot, NEXT_UNLINKED_OFFSET, u32::MAX);
    put64(slot, 152, ino.0);
    slot[160..176].copy_from_slice(&geometry.meta_uuid);
}

/// Which pieces of `PIECE` bytes of a slot are not as in the free inode that `init_free_slot` makes, but for
/// its generation, as a mask. The checksum is in the first piece, which differs with any other.
///
/// # Panics
/// If the slot is shorter than two pieces.
pub fn pieces_beside_free<const PIECE: usize>(
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
        // Behind the core there are but zeros.
        let differs = match free.get(at * PIECE..(at + 1) * PIECE) {
            Some(free) => piece != free,
            None => piece != &[0; PIECE],
        };
        mask |= u32::from(differs) << at;
    }
    if mask == 0 { 0 } else { mask | 1 }
}

/// The checksum of a slot whose forks and checksum field are zero. Chunks of 64 such slots are made all
/// the time.
fn checksum_of_empty(slot: &[u8]) -> u32 {
    static BEHIND_CORE: [OnceLock<Box<Zeros>>; SIZES] = [const { OnceLock::new() }; SIZES];
    let (core, forks) = slot.split_at(CORE_SIZE_V3);
    let size = (0..SIZES).find(|size| slot.len() == SIZE_MIN << size);
    let Some(size) = size else { return checksum::compute(slot, CRC_OFFSET) };
    let zeros = BEHIND_CORE[size].get_or_init(|| Box::new(Zeros::new(forks.len())));
    zeros.append(crc32c::crc32c(core))
}

/// Smallest inode of version 5 in bytes.
const SIZE_MIN: usize = 512;
/// Sizes of inodes: 512, 1024 and 2048 bytes.
const SIZES: usize = 3;

/// Checks that a slot is that of the free inode `ino`, but not its checksum: next to nothing of what
/// it says is used.
pub fn check_free_slot(ino: Ino, slot: &[u8]) -> Result<(), Corruption> {
    let at = |c: Corruption| c.of_inode(ino.0);
    let magic = be16(slot, 0);
    if magic != MAGIC || slot[4] != 3 {
        let found = format_args!("{magic:#06x}, version {}", slot[4]);
        let damage = Corruption::new("inode", "a free inode that was never initialised");
        return Err(at(damage.mismatch(format_args!("{MAGIC:#06x}, version 3"), found)));
    }
    if be64(slot, 152) != ino.0 {
        let damage = Corruption::new("inode", "it bears another number");
        return Err(at(damage.mismatch(ino, be64(slot, 152))));
    }
    if be16(slot, 2) != 0 {
        let damage = Corruption::new("inode", "in use, but its chunk says it is free");
        return Err(at(damage.mismatch("mode 0", format_args!("{:#o}", be16(slot, 2)))));
    }
    Ok(())
}

/// Brings the checksum of a slot up to date.
pub fn seal_slot(slot: &mut [u8]) {
    if slot[4] == 3 {
        checksum::seal(slot, CRC_OFFSET);
    }
}

impl Inode {
    /// A slot in use, checked: that its forks lie within it and have formats that fit its type.
    pub fn parse(geometry: &Geometry, ino: Ino, slot: &[u8]) -> Result<Self, Corruption> {
        verify_slot(geometry, ino, slot)?;
        Self::of_verified(ino, slot)
    }

    /// As [`Inode::parse`], of a slot whose checksum is known to be right.
    pub fn parse_sealed(geometry: &Geometry, ino: Ino, slot: &[u8]) -> Result<Self, Corruption> {
        let verified = structure::verify_start(geometry, slot)
            .and_then(|()| structure::verify_identity(geometry, ino, slot));
        verified.map_err(|c| c.of_inode(ino.0))?;
        Self::of_verified(ino, slot)
    }

    fn of_verified(ino: Ino, slot: &[u8]) -> Result<Self, Corruption> {
        structure::check_core(slot).map_err(|c| c.of_inode(ino.0))?;
        Ok(Self { bytes: Slot::copy_of(slot) })
    }

    /// A copy of a slot that is not checked: one that may be free.
    pub fn from_slot(slot: &[u8]) -> Self {
        Self { bytes: Slot::copy_of(slot) }
    }

    /// All bytes of the slot.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All bytes of the slot, to change.
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn core_size(&self) -> usize {
        if self.bytes[4] == 3 { CORE_SIZE_V3 } else { CORE_SIZE_V2 }
    }

    fn is_v3(&self) -> bool {
        self.bytes[4] == 3
    }

    /// Makes the slot a new inode: everything but number, uuid and the list of unlinked inodes is
    /// zero, both forks are empty lists of extents.
    pub fn reset(&mut self, file_type: FileType, permissions: u16, generation: u32) {
        let size = self.core_size();
        let (ino, uuid) = (be64(&self.bytes, 152), <[u8; 16]>::try_from(&self.bytes[160..176]));
        self.bytes[2..].fill(0);
        if let Ok(uuid) = uuid {
            self.bytes[160..176].copy_from_slice(&uuid);
        }
        put64(&mut self.bytes, 152, ino);
        self.bytes[4] = if size == CORE_SIZE_V3 { 3 } else { 2 };
        put16(&mut self.bytes, 2, file_type.mode_bits() | permissions & 0o7777);
        put32(&mut self.bytes, 92, generation);
        put32(&mut self.bytes, NEXT_UNLINKED_OFFSET, u32::MAX);
        self.set_format(Fork::Data, Format::Extents);
        self.set_format(Fork::Attr, Format::Extents);
    }

    /// Makes the slot a free one: mode and links are zero, the generation is the next.
    pub fn clear(&mut self) {
        let generation = self.generation();
        let is_v3 = self.is_v3();
        let flags2 = if is_v3 { self.flags2() } else { 0 };
        self.reset(FileType::Regular, 0, generation.wrapping_add(1));
        put16(&mut self.bytes, 2, 0);
        if is_v3 {
            // What the slot's times and counts look like stays, as in a new chunk.
            self.set_flags2(flags2 & (flags2::BIGTIME | flags2::NREXT64));
        }
    }

    /// How much to allocate at once, in blocks (`di_extsize`); 0 for no hint.
    pub fn extent_size_hint(&self) -> u32 {
        be32(&self.bytes, 72)
    }

    /// Sets [`Inode::extent_size_hint`].
    pub fn set_extent_size_hint(&mut self, blocks: u32) {
        put32(&mut self.bytes, 72, blocks);
    }

    /// How much to copy at once when shared blocks are written to, in blocks (`di_cowextsize`).
    pub fn cow_extent_size_hint(&self) -> u32 {
        if self.is_v3() { be32(&self.bytes, 128) } else { 0 }
    }

    /// Sets [`Inode::cow_extent_size_hint`], of an inode of version 3.
    pub fn set_cow_extent_size_hint(&mut self, blocks: u32) {
        put32(&mut self.bytes, 128, blocks);
    }

    /// Mode: type and permissions.
    pub fn mode(&self) -> u16 {
        be16(&self.bytes, 2)
    }

    /// The type its mode names.
    pub fn file_type(&self) -> Option<FileType> {
        FileType::from_mode(self.mode())
    }

    /// Whether it is a directory.
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

    /// How a fork's contents are kept.
    pub fn format(&self) -> Format {
        Format::from_raw(self.bytes[5]).unwrap_or(Format::Extents)
    }

    /// How the attribute fork's contents are kept, or `None` if there is no such fork.
    pub fn attr_format(&self) -> Option<Format> {
        self.has_attr_fork().then(|| Format::from_raw(self.bytes[83]).unwrap_or(Format::Extents))
    }

    /// How a fork's contents are kept. An attribute fork that is not there is an empty list.
    pub fn fork_format(&self, fork: Fork) -> Format {
        match fork {
            Fork::Data => self.format(),
            Fork::Attr => self.attr_format().unwrap_or(Format::Extents),
        }
    }

    /// Says how a fork's contents are kept.
    pub fn set_format(&mut self, fork: Fork, format: Format) {
        match fork {
            Fork::Data => self.bytes[5] = format as u8,
            Fork::Attr => self.bytes[83] = format as u8,
        }
    }

    /// Number of links.
    pub fn nlink(&self) -> u32 {
        if self.bytes[4] == 1 { be16(&self.bytes, 6).into() } else { be32(&self.bytes, 16) }
    }

    /// Sets the number of links.
    pub fn set_nlink(&mut self, nlink: u32) {
        put32(&mut self.bytes, 16, nlink);
    }

    /// Owner.
    pub fn uid(&self) -> u32 {
        be32(&self.bytes, 8)
    }

    /// Sets the owner.
    pub fn set_uid(&mut self, uid: u32) {
        put32(&mut self.bytes, 8, uid);
    }

    /// Group.
    pub fn gid(&self) -> u32 {
        be32(&self.bytes, 12)
    }

    /// Sets the group.
    pub fn set_gid(&mut self, gid: u32) {
        put32(&mut self.bytes, 12, gid);
    }

    /// Project.
    pub fn projid(&self) -> u32 {
        u32::from(be16(&self.bytes, 22)) << 16 | u32::from(be16(&self.bytes, 20))
    }

    /// Sets the project.
    pub fn set_projid(&mut self, projid: u32) {
        put16(&mut self.bytes, 20, projid as u16);
        put16(&mut self.bytes, 22, (projid >> 16) as u16);
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        be64(&self.bytes, 56)
    }

    /// Sets the size.
    pub fn set_size(&mut self, size: u64) {
        put64(&mut self.bytes, 56, size);
    }

    /// Blocks that both forks take, trees included.
    pub fn nblocks(&self) -> u64 {
        be64(&self.bytes, 64)
    }

    /// Sets the number of blocks.
    pub fn set_nblocks(&mut self, nblocks: u64) {
        put64(&mut self.bytes, 64, nblocks);
    }

    fn has_large_counts(&self) -> bool {
        self.flags2() & flags2::NREXT64 != 0
    }

    /// Extents of a fork. Meaningless while its contents are local or a device number.
    pub fn extents(&self, fork: Fork) -> u64 {
        match (fork, self.has_large_counts()) {
            (Fork::Data, true) => be64(&self.bytes, 24),
            (Fork::Data, false) => be32(&self.bytes, 76).into(),
            (Fork::Attr, true) => be32(&self.bytes, 76).into(),
            (Fork::Attr, false) => be16(&self.bytes, 80).into(),
        }
    }

    /// Sets the number of extents of a fork. False if it cannot count that many.
    #[must_use]
    pub fn set_extents(&mut self, fork: Fork, count: u64) -> bool {
        match (fork, self.has_large_counts()) {
            (Fork::Data, true) if count < 1 << 48 => put64(&mut self.bytes, 24, count),
            (Fork::Data, false) if count < 1 << 31 => put32(&mut self.bytes, 76, count as u32),
            (Fork::Attr, true) if count < 1 << 32 => put32(&mut self.bytes, 76, count as u32),
            (Fork::Attr, false) if count < 1 << 15 => put16(&mut self.bytes, 80, count as u16),
            _ => return false,
        }
        true
    }

    /// Whether it has an attribute fork.
    pub fn has_attr_fork(&self) -> bool {
        self.bytes[82] != 0
    }

    /// First byte of the attribute fork behind the core, a multiple of 8; 0 without one.
    pub fn forkoff_bytes(&self) -> usize {
        usize::from(self.bytes[82]) * 8
    }

    /// Moves the boundary between the forks: `bytes` behind the core, a multiple of 8 within the
    /// slot. What the forks hold is not moved.
    pub fn set_forkoff_bytes(&mut self, bytes: usize) {
        debug_assert!(bytes.is_multiple_of(8) && bytes < self.literal_size());
        self.bytes[82] = (bytes / 8) as u8;
    }

    /// Bytes behind the core: what both forks have together.
    pub fn literal_size(&self) -> usize {
        self.bytes.len() - self.core_size()
    }

    /// Flags.
    pub fn flags(&self) -> u16 {
        be16(&self.bytes, 90)
    }

    /// Sets the flags.
    pub fn set_flags(&mut self, flags: u16) {
        put16(&mut self.bytes, 90, flags);
    }

    /// Generation: differs each time the slot is used again.
    pub fn generation(&self) -> u32 {
        be32(&self.bytes, 92)
    }

    /// The next inode of the list of unlinked inodes that this one is on; all ones for none.
    pub fn next_unlinked(&self) -> u32 {
        be32(&self.bytes, NEXT_UNLINKED_OFFSET)
    }

    /// Counts changes of the inode (version 3).
    pub fn bump_changecount(&mut self) {
        if self.is_v3() {
            let count = be64(&self.bytes, 104).wrapping_add(1);
            put64(&mut self.bytes, 104, count);
        }
    }

    /// More flags (version 3).
    pub fn flags2(&self) -> u64 {
        if self.is_v3() { be64(&self.bytes, 120) } else { 0 }
    }

    /// Sets the flags of version 3.
    pub fn set_flags2(&mut self, flags2: u64) {
        put64(&mut self.bytes, 120, flags2);
    }

    /// One of its times. Version 2 has none of creation.
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

    /// Sets one of its times, clamped to what its kind of timestamps can say.
    pub fn set_time(&mut self, which: Time, time: Timestamp) {
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

    /// The bytes of a fork: empty for an attribute fork that is not there.
    pub fn fork(&self, fork: Fork) -> &[u8] {
        let range = self.fork_range(fork);
        &self.bytes[range]
    }

    /// The bytes of a fork, to change.
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

    /// The device number, in the data fork of a device.
    pub fn device(&self) -> DeviceNumber {
        // System V's split: 14 bits of major, 18 of minor.
        let raw = be32(self.fork(Fork::Data), 0);
        DeviceNumber { major: raw >> 18, minor: raw & 0x3_ffff }
    }

    /// Sets the device number. False if it does not fit: 14 bits of major, 18 of minor.
    #[must_use]
    pub fn set_device(&mut self, device: DeviceNumber) -> bool {
        self.set_format(Fork::Data, Format::Device);
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
    fn counts_of_extents_know_their_limits() {
        let mut inode = v3();
        assert!(!inode.set_extents(Fork::Attr, 1 << 15));
        inode.set_flags2(flags2::NREXT64);
        assert!(inode.set_extents(Fork::Attr, 1 << 15) && inode.set_extents(Fork::Data, 1 << 40));
        assert_eq!((inode.extents(Fork::Attr), inode.extents(Fork::Data)), (1 << 15, 1 << 40));
    }
}
