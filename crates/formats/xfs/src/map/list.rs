//! Extent lists in the inode.

use std::cmp::Ordering;

use vfs::Result;

use super::Extent;
use crate::format::address::FileBlock;
use crate::format::extent::{EXTENT_SIZE, offset_of};
use crate::format::inode::Fork;
use crate::inode::Handle;

/// Returns the records of the extent list of a fork.
pub(super) fn records(handle: &Handle, fork: Fork) -> Result<&[u8]> {
    let bytes = handle.inode.fork(fork);
    let count = handle.inode.extents(fork);
    let size = usize::try_from(count).ok().and_then(|count| count.checked_mul(EXTENT_SIZE));
    let records = size.and_then(|size| bytes.get(..size));
    records.ok_or_else(|| too_many(handle, bytes.len() / EXTENT_SIZE, count))
}

#[cold]
fn too_many(handle: &Handle, room: usize, count: u64) -> vfs::Error {
    let damage = vfs::Corruption::new("inode", "more extents than fit its fork");
    damage.of_inode(handle.ino().0).mismatch(format_args!("at most {room}"), count).into()
}

/// Returns the number of extents of a list that start at or before `at`. Decodes only the offsets.
pub(super) fn count_to(records: &[u8], at: FileBlock) -> usize {
    let count = records.len() / EXTENT_SIZE;
    // Most forks have few extents, often one.
    if count <= 4 {
        let starts_before = |record: &&[u8]| offset_of(record) <= at;
        return records.chunks_exact(EXTENT_SIZE).take_while(starts_before).count();
    }
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        match offset_of(&records[middle * EXTENT_SIZE..]).cmp(&at) {
            Ordering::Greater => high = middle,
            _ => low = middle + 1,
        }
    }
    low
}

/// Returns the extent at index `at` of a list, if there is one.
pub(super) fn nth(records: &[u8], at: usize) -> Option<Extent> {
    let start = at.checked_mul(EXTENT_SIZE)?;
    records.get(start..start.checked_add(EXTENT_SIZE)?).map(Extent::parse)
}
