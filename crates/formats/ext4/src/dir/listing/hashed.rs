//! Listing in hash order. The entries of a leaf, and of the following leaves that continue its last hash, are copied,
//! hashed and sorted together.

use std::ops::ControlFlow;

use operations::profile::ListingStep;
use vfs::{Cookie, Corruption, Ino, Result};

use crate::dir;
use crate::dir::index::{self, Cursor};
use crate::dir::listing::{DirectoryListing, Each, Scratch, ScratchEntry, is_dot};
use crate::format::address::FileBlock;
use crate::format::checksum::crc32c;
use crate::format::dirent;
use crate::format::hash::{HashVersion, NameHash, NameHasher, TOGETHER};
use crate::format::htree::RootInfo;
use crate::format::inode::flags;
use crate::inode::inline;
use crate::kind::BlockKind;
use crate::op::source::BlockSource;

/// Location of the entries of a directory listed by hash.
pub(super) enum Leaves {
    /// In the leaves of an index.
    Indexed(RootInfo),
    /// In the only block, or in the inode.
    Single,
}

/// Maximum size of leaves whose names all have one hash, in bytes. Sorting them takes a few times as much memory.
/// Without deliberate collisions they fill only a few blocks.
const SAME_HASH_BYTES_MAX: usize = 4 << 20;

/// Maximum cookie of a listing in hash order.
const HASH_COOKIE_MAX: u64 = i64::MAX as u64;

pub(super) fn in_hash_order(
    listing: &mut DirectoryListing<'_>,
    leaves: Leaves,
    parent: Ino,
    hasher: &NameHasher,
    from: Cookie,
    scratch: &mut Scratch,
    each: &mut Each<'_>,
) -> Result<()> {
    let DirectoryListing { mut fs, dir, .. } = *listing;
    for (position, ino) in [dir.ino(), parent].into_iter().enumerate() {
        if listing.deliver_dot(position as u64, ino, from, each).is_break() {
            return Ok(());
        }
    }
    if from.0 >= HASH_COOKIE_MAX {
        return Ok(());
    }
    let start = ((from.0 >> 32) as u32) << 1;
    let mut cursor = match leaves {
        Leaves::Indexed(info) => Some(Cursor::seek(&mut fs, dir, info, start)?),
        Leaves::Single => None,
    };
    let mut leaves_left = dir::blocks_count(fs, dir)?;
    let mut position = 1;
    loop {
        scratch.bytes.clear();
        scratch.items.clear();
        let more = match &mut cursor {
            Some(cursor) => gather(listing, cursor, &mut leaves_left, hasher, scratch)?,
            None => gather_single(listing, hasher, scratch)?,
        };
        scratch.sort();
        listing.clock.lap(ListingStep::Sorting);
        let flow = listing.deliver_items(scratch, &mut position, from, each)?;
        listing.clock.lap(ListingStep::Delivering);
        if !more || flow.is_break() {
            return Ok(());
        }
    }
}

