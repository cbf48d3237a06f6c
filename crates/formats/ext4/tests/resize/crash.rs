//! A crash while the size changes leaves the old size or the new one.

use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, Event, MemoryDevice, RecordingDevice};
use ext4::resize::{SizeRequest, grow, shrink};
use testkit::crash::{Tearing, cut_off_beside, cut_off_but_for, flushes, read_image, write_image};
use testkit::{KernelMount, MountOptions, effort, require};
use vfs::FileSystem;

use super::kinds::{KINDS, MIB, MkfsParameters, assert_shows, assert_sound, device, kind, tree};
use super::shrink::filled;
use crate::changing::open;
use crate::names::common::NEW;

/// The primary superblock, which is written atomically.
const SUPERBLOCK: std::ops::Range<u64> = 1024..2048;

/// Number of flushes at the end, while the new size is written and the journal emptied, with a margin.
const LAST_FLUSHES: usize = 9;

/// Returns a crash state with an intact superblock.
pub(super) fn crashed(
    start: &MemoryDevice,
    events: &[Event],
    end: usize,
    random: &mut fastrand::Rng,
) -> MemoryDevice {
    cut_off_beside(start, events, end, &Tearing { whole: SUPERBLOCK, ..Tearing::default() }, random)
}

/// Recovers an image by e2fsck. If it has a journal, nothing may need repair.
#[track_caller]
pub(super) fn recover_by_e2fsck(image: &Path, has_journal: bool, what: &str) {
    let output = testkit::command("e2fsck").arg("-fy").arg(image).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{what}:\n{text}");
    // With a journal, only recovery is allowed.
    let is_repair = text.contains("? yes") || text.contains("FIXED");
    assert!(!has_journal || !is_repair, "{what}:\n{text}");
}

/// Creates an image of a kind on a device of `bytes` bytes.
fn made(kind: &MkfsParameters, folder: &Path, bytes: u64) -> MemoryDevice {
    let image = kind.make(folder);
    std::fs::File::options().write(true).open(&image).unwrap().set_len(bytes).unwrap();
    let device = read_image(&image).unwrap();
    std::fs::remove_file(image).unwrap();
    device
}

/// The copies of the superblock and of descriptors do not fit into its journal at once.
const LITTLE_JOURNAL: MkfsParameters = MkfsParameters {
    arguments: &["-g", "256", "-J", "size=1"],
    ..kind("little journal", "ext4", 1024, "^sparse_super,^resize_inode,^flex_bg,^64bit")
};

#[test]
fn a_crash_leaves_the_old_size_or_the_new_one() {
    require!(Tool("e2fsck"), Tool("mke2fs"));
    let folder = testkit::scratch();
    let image = folder.path().join("crashed.img");
    for kind in KINDS.into_iter().chain([LITTLE_JOURNAL]) {
        let bytes = kind.size + 90 * MIB + 12 * 1024;
        let blocks = bytes / u64::from(kind.block_size);
        let start = made(&kind, folder.path(), bytes);
        let expected = tree(Arc::new(start.fork()));
        let recording = Arc::new(RecordingDevice::new(Arc::new(start.fork())));
        let after = grow(recording.clone(), blocks, kind.size).unwrap().after;
        let events = recording.take();
        let flushes = flushes(&events);
        let some = flushes.iter().copied().step_by(effort(5, 5, 1));
        let mut ends: Vec<usize> = some.collect();
        let mut random = fastrand::Rng::with_seed(5);
        ends.extend((0..effort(3, 3, 300)).map(|_| random.usize(..=events.len())));
        let has_journal = kind.fs_type != "ext2";
        let mut states: Vec<_> =
            ends.into_iter().map(|end| (end, crashed(&start, &events, end, &mut random))).collect();
        let alone = flushes.into_iter().rev().take(LAST_FLUSHES);
        states.extend(alone.map(|end| (end, cut_off_but_for(&start, &events, end, SUPERBLOCK))));
        for (end, state) in states {
            let what = format!("{} before event {end} of {}", kind.name, events.len());
            if has_journal {
                // Recovery by this crate, then growth again.
                let again: Arc<dyn BlockDevice> = Arc::new(state.fork());
                open(again.clone(), 1 << 20).unwrap().close().unwrap();
                let grown = grow(again.clone(), blocks, kind.size).unwrap();
                assert_eq!(grown.after, after, "{what}");
                assert!(
                    expected.differences(&tree(again), Default::default()).is_empty(),
                    "{what}"
                );
            }
            write_image(&state, &image).unwrap();
            recover_by_e2fsck(&image, has_journal, &what);
            assert_sound(&image, &what);
            assert_shows(&image, &expected, &what);
            let grown = grow(device(&image), blocks, kind.size).unwrap();
            assert_eq!(grown.after, after, "{what}");
            assert_sound(&image, &what);
        }
    }
}

