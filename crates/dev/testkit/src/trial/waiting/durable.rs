//! Durability of waiting files.

use std::sync::Arc;

use disk::{Event, RecordingDevice};
use operations::deferred_create::DeferPolicy;
use vfs::{Attributes, SetAttributes, Timestamp};

use super::{NEW, SOON, WaitingTrial, name};

/// Size of a cache that is smaller than the images, in bytes.
const SMALL_CACHE_BYTES: usize = 256 << 10;

/// After a crash, synced files are present, and of the others all that were applied.
///
/// # Panics
/// If that is violated.
pub fn syncs(trial: &WaitingTrial<'_>) {
    let opened = trial.filled();
    let ino = opened.ino(222);
    opened.fs().write(ino, 0, b"x", None).unwrap();
    let crashed = trial.after_crash(&opened.device);
    assert_eq!(crashed.entries().len(), 200);
    trial.close(crashed);
    opened.fs().fsync(ino).unwrap();
    let crashed = trial.after_crash(&opened.device);
    assert_eq!(crashed.entries().len(), 300);
    trial.close(crashed);
    trial.close(opened);
}

/// A datasync of a waiting file, or of its directory, makes its name durable.
///
/// # Panics
/// If it does not.
pub fn datasyncs(trial: &WaitingTrial<'_>) {
    for is_of_the_directory in [false, true] {
        let opened = trial.filled();
        assert_eq!(opened.waiting(), 100);
        let ino = opened.ino(222);
        opened.fs().open(ino).unwrap();
        opened.fs().fdatasync(if is_of_the_directory { opened.dir } else { ino }).unwrap();
        assert_eq!(opened.waiting(), 0);
        let crashed = trial.after_crash(&opened.device);
        assert_eq!(crashed.entries().len(), 300);
        trial.close(crashed);
        opened.fs().close(ino).unwrap();
        trial.close(opened);
    }
}

/// A datasync does not make times durable, a sync does.
///
/// # Panics
/// If that is violated.
pub fn times_of_datasyncs(trial: &WaitingTrial<'_>) {
    let opened = trial.filled();
    let fs = opened.fs();
    fs.sync().unwrap();
    let ino = opened.ino(222);
    let before = fs.attributes(ino).unwrap().mtime;
    let later = Timestamp { sec: before.sec + 100, nsec: 0 };
    let change = SetAttributes { mtime: Some(later), ..SetAttributes::default() };
    fs.set_attributes(ino, &change).unwrap();
    for (is_full, expected) in [(false, before), (true, later)] {
        if is_full {
            fs.fsync(ino).unwrap();
        } else {
            fs.fdatasync(ino).unwrap();
        }
        let crashed = trial.after_crash(&opened.device);
        assert_eq!(crashed.fs().attributes(ino).unwrap().mtime, expected);
        trial.close(crashed);
    }
    trial.close(opened);
}

/// Crashes an image with a small log: all files created before the last sync are present, and any of the others, each
/// as it was created.
///
/// # Panics
/// If that is violated, or if files appear in the order of creation, which means that none waited.
pub fn crashes(trial: &WaitingTrial<'_>) {
    let policy = DeferPolicy { files_max: 400, parts: 8, ..SOON };
    let base = (trial.make)();
    let recording = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    let mounted = (trial.open)(recording.clone(), SMALL_CACHE_BYTES, Some(policy)).unwrap();
    let fs = mounted.file_system();
    let dir = fs.mkdir(fs.root(), b"d", &NEW).unwrap();
    let create = |number| assert!(fs.create(dir, &name(number), &NEW).is_ok());
    (0..300).for_each(create);
    fs.sync().unwrap();
    let synced = recording.event_count();
    let mut most = 0;
    for number in 300..3_300 {
        create(number);
        most = most.max(mounted.files_deferred());
    }
    let events = recording.take();
    let flushes = (synced..events.len()).filter(|&at| events[at] == Event::Flush);
    let ends: Vec<usize> = flushes.chain([events.len()]).collect();
    assert!(ends.len() > 4, "{} flushes", ends.len());
    let mut is_out_of_order = false;
    for &end in ends.iter().step_by(ends.len().div_ceil(8)) {
        let image = base.fork();
        events[..end].iter().for_each(|event| event.replay(&image).unwrap());
        is_out_of_order |= look_at_crash(trial, &image);
    }
    assert!(is_out_of_order, "{most} waited at most");
}

/// Returns whether a file is present although an earlier one is missing.
fn look_at_crash(trial: &WaitingTrial<'_>, image: &disk::MemoryDevice) -> bool {
    let crashed = trial.after_crash(image);
    let there: Vec<bool> = (0..3_300).map(|number| crashed.has(number)).collect();
    assert!(there[..300].iter().all(|&is_there| is_there));
    assert_eq!(crashed.entries().len(), there.iter().filter(|&&t| t).count());
    for number in (0..3_300).filter(|&number| there[number as usize]) {
        let found = crashed.fs().attributes(crashed.ino(number)).unwrap();
        let Attributes { permissions, links, size, mtime, .. } = found;
        assert_eq!((permissions, links, size, mtime), (0o755, 1, 0, NEW.time));
    }
    trial.close(crashed);
    there.windows(2).any(|two| two == [false, true])
}
