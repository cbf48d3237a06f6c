//! Two machines use one volume: exactly one can continue.

use std::sync::atomic::Ordering;

use disk::BlockDevice;
use diskwright_remote::volume::{NewVolume, View, Volume, VolumeError, clone, list};

use super::device::create;
use crate::volume::bucket::{Bucket, bulk_options, options};

const LEN: u64 = 1 << 20;

#[test]
fn the_last_opener_owns_the_volume_and_the_other_fails() {
    let first_way = Bucket::new();
    let second_way = first_way.another();
    create(&first_way, "v", LEN);
    let first = Volume::open(&first_way.at("v"), &options()).unwrap();
    first.write_at(0, b"synced").unwrap();
    first.flush().unwrap();
    first.write_at(0, b"later!").unwrap();
    let second = Volume::open(&second_way.at("v"), &options()).unwrap();
    let mut found = [0; 6];
    second.read_at(0, &mut found).unwrap();
    // Unsynced writes are sent a few seconds later, so on a slow machine they may be there.
    assert!([b"synced", b"later!"].contains(&&found), "{found:?}");
    // A flush without unsent writes succeeds: all writes are durable.
    let written = first.write_at(0, b"latest").and_then(|()| first.flush());
    let told = written.unwrap_err().to_string();
    assert!(told.contains("taken over by another machine"), "{told}");
    assert!(told.contains("memory://bucket/v"), "{told}");
    // The failure is permanent.
    for _ in 0..2 {
        let told = first.write_at(4096, b"more").unwrap_err().to_string();
        assert!(told.contains("another machine"), "{told}");
        assert!(first.flush().is_err());
    }
    second.write_at(0, b"second").unwrap();
    second.flush().unwrap();
    drop(first);
    second.write_at(8, b"goes on").unwrap();
    second.close().unwrap();
    let mut found = [0; 15];
    View::open(&first_way.at("v"), None, &options()).unwrap().read_at(0, &mut found).unwrap();
    assert_eq!(&found, b"second\0\0goes on");
}

/// Concurrent opens may all fence each other; a later open succeeds.
#[test]
fn concurrent_openers_never_both_continue() {
    let works =
        |volume: &Volume| volume.write_at(0, &[1; 512]).and_then(|()| volume.flush()).is_ok();
    for round in 0..testkit::effort(3, 20, 200) {
        let bucket = Bucket::new();
        create(&bucket, "v", LEN);
        let opened: Vec<_> = std::thread::scope(|scope| {
            let open = |_| {
                let way = bucket.another();
                scope.spawn(move || Volume::open(&way.at("v"), &options()))
            };
            let openers: Vec<_> = (0..4).map(open).collect();
            openers.into_iter().map(|opener| opener.join().unwrap()).collect()
        });
        // Openers that were fenced during the open have failed already.
        let volumes: Vec<_> = opened.into_iter().flatten().collect();
        let working = volumes.iter().filter(|volume| works(volume)).count();
        assert!(working <= 1, "round {round}: {working}");
        let last = Volume::open(&bucket.at("v"), &options()).unwrap();
        assert!(works(&last), "round {round}");
        assert!(!volumes.iter().any(works), "round {round}");
        assert!(works(&last), "round {round}");
    }
}

#[test]
fn readers_fence_no_writer() {
    let bucket = Bucket::new();
    create(&bucket, "v", LEN);
    let volume = Volume::open(&bucket.at("v"), &options()).unwrap();
    volume.write_at(0, b"one").unwrap();
    volume.flush().unwrap();
    let view = View::open(&bucket.another().at("v"), None, &options()).unwrap();
    volume.write_at(0, b"two").unwrap();
    volume.flush().unwrap();
    let mut found = [0; 3];
    view.read_at(0, &mut found).unwrap();
    assert_eq!(&found, b"one", "what was synced before it was opened, and no more");
    volume.write_at(0, b"and").unwrap();
    volume.close().unwrap();
}

/// A second writer opens while a put of the first one waits: before the store executes it, or before its answer.
#[test]
fn a_bulk_put_of_a_fenced_writer_changes_nothing() {
    for gate in [0, 1] {
        let bucket = Bucket::new();
        create(&bucket, "v", LEN);
        let first = Volume::open(&bucket.at("v"), &bulk_options()).unwrap();
        first.write_at(0, &[1; 65536]).unwrap();
        first.flush().unwrap();
        let conduct = &bucket.conduct.bulk;
        conduct.close_gate(gate);
        let way = bucket.another();
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                first.write_at(0, &[2; 65536]).unwrap();
                first.flush().unwrap_err().to_string()
            });
            conduct.wait_for_waiting(1);
            let second = Volume::open(&way.at("v"), &bulk_options()).unwrap();
            let mut found = [0; 65536];
            second.read_at(0, &mut found).unwrap();
            assert!(found == [1; 65536], "gate {gate}: the synced state");
            second.write_at(4096, &[3; 8192]).unwrap();
            second.flush().unwrap();
            conduct.open_gate(gate);
            let told = writing.join().unwrap();
            assert!(told.contains("taken over by another machine"), "{told}");
            second.close().unwrap();
        });
        assert_eq!(conduct.puts.load(Ordering::Relaxed), 2, "the late put was executed");
        assert!(first.write_at(0, &[4; 65536]).is_err());
        drop(first);
        let mut found = [0; 65536];
        View::open(&bucket.at("v"), None, &options()).unwrap().read_at(0, &mut found).unwrap();
        let mut expected = [1; 65536];
        expected[4096..12288].fill(3);
        assert!(found == expected, "gate {gate}");
        // Epochs of the two writers differ, so the collector can tell their objects apart.
        let paths = bucket.bulk_objects("v");
        let of = |epoch: &str| paths.iter().filter(|path| path.as_ref().starts_with(epoch)).count();
        assert_eq!((of("v/bulk/1/"), of("v/bulk/2/")), (2, 1), "{paths:?}");
    }
}

/// The first writer has not recorded its epoch when the second one does, so it puts nothing.
#[test]
fn a_writer_that_was_fenced_before_its_first_bulk_write_puts_no_object() {
    let bucket = Bucket::new();
    create(&bucket, "v", LEN);
    let first = Volume::open(&bucket.at("v"), &bulk_options()).unwrap();
    let way = bucket.another();
    let second = Volume::open(&way.at("v"), &bulk_options()).unwrap();
    second.write_at(0, &[2; 65536]).unwrap();
    second.flush().unwrap();
    first.write_at(0, &[1; 65536]).unwrap();
    let told = first.flush().unwrap_err().to_string();
    assert!(told.contains("taken over by another machine"), "{told}");
    assert_eq!(bucket.conduct.bulk.puts.load(Ordering::Relaxed), 0);
    second.close().unwrap();
    assert_eq!(bucket.bulk_objects("v").len(), 1);
}

/// Such a store would have several writers.
#[test]
fn a_store_that_ignores_conditions_gets_no_volume() {
    let bucket = Bucket::new();
    create(&bucket, "a/v", LEN);
    bucket.conduct.ignores_conditions.store(true, Ordering::Relaxed);
    let new = NewVolume::create(&bucket.at("a/new"), LEN, &options()).unwrap();
    assert!(matches!(new.finish(), Err(VolumeError::NoConditions)));
    let cloned = clone(&bucket.at("a/v"), None, &bucket.at("a/clone"), false);
    assert!(matches!(cloned, Err(VolumeError::NoConditions)), "{cloned:?}");
    assert_eq!(list(&bucket.at("a")).unwrap(), ["v"]);
}
