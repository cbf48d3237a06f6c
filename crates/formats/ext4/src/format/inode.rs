//! Inodes: the 128 bytes of ext2 and the later fields.
//!
//! Source: kernel Documentation/filesystems/ext4/inodes.rst. An [`Inode`] is a copy of the fixed fields of one inode
//! table slot. Fields past `extra_isize` are missing: getters return their defaults, and setters ignore them.

use vfs::{DeviceNumber, FileType, Ino, S_IFMT, Timestamp};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::checksum::crc32c;

/// The root directory (`EXT4_ROOT_INO`).
pub const ROOT_INO: Ino = Ino(2);

/// Size of the fixed fields of every inode, in bytes.
pub const GOOD_OLD_INODE_SIZE: usize = 128;

/// Size of all known fixed fields, up to `projid`, in bytes.
pub(crate) const INODE_FIELDS_SIZE: usize = 160;

/// `i_extra_isize` that covers all known fixed fields.
pub(crate) const EXTRA_ISIZE: u16 = (INODE_FIELDS_SIZE - GOOD_OLD_INODE_SIZE) as u16;

/// Size of `i_block` in bytes.
pub const I_BLOCK_SIZE: usize = 60;

/// `i_flags` (those used here).
pub mod flags {
    /// The inode must not change.
    pub(crate) const IMMUTABLE: u32 = 0x10;
    /// Append only.
    pub const APPEND: u32 = 0x20;
    /// Do not update the access time.
    pub(crate) const NOATIME: u32 = 0x80;
    /// The contents are encrypted.
    pub const ENCRYPT: u32 = 0x800;
    /// A hashed directory.
    pub const INDEX: u32 = 0x1000;
    /// The data is journaled.
    pub(crate) const JOURNAL_DATA: u32 = 0x4000;
    /// Top of a directory hierarchy, for allocation.
    pub const TOPDIR: u32 = 0x2_0000;
    /// `i_blocks` counts file-system blocks.
    pub const HUGE_FILE: u32 = 0x4_0000;
    /// `i_block` contains an extent tree.
    pub const EXTENTS: u32 = 0x8_0000;
    /// Protected by fs-verity.
    pub const VERITY: u32 = 0x10_0000;
    /// The inode stores the value of a large extended attribute.
    pub const EA_INODE: u32 = 0x20_0000;
    /// The contents are stored in the inode.
    pub const INLINE_DATA: u32 = 0x1000_0000;
    /// New files in the directory inherit its project.
    pub(crate) const PROJINHERIT: u32 = 0x2000_0000;
    /// Lookups ignore case.
    pub const CASEFOLD: u32 = 0x4000_0000;
}

/// The fixed fields on disk.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawInode {
    mode: U16,
    uid_lo: U16,
    size_lo: U32,
    atime: U32,
    ctime: U32,
    mtime: U32,
    dtime: U32,
    gid_lo: U16,
    links_count: U16,
    blocks_lo: U32,
    flags: U32,
    version: U32,
    block: [u8; I_BLOCK_SIZE],
    generation: U32,
    file_acl_lo: U32,
    size_high: U32,
    obso_faddr: U32,
    blocks_high: U16,
    file_acl_high: U16,
    uid_high: U16,
    gid_high: U16,
    checksum_lo: U16,
    reserved: U16,
    extra_isize: U16,
    checksum_hi: U16,
    ctime_extra: U32,
    mtime_extra: U32,
    atime_extra: U32,
    crtime: U32,
    crtime_extra: U32,
    version_hi: U32,
    projid: U32,
}

const _: () = assert!(size_of::<RawInode>() == INODE_FIELDS_SIZE);

/// Offset of `checksum_lo` in an inode.
const CHECKSUM_LO_OFFSET: usize = 0x7c;
/// Offset of `checksum_hi` in an inode.
const CHECKSUM_HI_OFFSET: usize = 0x82;

