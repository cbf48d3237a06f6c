//! Read-ahead on devices with a high read latency.
//!
//! Metadata that is used together is located together: inode tables and chunks, the blocks of a directory, trees. So
//! the read-ahead grows with the share of a region that was read: first the following blocks, then the whole region,
//! then the next region as well. A single block of a region, as the resolution of a path reads it, causes no
//! read-ahead.
//!
//! A program that reads a tree reads whole regions of contents. After the first such regions, further ones are fetched
//! when they are first touched.

use std::sync::atomic::{AtomicU64, Ordering};

use disk::{BlockDevice, ContentKind};

/// Length of a region, in bytes.
const REGION_BYTES: u64 = 4 << 20;

/// Binary logarithm of the number of regions that are counted at a time. The slot is a hash of the region's number,
/// because regions with group metadata are a group's length apart.
const SLOTS_LOG: u32 = 10;
const HASH: u64 = 0x9e37_79b9_7f4a_7c15;

/// Size of the first read-ahead of a region, in bytes.
const FOLLOWING_BYTES: u64 = 512 << 10;

/// Number of low bits of a slot that count bytes read. The upper bits are the number of the region.
const COUNT_BITS: u32 = 24;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// Credit of a region whose contents were read, and the maximum. A region that is fetched at the first touch costs 1, so
/// about half of them must be read.
const CREDIT: u64 = 2;
const CREDIT_MAX: u64 = 8;
/// Credit from which the next region is fetched as well.
const CREDIT_OF_NEXT: u64 = 4;

/// Counters of the metadata and of the file contents that were read.
pub(crate) struct Ahead {
    metadata: Regions,
    data: Regions,
    /// Credit for fetching regions of contents at the first touch.
    credit: AtomicU64,
}

/// Number of bytes read in a region that start each stage of read-ahead.
#[derive(Clone, Copy)]
struct ReadAheadStages {
    following: u64,
    all: u64,
    next: u64,
}

/// Reading the directories of one region takes little more than the first limit; more reads indicate a table that is
/// walked. With lower limits, searches in a large image prefetch more than they read.
const METADATA: ReadAheadStages =
    ReadAheadStages { following: 8 << 10, all: 256 << 10, next: 1 << 20 };
const DATA: ReadAheadStages =
    ReadAheadStages { following: 192 << 10, all: 768 << 10, next: 3 << 20 };

/// Bytes read of recently used regions.
struct Regions {
    content: ContentKind,
    limits: ReadAheadStages,
    slots: [AtomicU64; 1 << SLOTS_LOG],
}

impl Ahead {
    /// Returns `None` if the device does not need read-ahead.
    pub(crate) fn of(device: &dyn BlockDevice) -> Option<Box<Self>> {
        let (metadata, data) =
            (Regions::new(ContentKind::Metadata, METADATA), Regions::new(ContentKind::Data, DATA));
        device
            .has_read_ahead()
            .then(|| Box::new(Self { metadata, data, credit: AtomicU64::new(0) }))
    }

    /// Records that a block of metadata is about to be read.
    pub(crate) fn metadata(&self, device: &dyn BlockDevice, offset: u64, len: u64) {
        self.metadata.note(device, offset, len);
    }

    /// Records that contents of a file are about to be read.
    pub(crate) fn data(&self, device: &dyn BlockDevice, offset: u64, len: u64) {
        let region = offset / REGION_BYTES;
        let before = self.data.counted(region);
        self.data.note(device, offset, len);
        // Threads may lose changes of the credit, which is an estimate.
        let credit = self.credit.load(Ordering::Relaxed);
        if before < DATA.next && before + len >= DATA.next {
            self.credit.store((credit + CREDIT).min(CREDIT_MAX), Ordering::Relaxed);
        } else if before == 0 && credit > 0 {
            self.credit.store(credit - 1, Ordering::Relaxed);
            let regions = if credit >= CREDIT_OF_NEXT { 2 } else { 1 };
            device.read_ahead(region * REGION_BYTES, regions * REGION_BYTES, ContentKind::Data);
        }
    }

    /// Prefetches contents that a reader requests in its own order. They cause no further read-ahead.
    pub(crate) fn request(&self, device: &dyn BlockDevice, offset: u64, len: u64) {
        for region in offset / REGION_BYTES..offset.saturating_add(len).div_ceil(REGION_BYTES) {
            self.data.set(region, COUNT_MASK);
        }
        device.read_ahead(offset, len, ContentKind::Data);
    }
}

impl Regions {
    fn new(content: ContentKind, limits: ReadAheadStages) -> Self {
        Self { content, limits, slots: [const { AtomicU64::new(0) }; 1 << SLOTS_LOG] }
    }

