//! Files and directories across crashes, with and without fsync.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{FallocateFlags, OFlags, copy_file_range, fallocate};
use testkit::wait_until;

use crate::mount_crash::{Crash, mount_after_crash, prove_through_crashes, rounds};
use crate::place::probe::pattern;
use crate::place::{Format, Place, prove};

const WRITERS: u64 = 3;

fn bytes_of(version: u64) -> Vec<u8> {
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.extend(pattern(version, 0, 500 + version * 7919 % 40_000));
    bytes
}

/// Returns the version of a file, or `None` if the file is incomplete.
pub(super) fn version_of(path: &Path) -> Option<u64> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => panic!("{}: {error}", path.display()),
    };
    let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes == bytes_of(version), "{}: version {version} is not whole", path.display());
    Some(version)
}

/// Replaces a file as editors do: writes and syncs a new file, and renames it to the old name.
pub(super) fn replace(directory: &Path, name: &str, version: u64) -> io::Result<()> {
    let new = directory.join(format!("{name}.new"));
    let mut file = File::create(&new)?;
    file.write_all(&bytes_of(version))?;
    file.sync_all()?;
    fs::rename(new, directory.join(name))?;
    File::open(directory)?.sync_all()
}

fn replaced_files_are_old_or_new(name: &str, format: Format, crash: Crash) {
    prove(name, crash.wanted(format), |place| {
        let mut random = fastrand::Rng::with_seed(5);
        let mut versions = [0; WRITERS as usize];
        for round in 0..rounds() {
            let path = |writer| format!("file {writer}");
            let durable: Vec<_> = versions.iter().map(|&version| AtomicU64::new(version)).collect();
            // Crash at a random moment after some of these.
            let wanted = versions.iter().sum::<u64>() + random.u64(5..40);
            let delay = Duration::from_millis(random.u64(0..30));
            thread::scope(|scope| {
                for (writer, durable) in durable.iter().enumerate() {
                    let directory = place.path();
                    scope.spawn(move || {
                        let mut version = durable.load(Ordering::SeqCst) + 1;
                        while replace(directory, &path(writer), version).is_ok() {
                            durable.store(version, Ordering::SeqCst);
                            version += 1;
                        }
                    });
                }
                let sum = || durable.iter().map(|one| one.load(Ordering::SeqCst)).sum::<u64>();
                wait_until("files to be replaced", || sum() >= wanted);
                thread::sleep(delay);
                place.crash();
            });
            mount_after_crash(place, round % 3 == 2);
            for (writer, durable) in durable.into_iter().enumerate() {
                let (found, durable) =
                    (version_of(&place.join(path(writer))), durable.into_inner());
                let found = found.unwrap_or(0);
                assert!(found == durable || found == durable + 1, "{found}, durable {durable}");
                versions[writer] = found;
            }
        }
        println!("versions {versions:?}");
        assert!(versions.iter().sum::<u64>() > 20, "too few to prove anything");
    });
}

/// Makes changes of all kinds until the mount is gone. The test does not check these files.
pub(super) fn churn(root: &Path, worker: u64, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let name = |n: u64| root.join(format!("shared/{worker} {n}"));
    let mut open: Vec<File> = Vec::new();
    let mut step = |n: u64| -> io::Result<()> {
        let (some, other) = (name(random.u64(..40)), name(random.u64(..40)));
        let result = match random.u8(..12) {
            0..=2 => fs::write(&some, pattern(n, 0, random.u64(..60_000))),
            3 => fs::rename(&some, &other),
            4 => fs::remove_file(&some),
            5 => fs::hard_link(&some, &other),
            6 => fs::create_dir(some.with_extension("d")),
            7 => fs::rename(some.with_extension("d"), other.with_extension("d")),
            8 => fs::remove_dir(some.with_extension("d")),
            9 => File::options().write(true).open(&some).and_then(|file| file.set_len(n % 100_000)),
            10 => File::open(&some).and_then(|file| file.sync_all()),
            // Unlinked but open at the crash: recovery must free them.
            _ => File::open(&some).and_then(|file| {
                open.push(file);
                fs::remove_file(&some)
            }),
        };
        let expected = [
            io::ErrorKind::NotFound,
            io::ErrorKind::AlreadyExists,
            io::ErrorKind::DirectoryNotEmpty,
        ];
        result.or_else(|error| if expected.contains(&error.kind()) { Ok(()) } else { Err(error) })
    };
    let _ = (0..).try_for_each(&mut step);
}

