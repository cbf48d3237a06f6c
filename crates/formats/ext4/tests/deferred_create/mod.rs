//! Deferred creates: files that wait in memory before they are entered into their directory.

mod random;

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use ext4::{DeferPolicy, Ext4, OpenOptions};
use testkit::trial::waiting::{self, MayWait, Order, SOON, WaitingTrial};
use testkit::{effort, require};
use vfs::FileSystem as _;

use crate::changing::crashing::OpenExt4;
use crate::changing::{ImageParameters, MIB, assert_clean, open_with};
use crate::names::common::{NEW, entries};

const ROOMY: ImageParameters =
    ImageParameters { size: 64 * MIB, inodes: 4096, ..ImageParameters::DEFAULT };

/// A log that is filled by a few hundred files.
const SMALL_LOG: ImageParameters =
    ImageParameters { block_size: 1024, journal_bytes: Some(MIB), ..ROOMY };

/// A log that is filled by a few hundred files, and room for a large directory. With smaller blocks its index would be
/// too small for files to wait.
const LARGE_DIRECTORY: ImageParameters = ImageParameters {
    block_size: 2048,
    inodes: 20_000,
    journal_bytes: Some(2 * MIB),
    size: 96 * MIB,
    ..ImageParameters::DEFAULT
};

impl MayWait for OpenExt4 {
    fn files_deferred(&self) -> usize {
        self.0.files_deferred()
    }
}

fn open(
    device: Arc<dyn BlockDevice>,
    cache_bytes: usize,
    policy: Option<DeferPolicy>,
) -> vfs::Result<Box<dyn MayWait>> {
    Ok(Box::new(OpenExt4(open_with(device, cache_bytes, policy)?)))
}

fn run(layout: ImageParameters, trial: impl FnOnce(&WaitingTrial<'_>)) {
    let (name, make) = (format!("{layout:?}"), || layout.make());
    let check = |device: &MemoryDevice| assert_clean(device);
    trial(&WaitingTrial { name: &name, make: &make, open: &open, check: &check });
}

#[test]
fn files_that_wait_are_seen() {
    require!(Tool("e2fsck"));
    run(ROOMY, waiting::seen);
}

#[test]
fn counts_and_times_are_those_with_files_that_wait() {
    require!(Tool("e2fsck"));
    run(ROOMY, |trial| waiting::counts(trial, true));
}

#[test]
fn accessing_a_waiting_file_applies_only_that_file() {
    require!(Tool("e2fsck"));
    run(ROOMY, waiting::one_file);
}

#[test]
fn durable_files_survive_a_crash() {
    require!(Tool("e2fsck"));
    run(ROOMY, waiting::syncs);
    run(ROOMY, waiting::datasyncs);
    run(ROOMY, waiting::times_of_datasyncs);
}

#[test]
fn few_files_wait_at_a_time() {
    require!(Tool("e2fsck"));
    run(ROOMY, waiting::few_at_a_time);
}

#[test]
fn times_of_a_directory_are_those_of_what_was_done_last() {
    require!(Tool("e2fsck"));
    run(ROOMY, waiting::times);
    run(ROOMY, waiting::moves);
}

#[test]
fn a_directory_with_files_that_wait_is_not_empty() {
    require!(Tool("e2fsck"));
    run(ROOMY, waiting::not_empty);
}

#[test]
fn names_created_before_deferral_are_known() {
    require!(Tool("e2fsck"));
    run(ROOMY, waiting::shrunk);
}

/// Reserved inodes are not allocated by other operations, and all inodes can be used.
#[test]
fn every_inode_can_be_had_once() {
    require!(Tool("e2fsck"));
    run(ROOMY, waiting::inodes_once);
}

#[test]
fn files_come_in_any_order_after_a_crash_and_each_wholly() {
    require!(Tool("e2fsck"));
    run(SMALL_LOG, waiting::crashes);
}

#[test]
fn changes_become_durable_in_their_order_by_default() {
    require!(Tool("e2fsck"));
    let policy = OpenOptions::default().defer_creates;
    run(LARGE_DIRECTORY, |trial| assert_eq!(waiting::order(trial, policy), Order::Kept));
}

/// The option's documentation promises this weaker order.
#[test]
fn with_deferred_creates_only_files_of_large_directories_come_out_of_order() {
    require!(Tool("e2fsck"));
    let policy = Some(OpenOptions::DEFER_LARGE);
    run(LARGE_DIRECTORY, |trial| {
        let order = waiting::order(trial, policy);
        assert!(matches!(order, Order::Broken(_)), "no file was deferred over a crash");
    });
}

#[test]
fn a_full_image_refuses_files_and_loses_none() {
    require!(Tool("e2fsck"));
    for layout in
        [ImageParameters::DEFAULT, ImageParameters::SMALL_BLOCKS, ImageParameters::BLOCK_MAPS]
    {
        let layout = ImageParameters { inodes: 16_384, ..layout };
        run(layout, |trial| waiting::full_image(trial, layout.block_size as usize, 40));
    }
}

/// After the device fails, no more files are accepted, and the next create or sync reports the failure.
#[test]
fn a_checkpoint_that_fails_ends_waiting() {
    require!(Tool("e2fsck"));
    run(SMALL_LOG, waiting::failing_checkpoints);
}

#[test]
fn files_wait_while_others_read_sync_remove_and_rename() {
    require!(Tool("e2fsck"));
    let files = effort(1_000, 1_500, 40_000);
    let inodes = 3 * files + 1_000;
    // A group has no more inodes than a block has bits.
    let size = effort(256, 256, 1024) * MIB;
    for layout in [
        ImageParameters { size, inodes, ..ROOMY },
        ImageParameters { size, inodes, ..ImageParameters::SMALL_BLOCKS },
    ] {
        run(layout, |trial| waiting::threads(trial, files));
    }
}

/// Other programs leave the inode table uninitialised, and record how much of it is in use.
#[test]
fn nothing_waits_where_the_inode_table_is_not_zero() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let folder = testkit::scratch();
    let path = folder.path().join("image");
    let lazy = ["-E", "lazy_itable_init=1,nodiscard", "-N", "4096"];
    testkit::Mke2fs::new("ext4").block_size(1024).arguments(lazy).create(&path, 64 * MIB);
    let device = Arc::new(testkit::crash::read_image(&path).unwrap());
    let fs = open_with(device.clone(), 8 << 20, Some(SOON)).unwrap();
    let dir = fs.mkdir(fs.root(), b"d", &NEW).unwrap();
    for number in 0..300 {
        let name = format!("a file of some length, number {number}");
        fs.create(dir, name.as_bytes(), &NEW).unwrap();
        assert_eq!(Ext4::files_deferred(&fs), 0);
    }
    assert_eq!(entries(&fs, dir).len(), 300);
    fs.close().unwrap();
    assert_clean(&device);
}