    fn note(&self, device: &dyn BlockDevice, offset: u64, len: u64) {
        let region = offset / REGION_BYTES;
        let before = self.count(region, len);
        let (after, start) = (before + len, region * REGION_BYTES);
        let passed = |limit: u64| before < limit && after >= limit;
        // Each stage starts once, when its limit is passed. Threads that pass it at the same time start it twice, which
        // costs little.
        if passed(self.limits.next) {
            device.read_ahead(start, 2 * REGION_BYTES, self.content);
        } else if passed(self.limits.all) {
            device.read_ahead(start, REGION_BYTES, self.content);
        } else if passed(self.limits.following) {
            device.read_ahead(
                offset,
                FOLLOWING_BYTES.min(REGION_BYTES - (offset - start)),
                self.content,
            );
        }
    }

    /// Counts bytes of a region and returns the previous count.
    fn count(&self, region: u64, len: u64) -> u64 {
        let before = self.counted(region);
        self.set(region, (before + len).min(COUNT_MASK));
        before
    }

    /// Returns the count of a region.
    fn counted(&self, region: u64) -> u64 {
        let found = self.slot(region).load(Ordering::Relaxed);
        if found >> COUNT_BITS == region { found & COUNT_MASK } else { 0 }
    }

    fn set(&self, region: u64, count: u64) {
        self.slot(region).store(region << COUNT_BITS | count, Ordering::Relaxed);
    }

    fn slot(&self, region: u64) -> &AtomicU64 {
        &self.slots[(region.wrapping_mul(HASH) >> (u64::BITS - SLOTS_LOG)) as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use parking_lot::Mutex;

    use super::*;

    /// Records the read-ahead requests.
    #[derive(Default)]
    struct Slow(Mutex<Vec<(u64, u64)>>);

    impl BlockDevice for Slow {
        fn len(&self) -> u64 {
            1 << 40
        }

        fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            Ok(())
        }

        fn has_read_ahead(&self) -> bool {
            true
        }

        fn read_ahead(&self, offset: u64, len: u64, _: ContentKind) {
            self.0.lock().push((offset, len));
        }

        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn zero_range(&self, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn read_ahead_grows_with_the_part_of_a_region_that_was_read() {
        let slow = Slow::default();
        let ahead = Ahead::of(&slow).unwrap();
        let region = 7 * REGION_BYTES;
        // One block in each of many regions.
        for region in 100..150 {
            ahead.metadata(&slow, region * REGION_BYTES, 4096);
        }
        assert!(slow.0.lock().is_empty());
        for block in 0..300 {
            ahead.metadata(&slow, region + block * 4096, 4096);
        }
        let asked = slow.0.lock().clone();
        let expected =
            [(region + 4096, FOLLOWING_BYTES), (region, REGION_BYTES), (region, 2 * REGION_BYTES)];
        assert_eq!(asked, expected);
        for _ in 0..100 {
            ahead.metadata(&slow, u64::MAX - 4096, 4096);
        }
    }

    /// Reads the first `bytes` of a region in small files.
    fn read(ahead: &Ahead, slow: &Slow, region: u64, bytes: u64) {
        for block in 0..bytes / 4096 {
            ahead.data(slow, region * REGION_BYTES + block * 4096, 4096);
        }
    }

    #[test]
    fn contents_of_a_tree_are_fetched_at_the_first_touch() {
        let slow = Slow::default();
        let ahead = Ahead::of(&slow).unwrap();
        let first = |region: u64| {
            slow.0.lock().clear();
            read(&ahead, &slow, region, 4096);
            slow.0.lock().first().map(|(start, len)| (start / REGION_BYTES, len / REGION_BYTES))
        };
        assert_eq!(first(7), None);
        for region in [5, 9, 2] {
            read(&ahead, &slow, region, REGION_BYTES);
        }
        assert_eq!(first(70), Some((70, 2)));
        // Regions that are not read use the credit up.
        let fetched = (100..120).filter(|region| first(*region).is_some()).count();
        assert!(fetched < CREDIT_MAX as usize, "{fetched}");
        assert_eq!(first(130), None);
    }

    #[test]
    fn requested_contents_cause_no_further_read_ahead() {
        let slow = Slow::default();
        let ahead = Ahead::of(&slow).unwrap();
        ahead.request(&slow, REGION_BYTES / 2, REGION_BYTES);
        read(&ahead, &slow, 0, REGION_BYTES);
        read(&ahead, &slow, 1, REGION_BYTES);
        assert_eq!(*slow.0.lock(), [(REGION_BYTES / 2, REGION_BYTES)]);
        ahead.request(&slow, u64::MAX, u64::MAX);
    }
}