/// Returns `i_extra_isize` of a slot without a check; 0 if the slot has no such field.
#[must_use]
pub fn stored_extra_isize(slot: &[u8]) -> u16 {
    let bytes = slot.get(GOOD_OLD_INODE_SIZE..).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

/// Checks that the fixed fields end inside the slot and at a multiple of 4. A value of 0 means no fields past the first
/// 128 bytes.
///
/// # Errors
/// The maximum for a slot of this size.
pub(crate) fn check_extra_isize(slot: &[u8]) -> Result<(), usize> {
    let (extra, most) =
        (usize::from(stored_extra_isize(slot)), slot.len().saturating_sub(GOOD_OLD_INODE_SIZE));
    let is_sound = extra == 0 || (4..=most).contains(&extra) && extra.is_multiple_of(4);
    if is_sound { Ok(()) } else { Err(most) }
}

/// Byte range of `dtime` in an inode.
pub const DTIME_BYTES: std::ops::Range<usize> = 0x14..0x18;

const _: () = assert!(std::mem::offset_of!(RawInode, dtime) == DTIME_BYTES.start);

/// Selects a timestamp of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Last access.
    Access,
    /// Last change of the inode.
    Change,
    /// Last change of the contents.
    Modify,
}

/// A copy of an inode's fixed fields.
#[derive(Clone, Copy, Debug)]
pub struct Inode {
    raw: RawInode,
    /// Number of bytes of `raw` that the slot has and `extra_isize` covers.
    present: u16,
}

impl Inode {
    /// Returns an empty inode for slots of `inode_size` bytes.
    pub(crate) fn zeroed(inode_size: usize) -> Self {
        let mut raw: RawInode = zerocopy::transmute!([0_u8; INODE_FIELDS_SIZE]);
        let present = if inode_size > GOOD_OLD_INODE_SIZE {
            raw.extra_isize = EXTRA_ISIZE.into();
            INODE_FIELDS_SIZE
        } else {
            GOOD_OLD_INODE_SIZE
        };
        Self { raw, present: present as u16 }
    }

    /// Reads the fixed fields from an inode table slot.
    pub fn from_slot(slot: &[u8]) -> Self {
        let mut bytes = [0; INODE_FIELDS_SIZE];
        let len = slot.len().min(INODE_FIELDS_SIZE);
        bytes[..len].copy_from_slice(&slot[..len]);
        let raw: RawInode = zerocopy::transmute!(bytes);
        let mut present = len.min(GOOD_OLD_INODE_SIZE);
        if slot.len() > GOOD_OLD_INODE_SIZE {
            let extra = usize::from(raw.extra_isize.get());
            present = (GOOD_OLD_INODE_SIZE + extra).min(len);
        }
        Self { raw, present: present as u16 }
    }

    /// Returns the bytes to write to the start of the slot: all existing fields.
    pub fn as_bytes(&self) -> &[u8] {
        let bytes = self.raw.as_bytes();
        // `extra_isize` is within the first 132 bytes and must be included.
        &bytes[..usize::from(self.present).max(GOOD_OLD_INODE_SIZE)]
    }

    /// Returns whether the field that ends at byte `end` exists.
    fn has(&self, end: usize) -> bool {
        usize::from(self.present) >= end
    }

    /// Returns the POSIX mode, type and permissions.
    pub fn mode(&self) -> u16 {
        self.raw.mode.get()
    }

    /// Sets the POSIX mode, type and permissions.
    pub fn set_mode(&mut self, mode: u16) {
        self.raw.mode = mode.into();
    }

    /// Returns the file type, if the mode contains a valid one.
    pub fn file_type(&self) -> Option<FileType> {
        FileType::from_mode(self.mode())
    }

