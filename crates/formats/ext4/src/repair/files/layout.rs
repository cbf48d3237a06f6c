//! Blocks of a directory that is rewritten: a list, or leaves in hash order and an index.

use super::names_in::FoundName;
use crate::format::address::FileBlock;
use crate::format::dirent::{self, TAIL_SIZE, record_size};
use crate::format::htree::{self, IndexKind, LEVELS_MAX, LEVELS_MAX_LARGE, RootInfo};

/// Parameters for writing a directory.
pub(super) struct Form {
    pub(super) block_size: usize,
    /// Checksum seed of its blocks, if there are checksums.
    pub(super) seed: Option<u32>,
    pub(super) ino: u32,
    pub(super) dot_dot: u32,
    /// Type code of directories in entries.
    pub(super) directory_code: u8,
    pub(super) is_large: bool,
}

/// Fill level of new leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filling {
    /// With room for more names.
    Roomy,
    /// Completely, if there is no room for more blocks.
    Tight,
}

impl Filling {
    /// Returns the number of bytes to fill of `bytes`.
    const fn of(self, bytes: usize) -> usize {
        match self {
            Self::Roomy => bytes / 8 * 7,
            Self::Tight => bytes,
        }
    }
}

impl Form {
    /// Returns the end of the area for entries in a block.
    fn end(&self) -> usize {
        self.block_size - if self.seed.is_some() { TAIL_SIZE } else { 0 }
    }

    fn dots(&self, bytes: &mut [u8], rest: usize) {
        let first = record_size(1);
        dirent::write_record(bytes, first, self.ino, self.directory_code, b".");
        dirent::write_record(&mut bytes[first..], rest, self.dot_dot, self.directory_code, b"..");
    }

    fn seal_leaf(&self, bytes: &mut [u8]) {
        if let Some(seed) = self.seed {
            dirent::write_tail(bytes);
            dirent::seal(bytes, seed);
        }
    }

    /// Returns a block with entries from offset `start` on, the offset of the first record. The last record takes the
    /// remaining space.
    fn leaf(&self, start: usize, entries: &[&FoundName]) -> Vec<u8> {
        let mut bytes = vec![0; self.block_size];
        let end = self.end();
        if start > 0 {
            let rest = if entries.is_empty() { end } else { start };
            self.dots(&mut bytes, rest - record_size(1));
        } else if entries.is_empty() {
            dirent::write_record(&mut bytes, end, 0, 0, &[]);
        }
        fill(&mut bytes[..end], start, entries);
        self.seal_leaf(&mut bytes);
        bytes
    }

    /// Returns the blocks of a directory without an index, at least `least` of them.
    pub(super) fn list(&self, entries: &[FoundName], least: usize) -> Vec<Vec<u8>> {
        let mut blocks = Vec::new();
        let mut start = record_size(1) + record_size(2);
        let mut pending: Vec<&FoundName> = Vec::new();
        let mut used = start;
        for entry in entries {
            if used + entry.size() > self.end() {
                blocks.push(self.leaf(start, &pending));
                pending.clear();
                (start, used) = (0, 0);
            }
            used += entry.size();
            pending.push(entry);
        }
        blocks.push(self.leaf(start, &pending));
        while blocks.len() < least {
            blocks.push(self.leaf(0, &[]));
        }
        blocks
    }

    /// Returns the blocks of a directory with an index. `hashes` has one hash per entry. Returns `None` if there are
    /// too many names.
    pub(super) fn indexed(
        &self,
        entries: &[FoundName],
        version: u8,
        hashes: &[u32],
        filling: Filling,
    ) -> Option<Vec<Vec<u8>>> {
        let mut items: Vec<(u32, &FoundName)> =
            hashes.iter().map(|hash| hash & !1).zip(entries).collect();
        items.sort_by_key(|(hash, _)| *hash);
        let mut blocks = vec![Vec::new()];
        let mut level: Vec<(u32, FileBlock)> = Vec::new();
        let (mut from, mut used) = (0, 0);
        for at in 0..=items.len() {
            let size = items.get(at).map_or(0, |(_, entry)| entry.size());
            let is_last = at == items.len();
            if at > from && used + size > filling.of(self.end()) || is_last {
                let names: Vec<&FoundName> =
                    items[from..at].iter().map(|(_, entry)| *entry).collect();
                let hash = items.get(from).map_or(0, |(hash, _)| *hash);
                // Bit 0 is set if the block continues the last hash of the block before.
                let goes_on = from > 0 && items[from - 1].0 == hash;
                level.push((hash | u32::from(goes_on), FileBlock(blocks.len() as u32)));
                blocks.push(self.leaf(0, &names));
                (from, used) = (at, 0);
            }
            used += size;
        }
        let mut levels = 0;
        while level.len() > usize::from(self.limit(IndexKind::Root)) {
            level = self.nodes(&level, &mut blocks);
            levels += 1;
        }
        let levels_max = if self.is_large { LEVELS_MAX_LARGE } else { LEVELS_MAX };
        blocks[0] = self.root(&level, RootInfo { hash_version: version, indirect_levels: levels });
        (levels <= levels_max).then_some(blocks)
    }

    fn limit(&self, place: IndexKind) -> u16 {
        place.limit(self.block_size, self.seed.is_some())
    }

    fn nodes(
        &self,
        level: &[(u32, FileBlock)],
        blocks: &mut Vec<Vec<u8>>,
    ) -> Vec<(u32, FileBlock)> {
        let mut above = Vec::new();
        for chunk in level.chunks(self.limit(IndexKind::Node).into()) {
            let mut bytes = vec![0; self.block_size];
            dirent::write_record(&mut bytes, self.block_size, 0, 0, &[]);
            self.index(&mut bytes, IndexKind::Node, chunk);
            above.push((chunk[0].0, FileBlock(blocks.len() as u32)));
            blocks.push(bytes);
        }
        above
    }

    fn root(&self, level: &[(u32, FileBlock)], info: RootInfo) -> Vec<u8> {
        let mut bytes = vec![0; self.block_size];
        self.dots(&mut bytes, self.block_size - record_size(1));
        htree::write_root_info(&mut bytes[htree::ROOT_INFO_RANGE], info);
        self.index(&mut bytes, IndexKind::Root, level);
        bytes
    }

    fn index(&self, bytes: &mut [u8], place: IndexKind, level: &[(u32, FileBlock)]) {
        let Some(first) = level.first() else { return };
        let counts = &mut bytes[htree::count_range(place)];
        htree::write_counts(counts, self.limit(place), level.len() as u16, first.1);
        for (at, (hash, block)) in level.iter().enumerate().skip(1) {
            htree::insert(&mut bytes[htree::insert_range(place, at, at)], *hash, *block);
        }
        if let Some(seed) = self.seed {
            htree::seal(bytes, place, seed);
        }
    }
}

/// Writes entries in sequence from an offset on. The last record takes the remaining space.
pub(super) fn fill(bytes: &mut [u8], start: usize, entries: &[&FoundName]) {
    let end = bytes.len();
    let mut at = start;
    for (nth, entry) in entries.iter().enumerate() {
        let rec_len = if nth + 1 == entries.len() { end - at } else { entry.size() };
        entry.write(&mut bytes[at..], rec_len);
        at += rec_len;
    }
}
