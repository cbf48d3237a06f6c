//! What is fetched before it is asked for, from devices that are slow to read.
//!
//! Metadata that is used together lies together: inode tables and chunks, the blocks of a directory, trees. So the more
//! of a region was read, the more of it is wanted: first what follows, then all of it, then the next one. One block of a
//! region, as a walk along one path reads it, asks for nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use blockdev::BlockDevice;

/// Length of a region, in bytes.
const REGION_BYTES: u64 = 4 << 20;

/// Regions that are followed at a time, each in the slot of a hash of its number: those of groups are as far apart as
/// groups are long.
const SLOTS_LOG: u32 = 10;
const HASH: u64 = 0x9e37_79b9_7f4a_7c15;

/// What is asked for when a little of a region was read, in bytes.
const FOLLOWING_BYTES: u64 = 512 << 10;

/// Bits of a slot that count bytes read, below the number of the region.
const COUNT_BITS: u32 = 24;

/// What was read of metadata and of the contents of files.
pub(crate) struct Ahead {
    metadata: Regions,
    data: Regions,
}

/// From how many bytes read of a region on more of it is asked for.
#[derive(Clone, Copy)]
struct Limits {
    following: u64,
    all: u64,
    next: u64,
}

/// Directories of one place are read by little more than the first; what has more is a table that is walked. Less, and
/// searches in a large image fetch more than they read.
const METADATA: Limits = Limits { following: 8 << 10, all: 256 << 10, next: 1 << 20 };
const DATA: Limits = Limits { following: 192 << 10, all: 768 << 10, next: 3 << 20 };

/// How much was read of the regions that were read last.
struct Regions {
    limits: Limits,
    slots: [AtomicU64; 1 << SLOTS_LOG],
}

impl Ahead {
    /// `None` where reading takes no time that is worth it.
    pub(crate) fn of(device: &dyn BlockDevice) -> Option<Box<Self>> {
        let (metadata, data) = (Regions::new(METADATA), Regions::new(DATA));
        device.has_read_ahead().then(|| Box::new(Self { metadata, data }))
    }

    /// A block of metadata is about to be read.
    pub(crate) fn metadata(&self, device: &dyn BlockDevice, offset: u64, len: u64) {
        self.metadata.note(device, offset, len);
    }

    /// Contents of a file are about to be read.
    pub(crate) fn data(&self, device: &dyn BlockDevice, offset: u64, len: u64) {
        self.data.note(device, offset, len);
    }
}

impl Regions {
    fn new(limits: Limits) -> Self {
        Self { limits, slots: [const { AtomicU64::new(0) }; 1 << SLOTS_LOG] }
    }

    fn note(&self, device: &dyn BlockDevice, offset: u64, len: u64) {
        let region = offset / REGION_BYTES;
        let before = self.count(region, len);
        let (after, start) = (before + len, region * REGION_BYTES);
        let passed = |limit: u64| before < limit && after >= limit;
        // Each is asked for when its limit is passed, and not again. Threads that pass it together ask twice, which costs
        // little.
        if passed(self.limits.next) {
            device.read_ahead(start, 2 * REGION_BYTES);
        } else if passed(self.limits.all) {
            device.read_ahead(start, REGION_BYTES);
        } else if passed(self.limits.following) {
            device.read_ahead(offset, FOLLOWING_BYTES.min(REGION_BYTES - (offset - start)));
        }
    }

    /// Counts bytes of a region, and returns how many there were before.
    fn count(&self, region: u64, len: u64) -> u64 {
        let slot = &self.slots[(region.wrapping_mul(HASH) >> (u64::BITS - SLOTS_LOG)) as usize];
        let (found, mask) = (slot.load(Ordering::Relaxed), (1 << COUNT_BITS) - 1);
        let before = if found >> COUNT_BITS == region { found & mask } else { 0 };
        slot.store(region << COUNT_BITS | (before + len).min(mask), Ordering::Relaxed);
        before
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use parking_lot::Mutex;

    use super::*;

    /// What was asked for.
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

        fn read_ahead(&self, offset: u64, len: u64) {
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
    fn the_more_of_a_region_is_read_the_more_is_asked_for() {
        let slow = Slow::default();
        let ahead = Ahead::of(&slow).unwrap();
        let region = 7 * REGION_BYTES;
        // One path through many regions.
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
}
