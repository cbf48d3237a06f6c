//! Compares bitmaps and counts with the inodes and blocks found in use.

use std::sync::atomic::{AtomicU64, Ordering};

use vfs::check::{BitSet, Code, Finding, Phase};

use super::codes::{
    BLOCK_BITMAP_CHECKSUM, BLOCK_BITMAP_FREE, BLOCK_BITMAP_PADDING, BLOCK_BITMAP_USED,
    GROUP_DIRECTORIES, GROUP_FREE_BLOCKS, GROUP_FREE_INODES, INODE_BITMAP_CHECKSUM,
    INODE_BITMAP_FREE, INODE_BITMAP_PADDING, INODE_BITMAP_USED, SUPERBLOCK_FREE_BLOCKS,
    SUPERBLOCK_FREE_INODES,
};
use super::context::Context;
use super::groups::GroupFacts;
use crate::format::address::{Block, Group};

/// Number of bits of a word.
const WORD: u32 = 64;

/// Codes for each kind of difference.
struct Words {
    free: &'static Code,
    used: &'static Code,
    padding: &'static Code,
}

const BLOCKS: Words =
    Words { free: BLOCK_BITMAP_FREE, used: BLOCK_BITMAP_USED, padding: BLOCK_BITMAP_PADDING };
const INODES: Words =
    Words { free: INODE_BITMAP_FREE, used: INODE_BITMAP_USED, padding: INODE_BITMAP_PADDING };

/// Buffers of a thread.
#[derive(Default)]
struct Scratch {
    bitmap: Vec<u8>,
    expected: Vec<u64>,
}