#[test]
fn kernels_recover_the_old_size_or_the_new_one() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Root);
    let folder = testkit::scratch();
    let image = folder.path().join("crashed.img");
    for kind in [KINDS[0], KINDS[4], KINDS[8]] {
        let bytes = kind.size + 90 * MIB;
        let start = made(&kind, folder.path(), bytes);
        let expected = tree(Arc::new(start.fork()));
        let recording = Arc::new(RecordingDevice::new(Arc::new(start.fork())));
        grow(recording.clone(), bytes / u64::from(kind.block_size), kind.size).unwrap();
        let events = recording.take();
        let mut random = fastrand::Rng::with_seed(7);
        let any = flushes(&events)
            .into_iter()
            .map(|end| (end, crashed(&start, &events, end, &mut random)));
        let mut states: Vec<_> = any.collect();
        let alone = flushes(&events).into_iter().rev().take(LAST_FLUSHES);
        states.extend(alone.map(|end| (end, cut_off_but_for(&start, &events, end, SUPERBLOCK))));
        for (end, state) in states {
            let what = format!("{} before event {end} of {}", kind.name, events.len());
            write_image(&state, &image).unwrap();
            // A kernel that replays the growth keeps the old group count until it is unmounted, and stores their free
            // counts in the superblock. The next mount recounts.
            for _ in 0..2 {
                KernelMount::new(&image, &MountOptions::read_write(kind.fs_type)).unmount();
            }
            assert_sound(&image, &what);
            assert_shows(&image, &expected, &what);
        }
    }
}

/// Chooses the points at which shrinking is interrupted. There are thousands, and each check takes a moment, so the end
/// and a deterministic sample are used. One third is anywhere, mostly while contents are copied. One third is right
/// before a flush, with all writes since the previous flush in doubt. One third is where the size changes.
fn ends_while_shrinking(events: &[Event], random: &mut fastrand::Rng) -> Vec<usize> {
    let flushes = flushes(events);
    let last = flushes.len().saturating_sub(LAST_FLUSHES);
    let chosen = (1..effort(4, 4, 400)).map(|nth| match nth % 3 {
        0 => random.usize(..=events.len()),
        1 => flushes[random.usize(last..flushes.len())],
        _ => flushes[random.usize(..flushes.len())],
    });
    std::iter::once(events.len()).chain(chosen).collect()
}

