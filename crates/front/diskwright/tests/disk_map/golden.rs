//! Golden images of both formats: the use of all their blocks is known.

use vfs::survey::{BlockUse, LogState};

use std::sync::Arc;

use disk::MemoryDevice;
use ext4::Ext4;
use vfs::{FileSystem, NewInode, Timestamp};
use xfs::Xfs;

use crate::disk_map::common::{GOLDEN, Ledger, assert_right, open, open_bytes, unpack};

#[test]
fn every_block_of_a_golden_image_is_counted_once() {
    for (name, packed) in GOLDEN.into_iter().flatten() {
        let fs = open_bytes(&unpack(packed)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let survey = assert_right(name, &*fs);
        for kind in [BlockUse::Headers, BlockUse::Allocation, BlockUse::Inodes] {
            assert!(survey.total(kind) > 0, "{name}: {kind:?}");
        }
        let log = survey.log.iter().map(|(_, len)| len).sum::<u64>();
        assert_eq!(log, survey.total(BlockUse::Log), "{name}");
    }
}

/// Returns the survey of a golden image.
fn of(wanted: &str) -> diskwright::disk_map::Survey {
    let (_, packed) = GOLDEN.into_iter().flatten().find(|(name, _)| *name == wanted).expect(wanted);
    let fs = open_bytes(&unpack(packed)).expect("a sound image");
    crate::disk_map::common::survey(&*fs, 100)
}

#[test]
fn optional_structures_are_distinguished() {
    assert!(of("xfs/shared").total(BlockUse::Shared) > 0);
    assert!(of("ext4/ea-inode").total(BlockUse::Attributes) > 0);
    assert!(of("ext4/ext3").total(BlockUse::Maps) > 0);
    assert!(of("ext4/deep-index").total(BlockUse::Directories) > 0);
    assert_eq!(of("ext4/ext2-rev0").shape.log, LogState::None);
    assert_eq!(of("ext4/journal").shape.log, LogState::Clean);
    assert_eq!(of("xfs/default").shape.log, LogState::Clean);
}

/// Creates files that are only in the log, and not written back.
fn make_files(fs: &dyn FileSystem) {
    let time = Timestamp { sec: 1_700_000_000, nsec: 0 };
    let new = NewInode { permissions: 0o644, uid: 0, gid: 0, time, parent_time: None };
    for number in 0..20 {
        let name = format!("new-{number}");
        let file = fs.create(fs.root(), name.as_bytes(), &new).expect("room for a file");
        fs.write(file, 0, &[7; 9000], None).expect("room for data");
    }
    fs.sync().expect("a device that does not fail");
}

#[test]
fn the_map_includes_the_log_unless_recovery_is_disabled() {
    for (name, is_xfs) in [("ext4/journal", false), ("xfs/default", true)] {
        let (_, packed) = GOLDEN.into_iter().flatten().find(|(n, _)| *n == name).expect(name);
        let device = Arc::new(MemoryDevice::from_bytes(&unpack(packed)));
        let before =
            crate::disk_map::common::survey(&*open(device.clone(), false).expect("sound"), 100);
        // The file systems are not closed: the images are as after a crash.
        if is_xfs {
            make_files(&Xfs::open_writable(device.clone(), &Default::default()).expect("sound"));
        } else {
            make_files(&Ext4::open_writable(device.clone(), &Default::default()).expect("sound"));
        }
        let fs = open(device.clone(), false).expect("an image with a log");
        let survey = assert_right(name, &*fs);
        assert_eq!(survey.shape.log, LogState::Replayed, "{name}");
        assert_eq!(survey.files.files, before.files.files + 20, "{name}");
        let fs = open(device, true).expect("an image without its log");
        assert_eq!(fs.shape().expect("a shape").log, LogState::Ignored, "{name}");
        let without = Ledger::of_damaged(name, &*fs);
        let files = without.files.iter().filter(|file| !file.is_dir).count() as u64;
        assert!(files < survey.files.files, "{name}");
    }
}
