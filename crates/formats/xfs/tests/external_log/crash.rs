//! Crashes of images whose log is on another device. Each device has a separate cache, which only a flush of this
//! device writes out: a write that needs a flush of the other device before it is found out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::{BlockDevice, MemoryDevice};
use testkit::crash::{
    CachedPart, CrashCase, CrashTarget, Judge, OpenFileSystem, Options, copy_in_memory, part_of,
};
use testkit::operation::Mix;
use testkit::{Ignore, differences, require};
use vfs::{FileSystem, NewInode};
use xfs::{OpenOptions, Xfs};

use super::support::{Pair, blocks_left, joined, made};
use super::{LOG_BYTES, SIZE};
use crate::changing::target::{Open, Way};
use crate::changing::{SMALL_CACHE_BYTES, SYNCING};

/// Images in one device of the explorer: the data first, then the log.
struct TwoDevices {
    made: Vec<MemoryDevice>,
    /// Which device loses its flushes: the data, or the log.
    swallows_flushes: [bool; 2],
}

fn parts(device: Arc<dyn BlockDevice>) -> [Arc<dyn BlockDevice>; 2] {
    [part_of(&device, 0, SIZE), part_of(&device, SIZE, LOG_BYTES)]
}

impl TwoDevices {
    /// An empty image, and one whose log will soon wrap around.
    fn new() -> Self {
        let both = MemoryDevice::new(SIZE + LOG_BYTES);
        for (device, offset) in made(SIZE, LOG_BYTES).iter().zip([0, SIZE]) {
            device.for_each_part(|at, bytes| both.write_at(offset + at, bytes)).unwrap();
        }
        let worn = Arc::new(both.fork());
        let [data, log] = parts(worn.clone());
        let device = joined(data, log);
        let options = OpenOptions { cache_bytes: SMALL_CACHE_BYTES, ..OpenOptions::default() };
        let fs = Xfs::open_writable(device.clone(), &options).unwrap();
        while blocks_left(&*device) > 600 {
            for number in 0..40 {
                let name = format!("worn {number}");
                fs.create(fs.root(), name.as_bytes(), &NewInode::default()).unwrap();
                fs.unlink(fs.root(), name.as_bytes(), None).unwrap();
                fs.sync().unwrap();
            }
        }
        Xfs::close(fs).unwrap();
        Self { made: vec![both, worn.fork()], swallows_flushes: [false; 2] }
    }
}

impl CrashTarget for TwoDevices {
    fn make(&self, seed: u64) -> Result<MemoryDevice, String> {
        Ok(self.made[seed as usize % self.made.len()].fork())
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn OpenFileSystem>> {
        let [data, log] = parts(device);
        let [data_is_bad, log_is_bad] = self.swallows_flushes;
        let data = Arc::new(CachedPart::new(data, data_is_bad));
        let log = Arc::new(CachedPart::new(log, log_is_bad));
        let options = OpenOptions { cache_bytes: SMALL_CACHE_BYTES, ..OpenOptions::default() };
        let fs = Xfs::open_writable(joined(data, log), &options)?;
        Ok(Box::new(Open(fs, Way::InPlace)))
    }
}

/// Checks our recovery with xfs_repair, and compares it with the kernel's.
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
        if self.asks_kernel { "recovery by the kernel" } else { "xfs_repair after our recovery" }
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

fn options() -> Options {
    Options { mixes: vec![SYNCING, Mix::ALL, Mix::METADATA], ..Options::default() }
}

#[test]
fn a_log_on_another_device_survives_a_crash_anywhere() {
    require!(Tool("xfs_repair"), Mount("xfs"), Loop);
    let [ours, theirs] = [false, true].map(OnTwoDevices::new);
    testkit::assert_survives(&TwoDevices::new(), &[&ours, &theirs], options(), 200);
}

#[test]
fn a_flush_that_one_of_two_devices_loses_is_found_out() {
    let mut target = TwoDevices::new();
    for swallows_flushes in [[true, false], [false, true]] {
        target.swallows_flushes = swallows_flushes;
        let report = testkit::explore(&target, &[], options(), 200);
        assert!(report.failures.len() >= 5, "{swallows_flushes:?}: {}", report.failures.len());
    }
}
