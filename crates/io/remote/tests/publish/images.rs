//! Published images are read, share chunks, and are swept.

use std::sync::Arc;

use disk::BlockDevice;
use object_store::local::LocalFileSystem;
use remote::place::lazy::{LazyDevice, LazyOptions, RangeSource};
use remote::publish::{Error, Facts, NoPublishReports, Options, is_manifest};

use crate::publish::sample::{
    CHUNK, assert_whole, contents, device, image, location, options, publish_as, read, sweep,
};
use crate::publish::store::Watched;

#[test]
fn a_published_image_is_read() {
    let store = Watched::new();
    let report = publish_as(&store, "abc..a.d", "web").unwrap();
    assert_eq!((report.chunks, report.chunks_stored), (8, 5));
    assert_eq!((report.chunks_distinct, report.chunks_sent), (4, 4));
    let marks: u64 = 0;
    assert_eq!(report.bytes_sent + marks, store.bytes_put());
    assert_eq!(store.objects("/chunks/").len(), 4);
    assert_eq!(store.objects("/marks/").len(), 0);
    assert!(store.objects("/names/").iter().all(|(_, body)| is_manifest(&body[..8])));
    assert!(store.objects("/manifests/").iter().all(|(_, body)| is_manifest(&body[..8])));
    assert!(read(&store, "web").unwrap() == contents("abc..a.d"));
    assert_whole(&store, "published");
}

#[test]
fn every_range_is_that_of_the_image() {
    let store = Watched::new();
    let mut bytes = contents("ab.c.d");
    bytes.truncate(5 * CHUNK + 100);
    let at = location(store.clone(), "");
    remote::publish::publish(
        device(&bytes),
        &at,
        "odd",
        Facts::default(),
        &options(),
        &NoPublishReports,
    )
    .unwrap();
    let image = remote::publish::open(&location(store, "names/odd")).unwrap();
    let len = bytes.len() as u64;
    assert_eq!(image.manifest().image_bytes(), len);
    for start in 0..6 {
        for end in start..=6 {
            let found = remote::place::runtime::block_on(image.read(start..end)).unwrap();
            let expected = bytes.chunks(CHUNK).take(end as usize).skip(start as usize);
            assert!(expected.eq(found), "{start}..{end}");
        }
    }
    let past = remote::place::runtime::block_on(image.read(0..7)).unwrap_err();
    assert!(matches!(past, Error::Usage(_)), "{past}");
}

#[test]
fn only_what_changed_is_sent() {
    let store = Watched::new();
    publish_as(&store, "abcdefgh", "one").unwrap();
    let again = publish_as(&store, "abcdefgh", "one").unwrap();
    assert_eq!((again.chunks_sent, again.bytes_sent), (0, 0));
    let changed = publish_as(&store, "abXdefgh", "one").unwrap();
    assert_eq!(changed.chunks_sent, 1);
    // Another name has no previous manifest, so the store is asked for each chunk.
    let other = publish_as(&store, "habXq", "two").unwrap();
    assert_eq!(other.chunks_sent, 1);
    assert!(read(&store, "one").unwrap() == contents("abXdefgh"));
    assert!(read(&store, "two").unwrap() == contents("habXq"));
}

#[test]
fn many_chunks_are_listed_instead_of_requested_singly() {
    let store = Watched::new();
    let mut bytes = contents(&".".repeat(600));
    bytes
        .chunks_mut(CHUNK)
        .zip(1_u32..)
        .for_each(|(chunk, n)| chunk[..4].copy_from_slice(&n.to_le_bytes()));
    let publish = |store: Watched, bytes: &[u8], name| {
        let at = location(store, "images");
        remote::publish::publish(
            device(bytes),
            &at,
            name,
            Facts::default(),
            &options(),
            &NoPublishReports,
        )
        .unwrap()
    };
    assert_eq!(publish(store.clone(), &bytes, "one").chunks_sent, 600);
    bytes[8] = 1;
    let watched = store.seen_by(|_, _, _| crate::publish::store::Verdict::Serve);
    assert_eq!(publish(watched.clone(), &bytes, "two").chunks_sent, 1);
    assert!(watched.requests() < 280, "{} requests", watched.requests());
    assert!(read(&store, "two").unwrap() == bytes);
}

