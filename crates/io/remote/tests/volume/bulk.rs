//! Bulk data: objects, references, and the order of writes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use disk::{BlockDevice, ContentKind};
use diskwright_remote::volume::{View, Volume, clone, snapshot, survey};
use object_store::ObjectStoreExt;
use remote::place::runtime::block_on;

use super::device::create;
use crate::volume::bucket::{Bucket, bulk_options, options};

const MIB: usize = 1 << 20;

fn opened(bucket: &Bucket) -> Volume {
    Volume::open(&bucket.at("v"), &options()).unwrap()
}

/// Returns bytes that differ between blocks.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}

fn assert_read(device: &dyn BlockDevice, offset: u64, expected: &[u8], when: &str) {
    let mut found = vec![0; expected.len()];
    device.read_at(offset, &mut found).unwrap_or_else(|error| panic!("{when}: {error}"));
    let at = found.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(at, None, "{when}");
}

/// Returns the size of each bulk object in MiB, rounded down.
fn sizes(bucket: &Bucket) -> Vec<u64> {
    let at = bucket.at("v");
    let size = |path| block_on(at.store.head(&path)).unwrap().size;
    let mut sizes: Vec<_> = bucket.bulk_objects("v").into_iter().map(size).collect();
    sizes.sort_unstable();
    sizes.into_iter().map(|size| size / MIB as u64).collect()
}

#[test]
fn large_writes_become_objects_and_small_ones_go_through_the_log() {
    let bucket = Bucket::new();
    create(&bucket, "v", 64 << 20);
    let data = pattern(40 * MIB, 1);
    let volume = opened(&bucket);
    for (piece, offset) in data.chunks(MIB).zip((0..).step_by(MIB)) {
        volume.write_at(offset, piece).unwrap();
    }
    // Two groups of regions are full and need no flush.
    while sizes(&bucket).len() < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    volume.flush().unwrap();
    assert_eq!(sizes(&bucket), [8, 16, 16]);
    volume.write_at(50 << 20, &data[..MIB - 4096]).unwrap();
    volume.write_at(5000, b"small").unwrap();
    volume.flush().unwrap();
    assert_eq!(sizes(&bucket), [8, 16, 16], "small writes have no objects");
    volume.close().unwrap();
    let view = View::open(&bucket.at("v"), None, &options()).unwrap();
    let mut expected = data.clone();
    expected[5000..5005].copy_from_slice(b"small");
    assert_read(&view, 0, &expected, "after closing");
    assert_read(&view, 50 << 20, &data[..MIB - 4096], "after closing");
    let copy = disk::MemoryDevice::new(64 << 20);
    view.copy_to(&copy, &mut |_| Ok(())).unwrap();
    assert_read(&copy, 0, &expected, "copied");
}

#[test]
fn adjacent_blocks_are_read_with_few_gets() {
    let bucket = Bucket::new();
    create(&bucket, "v", 64 << 20);
    let volume = opened(&bucket);
    let data = pattern(16 * MIB, 2);
    volume.write_at(0, &data).unwrap();
    volume.close().unwrap();
    let gets = || bucket.conduct.bulk.gets.swap(0, Ordering::Relaxed);
    let cached = options().cache_bytes(64 << 20);
    let view = View::open(&bucket.at("v"), None, &cached).unwrap();
    gets();
    assert_read(&view, 0, &data, "all");
    assert_eq!(gets(), 8, "gets of 2 MiB");
    assert_read(&view, 0, &data, "again, from memory");
    assert_eq!(gets(), 0);
    // A prefetch and a read that waits for it make one request.
    let view = View::open(&bucket.at("v"), None, &options()).unwrap();
    for start in [0, 8 << 20] {
        view.read_ahead(start, 4 << 20, ContentKind::Data);
        assert_read(&view, start, &data[start as usize..][..4 * MIB], "prefetched");
    }
    // A read that begins at the end of a prefetch may repeat its requests.
    let count = gets();
    assert!((4..=8).contains(&count), "{count} gets");
    // Blocks in between were replaced: the gap is fetched as well.
    let volume = opened(&bucket);
    volume.write_at(128 << 10, &[7; 256 << 10]).unwrap();
    volume.close().unwrap();
    let view = View::open(&bucket.at("v"), None, &options()).unwrap();
    let mut found = vec![0; MIB];
    view.read_at(0, &mut found).unwrap();
    assert_eq!(gets(), 1, "one get across the gap");
}

