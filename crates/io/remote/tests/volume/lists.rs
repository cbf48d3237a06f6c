//! Stale lists: the bucket shows an older state of its names to some requests.

use std::time::Duration;

use disk::BlockDevice;
use diskwright_remote::volume::{
    View, Volume, VolumeError, clone, collect, delete, snapshot, snapshots, survey,
};

use super::device::create;
use crate::volume::bucket::{Bucket, bulk_options, options};

const LEN: u64 = 64 << 20;
const DATA_BYTES: usize = 64 << 10;

/// Sets of stale lists: each one alone, the first ones, and all.
fn stale_lists() -> impl Iterator<Item = u64> {
    let count = testkit::effort(16, 32, 64);
    (0..count)
        .map(|list| 1 << list)
        .chain((1..count).step_by(3).map(|last| (1 << last) - 1))
        .chain([!0])
}

fn write(bucket: &Bucket, byte: u8) {
    let volume = Volume::open(&bucket.another().at("v"), &bulk_options()).unwrap();
    volume.write_at(0, &[byte; DATA_BYTES]).unwrap();
    volume.close().unwrap();
}

fn contents(bucket: &Bucket, name: &str, snapshot: Option<&str>) -> u8 {
    let view = View::open(&bucket.another().at(name), snapshot, &options()).unwrap();
    let mut found = vec![0; DATA_BYTES];
    view.read_at(0, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == found[0]), "{name}: mixed contents");
    found[0]
}

/// The older state has neither the snapshot nor the clone, whose checkpoints must be found without a list.
#[test]
fn the_collector_removes_no_referenced_object() {
    for stale in stale_lists() {
        let bucket = Bucket::new();
        create(&bucket, "v", LEN);
        write(&bucket, 1);
        bucket.record_lists();
        snapshot(&bucket.at("v"), "s", false).unwrap();
        write(&bucket, 2);
        clone(&bucket.at("v"), None, &bucket.at("c"), false).unwrap();
        write(&bucket, 3);
        write(&bucket, 4);
        // An object is removed by the second run that finds it without references.
        for _ in 0..3 {
            bucket.conduct.lists.make_stale(stale);
            // A stale list may be an error, which changes nothing.
            let _ = collect(&bucket.at("v"), Duration::ZERO, false);
        }
        bucket.conduct.lists.make_stale(0);
        assert_eq!(contents(&bucket, "v", Some("s")), 1, "lists {stale:b}");
        assert_eq!(contents(&bucket, "c", None), 2, "lists {stale:b}");
        assert_eq!(contents(&bucket, "v", None), 4, "lists {stale:b}");
        for _ in 0..2 {
            collect(&bucket.at("v"), Duration::ZERO, false).unwrap();
        }
        assert_eq!(bucket.bulk_objects("v").len(), 3, "lists {stale:b}: only garbage is removed");
    }
}

/// The last synced writes are in log objects that the older state does not have.
#[test]
fn snapshots_and_clones_have_all_synced_writes() {
    let (mut taken, mut refused) = (0, 0);
    for stale in stale_lists() {
        for is_closed in [false, true] {
            let bucket = Bucket::new();
            create(&bucket, "v", LEN);
            let volume = Volume::open(&bucket.another().at("v"), &options()).unwrap();
            bucket.record_lists();
            volume.write_at(0, &[7; DATA_BYTES]).unwrap();
            volume.flush().unwrap();
            if is_closed {
                volume.close().unwrap();
            }
            bucket.conduct.lists.make_stale(stale);
            let made = snapshot(&bucket.at("v"), "s", false);
            let cloned = clone(&bucket.at("v"), None, &bucket.at("c"), false);
            bucket.conduct.lists.make_stale(0);
            match made {
                Ok(()) => assert_eq!(contents(&bucket, "v", Some("s")), 7, "lists {stale:b}"),
                Err(_) => assert_eq!(snapshots(&bucket.at("v")).unwrap(), [], "lists {stale:b}"),
            }
            if cloned.is_ok() {
                assert_eq!(contents(&bucket, "c", None), 7, "lists {stale:b}");
                taken += 1;
            } else {
                refused += 1;
            }
            assert!(is_closed || cloned.is_err(), "lists {stale:b}: its log has synced writes");
        }
    }
    assert!(taken > 0 && refused > 0, "{taken} and {refused}");
}

#[test]
fn names_and_clones_are_found() {
    for stale in stale_lists() {
        let bucket = Bucket::new();
        create(&bucket, "v", LEN);
        write(&bucket, 1);
        bucket.record_lists();
        snapshot(&bucket.at("v"), "s", false).unwrap();
        clone(&bucket.at("v"), Some("s"), &bucket.at("c"), false).unwrap();
        write(&bucket, 2);
        bucket.conduct.lists.make_stale(stale);
        let again = snapshot(&bucket.at("v"), "s", false);
        assert!(matches!(again, Err(VolumeError::SnapshotExists(_))), "lists {stale:b}: {again:?}");
        bucket.conduct.lists.make_stale(stale);
        assert_eq!(snapshots(&bucket.at("v")).unwrap().len(), 1, "lists {stale:b}");
        bucket.conduct.lists.make_stale(stale);
        let deleted = delete(&bucket.at("v"));
        assert!(matches!(deleted, Err(VolumeError::Exists(_))), "lists {stale:b}: {deleted:?}");
        bucket.conduct.lists.make_stale(stale);
        if let Ok(survey) = survey(&bucket.at("v"), None, true) {
            assert_eq!(survey.problems, [""; 0], "lists {stale:b}");
        }
        bucket.conduct.lists.make_stale(0);
        assert_eq!(contents(&bucket, "c", None), 1, "lists {stale:b}");
        assert_eq!(contents(&bucket, "v", None), 2, "lists {stale:b}");
    }
}
