//! Quota files made by this crate: the guest's kernel need not count.

use std::path::Path;
use std::sync::Arc;

use disk::MemoryDevice;
use testkit::crash::{read_image, write_image};
use testkit::{effort, require, scratch};
use vfs::{FileSystem, Timestamp};
use xfs::tune::{Quotas, add_quotas, make_quotas};
use xfs::{OpenOptions, Xfs};

use super::guest::reported;
use super::run::QuotaRun;
use super::{COUNTED, assert_counted, flags, image, open, remove_all, superblock, usage};
use crate::changing::assert_clean;
use crate::making::{Case, case};

const TIME: Timestamp = Timestamp { sec: 1_790_000_000, nsec: 7 };
const MIB: u64 = 1 << 20;

const CASES: [Case; 4] = [
    case(320 * MIB),
    Case { features: "+metadir", ..case(320 * MIB) },
    Case { features: "-bigtime,-parent,-rmapbt,-reflink", block_size: 1024, ..case(320 * MIB) },
    Case { features: "-nrext64", block_size: 16384, ..case(320 * MIB) },
];

/// Returns an image with files of many owners.
fn filled(case: &Case, folder: &Path) -> Arc<MemoryDevice> {
    let path = folder.join("made");
    case.make(&path);
    let device = Arc::new(read_image(&path).unwrap());
    let mut run = QuotaRun::new(open(&device), 5);
    run.steps(effort(150, 400, 1000));
    run.fs.close().unwrap();
    device
}

#[test]
fn added_quotas_are_counted_and_followed() {
    require!(Tool("xfs_repair"));
    let folder = scratch();
    for case in effort(&CASES[..2], &CASES[..], &CASES[..]) {
        let device = filled(case, folder.path());
        let shared: Arc<dyn disk::BlockDevice> = device.clone();
        add_quotas(&shared, Quotas::ALL, TIME).unwrap();
        assert_eq!(flags(&device), 0x7cf, "{case:?}");
        assert_counted(&device);
        let fs = open(&device);
        remove_all(&fs, fs.root());
        let mut run = QuotaRun::new(fs, 6);
        run.steps(300);
        run.fs.close().unwrap();
        assert_counted(&device);
        // Adding them again changes nothing.
        let before = device.fork();
        add_quotas(&shared, Quotas::ALL, TIME).unwrap();
        assert_eq!(flags(&device), flags(&before));
        assert_counted(&device);
    }
}

/// Without the log: all kinds, and some of them without limits.
#[test]
fn new_images_get_quotas_in_place() {
    require!(Tool("xfs_repair"));
    let folder = scratch();
    for (case, kinds) in CASES.iter().zip([[true; 3], [true, false, true], [false, true, false]]) {
        let device = filled(case, folder.path());
        let shared: Arc<dyn disk::BlockDevice> = device.clone();
        make_quotas(&shared, Quotas::new(kinds, false), TIME).unwrap();
        let bits = [0x1 | 0x4, 0x40 | 0x100, 0x8 | 0x400];
        let expected = bits.iter().zip(kinds).map(|(bits, is_on)| if is_on { *bits } else { 0 });
        assert_eq!(flags(&device), expected.sum::<u16>(), "{case:?}");
        let found = crate::checking::findings(device.clone()).unwrap();
        assert!(found.is_empty(), "{case:?}: {found:#?}");
        assert_clean(&device);
    }
}

/// An image that has quotas of a kernel: the other kinds are added, and nothing is counted twice.
#[test]
fn kinds_can_be_added() {
    require!(Tool("xfs_repair"));
    let device = Arc::new(image());
    crate::repair::quota_files::change_superblock(&device, |raw| raw.qflags = 0x5.into());
    let mut run = QuotaRun::new(open(&device), 9);
    run.steps(200);
    run.fs.close().unwrap();
    let shared: Arc<dyn disk::BlockDevice> = device.clone();
    add_quotas(&shared, Quotas::new([false, true, true], true), TIME).unwrap();
    assert_eq!(flags(&device) & COUNTED, COUNTED);
    assert_counted(&device);
}

/// A damaged image is refused and does not change.
#[test]
fn damaged_images_get_no_quotas() {
    let device = Arc::new(image());
    crate::repair::quota_files::change_superblock(&device, |raw| raw.fdblocks = 7.into());
    let before = flags(&device);
    let shared: Arc<dyn disk::BlockDevice> = device.clone();
    let refused = add_quotas(&shared, Quotas::ALL, TIME).unwrap_err();
    assert!(refused.to_string().contains("findings of the check"), "{refused}");
    assert_eq!(flags(&device), before);
}

/// The guest's kernel and its scrub accept the files, and count nothing again.
#[test]
fn the_guest_need_not_count_made_quotas() {
    require!(Guest("XFS_QUOTA"), Guest("XFS_ONLINE_SCRUB"), Tool("xfs_repair"));
    let folder = scratch();
    for case in effort(&CASES[..1], &CASES[..2], &CASES[..3]) {
        let device = filled(case, folder.path());
        let shared: Arc<dyn disk::BlockDevice> = device.clone();
        add_quotas(&shared, Quotas::ALL, TIME).unwrap();
        let fs = Xfs::open(device.clone(), &OpenOptions::default()).unwrap();
        let expected = usage(&fs);
        drop(fs);
        let path = folder.path().join("image");
        write_image(&device, &path).unwrap();
        let block_size = superblock(&device).raw.blocksize.get().into();
        assert_eq!(reported(&path, block_size), expected, "{case:?}");
        testkit::guest::scrub(&path).unwrap();
        testkit::xfs_repair(&path);
        crate::checking::assert_sound(&path);
        // Without quotas afterwards.
        let fs = open(&device);
        remove_all(&fs, fs.root());
        fs.close().unwrap();
        assert_counted(&device);
    }
}
