//! The garbage collector, and counts and checks of a volume.

use std::time::Duration;

use disk::BlockDevice;
use diskwright_remote::volume::{
    GarbageCount, View, Volume, VolumeError, clone, collect, delete, snapshot, survey,
};
use object_store::ObjectStoreExt;
use remote::place::runtime::block_on;

use super::device::create;
use crate::volume::bucket::{Bucket, bulk_options, options};

const LEN: u64 = 64 << 20;
const DATA_BYTES: usize = 1 << 20;

/// Opens the volume, writes bulk data and closes it.
fn write(bucket: &Bucket, name: &str, offset: u64, byte: u8) {
    let volume = Volume::open(&bucket.at(name), &bulk_options()).unwrap();
    volume.write_at(offset, &vec![byte; DATA_BYTES]).unwrap();
    volume.close().unwrap();
}

fn assert_contents(bucket: &Bucket, name: &str, snapshot: Option<&str>, offset: u64, byte: u8) {
    let view = View::open(&bucket.at(name), snapshot, &options()).unwrap();
    let mut found = vec![0; DATA_BYTES];
    view.read_at(offset, &mut found).unwrap();
    assert!(found.iter().all(|it| *it == byte), "{name}: {byte}");
}

/// Runs the collector twice, because an object must be on an earlier list. Returns the second result.
fn collected(bucket: &Bucket, name: &str) -> GarbageCount {
    collect(&bucket.at(name), Duration::ZERO, false).unwrap();
    collect(&bucket.at(name), Duration::ZERO, false).unwrap()
}

#[test]
fn objects_of_earlier_epochs_without_references_are_removed() {
    let bucket = Bucket::new();
    create(&bucket, "v", LEN);
    for byte in 1..=3 {
        write(&bucket, "v", 0, byte);
    }
    let at = bucket.at("v");
    // Epochs 1 and 2 are garbage, and 3 is the newest one.
    let first = collect(&at, Duration::from_secs(3600), false).unwrap();
    assert_eq!((first.objects, first.waiting, first.removed), (3, 2, 0));
    let young = collect(&at, Duration::from_secs(3600), false).unwrap();
    assert_eq!((young.waiting, young.removed), (2, 0), "the first list is too young");
    let second = collect(&at, Duration::ZERO, false).unwrap();
    assert_eq!((second.waiting, second.removed), (0, 2));
    assert_eq!(second.removed_bytes, 2 * DATA_BYTES as u64);
    assert_contents(&bucket, "v", None, 0, 3);
    // The last epoch is that of a writer that may be open, unless another one begins.
    let volume = Volume::open(&at, &options()).unwrap();
    volume.discard(0, DATA_BYTES as u64).unwrap();
    volume.close().unwrap();
    assert_eq!(collected(&bucket, "v").removed, 0);
    collect(&at, Duration::ZERO, true).unwrap();
    assert_eq!(collect(&at, Duration::ZERO, false).unwrap().removed, 1);
    assert!(bucket.bulk_objects("v").is_empty());
}

#[test]
fn snapshots_keep_their_objects() {
    let bucket = Bucket::new();
    create(&bucket, "v", LEN);
    write(&bucket, "v", 0, 1);
    snapshot(&bucket.at("v"), "s", false).unwrap();
    for byte in 2..=4 {
        write(&bucket, "v", 0, byte);
    }
    assert_eq!(collected(&bucket, "v").removed, 2);
    assert_contents(&bucket, "v", Some("s"), 0, 1);
    assert_contents(&bucket, "v", None, 0, 4);
}

#[test]
fn a_collector_removes_nothing_of_an_open_volume() {
    let bucket = Bucket::new();
    create(&bucket, "v", LEN);
    write(&bucket, "v", 0, 1);
    let volume = Volume::open(&bucket.at("v"), &bulk_options()).unwrap();
    for byte in 2..=4 {
        volume.write_at(0, &vec![byte; DATA_BYTES]).unwrap();
        volume.flush().unwrap();
        // The tables may be older than the log, so the first object may still be in use.
        let count = collected(&bucket.another(), "v");
        assert!(count.removed <= 1, "{count:?}");
        volume.write_at(8 << 20, &vec![byte; DATA_BYTES]).unwrap();
    }
    volume.close().unwrap();
    assert_contents(&bucket, "v", None, 0, 4);
    assert_contents(&bucket, "v", None, 8 << 20, 4);
}