impl DirectoryListing<'_> {
    /// Hashes the names of the items from `first` on, which were just read.
    fn hash_items(&mut self, hasher: &NameHasher, scratch: &mut Scratch, first: usize) {
        self.clock.lap(ListingStep::Reading);
        let Scratch { bytes, items, name, .. } = scratch;
        // The legacy hash has no minor half to distinguish names of equal hash.
        let key = |hash: NameHash, stored: &[u8]| {
            let minor = match hasher.version {
                HashVersion::Legacy => crc32c(0, stored),
                HashVersion::HalfMd4 | HashVersion::Tea => hash.minor,
            };
            u64::from(hash.major >> 1) << 32 | u64::from(minor)
        };
        let (together, rest) = items[first..].as_chunks_mut::<TOGETHER>();
        for items in together {
            let names = items.map(|item| item.name(bytes));
            let hashes = self.style.hash_together(hasher, &names, name);
            for ((item, hash), stored) in items.iter_mut().zip(hashes).zip(names) {
                item.key = key(hash, stored);
            }
        }
        for item in rest {
            let stored = item.name(bytes);
            item.key = key(self.style.hash(hasher, stored, name), stored);
        }
        self.clock.lap(ListingStep::Hashing);
    }

    /// Reports the sorted items of a scratch from `from` on. On entry, `position` is the cookie of the last item before
    /// them; on return, the cookie of their last item.
    fn deliver_items(
        &mut self,
        scratch: &mut Scratch,
        position: &mut u64,
        from: Cookie,
        each: &mut Each<'_>,
    ) -> Result<ControlFlow<()>> {
        let Scratch { bytes, items, name, .. } = scratch;
        let mut delivered = 0;
        let mut flow = ControlFlow::Continue(());
        let mut before: Option<&ScratchEntry> = None;
        for item in items.iter() {
            // Equal names have equal hashes, so they are adjacent, except when another name with a deliberately equal
            // hash is between them.
            if before.is_some_and(|b| b.key == item.key && b.name(bytes) == item.name(bytes)) {
                let damage = Corruption::new("directory entry", "a second entry with this name");
                return Err(damage.of_inode(self.dir.ino().0).into());
            }
            before = Some(item);
            *position = item.key.max(*position + 1);
            if *position < from.0 {
                continue;
            }
            delivered += 1;
            let entry = (item.inode, item.file_type, *position + 1);
            let stored = (&bytes[..], item.record_offset(), item.name(bytes));
            flow = self.deliver(stored, entry, name, each)?;
            if flow.is_break() {
                break;
            }
        }
        self.clock.count(0, delivered);
        Ok(flow)
    }
}

/// Copies the leaf at the cursor and the following leaves that continue the same hash, then advances the cursor.
/// Returns `false` at the end of the directory.
fn gather(
    listing: &mut DirectoryListing<'_>,
    cursor: &mut Cursor,
    leaves_left: &mut u64,
    hasher: &NameHasher,
    scratch: &mut Scratch,
) -> Result<bool> {
    let DirectoryListing { mut fs, dir, .. } = *listing;
    loop {
        let too_many =
            || dir.corrupt("directory index", "more leaves than blocks in the directory");
        *leaves_left = leaves_left.checked_sub(1).ok_or_else(too_many)?;
        let first = scratch.items.len();
        index::with_block(&mut fs, dir, cursor.leaf(), BlockKind::DirectoryLeaf, |block| {
            scratch.take_chain(block, Dots::Names);
        })?;
        if scratch.bytes.len() > SAME_HASH_BYTES_MAX.max(fs.volume.block_size()) {
            return Err(dir.corrupt("directory index", "too many leaves with the same hash"));
        }
        listing.hash_items(hasher, scratch, first);
        listing.clock.count(1, 0);
        // Bit 0 is set if the leaf continues the last hash of the leaf before it.
        let next = cursor.advance(&mut fs, dir)?;
        listing.clock.lap(ListingStep::Reading);
        match next {
            None => return Ok(false),
            Some(hash) if hash & 1 == 0 => return Ok(true),
            Some(_) => {}
        }
    }
}

/// Copies the entries of a directory that has one block or none.
fn gather_single(
    listing: &mut DirectoryListing<'_>,
    hasher: &NameHasher,
    scratch: &mut Scratch,
) -> Result<bool> {
    let DirectoryListing { fs, dir, .. } = *listing;
    if dir.has_flag(flags::INLINE_DATA) {
        let contents = inline::contents(fs, dir)?;
        for (_, part) in dir::inline_parts(fs, dir, &contents)? {
            scratch.take_chain(part, Dots::Names);
        }
    } else if let Some(place) = (&mut &*fs).place(dir, FileBlock(0))? {
        scratch.take_chain(&fs.block(place, BlockKind::DirectoryLeaf.of(dir.owner))?, Dots::First);
        listing.clock.count(1, 0);
    }
    listing.hash_items(hasher, scratch, 0);
    Ok(false)
}

/// Role of `.` and `..` in a chain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dots {
    /// The first two entries, which were already reported.
    First,
    /// Entries without a special position. The caller reports the real dots.
    Names,
}

