//! Crashes of images whose journal is on another device. Each device has a separate cache, which only a flush of this
//! device writes out: a write that needs a flush of the other device before it is found out.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::{BlockDevice, MemoryDevice};
use testkit::crash::{
    CachedPart, CrashCase, CrashTarget, Judge, OpenFileSystem, Options, copy_in_memory, part_of,
};
use testkit::operation::Mix;
use testkit::{Ignore, differences, require};

use super::support::{Pair, joined, made};
use super::{JOURNAL_BYTES, SIZE};
use crate::changing::crashing::OpenExt4;
use crate::changing::{SMALL_CACHE_BYTES, open_with};

/// Images in one device of the explorer: the data first, then the journal.
struct TwoDevices {
    made: Vec<MemoryDevice>,
    /// Which device loses its flushes: the data, or the journal.
    swallows_flushes: [bool; 2],
}

fn parts(device: Arc<dyn BlockDevice>) -> [Arc<dyn BlockDevice>; 2] {
    [part_of(&device, 0, SIZE), part_of(&device, SIZE, JOURNAL_BYTES)]
}

impl TwoDevices {
    /// Images with blocks of 4 KiB and of 1 KiB.
    fn new() -> Self {
        let make = |block_size| {
            let both = MemoryDevice::new(SIZE + JOURNAL_BYTES);
            let parts = made(SIZE, JOURNAL_BYTES, block_size);
            for (device, offset) in parts.iter().zip([0, SIZE]) {
                device.for_each_part(|at, bytes| both.write_at(offset + at, bytes)).unwrap();
            }
            both
        };
        Self { made: [4096, 1024].map(make).into(), swallows_flushes: [false; 2] }
    }
}

impl CrashTarget for TwoDevices {
    fn make(&self, seed: u64) -> Result<MemoryDevice, String> {
        Ok(self.made[seed as usize % self.made.len()].fork())
    }

    /// See `Ext4Target`.
    fn indivisible(&self) -> Vec<Range<u64>> {
        std::iter::once(1024..2048).collect()
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn OpenFileSystem>> {
        let [data, journal] = parts(device);
        let [data_is_bad, journal_is_bad] = self.swallows_flushes;
        let data = Arc::new(CachedPart::new(data, data_is_bad));
        let journal = Arc::new(CachedPart::new(journal, journal_is_bad));
        let fs = open_with(joined(data, journal), SMALL_CACHE_BYTES, None)?;
        Ok(Box::new(OpenExt4(fs)))
    }
}

/// Checks our recovery with e2fsck, and compares it with the kernel's.
struct OnTwoDevices {
    folder: tempfile::TempDir,
    next: AtomicU64,
    asks_kernel: bool,
}

impl OnTwoDevices {
    fn new(asks_kernel: bool) -> Self {
        Self { folder: testkit::scratch(), next: AtomicU64::new(0), asks_kernel }
    }

    /// Writes both devices into files.
    fn put(&self, device: &MemoryDevice) -> Pair {
        let parts = parts(Arc::new(device.fork())).map(|part| copy_in_memory(&*part));
        let name = self.next.fetch_add(1, Ordering::Relaxed).to_string();
        Pair::write(self.folder.path(), &name, [&parts[0], &parts[1]])
    }
}

impl Judge for OnTwoDevices {
    fn name(&self) -> &str {
        if self.asks_kernel { "recovery by the kernel" } else { "e2fsck after our recovery" }
    }

    fn one_in(&self) -> u64 {
        if self.asks_kernel { 8 } else { 2 }
    }

    fn judge(&self, case: &CrashCase<'_>) -> Result<(), String> {
        let recovered = self.put(case.recovered);
        let verdict = if self.asks_kernel {
            let crashed = self.put(case.crashed);
            crashed.mounted(false, |_| ())?;
            let ignore = Ignore { ctime: false, ..Ignore::default() };
            let list = differences(&recovered.tree(), &crashed.tree(), &ignore);
            let verdict = crashed.verdict();
            crashed.remove();
            if list.is_empty() { verdict } else { Err(list.join("\n")) }
        } else {
            recovered.verdict()
        };
        recovered.remove();
        verdict
    }
}

/// Syncs often: only what a sync promised can be lost with a flush.
const SYNCING: Mix = Mix { sync: 40, ..Mix::ALL };

fn options() -> Options {
    Options { mixes: vec![SYNCING, Mix::ALL, Mix::METADATA], ..Options::default() }
}

#[test]
fn a_journal_on_another_device_survives_a_crash_anywhere() {
    require!(Tool("e2fsck"), Mount("ext4"), Loop);
    let [ours, theirs] = [false, true].map(OnTwoDevices::new);
    testkit::assert_survives(&TwoDevices::new(), &[&ours, &theirs], options(), 200);
}

#[test]
fn a_flush_that_one_of_two_devices_loses_is_found_out() {
    let mut target = TwoDevices::new();
    for swallows_flushes in [[true, false], [false, true]] {
        target.swallows_flushes = swallows_flushes;
        let mixes = vec![SYNCING];
        let report = testkit::explore(&target, &[], Options { mixes, ..options() }, 300);
        assert!(report.failures.len() >= 2, "{swallows_flushes:?}: {}", report.failures.len());
    }
}
