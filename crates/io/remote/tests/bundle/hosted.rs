//! Bundles of objects.

use std::sync::Arc;

use disk::BlockDevice;
use object_store::path::Path;
use parking_lot::Mutex;
use remote::bundle::make;
use remote::opening::{ImageToBundle, open_object};
use remote::place::lazy::LazyOptions;

use super::{BUNDLE, IMAGE, assert_reads, contents, failing, location, options, plan};
use crate::publish::store::{Verdict, Watched};

/// Returns a store with an image and its bundle.
fn stored() -> (Watched, Vec<u8>) {
    let (store, bytes) = (Watched::new(), contents(1));
    store.change(&Path::from(IMAGE), Some(bytes.clone()));
    bundle(&store);
    (store, bytes)
}

/// Makes the bundle of the image in the store.
fn bundle(store: &Watched) {
    let image = ImageToBundle::open(location(store, IMAGE), &options()).unwrap();
    let made = make(&*image.device, &plan(), &image.identity).unwrap();
    assert!(image.target().unwrap().to_string().ends_with(BUNDLE));
    image.store(made.bytes).unwrap();
}

fn open(store: &Watched) -> Arc<dyn BlockDevice> {
    open_object(location(store, IMAGE), &options()).unwrap().device
}

fn stored_bundle(store: &Watched) -> Vec<u8> {
    store.objects(BUNDLE).pop().unwrap().1.to_vec()
}

#[test]
fn metadata_come_from_the_bundle_and_data_from_the_image() {
    let (store, bytes) = stored();
    assert_reads(&*open(&store), &bytes, "with a bundle");
    // Metadata of the whole image with requests for the bundle only, after one for the image.
    let paths = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&paths);
    let watched = store.seen_by(move |_, _, path| {
        seen.lock().push(path.to_string());
        Verdict::Serve
    });
    let device = open(&watched);
    for range in plan().metadata.into_iter().chain(plan().start) {
        device.read_at(range.start, &mut vec![0; (range.end - range.start) as usize]).unwrap();
    }
    let of_image = paths.lock().iter().filter(|path| *path == IMAGE).count();
    assert_eq!(of_image, 1, "{:?}", paths.lock());
    // Without bundles it is not requested.
    paths.lock().clear();
    let without = LazyOptions { bundles: false, ..options() };
    let device = open_object(location(&watched, IMAGE), &without).unwrap().device;
    assert_reads(&*device, &bytes, "without bundles");
    assert!(paths.lock().iter().all(|path| path == IMAGE));
}

#[test]
fn damaged_and_truncated_bundles_are_not_used() {
    let (store, bytes) = stored();
    let good = stored_bundle(&store);
    let len = good.len();
    for at in [0, 9, 20, 60, 119, 121, 200, 400, 1000, 5000, len / 2, len - 1] {
        let mut damaged = good.clone();
        damaged[at] ^= 0x81;
        store.change(&Path::from(BUNDLE), Some(damaged));
        assert_reads(&*open(&store), &bytes, &format!("byte {at} is damaged"));
    }
    for rest in [0, 7, 100, 120, 500, 300_000, len - 1] {
        store.change(&Path::from(BUNDLE), Some(good[..rest].to_vec()));
        assert_reads(&*open(&store), &bytes, &format!("cut to {rest} bytes"));
    }
    let longer = [&good[..], b"more"].concat();
    store.change(&Path::from(BUNDLE), Some(longer));
    assert_reads(&*open(&store), &bytes, "too long");
    store.change(&Path::from(BUNDLE), None);
    assert_reads(&*open(&store), &bytes, "missing");
}

#[test]
fn a_bundle_of_another_version_or_image_is_not_used() {
    let (store, old) = stored();
    // The same length and the same first bytes: only the ETag differs.
    let mut new = old.clone();
    new[9 << 20] ^= 1;
    store.change(&Path::from(IMAGE), Some(new.clone()));
    assert_reads(&*open(&store), &new, "stale");
    bundle(&store);
    assert_reads(&*open(&store), &new, "made again");
    let other = Watched::new();
    other.change(&Path::from(IMAGE), Some(contents(2)));
    bundle(&other);
    store.change(&Path::from(BUNDLE), Some(stored_bundle(&other)));
    assert_reads(&*open(&store), &new, "of another image");
}

/// Each answer for the bundle after the first ones fails or is wrong. The bytes are right, whichever it is.
#[test]
fn a_store_that_fails_in_the_middle_of_a_bundle_is_replaced_by_the_image() {
    let (store, bytes) = stored();
    for verdict in [Verdict::Fail, Verdict::Refuse, Verdict::Short, Verdict::Damage] {
        for right in 0..6 {
            let watched = failing(&store, right, verdict);
            assert_reads(&*open(&watched), &bytes, &format!("{verdict:?} after {right}"));
        }
    }
}

/// The bundle is replaced after it was opened: its frames are of another bundle.
#[test]
fn a_bundle_that_is_replaced_while_in_use_is_not_mixed() {
    let (store, bytes) = stored();
    let device = open(&store);
    let mut first = [0; 4096];
    device.read_at(0, &mut first).unwrap();
    let other = Watched::new();
    other.change(&Path::from(IMAGE), Some(contents(3)));
    bundle(&other);
    store.change(&Path::from(BUNDLE), Some(stored_bundle(&other)));
    assert_reads(&*device, &bytes, "replaced bundle");
}