impl Context<'_> {
    /// Compares the bitmaps and counts of all groups, and the counts of the superblock, with what is in use.
    pub(super) fn check_counts(&self) {
        let (clusters, inodes) = (AtomicU64::new(0), AtomicU64::new(0));
        vfs::check::each(
            self.threads,
            self.geometry().groups_count.into(),
            Phase::Counts,
            self.observer,
            Scratch::default,
            |scratch, group| {
                let group = Group(group as u32);
                let Some(facts) = self.group(group) else { return };
                clusters.fetch_add(
                    self.check_blocks_of(group, facts, scratch).into(),
                    Ordering::Relaxed,
                );
                inodes.fetch_add(
                    self.check_inodes_of(group, facts, scratch).into(),
                    Ordering::Relaxed,
                );
            },
        );
        if self.observer.is_cancelled() {
            return;
        }
        let sb = &self.params.sb;
        let free = clusters.into_inner() << sb.cluster_blocks_log;
        if sb.raw.free_blocks() != free {
            let finding = Finding::new(SUPERBLOCK_FREE_BLOCKS).field("free_blocks_count");
            self.tell(finding.mismatch(free, sb.raw.free_blocks()));
        }
        let (free, found) = (inodes.into_inner(), sb.raw.free_inodes_count.get());
        if u64::from(found) != free {
            let finding = Finding::new(SUPERBLOCK_FREE_INODES).field("free_inodes_count");
            self.tell(finding.mismatch(free, found));
        }
    }

    fn tell_count(&self, code: &'static Code, group: Group, expected: u32, found: u32) {
        if expected != found {
            self.tell(Finding::new(code).in_group(group.0).mismatch(expected, found));
        }
    }

    /// Checks the block bitmap and the block count of a group. Returns the number of its free clusters.
    fn check_blocks_of(&self, group: Group, facts: &GroupFacts, scratch: &mut Scratch) -> u32 {
        let geometry = self.geometry();
        let range = self.claims.of_group(geometry, group);
        let count = geometry.clusters_in(group);
        let free = count - (self.claims.used().count(range.clone()) as u32).min(count);
        if !facts.is_usable {
            return free;
        }
        self.tell_count(GROUP_FREE_BLOCKS, group, free, facts.desc.free_blocks);
        scratch.expected.clear();
        scratch.expected.extend(words_from(self.claims.used(), range.start, count));
        if facts.is_block_uninit(self) {
            self.uninitialised_bitmap(group, &mut scratch.bitmap);
        } else if self.read_bitmap(facts.desc.block_bitmap, &mut scratch.bitmap) {
            if let Err(damage) =
                facts.desc.check_block_bitmap(&scratch.bitmap, &self.params.sb, group)
            {
                self.tell(Finding::of_damage(BLOCK_BITMAP_CHECKSUM, &damage));
            }
        } else {
            return free;
        }
        self.compare(scratch, count, group, facts.desc.block_bitmap, &BLOCKS);
        free
    }

    fn read_bitmap(&self, block: Block, bitmap: &mut Vec<u8>) -> bool {
        bitmap.resize(self.block_size(), 0);
        self.read(block, bitmap)
    }

    /// Generates the implied block bitmap of an uninitialised group.
    fn uninitialised_bitmap(&self, group: Group, bitmap: &mut Vec<u8>) {
        let geometry = self.geometry();
        bitmap.clear();
        bitmap.resize(self.block_size(), 0);
        let start = geometry.first_block(group);
        let end = start.plus(geometry.blocks_in(group).into());
        let first = self.claims.of_group(geometry, group).start;
        // Only the group's own structures, not those of other groups inside it.
        let mut ranges = vec![geometry.base_metadata(group)];
        if let Some(GroupFacts { desc, .. }) = self.group(group) {
            let table = u64::from(geometry.itable_blocks());
            for (place, len) in
                [(desc.block_bitmap, 1), (desc.inode_bitmap, 1), (desc.inode_table, table)]
            {
                ranges.push(place..place.plus(len));
            }
        }
        for part in ranges {
            let (start, end) = (part.start.max(start), part.end.min(end));
            for cluster in self.claims.clusters(start, end.0.saturating_sub(start.0)) {
                set_bit(bitmap, (cluster - first) as usize);
            }
        }
        set_padding(bitmap, geometry.clusters_in(group) as usize);
    }

    /// Checks the inode bitmap and the inode counts of a group. Returns the number of its free inodes.
    fn check_inodes_of(&self, group: Group, facts: &GroupFacts, scratch: &mut Scratch) -> u32 {
        let count = self.geometry().inodes_per_group;
        scratch.expected.clear();
        scratch.expected.resize(count.div_ceil(WORD) as usize, 0);
        let (mut used, mut directories, mut in_use) = (0, 0, 0);
        let mut take = |index: u32| {
            let word = &mut scratch.expected[(index / WORD) as usize];
            used += u32::from(*word >> (index % WORD) & 1 == 0);
            *word |= 1 << (index % WORD);
        };
        for (index, state) in (0..count).zip(self.inodes.of(group)).filter(|(_, s)| s.is_used()) {
            take(index);
            in_use += 1;
            directories += u32::from(state.is_dir());
        }
        let first = self.geometry().ino_of(group, 0).0;
        let reserved = u64::from(self.params.sb.first_ino).saturating_sub(first) as u32;
        (0..reserved.min(count)).for_each(take);
        self.inodes_used.fetch_add(in_use, Ordering::Relaxed);
        self.directories.fetch_add(directories.into(), Ordering::Relaxed);
        if !facts.is_usable {
            return count - used;
        }
        self.tell_count(GROUP_FREE_INODES, group, count - used, facts.desc.free_inodes);
        self.tell_count(GROUP_DIRECTORIES, group, directories, facts.desc.used_dirs);
        if facts.is_inode_uninit(self) {
            return count - used;
        }
        if self.read_bitmap(facts.desc.inode_bitmap, &mut scratch.bitmap) {
            if let Err(damage) =
                facts.desc.check_inode_bitmap(&scratch.bitmap, &self.params.sb, group)
            {
                self.tell(Finding::of_damage(INODE_BITMAP_CHECKSUM, &damage));
            }
            self.compare(scratch, count, group, facts.desc.inode_bitmap, &INODES);
        }
        count - used
    }

    /// Compares a bitmap of `count` bits with the expected one.
    fn compare(&self, scratch: &Scratch, count: u32, group: Group, place: Block, words: &Words) {
        let (mut free, mut used) = (Difference::default(), Difference::default());
        for (at, &expected) in (0_u32..).zip(&scratch.expected) {
            let start = at as usize * 8;
            let mut bytes = [0; 8];
            let end = scratch.bitmap.len().min(start + 8);
            let here = scratch.bitmap.get(start..end).unwrap_or_default();
            bytes[..here.len()].copy_from_slice(here);
            let left = count - at * WORD;
            let mask = if left >= WORD { u64::MAX } else { (1 << left) - 1 };
            let found = u64::from_le_bytes(bytes) & mask;
            let expected = expected & mask;
            free.add(at * WORD, expected & !found);
            used.add(at * WORD, found & !expected);
        }
        for (difference, code) in [(free, words.free), (used, words.used)] {
            if difference.count > 0 {
                let finding = Finding::new(code).in_group(group.0).at_block(place.0);
                self.tell(finding.detail(difference.describe()));
            }
        }
        if !has_padding(&scratch.bitmap, count as usize) {
            self.tell(Finding::new(words.padding).in_group(group.0).at_block(place.0));
        }
    }
}

