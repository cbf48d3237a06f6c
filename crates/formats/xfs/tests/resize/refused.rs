//! Unsupported growth is refused with a specific error, and nothing is written.

use std::sync::Arc;

use disk::{BlockDevice, Event, MemoryDevice, RecordingDevice};
use testkit::require;
use xfs::resize::{grow, plan};

use super::{SHORT_GROUP, filled, longer};
use crate::changing::{MIB, TargetLayout};

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
fn invalid_sizes_are_refused() {
    let image = filled(&TargetLayout::DEFAULT);
    assert_refused(image.fork(), 63 * MIB, "shrinking XFS in place");
    assert_refused(image.fork(), 90 * MIB, "extend it first");
    let many = plan(&image, 1 << 60).unwrap_err().to_string();
    assert!(many.contains("allocation groups"), "{many}");
}

#[test]
fn damaged_images_are_refused() {
    let image = longer(&filled(&TargetLayout::DEFAULT), 200 * MIB);
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
    let image = TargetLayout { mkfs: Some("-m crc=0 -d agsize=20m"), ..SHORT_GROUP }.make();
    assert_refused(longer(&image, 200 * MIB), 200 * MIB, "incomplete last group");
}

/// With any damage, growing ends: it is refused, or done.
#[test]
fn damage_anywhere_causes_no_panic() {
    require!(Tool("mkfs.xfs"));
    let images = [
        filled(&SHORT_GROUP),
        TargetLayout { mkfs: Some("-m crc=0"), ..TargetLayout::DEFAULT }.make(),
    ];
    let (mut refused, mut done) = (0, 0);
    for image in images {
        let image = longer(&image, 150 * MIB);
        for seed in 0..testkit::effort(150, 600, 20_000) {
            let mut random = fastrand::Rng::with_seed(seed);
            let device = image.fork();
            // In the headers and roots of groups, mostly of the first.
            let group = [0, 0, 0, 16, 20, 32, 40, 48, 60][random.usize(..9)] * MIB;
            for _ in 0..random.usize(1..4) {
                let most = if random.bool() { 2048 } else { 32 << 10 };
                let at = group + random.u64(..most);
                device.write_at(at, &[random.u8(..)]).unwrap();
            }
            let device = Arc::new(device);
            // With valid checksums, so that later checks are reached.
            if random.bool() {
                reseal(&device, group);
            }
            match grow(device, 150 * MIB) {
                Ok(_) => done += 1,
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 10 && done > 10, "{refused} refused, {done} done");
}

/// Updates the checksums of a group's headers.
fn reseal(device: &MemoryDevice, group: u64) {
    for (sector, crc) in [(0, 224), (1, 216), (2, 312), (3, 32)] {
        let at = group + sector * 512;
        let mut bytes = [0; 512];
        device.read_at(at, &mut bytes).unwrap();
        if bytes.starts_with(b"X") {
            xfs::format::checksum::seal(&mut bytes, crc);
            device.write_at(at, &bytes).unwrap();
        }
    }
}
