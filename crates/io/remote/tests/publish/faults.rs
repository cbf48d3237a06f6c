//! Stores that fail, return wrong data or lose objects, and publishers that are killed.

use std::sync::atomic::{AtomicUsize, Ordering};

use object_store::path::Path;
use remote::publish::{Error, Facts, NoPublishReports, Options};

use crate::publish::sample::{
    assert_whole, contents, image, location, options, publish_as, read, sweep,
};
use crate::publish::store::{RequestKind, Verdict, Watched};

/// Returns a store with a published image that shares some chunks with the next one.
fn store() -> Watched {
    let store = Watched::new();
    publish_as(&store, "abcd", "one").unwrap();
    store
}

const NEXT: &str = "cd.efgha";

/// Returns the number of requests of the next publication.
fn requests_of_next() -> usize {
    let watched = store().seen_by(|_, _, _| Verdict::Serve);
    publish_as(&watched, NEXT, "one").unwrap();
    watched.requests()
}

#[test]
fn a_publisher_that_is_killed_goes_on_later() {
    let all = requests_of_next();
    assert!(all > 15, "{all}");
    // The last request removes the mark.
    for after in 0..all - 1 {
        let store = store();
        let killed = store.seen_by(
            move |number, _, _| {
                if number < after { Verdict::Serve } else { Verdict::Refuse }
            },
        );
        let when = format!("killed after {after} requests");
        assert!(publish_as(&killed, NEXT, "one").is_err(), "{when}");
        assert_whole(&store, &when);
        let chunks = store.objects("/chunks/").len();
        let report = publish_as(&store, NEXT, "one").unwrap();
        assert_eq!(report.chunks_sent as usize, 8 - chunks, "{when}: what was there is not sent");
        assert!(read(&store, "one").unwrap() == contents(NEXT), "{when}");
        assert_whole(&store, &when);
        // The mark of a killed publisher blocks gc for an hour at most.
        let is_dead_marked = !store.objects("/marks/").is_empty();
        assert_eq!(sweep(&store, 0).is_err(), is_dead_marked, "{when}");
        store.hours_pass(2);
        assert_eq!(sweep(&store, 0).unwrap().chunks_kept, 7, "{when}");
        assert_eq!(store.objects("/marks/").len(), 0, "{when}");
        assert!(read(&store, "one").unwrap() == contents(NEXT), "{when}");
    }
}

#[test]
fn a_request_that_fails_once_is_retried() {
    for failing in 0..requests_of_next() {
        let store = store();
        let failed = AtomicUsize::new(0);
        let flaky = store.seen_by(move |number, _, _| {
            let fails = number == failing && failed.fetch_add(1, Ordering::Relaxed) == 0;
            if fails { Verdict::Fail } else { Verdict::Serve }
        });
        publish_as(&flaky, NEXT, "one").unwrap_or_else(|e| panic!("request {failing}: {e}"));
        assert!(read(&store, "one").unwrap() == contents(NEXT), "request {failing}");
    }
}

#[test]
fn an_object_that_always_fails_is_named() {
    for part in ["/marks/", "/names/", "/manifests/", "/chunks/"] {
        let store = store();
        let failing = store.seen_by(move |_, request, path| {
            let fails = request == RequestKind::Put && path.as_ref().contains(part);
            if fails { Verdict::Fail } else { Verdict::Serve }
        });
        let error = publish_as(&failing, NEXT, "one").unwrap_err();
        assert!(matches!(error, Error::Store { operation: "put", .. }), "{error}");
        assert!(error.to_string().contains(part), "{error}");
        assert_whole(&store, part);
        assert!(read(&store, "one").unwrap() == contents("abcd"), "{part}");
    }
}

#[test]
fn bodies_that_are_damaged_on_their_way_are_fetched_again() {
    let store = store();
    for verdict in [Verdict::Short, Verdict::Damage, Verdict::Fail] {
        for part in ["/names/", "/manifests/", "/chunks/"] {
            let count = AtomicUsize::new(0);
            let flaky = store.seen_by(move |_, _, path| {
                let is_first =
                    path.as_ref().contains(part) && count.fetch_add(1, Ordering::Relaxed) == 0;
                if is_first { verdict } else { Verdict::Serve }
            });
            match read(&flaky, "one") {
                Ok(found) => assert!(found == contents("abcd"), "{verdict:?} of {part}"),
                // The object of a name has no digest, so other valid contents cannot be detected.
                Err(error) => assert_eq!((verdict, part), (Verdict::Damage, "/names/"), "{error}"),
            }
        }
    }
}

#[test]
fn permanent_damage_is_reported_by_name() {
    for verdict in [Verdict::Short, Verdict::Damage] {
        let store = store().seen_by(move |_, request, path| {
            let is_chunk = request == RequestKind::Get && path.as_ref().contains("/chunks/");
            if is_chunk { verdict } else { Verdict::Serve }
        });
        let error = read(&store, "one").unwrap_err().to_string();
        assert!(error.contains("images/chunks/"), "{error}");
    }
    let store = store();
    for (path, body) in store.objects("/chunks/") {
        for damaged in [None, Some(Vec::new()), Some(b"other".to_vec()), Some(vec![0; 1 << 20])] {
            let what = damaged.as_ref().map(Vec::len);
            store.change(&path, damaged);
            let error = read(&store, "one").unwrap_err();
            let is_right = match &error {
                Error::Missing { object, .. } => what.is_none() && object == path.as_ref(),
                Error::Damaged { object, .. } => what.is_some() && object == path.as_ref(),
                _ => false,
            };
            assert!(is_right, "{what:?}: {error}");
            assert!(error.to_string().contains("--resend"), "{error}");
        }
        store.change(&path, Some(body.to_vec()));
    }
    assert!(read(&store, "one").unwrap() == contents("abcd"));
}

