//! Which ranges are fetched, and how often.

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use disk::{BlockDevice, ContentKind};
use diskwright_remote::place::disk_cache::DiskCache;
use diskwright_remote::place::lazy::{FetchError, LazyDevice, LazyOptions, RangeSource};
use diskwright_remote::place::object::ObjectSource;
use diskwright_remote::place::store::Location;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use parking_lot::Mutex;

const CHUNK: u64 = 1000;

/// A source whose bytes encode their offset. It records requests.
struct PatternSource {
    len: u64,
    asked: Mutex<Vec<Range<u64>>>,
}

impl PatternSource {
    fn new(len: u64) -> Arc<Self> {
        Arc::new(Self { len, asked: Mutex::default() })
    }

    /// Returns the start and end of all requests since the last call, sorted.
    fn taken(&self) -> Vec<(u64, u64)> {
        let asked = std::mem::take(&mut *self.asked.lock());
        let mut asked: Vec<_> = asked.into_iter().map(|range| (range.start, range.end)).collect();
        asked.sort_unstable();
        asked
    }
}

fn byte(at: u64) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16)) as u8
}

impl RangeSource for PatternSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn identity(&self) -> &str {
        "a source of this test"
    }

    fn fetch(&self, range: Range<u64>) -> BoxFuture<'_, Result<Vec<Bytes>, FetchError>> {
        self.asked.lock().push(range.clone());
        async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let bytes: Vec<u8> = range.map(byte).collect();
            Ok(bytes.chunks(CHUNK as usize).map(Bytes::copy_from_slice).collect())
        }
        .boxed()
    }

    fn chunk_bytes(&self) -> u64 {
        CHUNK
    }
}

#[track_caller]
fn assert_reads(device: &LazyDevice, offset: u64, len: usize) {
    let mut buf = vec![0; len];
    device.read_at(offset, &mut buf).unwrap();
    assert!((offset..).zip(&buf).all(|(at, &found)| found == byte(at)), "wrong at {offset}+{len}");
}

#[test]
fn neighbours_are_one_request_and_nothing_is_fetched_twice() {
    let source = PatternSource::new(100 * CHUNK + 1);
    let options = LazyOptions { request_bytes: 4 * CHUNK, ..LazyOptions::default() };
    let device = LazyDevice::new(source.clone(), options);
    assert_reads(&device, 2500, 10);
    assert_eq!(source.taken(), [(2000, 3000)]);
    assert_reads(&device, 0, 9500);
    assert_eq!(source.taken(), [(0, 2000), (3000, 7000), (7000, 10_000)]);
    assert_reads(&device, 100_000, 1);
    assert_eq!(source.taken(), [(100_000, 100_001)]);
    assert_reads(&device, 10, 9000);
    assert!(source.taken().is_empty());
    assert_eq!(device.requests(), 5);
}

#[test]
fn concurrent_requests_for_a_chunk_fetch_it_once() {
    let source = PatternSource::new(100 * CHUNK);
    let device = LazyDevice::new(source.clone(), LazyOptions::default());
    thread::scope(|scope| {
        for thread in 0..8 {
            let device = &device;
            scope.spawn(move || assert_reads(device, thread * 10, 50_000));
        }
    });
    let fetched: u64 = source.taken().iter().map(|(start, end)| end - start).sum();
    assert_eq!(fetched, 51_000);
}

#[test]
fn prefetched_chunks_are_in_transit_within_the_limit() {
    let source = PatternSource::new(1000 * CHUNK);
    let options = LazyOptions { read_ahead_bytes: 10 * CHUNK, ..LazyOptions::default() };
    let device = LazyDevice::new(source.clone(), options.clone());
    device.read_ahead(500, 3000, ContentKind::Data);
    device.read_ahead(2000, u64::MAX, ContentKind::Data);
    assert_reads(&device, 0, 1);
    assert_reads(&device, 7_999, 1);
    // A budget's length of the second request waits for the first one, and the rest is ignored.
    assert_reads(&device, 11_999, 1);
    assert_eq!(source.taken(), [(0, 4000), (4000, 8000), (8000, 12_000)]);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(device.requests(), 3);

    let device = LazyDevice::new(source.clone(), LazyOptions { read_ahead_bytes: 0, ..options });
    assert!(!device.has_read_ahead());
    device.read_ahead(0, 5000, ContentKind::Data);
    assert_reads(&device, 20, 1);
    assert_eq!(source.taken(), [(0, 1000)]);
}