    /// Returns whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type() == Some(FileType::Directory)
    }

    /// Returns the permission bits, below 0o10000.
    pub fn permissions(&self) -> u16 {
        self.mode() & !S_IFMT
    }

    /// Sets the permission bits.
    pub(crate) fn set_permissions(&mut self, permissions: u16) {
        self.set_mode((self.mode() & S_IFMT) | (permissions & !S_IFMT));
    }

    /// Returns the owner.
    pub fn uid(&self) -> u32 {
        u32::from(self.raw.uid_high.get()) << 16 | u32::from(self.raw.uid_lo.get())
    }

    /// Sets the owner.
    pub fn set_uid(&mut self, uid: u32) {
        self.raw.uid_lo = (uid as u16).into();
        self.raw.uid_high = ((uid >> 16) as u16).into();
    }

    /// Returns the group.
    pub fn gid(&self) -> u32 {
        u32::from(self.raw.gid_high.get()) << 16 | u32::from(self.raw.gid_lo.get())
    }

    /// Sets the group.
    pub(crate) fn set_gid(&mut self, gid: u32) {
        self.raw.gid_lo = (gid as u16).into();
        self.raw.gid_high = ((gid >> 16) as u16).into();
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        u64::from(self.raw.size_high.get()) << 32 | u64::from(self.raw.size_lo.get())
    }

    /// Sets the size in bytes.
    pub fn set_size(&mut self, size: u64) {
        self.raw.size_lo = (size as u32).into();
        self.raw.size_high = ((size >> 32) as u32).into();
    }

    /// Returns the used space in units of 512 bytes, for blocks of `block_size` bytes.
    pub fn blocks_512(&self, block_size: u32) -> u64 {
        let count =
            u64::from(self.raw.blocks_high.get()) << 32 | u64::from(self.raw.blocks_lo.get());
        if self.flags() & flags::HUGE_FILE != 0 {
            count.saturating_mul(u64::from(block_size / 512))
        } else {
            count
        }
    }

    /// Sets the used space, given in units of 512 bytes. Stores it in file-system blocks if it does not fit otherwise.
    /// Returns `false` if neither fits.
    pub(crate) fn set_blocks_512(&mut self, units: u64, block_size: u32) -> bool {
        let mut count = units;
        self.set_flag(flags::HUGE_FILE, units >> 48 != 0);
        if units >> 48 != 0 {
            count = units / u64::from(block_size / 512);
        }
        self.raw.blocks_lo = (count as u32).into();
        self.raw.blocks_high = ((count >> 32) as u16).into();
        count >> 48 == 0
    }

    /// Returns the number of links.
    pub fn links_count(&self) -> u16 {
        self.raw.links_count.get()
    }

    /// Sets the number of links.
    pub fn set_links_count(&mut self, links: u16) {
        self.raw.links_count = links.into();
    }

    /// Returns the [`flags`].
    pub fn flags(&self) -> u32 {
        self.raw.flags.get()
    }

    /// Returns whether any of `flags` is set.
    pub fn has_flag(&self, flags: u32) -> bool {
        self.flags() & flags != 0
    }

    /// Sets or clears [`flags`].
    pub fn set_flag(&mut self, flags: u32, on: bool) {
        let others = self.flags() & !flags;
        self.raw.flags = (if on { others | flags } else { others }).into();
    }

    /// Returns the generation.
    pub fn generation(&self) -> u32 {
        self.raw.generation.get()
    }

    /// Sets the generation.
    pub(crate) fn set_generation(&mut self, generation: u32) {
        self.raw.generation = generation.into();
    }

    /// Returns the deletion time in seconds, or the next inode on the orphan list; 0 for an inode in use.
    pub fn dtime(&self) -> u32 {
        self.raw.dtime.get()
    }

    /// Sets the deletion time, or the next inode on the orphan list.
    pub fn set_dtime(&mut self, dtime: u32) {
        self.raw.dtime = dtime.into();
    }

    /// Returns the block of extended attributes; 0 for none.
    pub fn file_acl(&self) -> u64 {
        u64::from(self.raw.file_acl_high.get()) << 32 | u64::from(self.raw.file_acl_lo.get())
    }

    /// Sets the block of extended attributes.
    pub fn set_file_acl(&mut self, block: u64) {
        self.raw.file_acl_lo = (block as u32).into();
        self.raw.file_acl_high = ((block >> 32) as u16).into();
    }

    /// Returns `i_version`: a count of changes; in an inode with an attribute value, the low half of its reference
    /// count.
    pub fn version(&self) -> u32 {
        self.raw.version.get()
    }

    /// Returns the block of the inode's passive translator in a file system of the Hurd; 0 for none.
    pub(crate) fn translator(&self) -> u32 {
        self.raw.version.get()
    }

    /// Sets [`Inode::translator`].
    pub(crate) fn set_translator(&mut self, block: u32) {
        self.raw.version = block.into();
    }

    /// Returns the reference count of an inode with an attribute value. The high half is in `i_ctime`, the low half in
    /// `i_version`.
    pub(crate) fn value_refcount(&self) -> u64 {
        u64::from(self.raw.ctime.get()) << 32 | u64::from(self.raw.version.get())
    }

    /// Sets `Inode::value_refcount`.
    pub fn set_value_refcount(&mut self, count: u64) {
        self.raw.ctime = ((count >> 32) as u32).into();
        self.raw.version = (count as u32).into();
    }

    /// Returns the hash of the attribute value that an inode stores, from `i_atime`.
    pub(crate) fn value_hash(&self) -> u32 {
        self.raw.atime.get()
    }

    /// Sets [`Inode::value_hash`].
    pub(crate) fn set_value_hash(&mut self, hash: u32) {
        self.raw.atime = hash.into();
    }

    /// Returns `i_block`: block map, extent tree root, short symbolic link, device number or inline data.
    pub fn i_block(&self) -> &[u8; I_BLOCK_SIZE] {
        &self.raw.block
    }

    /// Returns `i_block` for editing.
    pub fn i_block_mut(&mut self) -> &mut [u8; I_BLOCK_SIZE] {
        &mut self.raw.block
    }

    /// Returns the number of bytes of fixed fields past the first 128. Extended attributes follow.
    pub fn extra_isize(&self) -> u16 {
        if self.has(CHECKSUM_HI_OFFSET) { self.raw.extra_isize.get() } else { 0 }
    }

    /// Returns a timestamp.
    pub fn time(&self, which: Time) -> Timestamp {
        let raw = &self.raw;
        let (sec, extra, end) = match which {
            Time::Change => (raw.ctime, raw.ctime_extra, 0x88),
            Time::Modify => (raw.mtime, raw.mtime_extra, 0x8c),
            Time::Access => (raw.atime, raw.atime_extra, 0x90),
        };
        decode_time(sec.get(), if self.has(end) { extra.get() } else { 0 })
    }

    /// Sets a timestamp. Without the extra fields, nanoseconds are lost and seconds are limited to 32 bits.
    pub(crate) fn set_time(&mut self, which: Time, time: Timestamp) {
        let wide = |end| usize::from(self.present) >= end;
        let (sec, extra, wide) = match which {
            Time::Change => (&mut self.raw.ctime, &mut self.raw.ctime_extra, wide(0x88)),
            Time::Modify => (&mut self.raw.mtime, &mut self.raw.mtime_extra, wide(0x8c)),
            Time::Access => (&mut self.raw.atime, &mut self.raw.atime_extra, wide(0x90)),
        };
        let (low, high) = encode_time(time, wide);
        *sec = low.into();
        if wide {
            *extra = high.into();
        }
    }

    /// Returns the creation time, if the inode has the field.
    pub fn crtime(&self) -> Option<Timestamp> {
        self.has(0x98).then(|| decode_time(self.raw.crtime.get(), self.raw.crtime_extra.get()))
    }

    /// Sets the creation time, if the inode has the field.
    pub(crate) fn set_crtime(&mut self, time: Timestamp) {
        if self.has(0x98) {
            let (low, high) = encode_time(time, true);
            self.raw.crtime = low.into();
            self.raw.crtime_extra = high.into();
        }
    }

    /// Returns the project id; 0, the default project, if the inode does not have the field.
    pub fn projid(&self) -> u32 {
        if self.has(INODE_FIELDS_SIZE) { self.raw.projid.get() } else { 0 }
    }

    /// Sets the project id, if the inode has the field.
    pub(crate) fn set_projid(&mut self, projid: u32) {
        if self.has(INODE_FIELDS_SIZE) {
            self.raw.projid = projid.into();
        }
    }

    /// Returns the device number of a character or block device.
    pub fn device(&self) -> DeviceNumber {
        let word = |at: usize| {
            let b = &self.raw.block;
            u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
        };
        let (old, new) = (word(0), word(4));
        if old != 0 {
            return DeviceNumber { major: old >> 8 & 0xff, minor: old & 0xff };
        }
        DeviceNumber { major: new >> 8 & 0xfff, minor: (new & 0xff) | (new >> 12 & 0xf_ff00) }
    }

    /// Sets the device number: in 16 bits if it fits, else in 32. Returns `false` if it fits in neither.
    pub(crate) fn set_device(&mut self, device: DeviceNumber) -> bool {
        let DeviceNumber { major, minor } = device;
        let (old, new) = if major < 256 && minor < 256 {
            (major << 8 | minor, 0)
        } else {
            (0, (minor & 0xff) | major << 8 | (minor & !0xff) << 12)
        };
        self.raw.block[..4].copy_from_slice(&old.to_le_bytes());
        self.raw.block[4..8].copy_from_slice(&new.to_le_bytes());
        major < 4096 && minor < 1 << 20
    }
}