#[test]
fn a_damaged_or_missing_object_is_an_error_with_its_name() {
    let bucket = Bucket::new();
    create(&bucket, "v", 64 << 20);
    let volume = opened(&bucket);
    let data = pattern(4 * MIB, 3);
    volume.write_at(0, &data).unwrap();
    volume.close().unwrap();
    let at = bucket.at("v");
    let [path] = bucket.bulk_objects("v").try_into().unwrap();
    let view = || View::open(&at, None, &options()).unwrap();
    bucket.conduct.bulk.wrong_gets.store(1, Ordering::Relaxed);
    assert_read(&view(), 0, &data[..4096], "the second get is right");
    bucket.conduct.bulk.wrong_gets.store(2, Ordering::Relaxed);
    let told = view().read_at(0, &mut [0; 4096]).unwrap_err().to_string();
    let name = path.as_ref().strip_prefix("v/").unwrap();
    assert!(told.contains(name) && told.contains("block 0: wrong checksum"), "{told}");
    assert!(told.contains("memory://bucket/v"), "{told}");
    // An object of another volume, or one that was cut, is not data.
    for wrong in [pattern(4 * MIB, 4), data[..MIB].to_vec(), Vec::new()] {
        block_on(at.store.put(&path, wrong.into())).unwrap();
        let told = view().read_at(2 << 20, &mut [0; 4096]).unwrap_err().to_string();
        assert!(told.contains(name), "{told}");
    }
    block_on(at.store.delete(&path)).unwrap();
    let error = view().read_at(0, &mut [0; 4096]).unwrap_err();
    assert!(error.to_string().contains(name), "{error}");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
}

#[test]
fn volumes_of_version_1_have_no_bulk_objects() {
    let bucket = Bucket::new();
    create(&bucket, "v", 64 << 20);
    let at = bucket.at("v");
    let marker = at.path.clone().join("diskwright-volume.json");
    let text = block_on(async { at.store.get(&marker).await.unwrap().bytes().await.unwrap() });
    let text = String::from_utf8(text.to_vec()).unwrap();
    assert!(text.contains("\"version\": 2"), "{text}");
    let old = text.replace("\"version\": 2", "\"version\": 1");
    block_on(at.store.put(&marker, old.into())).unwrap();
    let volume = opened(&bucket);
    let data = pattern(16 * MIB, 5);
    volume.write_at(0, &data).unwrap();
    volume.close().unwrap();
    assert!(sizes(&bucket).is_empty());
    assert_read(&opened(&bucket), 0, &data, "opened again");
    let future = text.replace("\"version\": 2", "\"version\": 3");
    block_on(at.store.put(&marker, future.into())).unwrap();
    let told = Volume::open(&at, &options()).err().unwrap().to_string();
    assert!(told.contains("has version 3"), "{told}");
}

#[test]
fn pending_writes_are_read_from_memory_and_overlapping_ones_wait() {
    let bucket = Bucket::new();
    create(&bucket, "v", 64 << 20);
    let volume = opened(&bucket);
    let conduct = &bucket.conduct.bulk;
    conduct.close_gate(0);
    let mut data = pattern(16 * MIB, 6);
    // A full group is sent at once.
    volume.write_at(0, &data).unwrap();
    conduct.wait_for_waiting(1);
    assert_read(&volume, 0, &data, "in flight");
    assert_read(&volume, 12345, &data[12345..20000], "in flight, in part");
    std::thread::scope(|scope| {
        let overlapping = scope.spawn(|| volume.write_at(5000, b"later"));
        volume.write_at(20 << 20, b"elsewhere").unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(!overlapping.is_finished(), "it would be overtaken");
        conduct.open_gate(0);
        overlapping.join().unwrap().unwrap();
    });
    data[5000..5005].copy_from_slice(b"later");
    assert_read(&volume, 0, &data, "landed");
    volume.close().unwrap();
    assert_read(&opened(&bucket), 0, &data, "opened again");
}