#[test]
fn a_directory_is_a_store_too() {
    let directory = tempfile::tempdir().unwrap();
    let store = || LocalFileSystem::new_with_prefix(directory.path()).unwrap();
    let facts = Facts { format: "ext4".into(), label: "röt".into(), ..Facts::default() };
    let order = vec![3 * CHUNK as u64..4 * CHUNK as u64, 0..5000, 1 << 40..1 << 41];
    let options = Options { order, ..options() };
    let at = location(store(), "pub");
    let report = remote::publish::publish(
        image("abcd"),
        &at,
        "x",
        facts.clone(),
        &options,
        &NoPublishReports,
    )
    .unwrap();
    let image = remote::publish::open(&location(store(), "pub/names/x")).unwrap();
    assert_eq!((image.identity(), image.manifest().facts()), (&*report.manifest, &facts));
    assert_eq!(image.manifest().order(), [3, 0, 1]);
    assert_eq!(image.order().next(), Some(3 * CHUNK as u64..4 * CHUNK as u64));
    let by_digest =
        remote::publish::open(&location(store(), &format!("pub/manifests/{}", report.manifest)));
    let read = remote::place::runtime::block_on(by_digest.unwrap().read(0..4)).unwrap();
    assert!(read.concat() == contents("abcd"));
    let options = remote::publish::SweepOptions {
        older_than: std::time::Duration::ZERO,
        ..Default::default()
    };
    assert_eq!(remote::publish::sweep(&at, &options).unwrap().chunks_kept, 4);
}

#[test]
fn old_unreferenced_objects_are_removed() {
    let store = Watched::new();
    publish_as(&store, "abcd", "one").unwrap();
    store.hours_pass(30);
    publish_as(&store, "cdef", "one").unwrap();
    // The previous manifest is old and has no name; chunks e and f are recent.
    let swept = sweep(&store, 24).unwrap();
    assert_eq!((swept.manifests_kept, swept.manifests_removed), (1, 1));
    assert_eq!((swept.chunks_kept, swept.chunks_removed), (4, 2));
    assert!(read(&store, "one").unwrap() == contents("cdef"));
    assert_whole(&store, "swept");
    let [(name, _)] = &*store.objects("/names/") else { panic!("one name") };
    store.change(name, None);
    let kept = sweep(&store, 24).unwrap();
    assert_eq!((kept.manifests_removed, kept.chunks_removed), (0, 0), "of their age");
    store.hours_pass(30);
    assert_eq!(sweep(&store, 24).unwrap().chunks_removed, 4);
    assert_eq!(store.objects("").len(), 0);
}

#[test]
fn a_dry_run_removes_nothing() {
    let store = Watched::new();
    publish_as(&store, "abcd", "one").unwrap();
    publish_as(&store, "cdef", "one").unwrap();
    store.hours_pass(30);
    let objects = store.objects("").len();
    let options = remote::publish::SweepOptions { dry_run: true, ..Default::default() };
    let swept = remote::publish::sweep(&location(store.clone(), "images"), &options).unwrap();
    assert_eq!((swept.manifests_removed, swept.chunks_removed), (1, 2));
    assert_eq!(store.objects("").len(), objects);
}

#[test]
fn invalid_names_and_chunk_sizes_are_refused() {
    let store = Watched::new();
    assert!(matches!(publish_as(&store, "a", "no/name"), Err(Error::Usage(_))));
    let at = location(store.clone(), "");
    let odd = Options { chunk_bytes: 5000, ..options() };
    let refused =
        remote::publish::publish(image("a"), &at, "x", Facts::default(), &odd, &NoPublishReports);
    assert!(matches!(refused, Err(Error::Usage(_))));
    assert_eq!(store.requests(), 0);
    assert!(matches!(read(&store, "absent"), Err(Error::Missing { .. })));
}

#[test]
fn a_published_image_is_a_device_that_is_read_lazily() {
    let store = Watched::new();
    publish_as(&store, "ab..cd", "web").unwrap();
    let image = remote::publish::open(&location(store.clone(), "images/names/web")).unwrap();
    let device = LazyDevice::new(Arc::new(image), LazyOptions::default());
    let mut found = vec![0; 6 * CHUNK];
    device.read_at(0, &mut found).unwrap();
    assert!(found == contents("ab..cd"));
    let chunk = store.objects("/chunks/").remove(0).0;
    store.change(&chunk, None);
    let image = remote::publish::open(&location(store, "images/names/web")).unwrap();
    let device = LazyDevice::new(Arc::new(image), LazyOptions::default());
    let error = device.read_at(0, &mut found).unwrap_err().to_string();
    assert!(error.contains(chunk.as_ref()) && error.contains("missing"), "{error}");
}
