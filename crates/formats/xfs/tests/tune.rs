//! Features added to existing file systems.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice, RecordingDevice};
use testkit::crash::{cut_off, flushes, write_image};
use testkit::fs_tree::{FsTree, Rules};
use testkit::{KernelMount, MountOptions, effort, require};
use vfs::{Error, FileSystem, NewInode};
use xfs::format::features::{Features, Incompat, RoCompat};
use xfs::tune::{NewFeature, add_features};
use xfs::{OpenOptions, Xfs};

use crate::changing::{MIB, TargetLayout, assert_clean};

/// An image without the features that can be added.
const OLD: TargetLayout = TargetLayout {
    features: "-bigtime,-inobtcount,-nrext64,-exchange",
    block_size: 1024,
    ag_count: Some(3),
    size: 320 * MIB,
    ..TargetLayout::DEFAULT
};

/// Returns an image whose inode trees have two levels.
fn filled(layout: &TargetLayout) -> MemoryDevice {
    let device = Arc::new(layout.make());
    let fs = Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap();
    let new = NewInode { permissions: 0o755, ..NewInode::default() };
    for dir in 0..3_u32 {
        let dir = fs.mkdir(fs.root(), dir.to_string().as_bytes(), &new).unwrap();
        for number in 0..6_000_u32 {
            fs.create(dir, number.to_string().as_bytes(), &new).unwrap();
        }
    }
    fs.close().unwrap();
    device.fork()
}

fn features(device: &MemoryDevice) -> Features {
    let fs = Xfs::open(Arc::new(device.fork()), &OpenOptions::default()).unwrap();
    fs.superblock().features
}

fn tree(device: &MemoryDevice) -> FsTree {
    FsTree::of(&Xfs::open(Arc::new(device.fork()), &OpenOptions::default()).unwrap()).unwrap()
}

fn add(device: &MemoryDevice, wanted: &[NewFeature]) -> vfs::Result<MemoryDevice> {
    let device: Arc<MemoryDevice> = Arc::new(device.fork());
    let shared: Arc<dyn BlockDevice> = device.clone();
    add_features(&shared, wanted)?;
    Ok(device.fork())
}

#[test]
fn features_are_added_in_place_and_kernels_use_them() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let old = filled(&OLD);
    let expected = tree(&old);
    let mut together = old.fork();
    for feature in NewFeature::ALL {
        let one = add(&old, &[feature]).unwrap();
        assert_clean(&one);
        assert_ne!(features(&one), features(&old), "{feature:?}");
        together = add(&together, &[feature]).unwrap();
    }
    let all = add(&old, &NewFeature::ALL).unwrap();
    let (found, bits) =
        (features(&all), Incompat::BIGTIME | Incompat::NREXT64 | Incompat::EXCHRANGE);
    assert!(found.incompat.contains(bits) && found.ro_compat.contains(RoCompat::INOBTCOUNT));
    assert_eq!(features(&together), found);
    let differences = expected.differences(&tree(&all), Rules::default());
    assert!(differences.is_empty(), "{differences:#?}");
    // A second call has no effect.
    let recording = Arc::new(RecordingDevice::new(Arc::new(all.fork())));
    let device: Arc<dyn BlockDevice> = recording.clone();
    add_features(&device, &NewFeature::ALL).unwrap();
    assert!(recording.take().is_empty());
    let folder = testkit::scratch();
    let path = folder.path().join("image");
    write_image(&all, &path).unwrap();
    let mount = KernelMount::new(&path, &MountOptions::read_write("xfs"));
    for number in 0..500 {
        std::fs::write(mount.path().join(format!("1/new-{number}")), "new").unwrap();
    }
    mount.unmount();
    testkit::xfs_repair(&path);
}

#[test]
fn a_crash_leaves_all_new_features_or_none() {
    require!(Tool("xfs_repair"));
    let old = filled(&OLD);
    let recording = Arc::new(RecordingDevice::new(Arc::new(old.fork())));
    let device: Arc<dyn BlockDevice> = recording.clone();
    add_features(&device, &NewFeature::ALL).unwrap();
    let events = recording.take();
    let after = features(&add(&old, &NewFeature::ALL).unwrap());
    let mut random = fastrand::Rng::with_seed(1);
    let mut ends = flushes(&events);
    ends.push(events.len());
    ends.extend((0..effort(4, 10, 100)).map(|_| random.usize(0..=events.len())));
    let mut seen = [false; 2];
    for end in ends {
        let state = cut_off(&old, &events, end, &mut random);
        let found = features(&state);
        assert!([features(&old), after].contains(&found), "before event {end}: {found:?}");
        seen[usize::from(found == after)] = true;
        // Copies of the superblock may be older, as after any change of features.
        let again = add(&state, &NewFeature::ALL);
        let sound = again.unwrap_or_else(|error| panic!("before event {end}: {error}"));
        assert_eq!(features(&sound), after);
    }
    assert_eq!(seen, [true; 2]);
}

#[test]
fn features_are_refused_where_they_cannot_work() {
    let refused = |layout: &TargetLayout, wanted: &[NewFeature], expected: &str| {
        let device = Arc::new(RecordingDevice::new(Arc::new(layout.make())));
        let shared: Arc<dyn BlockDevice> = device.clone();
        let error = add_features(&shared, wanted).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(device.take().is_empty());
    };
    refused(&TargetLayout::PLAIN, &[NewFeature::Inobtcount], "finobt");
    let tiny = TargetLayout { log_bytes: Some(512 << 10), ..OLD };
    refused(&tiny, &[NewFeature::Nrext64], "log");
    // A log with changes.
    let device = Arc::new(OLD.make());
    let fs = Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap();
    fs.mkdir(fs.root(), b"new", &NewInode::default()).unwrap();
    fs.sync().unwrap();
    drop(fs);
    let error = add(&device, &[NewFeature::Bigtime]).err().unwrap();
    assert!(matches!(error, Error::Invalid(why) if why.contains("log")), "{error}");
}
