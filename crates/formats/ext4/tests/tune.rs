//! Interrupted changes of features: e2fsck recovers a sound image with the same files.

use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, Event, MemoryDevice, RecordingDevice};
use ext4::Ext4;
use ext4::OpenOptions;
use ext4::format::features::Feature;
use ext4::tune::{Request, tune};
use testkit::crash::{Tearing, cut_off_beside, flushes, read_image, write_image};
use testkit::{effort, require};
use workload::tree::{Rules, Tree};

/// The primary superblock, which is written atomically.
const SUPERBLOCK: std::ops::Range<u64> = 1024..2048;

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

fn tree(device: MemoryDevice) -> Tree {
    Tree::of(&Ext4::open(Arc::new(device), &OpenOptions::default()).unwrap()).unwrap()
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
    for (made, changed) in [
        ("^has_journal,^orphan_file", "has_journal,orphan_file"),
        ("orphan_file", "^has_journal"),
        ("quota", "^quota"),
        ("^quota", "quota,project"),
        ("metadata_csum", "^metadata_csum"),
        ("^metadata_csum", "metadata_csum"),
        ("^metadata_csum,uninit_bg", "^uninit_bg"),
        ("resize_inode", "^resize_inode"),
    ] {
        let start = image(folder.path(), made);
        let expected = tree(start.fork());
        let events = events(&start, changed);
        let mut random = fastrand::Rng::with_seed(9);
        let tearing = Tearing { whole: SUPERBLOCK, ..Tearing::default() };
        let mut ends = flushes(&events);
        ends.push(events.len());
        ends.extend((0..effort(2, 10, 100)).map(|_| random.usize(..=events.len())));
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
