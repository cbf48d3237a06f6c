//! The index of an overlay: a bitmap of the blocks that it contains.
//!
//! The bitmap is divided into pages. Each page has two slots in the file, which are written alternately with an
//! increasing number, so that a torn write leaves the previous version intact.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use super::OverlayError;
use crate::{BlockDevice, is_zero};

const PAGE_BYTES: u64 = 4096;
/// Bytes before the bits: number, and checksum (CRC32C of the page's index, the number and the bits).
const PAGE_HEADER_BYTES: usize = 12;
/// Number of blocks of a page.
const PAGE_BLOCKS: u64 = (PAGE_BYTES - PAGE_HEADER_BYTES as u64) * 8;

/// Number of pages, with both slots, that are read together.
const PAGES_AT_ONCE: u64 = 256;

pub(super) struct Index {
    start: u64,
    pages: BTreeMap<u64, Page>,
}

struct Page {
    bits: Vec<u8>,
    /// Number of times the page was written.
    number: u64,
    is_changed: bool,
}

impl Default for Page {
    fn default() -> Self {
        let bits = vec![0; (PAGE_BLOCKS / 8) as usize];
        Self { bits, number: 0, is_changed: false }
    }
}

impl Index {
    /// Returns the size of the index for `blocks` blocks in bytes.
    pub(super) fn file_bytes(blocks: u64) -> u64 {
        blocks.div_ceil(PAGE_BLOCKS) * 2 * PAGE_BYTES
    }

    /// Reads the index that starts at `start`.
    pub(super) fn read(
        storage: &dyn BlockDevice,
        start: u64,
        blocks: u64,
    ) -> Result<Self, OverlayError> {
        let (count, mut pages) = (blocks.div_ceil(PAGE_BLOCKS), BTreeMap::new());
        for first in (0..count).step_by(PAGES_AT_ONCE as usize) {
            let together = PAGES_AT_ONCE.min(count - first);
            let mut bytes = vec![0; (together * 2 * PAGE_BYTES) as usize];
            storage.read_at(start + first * 2 * PAGE_BYTES, &mut bytes)?;
            for (page, places) in (first..).zip(bytes.chunks(2 * PAGE_BYTES as usize)) {
                if places.iter().all(|&byte| byte == 0) {
                    continue;
                }
                let (one, other) = places.split_at(PAGE_BYTES as usize);
                let newest = [one, other].into_iter().filter_map(|place| Page::parse(place, page));
                let newest = newest.max_by_key(|page| page.number);
                // A page that was never durable may be partially written.
                let is_first = is_zero(one) || is_zero(other);
                match newest {
                    Some(found) => drop(pages.insert(page, found)),
                    None if is_first => {}
                    None => {
                        let problem = format!("page {page} of its index has wrong checksums");
                        return Err(OverlayError::Damaged(problem));
                    }
                }
            }
        }
        Ok(Self { start, pages })
    }

    pub(super) fn has(&self, block: u64) -> bool {
        let bit = block % PAGE_BLOCKS;
        let page = self.pages.get(&(block / PAGE_BLOCKS));
        page.is_some_and(|page| page.bits[(bit / 8) as usize] & 1 << (bit % 8) != 0)
    }

    pub(super) fn add(&mut self, blocks: Range<u64>) {
        for block in blocks {
            let page = self.pages.entry(block / PAGE_BLOCKS).or_default();
            let bit = block % PAGE_BLOCKS;
            let (byte, mask) = (&mut page.bits[(bit / 8) as usize], 1 << (bit % 8));
            page.is_changed |= *byte & mask == 0;
            *byte |= mask;
        }
    }

    /// Returns all blocks in ascending order.
    pub(super) fn blocks(&self) -> impl Iterator<Item = u64> {
        self.pages.iter().flat_map(|(page, contents)| {
            let is_set = |bit: &u64| contents.bits[(bit / 8) as usize] & 1 << (bit % 8) != 0;
            (0..PAGE_BLOCKS).filter(is_set).map(move |bit| page * PAGE_BLOCKS + bit)
        })
    }

    /// Writes the changed pages. Returns false if there were none. Pages that could not be written stay marked as
    /// changed.
    pub(super) fn write(&mut self, storage: &dyn BlockDevice) -> io::Result<bool> {
        let mut wrote = false;
        for (&number, page) in self.pages.iter_mut().filter(|(_, page)| page.is_changed) {
            let bytes = page.bytes(number, page.number + 1);
            let place = (page.number + 1) % 2;
            storage.write_at(self.start + (number * 2 + place) * PAGE_BYTES, &bytes)?;
            page.number += 1;
            page.is_changed = false;
            wrote = true;
        }
        Ok(wrote)
    }
}

impl Page {
    fn bytes(&self, page: u64, number: u64) -> Vec<u8> {
        let sum = sum(page, number, &self.bits).to_le_bytes();
        [&number.to_le_bytes()[..], &sum, &self.bits].concat()
    }

    fn parse(bytes: &[u8], page: u64) -> Option<Self> {
        let (header, bits) = bytes.split_at_checked(PAGE_HEADER_BYTES)?;
        let (number, found) = header.split_at(8);
        let number = u64::from_le_bytes(number.try_into().ok()?);
        let found = u32::from_le_bytes(found.try_into().ok()?);
        let is_whole = number != 0 && sum(page, number, bits) == found;
        is_whole.then(|| Self { bits: bits.to_vec(), number, is_changed: false })
    }
}

fn sum(page: u64, number: u64, bits: &[u8]) -> u32 {
    let place = [page.to_le_bytes(), number.to_le_bytes()].concat();
    crc32c::crc32c_append(crc32c::crc32c(&place), bits)
}