/// Seconds have 34 bits: 32 bits with a sign, and an epoch of 2 bits that adds multiples of 2^32.
fn decode_time(sec: u32, extra: u32) -> Timestamp {
    let sec = i64::from(sec.cast_signed()) + (i64::from(extra & 3) << 32);
    Timestamp { sec, nsec: (extra >> 2).min(999_999_999) }
}

fn encode_time(time: Timestamp, wide: bool) -> (u32, u32) {
    let min = i64::from(i32::MIN);
    if !wide {
        return ((time.sec.clamp(min, i64::from(i32::MAX)) as i32).cast_unsigned(), 0);
    }
    // The last second that 34 bits can represent.
    let sec = time.sec.clamp(min, i64::from(i32::MAX) + (3 << 32));
    let low = sec as i32;
    let epoch = ((sec - i64::from(low)) >> 32) as u32 & 3;
    (low.cast_unsigned(), epoch | time.nsec << 2)
}

/// Returns the offsets of the extra fields of times with an implausible epoch: seconds before 1970 in the last epoch,
/// as old kernels wrote times before 1970.
pub(crate) fn early_times(slot: &[u8]) -> Vec<usize> {
    // Offsets of the seconds and of the epoch.
    const TIMES: [(usize, usize); 4] = [(0xc, 0x84), (0x10, 0x88), (0x8, 0x8c), (0x90, 0x94)];
    let inode = Inode::from_slot(slot);
    let is_early = |&(sec, extra): &(usize, usize)| {
        inode.has(extra + 4) && slot[sec + 3] & 0x80 != 0 && slot[extra] & 3 == 3
    };
    TIMES.into_iter().filter(is_early).map(|(_, extra)| extra).collect()
}

