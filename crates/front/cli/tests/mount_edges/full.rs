//! Full file systems: the failing call reports the error, acknowledged data is kept, and removal
//! frees space.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::{FallocateFlags, fallocate};

use crate::place::probe::{pattern, try_map};
use crate::place::{Place, has_compiler, prove_on_both};

/// Fills all space with empty allocations of decreasing size.
fn fill(place: &Place) -> Vec<PathBuf> {
    let mut made = Vec::new();
    for piece in [64 << 20, 4 << 20, 256 << 10, 16 << 10, 4 << 10] {
        loop {
            let path = place.join(format!("filling {}", made.len()));
            let taken = File::create(&path).and_then(|file| {
                let taken = fallocate(&file, FallocateFlags::empty(), 0, piece);
                taken.inspect_err(|_| fs::remove_file(&path).unwrap()).map_err(io::Error::from)
            });
            match taken {
                Ok(()) => made.push(path),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::StorageFull);
                    break;
                }
            }
        }
    }
    made
}

/// Writes and syncs. Depending on caches, either may report the error.
fn write_durably(path: &std::path::Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn full_file_systems_say_so(place: &mut Place) {
    let bytes = 1 << 20;
    write_durably(&place.join("early"), &pattern(3, 0, bytes)).unwrap();
    fs::create_dir(place.join("many")).unwrap();
    let filling = fill(place);
    assert!(filling.len() > 8, "{filling:?}");
    // There is no room for data: the write or the sync fails.
    let written = write_durably(&place.join("late"), &pattern(4, 0, bytes));
    assert_eq!(written.unwrap_err().kind(), ErrorKind::StorageFull);
    // Overwriting existing data needs no space.
    let early = File::options().write(true).open(place.join("early")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&early, &pattern(5, 0, 4096), 0).unwrap();
    early.sync_all().unwrap();
    drop(early);
    // Eventually there is no room for names of any kind.
    let mut names = 0;
    let refused = loop {
        let path = place.join(format!("many/{} {names}", "a name ".repeat(30)));
        let made = if names % 2 == 0 { File::create(path).map(drop) } else { fs::create_dir(path) };
        match made {
            Ok(()) => names += 1,
            Err(error) => break error,
        }
        assert!(names < 100_000, "names take no space");
    };
    assert_eq!(refused.kind(), ErrorKind::StorageFull);
    let link = std::os::unix::fs::symlink("x".repeat(900), place.join("many/link"));
    assert_eq!(link.unwrap_err().kind(), ErrorKind::StorageFull);
    println!("{} files fill it, then {names} names", filling.len());
    // Removal needs no space, and frees some.
    for path in &filling[filling.len() / 2..] {
        fs::remove_file(path).unwrap();
    }
    fs::remove_file(&filling[0]).unwrap();
    // This may report the lost data again.
    let _ = rustix::fs::syncfs(File::open(place.path()).unwrap());
    write_durably(&place.join("late"), &pattern(6, 0, bytes)).unwrap();
    place.remount();
    let mut expected = pattern(3, 0, bytes);
    expected[..4096].copy_from_slice(&pattern(5, 0, 4096));
    assert!(fs::read(place.join("early")).unwrap() == expected);
    assert!(fs::read(place.join("late")).unwrap() == pattern(6, 0, bytes));
    assert_eq!(fs::read_dir(place.join("many")).unwrap().count(), names);
    fs::remove_dir_all(place.join("many")).unwrap();
}

/// Writers continue while others remove files: every synced file is complete.
fn a_nearly_full_file_system_loses_nothing(place: &mut Place) {
    const FILE_BYTES: u64 = 300_000;
    let filling = fill(place);
    let held = filling.len() / 3;
    let mut durable: Vec<u64> = Vec::new();
    let mut refused = 0;
    for round in 0..150_u64 {
        let path = place.join(format!("file {round}"));
        match write_durably(&path, &pattern(round, 0, FILE_BYTES)) {
            Ok(()) => durable.push(round),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::StorageFull);
                refused += 1;
                // There may have been no room for its name.
                let _ = fs::remove_file(&path);
                // Free space for the next few.
                if let Some(path) = filling.get(held + refused) {
                    fs::remove_file(path).unwrap();
                } else {
                    fs::remove_file(place.join(format!("file {}", durable.remove(0)))).unwrap();
                }
            }
        }
    }
    println!("{refused} of 150 files found no room");
    assert!(refused > 3 && durable.len() > 3);
    place.remount();
    for round in durable {
        let found = fs::read(place.join(format!("file {round}"))).unwrap();
        assert!(found == pattern(round, 0, FILE_BYTES), "file {round}");
    }
}

