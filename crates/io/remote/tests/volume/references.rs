//! References of regions in memory: prefetches load them, reads use them, and writes make them invalid.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use disk::{BlockDevice, ContentKind};
use diskwright_remote::volume::{Options, View, Volume, snapshot};

use super::device::create;
use crate::volume::bucket::{Bucket, bulk_options, options};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
const LEN: u64 = 32 * MIB;

/// Returns options without a cache of tables, so that each use of the database takes requests.
fn uncached() -> Options {
    bulk_options().cache_bytes(1)
}

/// Returns the number of requests of the database during a read.
fn database_requests(bucket: &Bucket, read: impl Fn()) -> u64 {
    let conduct = &bucket.conduct;
    let requests =
        || conduct.requests.load(Ordering::Relaxed) - conduct.bulk.gets.load(Ordering::Relaxed);
    let before = requests();
    read();
    requests() - before
}

/// Returns whether a read always takes requests of the database. Background work of a writer also does at times.
fn needs_database(bucket: &Bucket, read: impl Fn()) -> bool {
    (0..5).all(|_| database_requests(bucket, &read) > 0)
}

/// Prefetches bytes, and returns once their references are known: when objects are read.
fn prefetch(device: &dyn BlockDevice, bucket: &Bucket, offset: u64, len: u64) {
    let gets = || bucket.conduct.bulk.gets.load(Ordering::Relaxed);
    let before = gets();
    device.read_ahead(offset, len, ContentKind::Data);
    while gets() == before {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Creates a volume in which all bytes are `value`.
fn filled(bucket: &Bucket, value: u8) {
    create(bucket, "v", LEN);
    let volume = Volume::open(&bucket.at("v"), &options()).unwrap();
    volume.write_at(0, &vec![value; LEN as usize]).unwrap();
    volume.close().unwrap();
}

#[track_caller]
fn assert_bytes(device: &dyn BlockDevice, offset: u64, len: u64, value: u8) {
    let mut found = vec![!value; len as usize];
    device.read_at(offset, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == value), "{len} bytes at {offset}");
}

#[test]
fn reads_after_a_prefetch_need_no_database() {
    let bucket = Bucket::new();
    filled(&bucket, 1);
    let view = View::open(&bucket.at("v"), None, &uncached()).unwrap();
    assert!(database_requests(&bucket, || assert_bytes(&view, 20 * MIB, MIB, 1)) > 0);
    prefetch(&view, &bucket, MIB, 8 * MIB);
    // The prefetch reads the references of whole regions. Reads in order would start others.
    let needs = needs_database(&bucket, || {
        for number in (0..96).rev() {
            assert_bytes(&view, number * (128 << 10), 128 << 10, 1);
        }
        assert_bytes(&view, 5000, 7, 1);
    });
    assert!(!needs, "three regions are known");
}

#[test]
fn writes_replace_references_in_memory() {
    let bucket = Bucket::new();
    filled(&bucket, 1);
    let volume = Volume::open(&bucket.at("v"), &uncached()).unwrap();
    prefetch(&volume, &bucket, 0, 12 * MIB);
    assert!(!needs_database(&bucket, || assert_bytes(&volume, 0, 12 * MIB, 1)));
    volume.write_at(3 * BLOCK, &[2; BLOCK as usize]).unwrap();
    volume.write_at(5 * MIB, &[3; MIB as usize]).unwrap();
    volume.flush().unwrap();
    assert_bytes(&volume, 3 * BLOCK, BLOCK, 2);
    assert_bytes(&volume, 5 * MIB, MIB, 3);
    let needs = needs_database(&bucket, || assert_bytes(&volume, 8 * MIB, 4 * MIB, 1));
    assert!(!needs, "the third region was not written");
    volume.discard(8 * MIB, MIB).unwrap();
    assert_bytes(&volume, 8 * MIB, MIB, 0);
    prefetch(&volume, &bucket, 0, 12 * MIB);
    volume.compact().unwrap();
    for (offset, len, value) in [(0, 3 * BLOCK, 1), (3 * BLOCK, BLOCK, 2), (5 * MIB, MIB, 3)] {
        assert_bytes(&volume, offset, len, value);
    }
    assert_bytes(&volume, 8 * MIB, MIB, 0);
    assert_bytes(&volume, 9 * MIB, 3 * MIB, 1);
}

#[test]
fn states_do_not_share_references() {
    let bucket = Bucket::new();
    filled(&bucket, 1);
    let at = bucket.at("v");
    snapshot(&at, "old", false).unwrap();
    let old = View::open(&at, Some("old"), &uncached()).unwrap();
    prefetch(&old, &bucket, 0, 8 * MIB);
    let volume = Volume::open(&at, &uncached()).unwrap();
    prefetch(&volume, &bucket, 0, 8 * MIB);
    volume.write_at(0, &vec![2; 8 * MIB as usize]).unwrap();
    volume.flush().unwrap();
    let new = View::open(&at, None, &uncached()).unwrap();
    prefetch(&new, &bucket, 0, 8 * MIB);
    assert_bytes(&old, 0, 8 * MIB, 1);
    assert_bytes(&volume, 0, 8 * MIB, 2);
    assert_bytes(&new, 0, 8 * MIB, 2);
}

#[test]
fn a_read_never_returns_older_data_than_the_last_complete_write() {
    const BLOCKS: u64 = 8 * MIB / BLOCK;
    let bucket = Bucket::new();
    create(&bucket, "v", 8 * MIB);
    // Small groups of writes become objects.
    let volume = Volume::open(&bucket.at("v"), &bulk_options()).unwrap();
    let written: Vec<_> = (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
    let ended = AtomicBool::new(false);
    let read = |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        while !ended.load(Ordering::Relaxed) {
            volume.read_ahead(0, 8 * MIB, ContentKind::Data);
            let first = random.u64(..BLOCKS);
            let count = random.u64(1..=64).min(BLOCKS - first);
            let load = |block: u64| written[block as usize].load(Ordering::Acquire);
            let before: Vec<_> = (first..first + count).map(load).collect();
            let mut found = vec![0; (count * BLOCK) as usize];
            volume.read_at(first * BLOCK, &mut found).unwrap();
            for (block, least) in found.chunks(BLOCK as usize).zip(before) {
                let version = u64::from_le_bytes(block[..8].try_into().unwrap());
                assert!(version >= least, "version {version} after {least}");
            }
        }
    };
    thread::scope(|scope| {
        (0..2).for_each(|seed| drop(scope.spawn(move || read(seed))));
        let mut random = fastrand::Rng::with_seed(7);
        for version in 1..=400_u64 {
            let first = random.u64(..BLOCKS);
            let count = [1, 2, 16, 300][random.usize(..4)].min(BLOCKS - first);
            let block = version.to_le_bytes().repeat((BLOCK / 8) as usize);
            volume.write_at(first * BLOCK, &block.repeat(count as usize)).unwrap();
            for block in &written[first as usize..(first + count) as usize] {
                block.store(version, Ordering::Release);
            }
            if random.u8(..4) == 0 {
                volume.flush().unwrap();
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
}
