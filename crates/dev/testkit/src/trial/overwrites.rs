//! Overwriting a file changes data only.

use std::sync::Arc;

use disk::{Access, Fault, FaultyDevice};
use vfs::{Error, FileSystem, Ino};

use super::{NEW, Trial};

fn contents(fs: &dyn FileSystem, ino: Ino, len: usize) -> Vec<u8> {
    let mut found = vec![0; len];
    assert_eq!(fs.read(ino, 0, &mut found).unwrap(), len);
    found
}

/// Overwriting contiguous data is a single write to the device, leaves nothing else to sync, and is rejected after a
/// failed checkpoint.
///
/// # Panics
/// If that is violated.
pub fn overwrites(trial: &Trial<'_>) {
    let device = trial.make();
    let faulty = Arc::new(FaultyDevice::new(device));
    let mounted = trial.open(faulty.clone());
    let fs = mounted.file_system();
    let ino = fs.create(fs.root(), b"file", &NEW).unwrap();
    let mut expected = vec![b'a'; 3 * trial.block_bytes as usize + 7];
    fs.write(ino, 0, &expected, None).unwrap();
    fs.sync().unwrap();

    let (from, len) = (trial.block_bytes as usize - 100, 200);
    expected[from..from + len].fill(b'b');
    faulty.set(Access::Write, Fault::Never);
    fs.write(ino, from as u64, &expected[from..from + len], None).unwrap();
    assert_eq!(faulty.count(Access::Write), 1, "{}: writes", trial.name);
    faulty.set(Access::Flush, Fault::Never);
    fs.sync().unwrap();
    assert_eq!(faulty.count(Access::Write), 1, "{}: writes with a sync", trial.name);
    assert!(faulty.count(Access::Flush) > 0, "{}: nothing made the data durable", trial.name);
    assert_eq!(contents(fs, ino, expected.len()), expected, "{}", trial.name);

    fs.create(fs.root(), b"other", &NEW).unwrap();
    faulty.set(Access::Write, Fault::From(1));
    assert!(fs.sync().is_err(), "{}: a sync that cannot write", trial.name);
    faulty.set(Access::Write, Fault::Never);
    let refused = fs.write(ino, 0, b"late", None);
    assert!(matches!(refused, Err(Error::Device(_))), "{}: {refused:?}", trial.name);
    assert_eq!(faulty.count(Access::Write), 0, "{}: writes after a failure", trial.name);
    assert_eq!(contents(fs, ino, expected.len()), expected, "{}", trial.name);
}
