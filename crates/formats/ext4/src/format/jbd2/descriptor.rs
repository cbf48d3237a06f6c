//! Descriptor blocks, whose tags name the target blocks of the images that follow.

use bitflags::bitflags;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::layout::{Checksums, JournalLayout, UUID_SIZE};
use super::{BlockType, HEADER_SIZE, Tid, write_header};
use crate::format::address::Block;

bitflags! {
    /// `t_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct TagFlags: u16 {
        /// The image's first four bytes were the magic number and are stored as zeros.
        const ESCAPE = 1;
        /// No uuid follows the tag.
        const SAME_UUID = 2;
        /// The block was freed by the transaction (never used).
        const DELETED = 4;
        /// The last tag of its descriptor block.
        const LAST = 8;
    }
}

/// A tag of version 3. Field names as in the format document, without `t_`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawTag3 {
    blocknr: U32,
    flags: U32,
    blocknr_high: U32,
    checksum: U32,
}

/// A tag of the other versions. Without 64-bit block numbers the last field is missing.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawTag {
    blocknr: U32,
    checksum: U16,
    flags: U16,
    blocknr_high: U32,
}

const _: () = assert!(size_of::<RawTag3>() == 16);
const _: () = assert!(size_of::<RawTag>() == 12);
const _: () = assert!(std::mem::offset_of!(RawTag, flags) == 6);

/// Target of a block image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Target block in the file system.
    pub block: Block,
    /// True if the image's first four bytes must be replaced by the magic number.
    pub escaped: bool,
    /// Checksum of the stored image: 32 bits with version 3, 16 with version 2, else 0.
    pub checksum: u32,
}

impl Tag {
    /// Returns whether the stored image matches the tag's checksum, if there is one.
    #[must_use]
    pub(crate) fn matches(&self, layout: &JournalLayout, tid: Tid, stored: &[u8]) -> bool {
        match layout.checksums {
            Checksums::None | Checksums::Transaction => true,
            Checksums::V2 => self.checksum == layout.image_checksum(tid, stored) & 0xffff,
            Checksums::V3 => self.checksum == layout.image_checksum(tid, stored),
        }
    }
}

/// Iterates over the tags of a descriptor block, at least one. Ends with the tag marked as the last, or when the block
/// is full.
pub fn tags<'b>(block: &'b [u8], layout: &JournalLayout) -> impl Iterator<Item = Tag> + use<'b> {
    let layout = *layout;
    let mut at = Some(HEADER_SIZE);
    std::iter::from_fn(move || {
        let start = at?;
        let end = start + layout.tag_size();
        if end > layout.records_end() {
            at = None;
            return None;
        }
        let (tag, flags) = parse(block.get(start..end)?, &layout)?;
        let uuid = if flags.contains(TagFlags::SAME_UUID) { 0 } else { UUID_SIZE };
        at = (!flags.contains(TagFlags::LAST)).then_some(end + uuid);
        Some(tag)
    })
}

fn parse(bytes: &[u8], layout: &JournalLayout) -> Option<(Tag, TagFlags)> {
    let (low, high, flags, checksum) = if layout.checksums == Checksums::V3 {
        let raw = RawTag3::read_from_bytes(bytes).ok()?;
        // The upper half of the flags is unused.
        (raw.blocknr, raw.blocknr_high, raw.flags.get() as u16, raw.checksum.get())
    } else {
        let mut padded = [0; size_of::<RawTag>()];
        let len = bytes.len().min(padded.len());
        padded[..len].copy_from_slice(&bytes[..len]);
        let raw = RawTag::read_from_bytes(&padded).ok()?;
        let checksum =
            if layout.checksums == Checksums::V2 { u32::from(raw.checksum.get()) } else { 0 };
        (raw.blocknr, raw.blocknr_high, raw.flags.get(), checksum)
    };
    let high = if layout.wide { u64::from(high.get()) } else { 0 };
    let flags = TagFlags::from_bits_retain(flags);
    let tag = Tag {
        block: Block(high << 32 | u64::from(low.get())),
        escaped: flags.contains(TagFlags::ESCAPE),
        checksum,
    };
    Some((tag, flags))
}

/// Writer of a descriptor block. Holds no buffer: each call gets the block.
#[derive(Clone, Copy, Debug)]
pub struct DescriptorWriter {
    count: usize,
    /// Offset of the next tag.
    end: usize,
    last_flags: usize,
}

impl DescriptorWriter {
    /// Starts a descriptor block in `block`, which must be zero.
    pub(crate) fn start(block: &mut [u8], tid: Tid) -> Self {
        write_header(block, BlockType::Descriptor, tid);
        Self { count: 0, end: HEADER_SIZE, last_flags: HEADER_SIZE }
    }

    /// Returns whether no further tag fits.
    #[must_use]
    pub(crate) fn is_full(&self, layout: &JournalLayout) -> bool {
        self.count == layout.tags_max()
    }

    /// Adds a tag. The descriptor must not be full, and the block number must fit.
    pub(crate) fn push(&mut self, block: &mut [u8], layout: &JournalLayout, tag: Tag) {
        let mut flags = TagFlags::empty();
        flags.set(TagFlags::ESCAPE, tag.escaped);
        flags.set(TagFlags::SAME_UUID, self.count > 0);
        let low = U32::new(tag.block.0 as u32);
        let high = U32::new((tag.block.0 >> 32) as u32);
        let start = self.end;
        self.end += layout.tag_size();
        let bytes = &mut block[start..self.end];
        if layout.checksums == Checksums::V3 {
            let raw = RawTag3 {
                blocknr: low,
                flags: u32::from(flags.bits()).into(),
                blocknr_high: high,
                checksum: tag.checksum.into(),
            };
            bytes.copy_from_slice(raw.as_bytes());
            self.last_flags = start + std::mem::offset_of!(RawTag3, flags) + 2;
        } else {
            let raw = RawTag {
                blocknr: low,
                checksum: (tag.checksum as u16).into(),
                flags: flags.bits().into(),
                blocknr_high: high,
            };
            let len = bytes.len().min(size_of::<RawTag>() - if layout.wide { 0 } else { 4 });
            bytes[..len].copy_from_slice(&raw.as_bytes()[..len]);
            self.last_flags = start + std::mem::offset_of!(RawTag, flags);
        }
        if self.count == 0 {
            block[self.end..self.end + UUID_SIZE].copy_from_slice(&layout.uuid);
            self.end += UUID_SIZE;
        }
        self.count += 1;
    }

    /// Marks the last tag and seals the block.
    pub(crate) fn finish(self, block: &mut [u8], layout: &JournalLayout) {
        block[self.last_flags + 1] |= TagFlags::LAST.bits() as u8;
        layout.seal(block);
    }
}
