//! Bundles of published images.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::BlockDevice;
use object_store::path::Path;
use remote::bundle::Plan;
use remote::opening::open_published;
use remote::publish::{Error, Facts, Manifest, NoPublishReports, Options, UploadReport};

use super::{LEN, assert_reads, contents, failing, options, plan};
use crate::publish::sample::{self, device, impatient, location};
use crate::publish::store::{Verdict, Watched};

fn publish(store: &Watched, bytes: &[u8], bundle: Option<Plan>) -> UploadReport {
    let how = Options {
        bundle,
        order: vec![3 << 20..4 << 20, 11 << 20..12 << 20],
        patience: impatient(),
        ..Options::default()
    };
    let at = location(store.clone(), "images");
    remote::publish::publish(device(bytes), &at, "web", Facts::default(), &how, &NoPublishReports)
        .unwrap()
}

#[track_caller]
fn assert_published(store: &Watched, expected: &[u8], when: &str) {
    let image = remote::publish::open(&location(store.clone(), "images/names/web")).unwrap();
    let place = open_published(image, &options());
    assert_reads(&*place.device, expected, when);
}

#[test]
fn a_manifest_names_its_bundle() {
    let (store, bytes) = (Watched::new(), contents(1));
    let without = publish(&store, &bytes, None);
    assert_eq!((without.bundle_bytes, store.objects("/bundles/").len()), (0, 0));
    let report = publish(&store, &bytes, Some(plan()));
    assert!(report.bundle_bytes > 0 && report.manifest != without.manifest);
    let (path, bundle) = store.objects("/bundles/").pop().unwrap();
    assert_eq!(bundle.len() as u64, report.bundle_bytes);
    let manifest = store.objects(&report.manifest).pop().unwrap().1;
    let digest = Manifest::parse(&manifest).unwrap().bundle().unwrap();
    assert_eq!(path.filename(), Some(&*digest.to_string()));
    assert_published(&store, &bytes, "published");
    // The same bundle, so nothing is sent.
    assert_eq!(publish(&store, &bytes, Some(plan())).bytes_sent, 0);
}

/// An image that another program changes must not get a bundle that contradicts its chunks.
#[test]
fn an_image_that_changes_while_its_bundle_is_made_is_refused() {
    struct Changing(Arc<dyn BlockDevice>, AtomicU64);

    impl BlockDevice for Changing {
        fn len(&self) -> u64 {
            self.0.len()
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            self.0.read_at(offset, buf)?;
            // The image is read once for its digests.
            if self.1.fetch_add(buf.len() as u64, Ordering::SeqCst) >= LEN {
                buf[0] ^= 1;
            }
            Ok(())
        }

        fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
            unreachable!("nothing is written")
        }

        fn zero_range(&self, _: u64, _: u64) -> io::Result<()> {
            unreachable!("nothing is written")
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    let store = Watched::new();
    let changing = Arc::new(Changing(device(&contents(1)), AtomicU64::new(0)));
    let how = Options { bundle: Some(plan()), patience: impatient(), ..Options::default() };
    let at = location(store.clone(), "images");
    let found =
        remote::publish::publish(changing, &at, "web", Facts::default(), &how, &NoPublishReports);
    assert!(matches!(found, Err(Error::ImageChanged { offset: 0 })), "{found:?}");
    assert!(store.objects("/names/").is_empty());
}

/// The bundle is the third request after the name and the manifest. Metadata need no chunk.
#[test]
fn metadata_need_no_chunks() {
    let (store, bytes) = (Watched::new(), contents(1));
    publish(&store, &bytes, Some(Plan { start: Vec::new(), ..plan() }));
    let watched = store.seen_by(|_, _, path| {
        assert!(!path.as_ref().contains("/chunks/"), "{path}");
        Verdict::Serve
    });
    let image = remote::publish::open(&location(watched.clone(), "images/names/web")).unwrap();
    let quiet = remote::place::lazy::LazyOptions { read_ahead_bytes: 0, ..options() };
    let place = open_published(image, &quiet);
    assert_eq!(watched.requests(), 3);
    let mut found = vec![0; 5000];
    place.device.read_at(4096, &mut found).unwrap();
    assert!(found == bytes[4096..9096]);
}

#[test]
fn a_bundle_that_is_damaged_missing_or_of_another_image_is_not_used() {
    let (store, bytes) = (Watched::new(), contents(1));
    publish(&store, &bytes, Some(plan()));
    let (path, good) = store.objects("/bundles/").pop().unwrap();
    let other = Watched::new();
    publish(&other, &contents(2), Some(plan()));
    let foreign = other.objects("/bundles/").pop().unwrap().1.to_vec();
    let mut damaged = good.to_vec();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let cases = [
        ("damaged", Some(damaged)),
        ("cut short", Some(good[..good.len() - 9].to_vec())),
        ("foreign", Some(foreign)),
        ("missing", None),
    ];
    for (when, body) in cases {
        store.change(&path, body);
        assert_published(&store, &bytes, when);
    }
    store.change(&path, Some(good.to_vec()));
    for verdict in [Verdict::Fail, Verdict::Refuse, Verdict::Short, Verdict::Damage] {
        for right in 0..4 {
            let watched = failing(&store, right, verdict);
            assert_published(&watched, &bytes, &format!("{verdict:?} after {right}"));
        }
    }
}

#[test]
fn bundles_are_swept_with_their_manifests() {
    let (store, bytes) = (Watched::new(), contents(1));
    publish(&store, &bytes, Some(plan()));
    let kept = store.objects("/bundles/");
    store.hours_pass(48);
    assert_eq!(sample::sweep(&store, 24).unwrap().bundles_removed, 0);
    let mut changed = bytes.clone();
    changed[9 << 20] ^= 1;
    publish(&store, &changed, Some(plan()));
    store.hours_pass(1);
    // The bundle of the previous manifest is old, and the new one has a name.
    let swept = sample::sweep(&store, 24).unwrap();
    assert_eq!((swept.bundles_removed, swept.manifests_removed), (1, 1));
    let left = store.objects("/bundles/");
    assert!(left.len() == 1 && left[0].0 != kept[0].0);
    assert_published(&store, &changed, "swept");
    store.change(&Path::from("images/names/web"), None);
    store.hours_pass(48);
    assert_eq!(sample::sweep(&store, 24).unwrap().bundles_removed, 1);
    assert!(store.objects("/bundles/").is_empty());
}
