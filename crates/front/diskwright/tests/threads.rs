//! Concurrent use by several threads.

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Seek, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use diskwright::Error;
use diskwright::fs::File;
use fastrand::Rng;

use super::images::{FORMATS, judge, new_image, open};

/// Bytes written and read at a time.
const PAGE: usize = 4096;

/// Number of pages in the file.
const PAGES: u64 = 64;

#[test]
fn readers_see_what_one_writer_wrote() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for format in FORMATS {
        let (device, image) = new_image(format);
        let file = File::create_new(&image, "shared").unwrap();
        file.write_at(&vec![1; PAGE * PAGES as usize], 0).unwrap();
        let done = AtomicBool::new(false);
        let rounds = testkit::effort(20, 50, 3000);
        thread::scope(|scope| {
            for reader in 0..4 {
                let (file, done) = (&file, &done);
                scope.spawn(move || {
                    let mut random = Rng::with_seed(reader);
                    let (mut page, mut seen) = ([0; PAGE], vec![1_u8; PAGES as usize]);
                    let mut is_last = false;
                    while !is_last {
                        is_last = done.load(Ordering::Relaxed);
                        let number = random.u64(..PAGES);
                        let count = file.read_at(&mut page, number * PAGE as u64).unwrap();
                        assert_eq!(count, PAGE);
                        // Page values only increase, so each byte is at least the last value seen.
                        let last = &mut seen[number as usize];
                        assert!(page.iter().all(|byte| byte >= last), "{format}");
                        *last = *page.iter().max().unwrap();
                    }
                });
            }
            for round in 0..rounds {
                for number in 0..PAGES {
                    // There are at most 250 values, so a long run starts again with a new file.
                    let byte = 2 + (round * 250 / rounds) as u8;
                    file.write_at(&[byte; PAGE], number * PAGE as u64).unwrap();
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        drop(file);
        image.close().unwrap();
        judge(&device);
    }
}

#[test]
fn concurrent_appends_are_neither_lost_nor_mixed() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    const RECORD: usize = 16;
    for format in FORMATS {
        let (device, image) = new_image(format);
        let one = File::options().append(true).create(true).open(&image, "log").unwrap();
        let count = testkit::effort(200, 500, 20_000);
        thread::scope(|scope| {
            for writer in 0..4_u32 {
                let (one, image) = (&one, &image);
                scope.spawn(move || {
                    let own = File::options().append(true).open(image, "log").unwrap();
                    for number in 0..count {
                        let record = format!("{writer:07} {number:07}\n");
                        assert_eq!(record.len(), RECORD);
                        let mut file = if number % 2 == 0 { &own } else { one };
                        file.write_all(record.as_bytes()).unwrap();
                    }
                });
            }
        });
        drop(one);
        image.close().unwrap();
        judge(&device);
        let log = open(&device, false).read_to_string("log").unwrap();
        let records: HashSet<&str> = log.lines().collect();
        assert_eq!((log.len(), records.len()), (RECORD * 4 * count, 4 * count));
    }
}

#[test]
fn threads_that_share_a_cursor_read_everything_once() {
    for format in FORMATS {
        let (_, image) = new_image(format);
        let numbers: Vec<u8> = (0..20_000_u32).flat_map(u32::to_le_bytes).collect();
        image.write("numbers", &numbers).unwrap();
        let file = File::open(&image, "numbers").unwrap();
        let read = || {
            let (mut reader, mut found, mut number) = (&file, Vec::new(), [0; 4]);
            while reader.read(&mut number).unwrap() == 4 {
                found.push(u32::from_le_bytes(number));
            }
            found
        };
        let mut all: Vec<u32> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..20_000));
        assert_eq!((&file).stream_position().unwrap(), 80_000);
    }
}

/// Changes names that other threads use concurrently, until `until` returns true.
fn meddle(image: &diskwright::fs::Image, seed: u64, until: impl Fn() -> bool) {
    let mut random = Rng::with_seed(seed);
    let path = |random: &mut Rng| format!("{}/{}", random.u8(..3), random.u8(..6));
    while !until() {
        let (a, b) = (path(&mut random), path(&mut random));
        let done = match random.u32(..9) {
            0 => image.create_dir_all(&a),
            1 => image.remove_dir_all(&a),
            2 => image.rename(&a, &b),
            3 => image.remove_file(&a),
            4 => image.hard_link(&a, &b),
            5 => image.walk("/").try_for_each(|entry| entry.map(drop)),
            6 => image.read_dir("/0").and_then(|mut all| all.try_for_each(|entry| entry.map(drop))),
            _ => File::options().read(true).append(true).create(true).open(image, &a).and_then(
                |file| {
                    // The contents identify the file, and must not come from another one.
                    file.write_at(&[7; 100], 0)?;
                    let mut found = [7; 4096];
                    let count = file.read_at(&mut found, 0)?;
                    assert!(found[..count].iter().all(|byte| *byte == 7));
                    Ok(())
                },
            ),
        };
        if let Err(error) = done {
            use ErrorKind as K;
            let kind = std::io::Error::from(error).kind();
            let expected = [
                K::NotFound,
                K::AlreadyExists,
                K::NotADirectory,
                K::IsADirectory,
                K::DirectoryNotEmpty,
                K::InvalidInput,
                K::PermissionDenied,
            ];
            assert!(expected.contains(&kind), "{kind:?}");
        }
    }
}

#[test]
fn names_come_and_go_under_many_threads() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for format in FORMATS {
        let (device, image) = new_image(format);
        for number in 0..3 {
            image.create_dir(number.to_string()).unwrap();
        }
        let rounds = testkit::effort(300, 1_000, 50_000);
        thread::scope(|scope| {
            for seed in 0..4 {
                let image = &image;
                scope.spawn(move || {
                    let count = std::cell::Cell::new(0);
                    meddle(image, seed, || count.replace(count.get() + 1) == rounds);
                });
            }
        });
        image.close().unwrap();
        judge(&device);
    }
}

#[test]
fn closing_waits_for_calls_and_ends_all_others() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for format in FORMATS {
        for _ in 0..testkit::effort(5, 20, 500) {
            let (device, image) = new_image(format);
            image.write("file", vec![3; 100_000]).unwrap();
            let open_file = || File::options().read(true).write(true).open(&image, "file").unwrap();
            let files: Vec<File> = (0..4).map(|_| open_file()).collect();
            image.remove_file("file").unwrap();
            let begun = std::sync::Barrier::new(files.len() + 1);
            thread::scope(|scope| {
                for file in &files {
                    let begun = &begun;
                    scope.spawn(move || {
                        begun.wait();
                        let mut place = 0;
                        loop {
                            place = (place + 1111) % 90_000;
                            let done = match file.write_at(&[3; 5000], place) {
                                Ok(_) => file.read_at(&mut [0; 5000], place).map(drop),
                                Err(error) => Err(error),
                            };
                            match done {
                                Ok(()) => {}
                                Err(Error::Closed) => break,
                                Err(error) => panic!("{error}"),
                            }
                        }
                    });
                }
                begun.wait();
                image.close().unwrap();
                judge(&device);
            });
        }
    }
}
