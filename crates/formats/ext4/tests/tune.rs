//! Interrupted changes of features: e2fsck recovers a sound image with the same files.

use std::path::Path;
use std::sync::Arc;

use disk::{Access, BlockDevice, Event, Fault, FaultyDevice, MemoryDevice, RecordingDevice};
use ext4::Ext4;
use ext4::OpenOptions;
use ext4::format::features::Feature;
use ext4::tune::{Request, tune};
use testkit::crash::{Tearing, cut_off_beside, flushes, read_image, write_image};
use testkit::fs_tree::{FsTree, Rules};
use testkit::{effort, require};
use vfs::Error;

use crate::common::layout::superblock;

/// The primary superblock, which is written atomically.
const SUPERBLOCK: std::ops::Range<u64> = 1024..2048;

/// Features of an image, and changes to them.
const CHANGES: [(&str, &str); 8] = [
    ("^has_journal,^orphan_file", "has_journal,orphan_file"),
    ("orphan_file", "^has_journal"),
    ("quota", "^quota"),
    ("^quota", "quota,project"),
    ("metadata_csum", "^metadata_csum"),
    ("^metadata_csum", "metadata_csum"),
    ("^metadata_csum,uninit_bg", "^uninit_bg"),
    ("resize_inode", "^resize_inode"),
];

/// Creates an image with files, links, attributes and a directory that has an index.
fn image(folder: &Path, features: &str) -> MemoryDevice {
    let source = folder.join("source");
    if !source.exists() {
        std::fs::create_dir_all(source.join("dir/sub")).unwrap();
        for number in 0..400 {
            std::fs::write(source.join(format!("dir/file-{number}")), number.to_string()).unwrap();
        }
        std::fs::write(source.join("large"), vec![3; 300_000]).unwrap();
        std::os::unix::fs::symlink("dir/file-3", source.join("link")).unwrap();
    }
    let path = folder.join("image");
    let made = testkit::Mke2fs::new("ext4").block_size(1024).features(features).populate(&source);
    made.create(&path, 16 << 20);
    let done = testkit::command("e2fsck").arg("-fyD").arg(&path).output().unwrap();
    assert!(matches!(done.status.code(), Some(0 | 1)), "{done:?}");
    read_image(&path).unwrap()
}

fn request(features: &str) -> Request {
    let mut request = Request::default();
    for word in features.split(',') {
        let (name, is_on) = word.strip_prefix('^').map_or((word, true), |name| (name, false));
        request.features.push((Feature::from_name(name).unwrap(), is_on));
    }
    request
}

fn tree(device: MemoryDevice) -> FsTree {
    FsTree::of(&Ext4::open(Arc::new(device), &OpenOptions::default()).unwrap()).unwrap()
}

fn events(start: &MemoryDevice, features: &str) -> Vec<Event> {
    let recording = Arc::new(RecordingDevice::new(Arc::new(start.fork())));
    let device: Arc<dyn BlockDevice> = recording.clone();
    tune(&device, &request(features), &mut |_| Ok(()))
        .unwrap_or_else(|error| panic!("{features}: {error}"));
    recording.take()
}

#[test]
fn a_crash_while_features_change_loses_no_file() {
    require!(Tool("e2fsck"), Tool("mke2fs"));
    let folder = testkit::scratch();
    let path = folder.path().join("crashed");
    for (made, changed) in CHANGES {
        let start = image(folder.path(), made);
        let expected = tree(start.fork());
        let events = events(&start, changed);
        let mut random = fastrand::Rng::with_seed(9);
        let tearing = Tearing { whole: SUPERBLOCK, ..Tearing::default() };
        let mut ends = flushes(&events);
        ends.push(events.len());
        ends.extend((0..effort(2, 5, 100)).map(|_| random.usize(..=events.len())));
        for end in ends {
            let what = format!("{made} to {changed} before event {end} of {}", events.len());
            let state = cut_off_beside(&start, &events, end, &tearing, &mut random);
            write_image(&state, &path).unwrap();
            let done = testkit::command("e2fsck").arg("-fy").arg(&path).output().unwrap();
            let text = String::from_utf8_lossy(&done.stdout);
            assert!(matches!(done.status.code(), Some(0 | 1)), "{what}: {text}");
            // Torn copies of the superblock are ignored by e2fsck, but our check would report them.
            let sound = testkit::command("e2fsck").arg("-fn").arg(&path).output().unwrap();
            assert!(sound.status.success(), "{what}: {}", String::from_utf8_lossy(&sound.stdout));
            let list = expected.differences(&tree(read_image(&path).unwrap()), Rules::default());
            assert!(list.is_empty(), "{what}: {list:#?}");
        }
    }
}

/// Returns the contents of a device.
fn bytes(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Returns whether the superblock says that the image is in order.
fn is_marked_valid(device: &MemoryDevice) -> bool {
    superblock(&bytes(device)).is_some_and(|sb| sb.raw.state & 1 != 0)
}

#[test]
fn a_device_that_fails_while_features_change_is_named_and_leaves_no_false_mark() {
    require!(Tool("e2fsck"), Tool("mke2fs"));
    let folder = testkit::scratch();
    let path = folder.path().join("failed");
    let mut random = fastrand::Rng::with_seed(3);
    for (made, changed) in CHANGES.into_iter().step_by(effort(3, 1, 1)) {
        let start = image(folder.path(), made);
        let expected = tree(start.fork());
        let (unchanged, request) = (bytes(&start), request(changed));
        let run = |access: Access, fault: Fault| {
            let inner = Arc::new(start.fork());
            let faulty = Arc::new(FaultyDevice::new(inner.clone()));
            faulty.set(access, fault);
            let device: Arc<dyn BlockDevice> = faulty.clone();
            let result = tune(&device, &request, &mut |_| Ok(()));
            (inner, result, faulty.count(access))
        };
        for access in [Access::Read, Access::Write, Access::Flush] {
            let (_, result, count) = run(access, Fault::Never);
            result.unwrap_or_else(|error| panic!("{made} to {changed}: {error}"));
            for nth in 0..effort(2, 4, 200) {
                // The last access is the one that makes the change complete.
                let at = if nth == 0 { count } else { random.u64(1..=count) };
                let fault = if random.bool() { Fault::Nth(at) } else { Fault::From(at) };
                let (after, result, _) = run(access, fault);
                let what = format!("{made} to {changed}: {access:?} {fault:?} of {count}");
                assert!(matches!(result, Err(Error::Device(_))), "{what}: {result:?}");
                if access == Access::Read {
                    assert!(bytes(&after) == unchanged, "{what}: the image changed");
                    continue;
                }
                write_image(&after, &path).unwrap();
                if is_marked_valid(&after) {
                    let done = testkit::command("e2fsck").arg("-fn").arg(&path).output().unwrap();
                    let text = String::from_utf8_lossy(&done.stdout);
                    assert!(done.status.success(), "{what}: called clean: {text}");
                }
                let done = testkit::command("e2fsck").arg("-fy").arg(&path).output().unwrap();
                let text = String::from_utf8_lossy(&done.stdout);
                assert!(matches!(done.status.code(), Some(0 | 1)), "{what}: {text}");
                let list =
                    expected.differences(&tree(read_image(&path).unwrap()), Rules::default());
                assert!(list.is_empty(), "{what}: {list:#?}");
            }
        }
    }
}