/// Returns `count` bits from `start` on as words. The last one may contain further bits.
pub(super) fn words_from(bits: &BitSet, start: u64, count: u32) -> impl Iterator<Item = u64> {
    (0..count.div_ceil(WORD)).map(move |word| {
        let at = start + u64::from(word * WORD);
        let (index, shift) = (at / 64, at % 64);
        let next = if shift == 0 { 0 } else { bits.word(index + 1) << (64 - shift) };
        bits.word(index) >> shift | next
    })
}

/// Sets all bits from `count` on.
pub(super) fn set_padding(bitmap: &mut [u8], count: usize) {
    let whole = count.div_ceil(8).min(bitmap.len());
    bitmap[whole..].fill(u8::MAX);
    if let Some(byte) = bitmap[..whole].get_mut(count / 8) {
        *byte |= u8::MAX << (count % 8);
    }
}

/// Returns whether all bits from `count` on are set.
fn has_padding(bitmap: &[u8], count: usize) -> bool {
    const SET: [u8; 64] = [u8::MAX; 64];
    let (partial, whole) = bitmap.split_at(count.div_ceil(8).min(bitmap.len()));
    let is_set = |byte: &u8| byte | !(u8::MAX << (count % 8)) == u8::MAX;
    let (chunks, rest) = whole.as_chunks::<64>();
    partial.get(count / 8).is_none_or(is_set)
        && chunks.iter().all(|chunk| *chunk == SET)
        && *rest == SET[..rest.len()]
}

pub(super) fn set_bit(bitmap: &mut [u8], bit: usize) {
    if let Some(byte) = bitmap.get_mut(bit / 8) {
        *byte |= 1 << (bit % 8);
    }
}

/// Number of differing bits, and their first ranges.
#[derive(Default)]
struct Difference {
    count: u32,
    ranges: Vec<(u32, u32)>,
}

impl Difference {
    /// Maximum number of ranges to report.
    const RANGES_MAX: usize = 8;

    fn add(&mut self, first: u32, mut bits: u64) {
        self.count += bits.count_ones();
        while bits != 0 {
            let bit = first + bits.trailing_zeros();
            bits &= bits - 1;
            let has_room = self.ranges.len() < Self::RANGES_MAX;
            match self.ranges.last_mut() {
                Some(last) if last.1 == bit => last.1 += 1,
                _ if has_room => self.ranges.push((bit, bit + 1)),
                _ => return,
            }
        }
    }

    fn describe(&self) -> String {
        let ranges: Vec<_> = self
            .ranges
            .iter()
            .map(|(start, end)| match end - start {
                1 => start.to_string(),
                _ => format!("{start}-{}", end - 1),
            })
            .collect();
        let more = self.ranges.iter().map(|(start, end)| end - start).sum::<u32>() < self.count;
        format!(
            "{} of them: bits {}{}",
            self.count,
            ranges.join(", "),
            if more { ", …" } else { "" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_set_from_its_first_bit_on() {
        for count in [0, 1, 7, 8, 9, 500, 513, 1023, 1024, 1600] {
            let mut bitmap = vec![0; 128];
            set_padding(&mut bitmap, count);
            let is_set = |bit: usize| bitmap[bit / 8] >> (bit % 8) & 1 == 1;
            assert!((0..1024).all(|bit| is_set(bit) == (bit >= count)), "{count}");
            assert!(has_padding(&bitmap, count), "{count}");
            for bit in (count..1024).step_by(5) {
                let mut other = bitmap.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                assert!(!has_padding(&other, count), "{count}, bit {bit}");
            }
        }
    }
}