/// Number of bytes of a slot that are checksummed in one step: all of the usual size.
const CHECKSUM_PIECE: usize = 256;

/// Returns the checksum of an inode's whole slot, with the checksum field as zero.
fn checksum(seed: u32, slot: &[u8]) -> u32 {
    // A copy with a cleared checksum is faster than many short pieces.
    let mut start = [0; CHECKSUM_PIECE];
    let len = slot.len().min(CHECKSUM_PIECE);
    start[..len].copy_from_slice(&slot[..len]);
    start[CHECKSUM_LO_OFFSET..CHECKSUM_LO_OFFSET + 2].fill(0);
    if has_checksum_hi(slot) {
        start[CHECKSUM_HI_OFFSET..CHECKSUM_HI_OFFSET + 2].fill(0);
    }
    crc32c(crc32c(seed, &start[..len]), &slot[len..])
}

fn has_checksum_hi(slot: &[u8]) -> bool {
    slot.len() > GOOD_OLD_INODE_SIZE
        && u16::from_le_bytes([slot[GOOD_OLD_INODE_SIZE], slot[GOOD_OLD_INODE_SIZE + 1]]) >= 4
}

/// Returns the computed and the stored checksum of the inode in `slot` (at least 128 bytes), reduced to the bits that
/// the slot stores.
pub fn slot_checksums(seed: u32, slot: &[u8]) -> (u32, u32) {
    let lo = u16::from_le_bytes([slot[CHECKSUM_LO_OFFSET], slot[CHECKSUM_LO_OFFSET + 1]]);
    let computed = checksum(seed, slot);
    if has_checksum_hi(slot) {
        let hi = u16::from_le_bytes([slot[CHECKSUM_HI_OFFSET], slot[CHECKSUM_HI_OFFSET + 1]]);
        (computed, u32::from(hi) << 16 | u32::from(lo))
    } else {
        (computed & 0xffff, u32::from(lo))
    }
}