fn images_are_sound(name: &str, format: Format, crash: Crash) {
    prove(name, crash.wanted(format), |place| {
        let mut random = fastrand::Rng::with_seed(3);
        fs::create_dir(place.join("shared")).unwrap();
        let kept = keep(place);
        for round in 0..rounds() {
            let delay = Duration::from_millis(random.u64(10..400));
            thread::scope(|scope| {
                for worker in 0..WRITERS {
                    let (root, seed) = (place.path(), round as u64 * 100 + worker);
                    scope.spawn(move || churn(root, worker, seed));
                }
                thread::sleep(delay);
                place.crash();
            });
            mount_after_crash(place, round % 3 == 1);
            // The directory is readable, and files that were durable long before are unchanged.
            let mut names = 0;
            for entry in fs::read_dir(place.join("shared")).unwrap() {
                let entry = entry.unwrap();
                if entry.metadata().unwrap().is_file() {
                    fs::read(entry.path()).unwrap();
                }
                names += 1;
            }
            println!("round {round}: {names} names after {delay:?}");
            check_kept(place, &kept);
            place.remount();
        }
    });
}

/// Creates files that are never changed again.
fn keep(place: &Place) -> Vec<PathBuf> {
    fs::create_dir(place.join("kept")).unwrap();
    let files = (0..20).map(|number| {
        let path = PathBuf::from(format!("kept/{number}"));
        let file = File::create(place.join(&path)).unwrap();
        file.write_all_at(&pattern(number, 0, 10_000), 0).unwrap();
        path
    });
    let files: Vec<_> = files.collect();
    // syncfs is not used, because the kernel does not forward it. An fsync of one file makes the
    // metadata of all durable, but their data may still be in the kernel's cache.
    for path in &files {
        File::open(place.join(path)).unwrap().sync_all().unwrap();
    }
    files
}

fn check_kept(place: &Place, files: &[PathBuf]) {
    for (number, path) in files.iter().enumerate() {
        let mut found = Vec::new();
        File::open(place.join(path)).unwrap().read_to_end(&mut found).unwrap();
        assert!(found == pattern(number as u64, 0, 10_000), "{}", path.display());
    }
}

/// Size in bytes of a file that is copied or allocated.
const BYTES: usize = 100_000;

/// A copy and an allocation survive a crash if their file was open with `O_SYNC` or `O_DSYNC`. A
/// crash follows each of them, because a sync makes all earlier changes durable.
fn synchronous_files_are_durable(name: &str, format: Format, crash: Crash) {
    prove(name, crash.wanted(format), |place| {
        let contents = pattern(9, 0, BYTES as u64);
        fs::write(place.join("source"), &contents).unwrap();
        for (is_copied, flags) in [
            (true, OFlags::SYNC),
            (false, OFlags::SYNC),
            (true, OFlags::DSYNC),
            (false, OFlags::DSYNC),
        ] {
            let name = format!("copied {is_copied} {}", flags.bits());
            let mut options = File::options();
            options.write(true).create(true).custom_flags(flags.bits() as i32);
            let file = options.open(place.join(&name)).unwrap();
            let source = File::open(place.join("source")).unwrap();
            source.sync_all().unwrap();
            file.sync_all().unwrap();
            if is_copied {
                let copied = copy_file_range(&source, None, &file, None, BYTES);
                assert_eq!(copied, Ok(BYTES));
            } else {
                fallocate(&file, FallocateFlags::empty(), 0, BYTES as u64).unwrap();
            }
            place.crash();
            drop((file, source));
            mount_after_crash(place, false);
            let found = fs::read(place.join(&name)).unwrap();
            let expected = if is_copied { contents.clone() } else { vec![0; BYTES] };
            assert!(found == expected, "{name}: {} bytes", found.len());
        }
    });
}

prove_through_crashes!(
    replaced_files_are_old_or_new,
    images_are_sound,
    synchronous_files_are_durable
);