/// Waits until `bytes` bytes were requested, and returns the requests.
fn asked_until(source: &PatternSource, bytes: u64) -> Vec<(u64, u64)> {
    let (mut asked, mut sum) = (Vec::new(), 0);
    while sum < bytes {
        thread::sleep(Duration::from_millis(1));
        let more = source.taken();
        sum += more.iter().map(|(start, end)| end - start).sum::<u64>();
        asked.extend(more);
    }
    asked.sort_unstable();
    asked
}

#[test]
fn an_order_is_prefetched_completely_within_the_memory_limit() {
    let source = PatternSource::new(1000 * CHUNK);
    let options = LazyOptions {
        memory_bytes: 80 * CHUNK,
        request_bytes: 4 * CHUNK,
        read_ahead_bytes: 10 * CHUNK,
        ..LazyOptions::default()
    };
    let order = vec![500_000..530_000, 7000..8000, 100_000..150_000];
    let device = LazyDevice::new(source.clone(), options.clone());
    device.read_ahead_in_order(order.clone());
    // Three quarters of the memory: all of the first two, and 7 requests of the last.
    let asked = asked_until(&source, 59_000);
    thread::sleep(Duration::from_millis(20));
    assert!(source.taken().is_empty(), "more than stays in memory");
    let starts: Vec<_> = asked.iter().map(|(start, _)| *start).collect();
    let of = |first: u64, count: u64| (0..count).map(move |number| first + number * 4000);
    let expected: Vec<_> = of(7000, 1).chain(of(100_000, 7)).chain(of(500_000, 8)).collect();
    assert_eq!(starts, expected);
    assert_reads(&device, 500_000, 30_000);
    assert!(source.taken().is_empty());

    let off = LazyDevice::new(source.clone(), LazyOptions { read_ahead_bytes: 0, ..options });
    off.read_ahead_in_order(order);
    thread::sleep(Duration::from_millis(20));
    assert!(source.taken().is_empty());
}

#[test]
fn a_second_process_reads_from_disk_and_damage_is_fetched_again() {
    let directory = tempfile::tempdir().unwrap();
    let options = || {
        let disk = Some(DiskCache::open(directory.path(), 1 << 30).unwrap());
        LazyOptions { disk, ..LazyOptions::default() }
    };
    let source = PatternSource::new(100 * CHUNK);
    assert_reads(&LazyDevice::new(source.clone(), options()), 0, 20_000);
    source.taken();
    assert_reads(&LazyDevice::new(source.clone(), options()), 0, 20_000);
    assert!(source.taken().is_empty());

    let image = std::fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
    let mut data = std::fs::read(image.join("data")).unwrap();
    data[5500] ^= 1;
    std::fs::write(image.join("data"), data).unwrap();
    let device = LazyDevice::new(source.clone(), options());
    device.read_ahead(19_000, 2000, ContentKind::Data);
    assert_reads(&device, 0, 21_000);
    assert_eq!(source.taken(), [(5000, 6000), (20_000, 21_000)]);
    // The directory disappears, or has no space: reads become slow, but do not fail.
    let device = LazyDevice::new(source.clone(), options());
    std::fs::remove_dir_all(directory.path()).unwrap();
    std::fs::write(directory.path(), "no directory").unwrap();
    assert_reads(&device, 50_000, 10_000);
    std::fs::remove_file(directory.path()).unwrap();
}

#[test]
fn objects_of_any_store_are_read_and_pinned() {
    let store = Arc::new(InMemory::new());
    let put = |bytes: Vec<u8>| {
        diskwright_remote::place::runtime::block_on(
            store.put(&"images/root.img".into(), bytes.into()),
        )
        .unwrap();
    };
    put((0..300_000).map(byte).collect());
    let location = Location {
        store: store.clone(),
        path: "images/root.img".into(),
        address: "memory://images/root.img".into(),
    };
    let source = Arc::new(ObjectSource::of(location.clone()).unwrap());
    let device = LazyDevice::new(source, LazyOptions::default());
    assert_eq!(device.len(), 300_000);
    assert_reads(&device, 0, 140_000);
    put((0..300_000).map(|_| 0).collect());
    let error = device.read_at(299_999, &mut [0]).unwrap_err().to_string();
    assert!(error.contains("memory://images/root.img was replaced"), "{error}");
    diskwright_remote::place::runtime::block_on(store.delete(&location.path)).unwrap();
    assert!(ObjectSource::of(location).is_err());
}
