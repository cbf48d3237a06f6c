//! Buckets that fail intermittently, are slow, or become unreachable.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::BlockDevice;
use diskwright_remote::volume::{View, Volume, VolumeError};
use object_store::ObjectStoreExt;

use super::device::create;
use super::file_system::{Fs, get, judge, put};
use crate::volume::bucket::{Bucket, options};

#[test]
fn requests_that_fail_once_are_retried() {
    testkit::require!(Tool("e2fsck"));
    let bucket = Bucket::new();
    Fs::Ext4.make(&bucket);
    bucket.conduct.fails_one_in.store(5, Ordering::Relaxed);
    let volume = Volume::open(&bucket.at("v"), &options()).unwrap();
    let open = Fs::Ext4.open(Arc::new(volume)).unwrap();
    for number in 0..15 {
        let ino = put(open.fs(), &format!("{number}"), &[number; 5000]).unwrap();
        open.fs().fsync(ino).unwrap();
    }
    open.close().unwrap();
    let after = bucket.another();
    judge(&after, "after failures");
    let volume = Volume::open(&after.at("v"), &options()).unwrap();
    let open = Fs::Ext4.open(Arc::new(volume)).unwrap();
    for number in 0..15 {
        assert_eq!(get(open.fs(), &format!("{number}")).unwrap(), [number; 5000]);
    }
}

/// Without retries of the log's requests, one of the openings fails.
#[test]
fn a_log_is_read_despite_failed_requests() {
    let bucket = Bucket::new();
    create(&bucket, "v", 1 << 20);
    for fails_one_in in 5..=12 {
        let volume = Volume::open(&bucket.at("v"), &options()).unwrap();
        volume.write_at(0, &[1; 4096]).unwrap();
        volume.flush().unwrap();
        // The write stays in the log, because the volume is not closed.
        std::mem::forget(volume);
        let next = bucket.another();
        next.conduct.fails_one_in.store(fails_one_in, Ordering::Relaxed);
        Volume::open(&next.at("v"), &options()).unwrap().close().unwrap();
    }
}

#[test]
fn a_lost_bucket_is_a_permanent_error() {
    let bucket = Bucket::new();
    create(&bucket, "v", 1 << 20);
    let volume = Volume::open(&bucket.at("v"), &options().retries(1)).unwrap();
    // Set before the write, because a background thread may send it.
    bucket.conduct.ends_at.store(1, Ordering::Relaxed);
    let _ = volume.write_at(0, &[1; 4096]);
    assert!(volume.flush().is_err());
    bucket.conduct.ends_at.store(0, Ordering::Relaxed);
    // The failure must persist, because the write was lost.
    assert!(volume.flush().is_err());
    assert!(volume.write_at(0, &[1; 4096]).is_err());
}

#[test]
fn a_slow_bucket_is_waited_for() {
    let bucket = Bucket::new();
    create(&bucket, "v", 1 << 20);
    bucket.conduct.delay_ms.store(300, Ordering::Relaxed);
    let volume = Volume::open(&bucket.at("v"), &options()).unwrap();
    volume.write_at(0, &[1; 4096]).unwrap();
    volume.flush().unwrap();
    bucket.conduct.delay_ms.store(0, Ordering::Relaxed);
}

#[test]
fn missing_or_changed_objects_are_damage_and_not_zeros() {
    let bucket = Bucket::new();
    create(&bucket, "v", 1 << 20);
    let volume = Volume::open(&bucket.at("v"), &options()).unwrap();
    volume.write_at(0, &[1; 1 << 19]).unwrap();
    volume.close().unwrap();
    let at = bucket.at("v");
    let tables = remote::place::runtime::block_on(async {
        use futures_util::TryStreamExt;
        let prefix = at.path.clone().join("db").join("compacted");
        at.store.list(Some(&prefix)).try_collect::<Vec<_>>().await.unwrap()
    });
    assert!(!tables.is_empty());
    for table in &tables {
        let cut = |bytes: &[u8]| {
            remote::place::runtime::block_on(at.store.put(&table.location, bytes.to_vec().into()))
        };
        cut(b"garbage").unwrap();
    }
    let found = View::open(&at, None, &options())
        .map_err(std::io::Error::from)
        .and_then(|view| view.read_at(0, &mut [0; 4096]));
    assert!(found.is_err());
    let marker = at.path.clone().join("diskwright-volume.json");
    let put = at.store.put(&marker, b"{}".to_vec().into());
    remote::place::runtime::block_on(put).unwrap();
    assert!(matches!(Volume::open(&at, &options()), Err(VolumeError::Damaged(_))));
}