#[test]
fn a_barrier_waits_for_the_puts_of_earlier_writes() {
    let bucket = Bucket::new();
    create(&bucket, "v", 64 << 20);
    let volume = opened(&bucket);
    let conduct = &bucket.conduct.bulk;
    conduct.close_gate(1);
    volume.write_at(0, &pattern(2 * MIB, 7)).unwrap();
    std::thread::scope(|scope| {
        let barrier = scope.spawn(|| volume.barrier());
        conduct.wait_for_waiting(1);
        std::thread::sleep(Duration::from_millis(50));
        assert!(!barrier.is_finished());
        conduct.open_gate(1);
        barrier.join().unwrap().unwrap();
    });
    // A barrier makes nothing durable, but a later flush of anything does.
    volume.flush().unwrap();
    assert_eq!(sizes(&bucket), [2]);
}

#[test]
fn old_buffers_are_sent_without_a_flush() {
    let bucket = Bucket::new();
    create(&bucket, "v", 64 << 20);
    let volume = opened(&bucket);
    volume.write_at(0, &pattern(2 * MIB, 8)).unwrap();
    assert!(sizes(&bucket).is_empty());
    while sizes(&bucket).is_empty() {
        std::thread::sleep(Duration::from_millis(100));
    }
    volume.write_at(0, b"the lock was released").unwrap();
}

#[test]
fn lost_and_doubled_puts_are_repeated_under_new_names() {
    let bucket = Bucket::new();
    create(&bucket, "v", 64 << 20);
    let volume = opened(&bucket);
    let conduct = &bucket.conduct.bulk;
    conduct.lost_puts.store(1, Ordering::Relaxed);
    conduct.lost_answers.store(1, Ordering::Relaxed);
    conduct.doubled_puts.store(1, Ordering::Relaxed);
    let data = pattern(2 * MIB, 9);
    volume.write_at(0, &data).unwrap();
    volume.flush().unwrap();
    assert_eq!(sizes(&bucket), [2, 2, 2], "two of them are garbage");
    volume.close().unwrap();
    assert_read(&opened(&bucket), 0, &data, "opened again");
}

#[test]
fn a_put_that_fails_for_good_fails_the_device() {
    let bucket = Bucket::new();
    create(&bucket, "v", 64 << 20);
    let volume = Volume::open(&bucket.at("v"), &options().retries(2)).unwrap();
    let conduct = &bucket.conduct.bulk;
    conduct.lost_puts.store(3, Ordering::Relaxed);
    volume.write_at(0, &pattern(2 * MIB, 10)).unwrap();
    let told = volume.flush().unwrap_err().to_string();
    assert!(told.contains("v/bulk/1/"), "{told}");
    // The bucket works again, but the write is lost.
    assert_eq!(conduct.lost_puts.load(Ordering::Relaxed), 0);
    assert!(volume.flush().is_err());
    assert!(volume.barrier().is_err());
    assert!(volume.write_at(0, b"more").is_err());
    assert!(volume.write_at(40 << 20, b"more").is_err());
    drop(volume);
    assert_read(&opened(&bucket), 0, &[0; 4096], "nothing was synced");
}

#[test]
fn removed_blocks_do_not_return() {
    let bucket = Bucket::new();
    create(&bucket, "v", 64 << 20);
    let volume = Volume::open(&bucket.at("v"), &bulk_options()).unwrap();
    let data = pattern(8 * MIB, 11);
    volume.write_at(0, &data).unwrap();
    volume.discard(0, 1 << 20).unwrap();
    assert_read(&volume, 0, &vec![0; MIB], "buffered");
    volume.flush().unwrap();
    volume.discard(2 << 20, 5 << 20).unwrap();
    volume.write_at(3 << 20, &[0; 65536]).unwrap();
    volume.close().unwrap();
    let volume = opened(&bucket);
    let mut expected = data;
    expected[..MIB].fill(0);
    expected[2 * MIB..7 * MIB].fill(0);
    assert_read(&volume, 0, &expected, "opened again");
}