#[test]
fn a_crash_of_shrinking_leaves_the_same_files() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Root);
    let folder = testkit::scratch();
    let image = folder.path().join("crashed.img");
    for kind in KINDS.into_iter().filter(|kind| kind.fs_type != "ext2") {
        let full = filled(&kind, folder.path());
        let start = read_image(&full).unwrap();
        std::fs::remove_file(&full).unwrap();
        let expected = tree(Arc::new(start.fork()));
        let request = SizeRequest::Blocks((kind.size + 40 * MIB) / u64::from(kind.block_size));
        let recording = Arc::new(RecordingDevice::new(Arc::new(start.fork())));
        let after = shrink(recording.clone(), request, &mut |_, _| true)
            .unwrap_or_else(|error| panic!("{}: {error}", kind.name))
            .after;
        let events = recording.take();
        let mut random = fastrand::Rng::with_seed(6);
        for end in ends_while_shrinking(&events, &mut random) {
            let what = format!("{} before event {end} of {}", kind.name, events.len());
            let state = crashed(&start, &events, end, &mut random);
            let again: Arc<dyn BlockDevice> = Arc::new(state.fork());
            open(again.clone(), 1 << 20).unwrap().close().unwrap();
            let shrunk = shrink(again.clone(), request, &mut |_, _| true)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(shrunk.after, after, "{what}");
            assert!(expected.differences(&tree(again), Default::default()).is_empty(), "{what}");
            write_image(&state, &image).unwrap();
            recover_by_e2fsck(&image, true, &what);
            assert_sound(&image, &what);
            assert_shows(&image, &expected, &what);
        }
    }
}

/// Creates an image with a directory of 500 subdirectories in one of its last groups. All of them refer to it when its
/// inode number changes, and the journal has room for 378 blocks at once.
fn wide_directory(folder: &Path, features: &str) -> MemoryDevice {
    let image = folder.join("wide.img");
    let made = testkit::Mke2fs::new("ext4").block_size(1024).features(features);
    made.arguments(["-J", "size=1", "-g", "2048", "-N", "3200"]).create(&image, 24 * MIB);
    let start = read_image(&image).unwrap();
    let device = Arc::new(start);
    let fs = open(device.clone(), 1 << 20).unwrap();
    let root = vfs::Ino(2);
    // Directories of the root are distributed over the groups.
    let tops = (0..9).map(|number| fs.mkdir(root, format!("top{number}").as_bytes(), &NEW));
    let tops: Vec<_> = tops.map(|top| top.unwrap()).collect();
    let wide = fs.mkdir(tops[8], b"wide", &NEW).unwrap();
    for number in 0..500 {
        fs.mkdir(wide, format!("p{number}").as_bytes(), &NEW).unwrap();
    }
    fs.close().unwrap();
    device.fork()
}

#[test]
fn a_crash_with_a_temporary_journal_keeps_all_files() {
    require!(Tool("e2fsck"), Tool("mke2fs"));
    let folder = testkit::scratch();
    let image = folder.path().join("crashed.img");
    for features in ["^resize_inode", "^extent,^resize_inode,^64bit,^flex_bg"] {
        let start = wide_directory(folder.path(), features);
        let expected = tree(Arc::new(start.fork()));
        let recording = Arc::new(RecordingDevice::new(Arc::new(start.fork())));
        let shrunk = shrink(recording.clone(), SizeRequest::Minimum, &mut |_, _| true)
            .unwrap_or_else(|error| panic!("{features}: {error}"));
        assert!(shrunk.inodes_moved > 0, "{features}: {shrunk:?}");
        let events = recording.take();
        let mut random = fastrand::Rng::with_seed(8);
        let flushes = flushes(&events);
        let mut ends: Vec<usize> = vec![events.len()];
        ends.extend((0..effort(12, 12, 300)).map(|_| flushes[random.usize(..flushes.len())]));
        ends.extend((0..effort(4, 6, 300)).map(|_| random.usize(..=events.len())));
        for end in ends {
            let what = format!("{features} before event {end} of {}", events.len());
            let state = crashed(&start, &events, end, &mut random);
            write_image(&state, &image).unwrap();
            recover_by_e2fsck(&image, true, &what);
            assert_sound(&image, &what);
            assert_shows(&image, &expected, &what);
            let again: Arc<dyn BlockDevice> = Arc::new(state.fork());
            shrink(again.clone(), SizeRequest::Minimum, &mut |_, _| true)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(expected.differences(&tree(again), Default::default()).is_empty(), "{what}");
        }
    }
}
