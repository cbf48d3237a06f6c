//! Snapshots and clones.

use disk::BlockDevice;
use diskwright_remote::volume::{
    View, Volume, VolumeError, clone, delete, list, snapshot, snapshots,
};

use super::device::create;
use crate::volume::bucket::{Bucket, options};

const LEN: u64 = 1 << 20;

fn write(bucket: &Bucket, name: &str, word: &[u8]) {
    let volume = Volume::open(&bucket.at(name), &options()).unwrap();
    volume.write_at(5000, word).unwrap();
    volume.close().unwrap();
}

fn read(bucket: &Bucket, name: &str, snapshot: Option<&str>) -> [u8; 3] {
    let mut found = [0; 3];
    let view = View::open(&bucket.at(name), snapshot, &options()).unwrap();
    view.read_at(5000, &mut found).unwrap();
    found
}

#[test]
fn a_snapshot_stays_what_it_was() {
    let bucket = Bucket::new();
    create(&bucket, "v", LEN);
    write(&bucket, "v", b"one");
    snapshot(&bucket.at("v"), "first", false).unwrap();
    write(&bucket, "v", b"two");
    let volume = Volume::open(&bucket.at("v"), &options()).unwrap();
    // A snapshot of an open volume contains unflushed writes, too.
    volume.write_at(5000, b"unf").unwrap();
    volume.snapshot("second").unwrap();
    volume.write_at(5000, b"end").unwrap();
    volume.close().unwrap();
    assert_eq!(&read(&bucket, "v", Some("first")), b"one");
    assert_eq!(&read(&bucket, "v", Some("second")), b"unf");
    assert_eq!(&read(&bucket, "v", None), b"end");
    let names: Vec<_> = snapshots(&bucket.at("v")).unwrap().into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["first", "second"]);
    let again = snapshot(&bucket.at("v"), "first", false);
    assert!(matches!(again, Err(VolumeError::SnapshotExists(_))));
    let none = View::open(&bucket.at("v"), Some("third"), &options());
    assert!(matches!(none, Err(VolumeError::NoSnapshot(_))));
    for name in ["", "a b", "a/b", "a@b"] {
        let refused = snapshot(&bucket.at("v"), name, false);
        assert!(matches!(refused, Err(VolumeError::SnapshotName(_))), "{name}");
    }
}

#[test]
fn a_snapshot_of_what_is_open_elsewhere_leaves_nothing_out() {
    let bucket = Bucket::new();
    create(&bucket, "v", LEN);
    let elsewhere = Volume::open(&bucket.another().at("v"), &options()).unwrap();
    elsewhere.write_at(5000, b"new").unwrap();
    elsewhere.flush().unwrap();
    let refused = snapshot(&bucket.at("v"), "s", false);
    assert!(matches!(refused, Err(VolumeError::NotSettled)));
    elsewhere.flush().unwrap();
    elsewhere.write_at(5003, b"!").unwrap();
    elsewhere.flush().unwrap();
    snapshot(&bucket.at("v"), "s", true).unwrap();
    assert_eq!(&read(&bucket, "v", Some("s")), b"new");
    elsewhere.write_at(5000, b"no!").and_then(|()| elsewhere.flush()).unwrap_err();
}

#[test]
fn clones_are_independent() {
    let bucket = Bucket::new();
    create(&bucket, "a/v", LEN);
    write(&bucket, "a/v", b"one");
    snapshot(&bucket.at("a/v"), "s", false).unwrap();
    write(&bucket, "a/v", b"two");
    clone(&bucket.at("a/v"), Some("s"), &bucket.at("a/old"), false).unwrap();
    clone(&bucket.at("a/v"), None, &bucket.at("a/new"), false).unwrap();
    assert_eq!(&read(&bucket, "a/old", None), b"one");
    assert_eq!(&read(&bucket, "a/new", None), b"two");
    write(&bucket, "a/old", b"old");
    write(&bucket, "a/v", b"ori");
    assert_eq!(&read(&bucket, "a/old", None), b"old");
    assert_eq!(&read(&bucket, "a/new", None), b"two");
    assert_eq!(&read(&bucket, "a/v", None), b"ori");
    assert_eq!(list(&bucket.at("a")).unwrap(), ["new", "old", "v"]);
    // The origin is needed by its clones.
    assert!(matches!(delete(&bucket.at("a/v")), Err(VolumeError::Exists(_))));
    let taken = clone(&bucket.at("a/v"), None, &bucket.at("a/new"), false);
    assert!(matches!(taken, Err(VolumeError::Exists("a volume"))));
    delete(&bucket.at("a/old")).unwrap();
    delete(&bucket.at("a/new")).unwrap();
    assert_eq!(&read(&bucket, "a/v", Some("s")), b"one");
    delete(&bucket.at("a/v")).unwrap();
    let mut elsewhere = bucket.at("b");
    elsewhere.address = "memory://other/b".into();
    let other = clone(&bucket.at("a/v"), None, &elsewhere, false);
    assert!(matches!(other, Err(VolumeError::OtherBucket(_))));
}