impl Scratch {
    /// Takes the records of a chain, except `.` and `..` at its start. Copies only the used part of the chain, because
    /// most directories are small.
    fn take_chain(&mut self, chain: &[u8], dots: Dots) {
        let start = self.bytes.len();
        let mut end = 0;
        for (nth, record) in dirent::entries(chain).enumerate() {
            if dots == Dots::First && nth < 2 && is_dot(record.name) {
                continue;
            }
            let name_start = record.offset + dirent::HEADER_SIZE;
            let record_end = record.offset + dirent::record_size(record.name.len());
            end = (record_end + dirent::STORED_HASH_SIZE).min(chain.len());
            self.items.push(ScratchEntry {
                key: 0,
                name_start: (start + name_start) as u32,
                inode: record.inode,
                name_len: record.name.len() as u8,
                file_type: record.file_type,
            });
        }
        self.bytes.extend_from_slice(&chain[..end]);
    }
}

/// Minimum number of items for the distribution sort. Fewer are sorted faster by comparisons.
const SPREAD_MIN: usize = 32;
/// Maximum length of a run that is sorted by insertion.
const INSERTION_MAX: usize = 16;

impl Scratch {
    /// Sorts the items. Hashes are distributed evenly within a leaf, so the key gives the approximate position of an
    /// item, and few comparisons are needed per bucket.
    fn sort(&mut self) {
        let Self { items, spread, starts, .. } = self;
        if items.len() < SPREAD_MIN {
            items.sort_unstable();
            return;
        }
        let keys = || items.iter().map(|item| item.key);
        let (Some(least), Some(most)) = (keys().min(), keys().max()) else { return };
        let buckets_log = items.len().next_power_of_two().ilog2();
        let shift = (u64::BITS - (most - least).leading_zeros()).saturating_sub(buckets_log);
        let bucket = |item: &ScratchEntry| ((item.key - least) >> shift) as usize;
        // Start of each bucket, and one more element.
        starts.clear();
        starts.resize((1 << buckets_log) + 1, 0_u32);
        items.iter().for_each(|item| starts[bucket(item) + 1] += 1);
        let mut sum = 0;
        for start in starts.iter_mut() {
            sum += *start;
            *start = sum;
        }
        spread.clear();
        spread.extend_from_slice(items);
        for item in spread.iter() {
            let start = &mut starts[bucket(item)];
            items[*start as usize] = *item;
            *start += 1;
        }
        // Each bucket starts at the end of the one before it.
        let mut start = 0;
        for &end in &starts[..1 << buckets_log] {
            sort_bucket(&mut items[start..end as usize]);
            start = end as usize;
        }
    }
}

/// Sorts the items of a bucket, usually one or two. Deliberate collisions can make it large.
fn sort_bucket(items: &mut [ScratchEntry]) {
    if items.len() > INSERTION_MAX {
        items.sort_unstable();
        return;
    }
    for end in 1..items.len() {
        let mut at = end;
        while at > 0 && items[at] < items[at - 1] {
            items.swap(at, at - 1);
            at -= 1;
        }
    }
}

impl ScratchEntry {
    /// Returns the offset of its record in the bytes of its scratch.
    fn record_offset(&self) -> usize {
        (self.name_start as usize).saturating_sub(dirent::HEADER_SIZE)
    }

    /// Returns its name, from the bytes of its scratch.
    fn name<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let start = self.name_start as usize;
        bytes.get(start..start + usize::from(self.name_len)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_sorted_however_their_hashes_lie() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut scratch = Scratch::default();
        for bits in [0, 1, 4, 16, 40, 63] {
            for count in [0, 1, 2, 3, 17, 100, 1000] {
                let base = random.u64(..) >> 1;
                scratch.items = (0..count)
                    .map(|inode| ScratchEntry {
                        key: base ^ (random.u64(..) & ((1 << bits) - 1)),
                        name_start: random.u32(..),
                        inode,
                        name_len: random.u8(..),
                        file_type: 1,
                    })
                    .collect();
                // One item whose key is far from all others.
                if let Some(last) = scratch.items.last_mut().filter(|_| count % 2 == 0) {
                    last.key = 0;
                }
                let mut sorted = scratch.items.clone();
                sorted.sort_unstable();
                scratch.sort();
                assert!(scratch.items == sorted, "{count} items that differ in {bits} bits");
            }
        }
    }
}