#[test]
fn clones_share_bulk_objects_and_have_their_own() {
    let bucket = Bucket::new();
    create(&bucket, "v", 64 << 20);
    let write = |name: &str, offset, data: &[u8]| {
        let volume = Volume::open(&bucket.at(name), &bulk_options()).unwrap();
        volume.write_at(offset, data).unwrap();
        volume.close().unwrap();
    };
    let [one, two, three] = [1, 2, 3].map(|byte| vec![byte; MIB]);
    write("v", 0, &one);
    snapshot(&bucket.at("v"), "s", false).unwrap();
    // The origin has later epochs than the clone's first state.
    write("v", 0, &two);
    write("v", 4 << 20, &two);
    clone(&bucket.at("v"), Some("s"), &bucket.at("clone"), false).unwrap();
    write("clone", 8 << 20, &three);
    clone(&bucket.at("clone"), None, &bucket.at("second"), false).unwrap();
    write("second", 12 << 20, &two);
    for (name, contents) in [
        ("v", [(0, &two), (4, &two)].as_slice()),
        ("clone", &[(0, &one), (8, &three)]),
        ("second", &[(0, &one), (8, &three), (12, &two)]),
    ] {
        let view = View::open(&bucket.at(name), None, &options()).unwrap();
        for (at, data) in contents {
            assert_read(&view, at << 20, data, name);
        }
    }
    assert_eq!(bucket.bulk_objects("clone").len(), 1);
    assert_eq!(bucket.bulk_objects("second").len(), 1);
}

/// Writes a volume of 16 MiB at random for a while, and returns the expected contents.
fn write_at_random(volume: &Volume, len: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut expected = vec![0; len];
    for round in 0..120 {
        let size = 1 << random.usize(9..19);
        let at = random.usize(..len - size);
        let data = pattern(size, round);
        volume.write_at(at as u64, &data).unwrap();
        expected[at..][..size].copy_from_slice(&data);
        if round % 10 == 0 {
            volume.flush().unwrap();
        }
    }
    expected
}

#[test]
fn a_region_takes_few_gets_after_random_writes_and_compaction() {
    let bucket = Bucket::new();
    create(&bucket, "v", 16 << 20);
    let volume = Volume::open(&bucket.at("v"), &bulk_options()).unwrap();
    let expected = write_at_random(&volume, 16 << 20, 1);
    volume.flush().unwrap();
    let before = survey(&bucket.at("v"), None, true).unwrap();
    assert!(before.region_objects_max > 5, "{before:?}");
    assert!(volume.compact().unwrap() > 0);
    assert_read(&volume, 0, &expected, "compacted");
    assert_eq!(volume.compact().unwrap(), 0, "nothing is due any more");
    volume.close().unwrap();
    let after = survey(&bucket.at("v"), None, true).unwrap();
    assert_eq!((after.region_objects_max, after.damaged_blocks), (1, 0));
    let view = View::open(&bucket.at("v"), None, &options()).unwrap();
    bucket.conduct.bulk.gets.store(0, Ordering::Relaxed);
    // Not in order, which would start a read-ahead.
    for region in (0..4).rev() {
        view.read_at(region << 22, &mut vec![0; 4 * MIB]).unwrap();
        let gets = bucket.conduct.bulk.gets.swap(0, Ordering::Relaxed);
        assert!((1..=2).contains(&gets), "region {region}: {gets} gets of up to 2 MiB");
    }
    assert_read(&view, 0, &expected, "viewed");
}

#[test]
fn quiet_regions_are_compacted_while_others_are_written() {
    let bucket = Bucket::new();
    create(&bucket, "v", 32 << 20);
    let options = bulk_options().compact_after(Duration::from_millis(30));
    let volume = Volume::open(&bucket.at("v"), &options).unwrap();
    let mut expected = write_at_random(&volume, 16 << 20, 2);
    for _ in 0..10 {
        volume.write_at(20 << 20, &[9; 8192]).unwrap();
        volume.write_at(100, b"and a part of a compacted region").unwrap();
        volume.flush().unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    let objects_max = || {
        volume.flush().unwrap();
        survey(&bucket.another().at("v"), None, false).unwrap().region_objects_max
    };
    while objects_max() > 1 {
        std::thread::sleep(Duration::from_millis(200));
    }
    expected[100..132].copy_from_slice(b"and a part of a compacted region");
    assert_read(&volume, 0, &expected, "compacted");
    volume.close().unwrap();
    assert_read(&opened(&bucket), 0, &expected, "opened again");
}
