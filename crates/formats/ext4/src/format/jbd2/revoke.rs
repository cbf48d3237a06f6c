//! Revoke blocks. The images of their blocks in this and earlier transactions must not be replayed.

use vfs::Corruption;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::layout::JournalLayout;
use super::{BlockType, Tid, write_header};
use crate::format::address::Block;

/// Start of a revoke block. Field names as in the format document, without `r_`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRevokeHeader {
    header: [U32; 3],
    /// Number of bytes in use, including this header.
    count: U32,
}

/// Size of the header in bytes.
pub(super) const HEADER_SIZE: usize = size_of::<RawRevokeHeader>();

const _: () = assert!(HEADER_SIZE == 16);

impl JournalLayout {
    /// Returns the maximum number of records of a revoke block.
    #[must_use]
    pub(crate) fn revokes_max(&self) -> usize {
        (self.records_end() - HEADER_SIZE) / self.revoke_size()
    }
}

/// Returns the revoked blocks of a revoke block.
///
/// # Errors
/// If the stored length is larger than the block.
pub fn revokes<'b>(
    block: &'b [u8],
    layout: &JournalLayout,
) -> Result<impl Iterator<Item = Block> + use<'b>, Corruption> {
    let damage = |problem| Corruption::new("journal revoke block", problem);
    let Ok((raw, _)) = RawRevokeHeader::read_from_prefix(block) else {
        return Err(damage("truncated"));
    };
    let used = raw.count.get() as usize;
    let range = HEADER_SIZE..=layout.records_end();
    if !range.contains(&used) {
        let expected = format!("{} to {}", range.start(), range.end());
        return Err(damage("bytes used").mismatch(expected, used));
    }
    let Some(records) = block.get(HEADER_SIZE..used) else { return Err(damage("truncated")) };
    let number = |record: &[u8]| {
        let number = record.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
        Block(number)
    };
    Ok(records.chunks_exact(layout.revoke_size()).map(number))
}

/// Writes a revoke block of at most [`JournalLayout::revokes_max`] blocks to `block`, which must be zero.
pub(crate) fn encode_revokes(block: &mut [u8], layout: &JournalLayout, tid: Tid, revoked: &[u64]) {
    write_header(block, BlockType::Revoke, tid);
    let size = layout.revoke_size();
    let used = HEADER_SIZE + revoked.len() * size;
    block[HEADER_SIZE - 4..HEADER_SIZE].copy_from_slice(&(used as u32).to_be_bytes());
    for (record, number) in block[HEADER_SIZE..used].chunks_exact_mut(size).zip(revoked) {
        record.copy_from_slice(&number.to_be_bytes()[8 - size..]);
    }
    layout.seal(block);
}