/// Writes pieces until one is rejected. Returns the number of accepted bytes.
fn write_until_refused(path: &Path, seed: u64, piece: u64) -> u64 {
    let mut file = File::create(path).unwrap();
    let mut taken = 0;
    loop {
        match file.write(&pattern(seed, taken, piece)) {
            Ok(len) => taken += len as u64,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::StorageFull);
                return taken;
            }
        }
        assert!(taken < 1 << 30, "writes of more than there is room for succeed");
    }
}

/// Asserts that a file contains all accepted bytes, and behind them at most a part of one more
/// piece.
fn assert_is_beginning(path: &Path, seed: u64, taken: u64, piece: u64) {
    let found = fs::read(path).unwrap();
    let len = found.len() as u64;
    assert!((taken..=taken + piece).contains(&len), "{}: {taken}, {len}", path.display());
    assert!(found == pattern(seed, 0, len), "{}: not what was written", path.display());
}

/// A write that cannot be stored fails itself, instead of the following close or sync. The stored
/// data is a prefix of the written data.
fn writes_without_room_are_refused_when_they_are_made(place: &mut Place) {
    const PIECE: u64 = 256 << 10;
    let taken = write_until_refused(&place.join("file"), 1, PIECE);
    assert!(taken > 64 << 20, "{taken}");
    // Overwriting existing data needs no space.
    let file = File::options().write(true).open(place.join("file")).unwrap();
    file.write_all_at(&pattern(1, 4096, PIECE), 4096).unwrap();
    drop(file);
    let refused = fs::write(place.join("another"), pattern(2, 0, PIECE)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::StorageFull);
    place.remount();
    assert_is_beginning(&place.join("file"), 1, taken, PIECE);
    // There is room again.
    fs::remove_file(place.join("file")).unwrap();
    write_durably(&place.join("after"), &pattern(3, 0, 8 << 20)).unwrap();
    place.remount();
    assert!(fs::read(place.join("after")).unwrap() == pattern(3, 0, 8 << 20));
}

/// The same with many concurrent programs that share the remaining space.
fn many_writers_are_all_told_of_what_found_no_room(place: &mut Place) {
    const PIECE: u64 = 64 << 10;
    const WRITERS: u64 = 8;
    let size_known = place.join("filling");
    let filling = write_until_refused(&size_known, 0, 1 << 20);
    // Some space is freed, so that the writers start with room, and near its end.
    File::options().write(true).open(&size_known).unwrap().set_len(filling - (48 << 20)).unwrap();
    File::open(&size_known).unwrap().sync_all().unwrap();
    let taken: Vec<u64> = thread::scope(|scope| {
        let writers = (1..=WRITERS).map(|seed| {
            let path = place.join(format!("file {seed}"));
            scope.spawn(move || write_until_refused(&path, seed, PIECE))
        });
        let writers: Vec<_> = writers.collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    println!("{taken:?}");
    assert!(taken.iter().sum::<u64>() > 32 << 20);
    place.remount();
    for (seed, taken) in (1..).zip(taken) {
        assert_is_beginning(&place.join(format!("file {seed}")), seed, taken, PIECE);
    }
}

/// A mapping that exceeds the free space reports it, by a signal like a kernel file system, or by
/// msync. Data stored by others is kept.
fn mappings_without_room_are_told(place: &mut Place) {
    if !has_compiler("mappings_without_room_are_told") {
        return;
    }
    write_durably(&place.join("kept"), &pattern(1, 0, 1 << 20)).unwrap();
    let path = place.join("mapped");
    File::create(&path).unwrap().set_len(512 << 20).unwrap();
    assert!(!try_map(&path, 0, 512 << 20, 2), "more was mapped and synced than there is room for");
    // This reports the lost data again.
    let _ = rustix::fs::syncfs(File::open(place.path()).unwrap());
    place.remount();
    assert!(fs::read(place.join("kept")).unwrap() == pattern(1, 0, 1 << 20));
}

prove_on_both!(
    full_file_systems_say_so: 310 << 20,
    a_nearly_full_file_system_loses_nothing: 310 << 20,
    writes_without_room_are_refused_when_they_are_made: 310 << 20,
    many_writers_are_all_told_of_what_found_no_room: 310 << 20,
    mappings_without_room_are_told: 310 << 20,
);