#[test]
fn clones_pin_the_objects_of_their_origin() {
    let bucket = Bucket::new();
    create(&bucket, "v", LEN);
    write(&bucket, "v", 0, 1);
    clone(&bucket.at("v"), None, &bucket.at("c"), false).unwrap();
    for byte in 2..=3 {
        write(&bucket, "v", 0, byte);
    }
    assert_eq!(collected(&bucket, "v").removed, 1, "that of epoch 2");
    assert_contents(&bucket, "c", None, 0, 1);
    // The collector of the clone leaves the objects of the origin alone.
    write(&bucket, "c", 4 << 20, 7);
    write(&bucket, "c", 4 << 20, 8);
    let count = collected(&bucket, "c");
    assert_eq!((count.objects, count.removed), (2, 1));
    assert_contents(&bucket, "c", None, 0, 1);
    assert_contents(&bucket, "v", None, 0, 3);
    let names = diskwright_remote::volume::snapshots(&bucket.at("v")).unwrap();
    assert_eq!(names, [], "pins are no snapshots");
    assert!(matches!(delete(&bucket.at("v")), Err(VolumeError::Exists(_))));
    delete(&bucket.at("c")).unwrap();
    assert!(bucket.bulk_objects("c").is_empty());
    assert_eq!(collected(&bucket, "v").removed, 1, "the pin is removed with the clone");
    delete(&bucket.at("v")).unwrap();
    assert!(bucket.bulk_objects("v").is_empty());
}

#[test]
fn surveys_count_both_kinds_and_find_damage() {
    let bucket = Bucket::new();
    create(&bucket, "v", LEN);
    write(&bucket, "v", 0, 1);
    write(&bucket, "v", 512 << 10, 2);
    let at = bucket.at("v");
    let volume = Volume::open(&at, &options()).unwrap();
    volume.write_at(0, &[3; 8192]).unwrap();
    volume.close().unwrap();
    let sound = survey(&at, None, true).unwrap();
    assert_eq!(sound.len, LEN);
    assert_eq!(sound.database_bytes, 8192);
    assert_eq!(sound.bulk_bytes, (3 << 19) - 8192);
    assert_eq!((sound.objects, sound.objects_bytes), (2, 2 << 20));
    assert_eq!((sound.unreferenced, sound.region_objects_max), (0, 2));
    assert_eq!((sound.damaged_blocks, sound.problems.len()), (0, 0));
    let paths = bucket.bulk_objects("v");
    let [first, second] = [0, 1].map(|index| &paths[index]);
    let mut contents = vec![1; DATA_BYTES];
    contents[20 << 12] = 9;
    block_on(at.store.put(first, contents.into())).unwrap();
    assert_eq!(survey(&at, None, false).unwrap(), sound, "the size is right");
    let damaged = survey(&at, None, true).unwrap();
    assert_eq!(damaged.damaged_blocks, 1, "{:?}", damaged.problems);
    assert!(damaged.problems[0].contains("block 20: wrong checksum"), "{:?}", damaged.problems);
    block_on(at.store.delete(second)).unwrap();
    let damaged = survey(&at, None, false).unwrap();
    assert_eq!((damaged.damaged_blocks, damaged.problems.len()), (256, 100));
    assert!(damaged.problems[0].contains("is missing"), "{:?}", damaged.problems);
    block_on(at.store.put(first, vec![1; 4096].into())).unwrap();
    let damaged = survey(&at, None, false).unwrap();
    assert_eq!(damaged.damaged_blocks, sound.bulk_bytes / 4096);
    assert!(damaged.problems[0].contains("has 4096 bytes"), "{:?}", damaged.problems);
}

#[test]
fn a_writer_removes_its_own_objects() {
    let bucket = Bucket::new();
    create(&bucket, "v", LEN);
    write(&bucket, "v", 0, 1);
    let volume = Volume::open(&bucket.at("v"), &bulk_options()).unwrap();
    for byte in 2..=4 {
        volume.write_at(0, &vec![byte; DATA_BYTES]).unwrap();
        volume.flush().unwrap();
    }
    volume.snapshot("s").unwrap();
    volume.write_at(0, &vec![5; DATA_BYTES]).unwrap();
    volume.flush().unwrap();
    // The last object is put, but its references are not in the log yet.
    let conduct = &bucket.conduct.bulk;
    conduct.close_gate(1);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            volume.write_at(8 << 20, &vec![6; DATA_BYTES]).unwrap();
            volume.flush().unwrap();
        });
        conduct.wait_for_waiting(1);
        assert_eq!(volume.collect(Duration::ZERO).unwrap().waiting, 3);
        assert_eq!(volume.collect(Duration::ZERO).unwrap().removed, 3);
        conduct.open_gate(1);
        writing.join().unwrap();
    });
    let second = Volume::open(&bucket.another().at("v"), &options()).unwrap();
    assert!(volume.collect(Duration::ZERO).is_err(), "a fenced writer removes nothing");
    second.close().unwrap();
    drop(volume);
    assert_contents(&bucket, "v", None, 0, 5);
    assert_contents(&bucket, "v", None, 8 << 20, 6);
    assert_contents(&bucket, "v", Some("s"), 0, 4);
}