/// Updates the checksum of the inode in `slot` (at least 128 bytes).
pub fn seal_slot(seed: u32, slot: &mut [u8]) {
    let computed = checksum(seed, slot);
    slot[CHECKSUM_LO_OFFSET..CHECKSUM_LO_OFFSET + 2]
        .copy_from_slice(&(computed as u16).to_le_bytes());
    if has_checksum_hi(slot) {
        slot[CHECKSUM_HI_OFFSET..CHECKSUM_HI_OFFSET + 2]
            .copy_from_slice(&((computed >> 16) as u16).to_le_bytes());
    }
}

/// An inode number and its checksum seed, used to verify blocks that belong to the inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockOwner {
    /// The inode number.
    pub ino: Ino,
    /// Checksum seed of its blocks.
    pub seed: u32,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn times_survive(sec in -(1_i64 << 31)..(1_i64 << 31) + (3 << 32), nsec in 0_u32..1_000_000_000) {
            let mut inode = Inode::zeroed(256);
            let time = Timestamp { sec, nsec };
            inode.set_time(Time::Modify, time);
            inode.set_crtime(time);
            prop_assert_eq!(inode.time(Time::Modify), time);
            prop_assert_eq!(inode.crtime(), Some(time));
            prop_assert_eq!(inode.time(Time::Access), Timestamp::default());
        }

        #[test]
        fn devices_survive(major in 0_u32..4096, minor in 0_u32..1 << 20) {
            let mut inode = Inode::zeroed(256);
            let device = DeviceNumber { major, minor };
            prop_assert!(inode.set_device(device));
            prop_assert_eq!(inode.device(), device);
        }

        #[test]
        fn any_slot_is_read(
            slot in prop_oneof![
                proptest::collection::vec(any::<u8>(), 128),
                proptest::collection::vec(any::<u8>(), 256),
            ]
        ) {
            let inode = Inode::from_slot(&slot);
            prop_assert_eq!(inode.as_bytes(), &slot[..inode.as_bytes().len()]);
            let _ = (inode.crtime(), inode.extra_isize(), slot_checksums(1, &slot));
            let mut sealed = slot;
            seal_slot(7, &mut sealed);
            let (computed, stored) = slot_checksums(7, &sealed);
            prop_assert_eq!(computed, stored);
        }
    }

    #[test]
    fn small_inodes_have_small_times() {
        let mut inode = Inode::zeroed(128);
        inode.set_time(Time::Change, Timestamp { sec: 1 << 40, nsec: 5 });
        assert_eq!(inode.time(Time::Change), Timestamp { sec: i64::from(i32::MAX), nsec: 0 });
        assert_eq!(inode.crtime(), None);
        assert_eq!(inode.as_bytes().len(), 128);
    }

    #[test]
    fn huge_files_count_in_blocks() {
        let mut inode = Inode::zeroed(256);
        assert!(inode.set_blocks_512(1 << 47, 4096));
        assert!(!inode.has_flag(flags::HUGE_FILE));
        assert!(inode.set_blocks_512(1 << 50, 4096));
        assert_eq!(inode.blocks_512(4096), 1 << 50);
        assert!(inode.has_flag(flags::HUGE_FILE));
    }
}
