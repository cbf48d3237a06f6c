//! Timestamps: explicit values are kept to the nanosecond, and implicit changes occur when
//! required.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{Advice, fadvise, statx, utimensat};
use rustix::fs::{
    AtFlags, CWD, StatxFlags, StatxTimestamp, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
};

use crate::place::{Driver, Place, prove_on_both};

/// Longer than the granularity of the kernel's file timestamps.
const TICK: Duration = Duration::from_millis(25);

type Time = (i64, u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    accessed: Time,
    modified: Time,
    changed: Time,
    born: Time,
}

fn times(path: &Path) -> Times {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, wanted).unwrap();
    assert!(found.stx_mask & StatxFlags::BTIME.bits() != 0, "no time of birth");
    let time = |time: StatxTimestamp| (time.tv_sec, time.tv_nsec);
    Times {
        accessed: time(found.stx_atime),
        modified: time(found.stx_mtime),
        changed: time(found.stx_ctime),
        born: time(found.stx_btime),
    }
}

fn set(path: &Path, accessed: Time, modified: Time) {
    let time = |(tv_sec, nanos): Time| Timespec { tv_sec, tv_nsec: nanos.into() };
    let times = Timestamps { last_access: time(accessed), last_modification: time(modified) };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// The range of both formats: from the beginning of 1902 to the end of 2445.
const FAR: [Time; 6] = [
    (0, 0),
    (1, 999_999_999),
    (-1, 1),
    (-2_145_916_800, 123_456_789),
    (4_294_967_297, 987_654_321),
    (15_000_000_000, 1),
];

fn times_are_kept_to_the_nanosecond(place: &mut Place) {
    for (number, &time) in FAR.iter().enumerate() {
        let path = place.join(format!("file {number}"));
        File::create(&path).unwrap();
        set(&path, time, FAR[(number + 1) % FAR.len()]);
    }
    fs::create_dir(place.join("directory")).unwrap();
    std::os::unix::fs::symlink("x", place.join("link")).unwrap();
    for name in ["directory", "link"] {
        set(&place.join(name), FAR[3], FAR[5]);
    }
    let check = |place: &Place| {
        for (number, &time) in FAR.iter().enumerate() {
            let found = times(&place.join(format!("file {number}")));
            assert_eq!((found.accessed, found.modified), (time, FAR[(number + 1) % FAR.len()]));
        }
        for name in ["directory", "link"] {
            let found = times(&place.join(name));
            assert_eq!((found.accessed, found.modified), (FAR[3], FAR[5]), "{name}");
        }
    };
    check(place);
    place.remount();
    check(place);
    // One of the two timestamps, and the current time.
    let path = place.join("file 0");
    let before = times(&path);
    set(&path, (0, UTIME_OMIT as u32), (77, 7));
    let after = times(&path);
    assert_eq!((after.accessed, after.modified), (before.accessed, (77, 7)));
    assert!(after.changed > before.changed);
    // More than a tick: file timestamps may be ahead of the coarse clock by less than that, if
    // other files have finer timestamps.
    sleep(TICK);
    set(&path, (0, UTIME_NOW as u32), (0, UTIME_OMIT as u32));
    let now = times(&path);
    assert_eq!(now.modified, (77, 7));
    assert!(now.accessed > after.changed, "{now:?}");
}

/// Timestamps out of range are clamped to the nearest supported value, which is also the visible
/// one.
fn times_out_of_range_are_clamped(place: &mut Place) {
    const AFTER: Time = (40_000_000_000, 5);
    const BEFORE: Time = (-40_000_000_000, 5);
    fs::create_dir(place.join("directory")).unwrap();
    std::os::unix::fs::symlink("x", place.join("link")).unwrap();
    File::create(place.join("file")).unwrap();
    let in_range = |what: &str, found: Time| {
        assert!(
            found.0.abs() < 30_000_000_000 && found.0.abs() > 2_000_000_000,
            "{what}: {found:?}"
        );
    };
    for wanted in [AFTER, BEFORE] {
        for name in ["directory", "link", "file"] {
            set(&place.join(name), wanted, wanted);
        }
        let seen = ["directory", "link", "file"].map(|name| times(&place.join(name)));
        for (name, seen) in ["directory", "link", "file"].into_iter().zip(seen) {
            in_range(name, seen.accessed);
            // For a regular file's mtime, kernels with the FUSE write-back cache keep the value
            // that was set.
            if name != "file" || place.driver() == Driver::Kernel {
                in_range(name, seen.modified);
            }
        }
        place.remount();
        for (name, seen) in ["directory", "link", "file"].into_iter().zip(seen) {
            let found = times(&place.join(name));
            in_range(name, found.modified);
            assert_eq!(found.accessed, seen.accessed, "{name}");
            assert_eq!(found.modified, found.accessed, "{name}");
        }
    }
}

/// Each call changes the required timestamps of a file.
fn calls_change_the_times_that_they_must(place: &mut Place) {
    let (file, directory) = (place.join("file"), place.join("directory"));
    fs::create_dir(&directory).unwrap();
    fs::write(&file, "contents").unwrap();
    let changes = |what: &str, path: &Path, call: &dyn Fn(), modified: bool, changed: bool| {
        let before = times(path);
        sleep(TICK);
        call();
        let after = times(path);
        assert_eq!(after.modified > before.modified, modified, "{what}: {before:?} {after:?}");
        assert_eq!(after.changed > before.changed, changed, "{what}: {before:?} {after:?}");
        assert_eq!(after.born, before.born, "{what}");
    };
    let open = || File::options().write(true).open(&file).unwrap();
    changes("write", &file, &|| fs::write(&file, "more contents").unwrap(), true, true);
    changes("chmod", &file, &|| set_mode(&file, 0o600), false, true);
    changes("truncate", &file, &|| open().set_len(3).unwrap(), true, true);
    changes("link", &file, &|| fs::hard_link(&file, directory.join("link")).unwrap(), false, true);
    changes("unlink", &file, &|| fs::remove_file(directory.join("link")).unwrap(), false, true);
    changes("setxattr", &file, &|| set_xattr(&file), false, true);
    changes("nothing", &file, &|| drop(open()), false, false);
    changes("create", &directory, &|| drop(File::create(directory.join("a"))), true, true);
    changes(
        "rename from",
        &directory,
        &|| fs::rename(directory.join("a"), place.join("a")).unwrap(),
        true,
        true,
    );
    changes(
        "rename to",
        &directory,
        &|| fs::rename(place.join("a"), directory.join("b")).unwrap(),
        true,
        true,
    );
    changes("unlink", &directory, &|| fs::remove_file(directory.join("b")).unwrap(), true, true);
    changes("mkdir", &directory, &|| fs::create_dir(directory.join("d")).unwrap(), true, true);
    changes("in a file", &directory, &|| fs::write(&file, "x").unwrap(), false, false);
    // `relatime`: the first read after a change updates the access time, the next one does not.
    let read = || {
        // Empty the cache: the server does not see reads from it.
        let file = File::open(&file).unwrap();
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        sleep(TICK);
        file.read_exact_at(&mut [0], 0).unwrap();
    };
    let before = times(&file);
    read();
    let first = times(&file);
    assert!(first.accessed > before.accessed, "{before:?} {first:?}");
    read();
    assert_eq!(times(&file).accessed, first.accessed);
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn set_xattr(path: &Path) {
    rustix::fs::setxattr(path, "user.a", b"b", rustix::fs::XattrFlags::empty()).unwrap();
}

/// A timestamp that was visible is the one that is stored, though the kernel sends it later.
fn times_that_were_seen_stay(place: &mut Place) {
    for number in 0..50 {
        let path = place.join(format!("file {number}"));
        fs::write(&path, "some").unwrap();
        if number % 3 == 0 {
            fs::write(&path, "more than that").unwrap();
        }
        if number % 5 == 0 {
            set_mode(&path, 0o640);
        }
        if number % 7 == 0 {
            set(&path, (1000, 1), (2000, 2));
        }
    }
    let all = |place: &Place| -> Vec<_> {
        (0..50).map(|number| times(&place.join(format!("file {number}")))).collect()
    };
    let seen = all(place);
    place.remount();
    for (number, (before, after)) in seen.iter().zip(all(place)).enumerate() {
        assert_eq!(*before, after, "file {number}");
    }
}

/// New files have the current birth time, and files that are overwritten by a copy keep theirs.
fn files_have_a_time_of_birth(place: &mut Place) {
    let before = std::time::SystemTime::now() - TICK;
    fs::write(place.join("file"), "x").unwrap();
    let born = times(&place.join("file")).born;
    let start = before.duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(born >= (start.as_secs() as i64, start.subsec_nanos()), "{born:?}");
    assert!(born.0 <= start.as_secs() as i64 + 10);
    set(&place.join("file"), (1, 1), (1, 1));
    fs::rename(place.join("file"), place.join("renamed")).unwrap();
    fs::write(place.join("renamed"), "y").unwrap();
    place.remount();
    assert_eq!(times(&place.join("renamed")).born, born);
    assert_eq!(fs::metadata(place.join("renamed")).unwrap().size(), 1);
}

prove_on_both!(
    times_are_kept_to_the_nanosecond,
    times_out_of_range_are_clamped,
    calls_change_the_times_that_they_must,
    times_that_were_seen_stay,
    files_have_a_time_of_birth,
);