#[test]
fn resending_repairs_damage() {
    let store = store();
    for (path, _) in store.objects("/chunks/") {
        store.change(&path, Some(b"damaged".to_vec()));
    }
    assert_eq!(publish_as(&store, "abcd", "one").unwrap().chunks_sent, 0);
    let options = Options { resend: true, ..options() };
    let at = location(store.clone(), "images");
    remote::publish::publish(
        image("abcd"),
        &at,
        "one",
        Facts::default(),
        &options,
        &NoPublishReports,
    )
    .unwrap();
    assert!(read(&store, "one").unwrap() == contents("abcd"));
}

#[test]
fn a_damaged_manifest_is_reported_and_gc_removes_nothing() {
    let store = store();
    store.hours_pass(30);
    let [(path, body)] = &*store.objects("/manifests/") else { panic!("one manifest") };
    for damaged in [None, Some(body[..body.len() - 1].to_vec()), Some(b"DWMANIF1".to_vec())] {
        let is_missing = damaged.is_none();
        store.change(path, damaged);
        for error in [read(&store, "one").unwrap_err(), sweep(&store, 24).unwrap_err()] {
            assert_eq!(matches!(error, Error::Missing { .. }), is_missing, "{error}");
            assert!(error.to_string().contains(path.as_ref()), "{error}");
        }
        assert_eq!(store.objects("/chunks/").len(), 4);
        assert_eq!(store.objects("/marks/").len(), 0);
    }
    // The damage is detected, and the chunk is sent again.
    assert_eq!(publish_as(&store, "abcd", "one").unwrap().chunks_sent, 0);
    assert!(read(&store, "one").unwrap() == contents("abcd"));
}

#[test]
fn a_list_that_is_old_costs_bytes_and_nothing_else() {
    let store = store();
    let old = store.seen_by(|_, request, path| {
        let is_old = request == RequestKind::List && path.as_ref().contains("/chunks");
        if is_old { Verdict::Old } else { Verdict::Serve }
    });
    publish_as(&old, NEXT, "two").unwrap();
    assert_whole(&store, "old lists");
    assert!(read(&store, "two").unwrap() == contents(NEXT));
    // A store whose listings omit recent marks is detected: exclusion depends on them.
    let blind =
        store.seen_by(
            |_, request, _| {
                if request == RequestKind::List { Verdict::Old } else { Verdict::Serve }
            },
        );
    assert!(matches!(publish_as(&blind, "xyz", "three"), Err(Error::Lapsed { .. })));
}

#[test]
fn gc_that_is_killed_leaves_what_is_named() {
    let prepared = || {
        let store = store();
        store.hours_pass(30);
        publish_as(&store, NEXT, "one").unwrap();
        store.hours_pass(30);
        store
    };
    let watched = prepared().seen_by(|_, _, _| Verdict::Serve);
    assert_eq!(sweep(&watched, 24).unwrap().chunks_removed, 1);
    let all = watched.requests();
    // Listings of empty folders are alike, so a sample of them is enough.
    for after in (0..12).chain((12..all - 4).step_by(9)).chain(all - 4..all - 1) {
        let store = prepared();
        let killed = store.seen_by(
            move |number, _, _| {
                if number < after { Verdict::Serve } else { Verdict::Refuse }
            },
        );
        assert!(sweep(&killed, 24).is_err(), "killed after {after}");
        assert_whole(&store, "killed gc");
        store.hours_pass(2);
        publish_as(&store, "bb", "two").unwrap();
        sweep(&store, 24).unwrap();
        assert_whole(&store, "gc after a killed one");
        assert!(read(&store, "two").unwrap() == contents("bb"));
        assert!(read(&store, "one").unwrap() == contents(NEXT));
    }
}

#[test]
fn unrelated_objects_are_kept() {
    let store = store();
    for path in
        ["images/chunks/ab/readme", "images/manifests/notes.txt", "images/marks/other", "else/x"]
    {
        store.change(&Path::from(path), Some(b"mine".to_vec()));
    }
    store.hours_pass(1000);
    publish_as(&store, NEXT, "one").unwrap();
    sweep(&store, 0).unwrap();
    assert_eq!(store.objects("readme").len() + store.objects("notes").len(), 2);
    assert_eq!(store.objects("other").len() + store.objects("else").len(), 2);
    // An unrelated object in a folder called `names` is not treated as a published image.
    store.change(&Path::from("images/names/big.img"), Some(vec![1; 5000]));
    assert!(
        remote::publish::find(&location(store.clone(), "images/names/big.img")).unwrap().is_none()
    );
    assert!(remote::publish::find(&location(store.clone(), "images/big.img")).unwrap().is_none());
    assert!(remote::publish::find(&location(store, "images/names/one")).unwrap().is_some());
}
