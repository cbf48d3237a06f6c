//! What cannot be done: each is refused by name, and nothing is written.

use std::sync::Arc;

use blockdev::{BlockDevice, Event, MemoryDevice, RecordingDevice};
use oracle::require;
use xfs::resize::{grow, plan};

use super::{SHORT_GROUP, filled, longer};
use crate::changing::{Layout, MIB};

/// Asserts that growing is refused with some words.
#[track_caller]
fn assert_refused(device: MemoryDevice, size: u64, words: &str) {
    let device = Arc::new(RecordingDevice::new(Arc::new(device)));
    let error = grow(device.clone(), size).unwrap_err().to_string();
    assert!(error.contains(words), "{error}");
    let written = device.take().into_iter().filter(|event| *event != Event::Flush).count();
    assert_eq!(written, 0, "{error}");
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let image = filled(&Layout::DEFAULT);
    assert_refused(image.fork(), 63 * MIB, "smaller in place");
    assert_refused(image.fork(), 90 * MIB, "extend it first");
    let many = plan(&image, 1 << 60).unwrap_err().to_string();
    assert!(many.contains("allocation groups"), "{many}");
}

#[test]
fn damaged_images_are_refused() {
    let image = longer(&filled(&Layout::DEFAULT), 200 * MIB);
    let damaged = |at: u64| {
        let device = image.fork();
        device.write_at(at, &[0x77; 64]).unwrap();
        device
    };
    assert_refused(damaged(32), 200 * MIB, "superblock");
    // The AGI of the last group.
    assert_refused(damaged(48 * MIB + 1024), 200 * MIB, "AGI");
    assert_refused(damaged(16 * MIB + 512), 200 * MIB, "AGF");
}

#[test]
fn a_short_last_group_of_version_4_is_refused() {
    require!(Tool("mkfs.xfs"));
    let image = Layout { mkfs: Some("-m crc=0 -d agsize=20m"), ..SHORT_GROUP }.make();
    assert_refused(longer(&image, 200 * MIB), 200 * MIB, "last group is short");
}
