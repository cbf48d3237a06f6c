//! Listings of large directories: complete, without duplicates, and with stable offsets.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{RawDir, SeekFrom, seek};

use crate::place::{Place, prove_on_both, shell};

/// Number of entries in a large directory: far more than one call returns.
fn many() -> usize {
    testkit::effort(9_000, 20_000, 20_000)
}

fn name(number: usize) -> String {
    format!("file number {number}")
}

fn make(place: &Place, files: usize) {
    fs::create_dir(place.join("large")).unwrap();
    for number in 0..files {
        File::create(place.join("large").join(name(number))).unwrap();
    }
}

/// Returns at most `most` entries from the current position, each with the offset after it.
fn entries(directory: &File, most: usize) -> Vec<(String, u64)> {
    let mut buffer = [MaybeUninit::uninit(); 8192];
    let mut found = Vec::new();
    let mut raw = RawDir::new(directory, &mut buffer);
    while found.len() < most {
        let Some(entry) = raw.next() else { break };
        let entry = entry.unwrap();
        let name = entry.file_name().to_str().unwrap();
        if name != "." && name != ".." {
            found.push((name.to_owned(), entry.next_entry_cookie()));
        }
    }
    found
}

/// Offsets remain valid while other entries are removed and added.
fn places_in_a_listing_are_stable(place: &mut Place) {
    let files = many();
    make(place, files);
    let directory = File::open(place.join("large")).unwrap();
    let all = entries(&directory, usize::MAX);
    let distinct: BTreeSet<_> = all.iter().map(|(name, _)| name).collect();
    assert_eq!((all.len(), distinct.len()), (files, files));
    // From some offsets, listings continue like the first one.
    for at in [0, 1, 77, files / 3, files - 2] {
        seek(&directory, SeekFrom::Start(all[at].1)).unwrap();
        let rest = entries(&directory, 300);
        assert!(rest.iter().zip(&all[at + 1..]).all(|(a, b)| a.0 == b.0), "after entry {at}");
    }
    // Remove a third, including the entries at the offsets, and add as many.
    for (name, _) in all.iter().step_by(3) {
        fs::remove_file(place.join("large").join(name)).unwrap();
    }
    let staying: BTreeSet<_> = (0..files).filter(|at| at % 3 != 0).map(|at| &all[at].0).collect();
    for number in 0..files / 3 {
        File::create(place.join("large").join(format!("new {number}"))).unwrap();
    }
    for at in [0, 3, 100, files / 2, files - 30] {
        seek(&directory, SeekFrom::Start(all[at].1)).unwrap();
        let found: Vec<_> =
            entries(&directory, usize::MAX).into_iter().map(|(name, _)| name).collect();
        // POSIX leaves open whether entries removed or added after opening the directory are
        // listed.
        let left: Vec<_> = found.iter().filter(|name| staying.contains(name)).collect();
        let expected: Vec<_> = all[at + 1..]
            .iter()
            .map(|(name, _)| name)
            .filter(|name| staying.contains(name))
            .collect();
        assert!(left == expected, "after entry {at}: {} of {} entries", left.len(), expected.len());
    }
    drop(directory);
    shell(place.path(), "rm -r large");
    assert!(!place.join("large").exists());
}

/// A program that removes the entries it lists, as `rm -r` does, misses none, without a rewind.
fn removing_while_listing_removes_all(place: &mut Place) {
    let files = many();
    make(place, files);
    let directory = File::open(place.join("large")).unwrap();
    let mut removed = 0;
    loop {
        let some = entries(&directory, 50);
        if some.is_empty() {
            break;
        }
        // More was read than returned: seek to the next entry.
        seek(&directory, SeekFrom::Start(some.last().unwrap().1)).unwrap();
        for (name, _) in some {
            fs::remove_file(place.join("large").join(name)).unwrap();
            removed += 1;
        }
    }
    assert_eq!(removed, files);
    fs::remove_dir(place.join("large")).unwrap();
}

/// While others are added and removed, remaining entries are listed exactly once.
fn what_stays_is_listed_once(place: &mut Place) {
    const STAYING: usize = 3000;
    make(place, STAYING);
    let large = place.join("large");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for worker in 0..2 {
            let (large, done) = (&large, &done);
            scope.spawn(move || {
                let mut round = 0_usize;
                while !done.load(Ordering::Relaxed) {
                    let path = |n: usize| {
                        large.join(format!("passing {worker} {n} {}", "x".repeat(n % 90)))
                    };
                    File::create(path(round)).unwrap();
                    if round >= 500 {
                        fs::rename(path(round - 250), path(round - 250).with_extension("moved"))
                            .unwrap();
                        fs::remove_file(path(round - 500).with_extension("moved"))
                            .or_else(|_| fs::remove_file(path(round - 500)))
                            .unwrap();
                    }
                    round += 1;
                }
            });
        }
        for _ in 0..25 {
            let mut seen = BTreeMap::new();
            for entry in fs::read_dir(&large).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                *seen.entry(name).or_insert(0) += 1;
            }
            for number in 0..STAYING {
                assert_eq!(seen.get(&name(number)), Some(&1), "{}", name(number));
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    place.remount();
    let left = fs::read_dir(place.join("large")).unwrap();
    let staying = left
        .filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with("file "));
    assert_eq!(staying.count(), STAYING);
    fs::remove_dir_all(place.join("large")).unwrap();
}

prove_on_both!(
    places_in_a_listing_are_stable,
    removing_while_listing_removes_all,
    what_stays_is_listed_once,
);
