//! A failed operation leaves no trace.

use crate::changing;

use changing::ImageParameters;
use changing::crashing::Ext4Target;
use testkit::crash::CrashTarget;
use testkit::require;
use testkit::trial::{fail_allocations, fail_reads, fail_writes, overwrites, rounds};

#[test]
fn a_failed_read_leaves_no_trace() {
    require!(Tool("e2fsck"));
    fail_reads(&Ext4Target::new(ImageParameters::DEFAULT).trial());
}

#[test]
fn a_failed_read_leaves_no_trace_with_small_blocks() {
    require!(Tool("e2fsck"));
    fail_reads(&Ext4Target::new(ImageParameters::SMALL_BLOCKS).trial());
}

#[test]
fn a_failed_allocation_leaves_no_trace() {
    require!(Tool("e2fsck"));
    fail_allocations(&Ext4Target::new(ImageParameters::DEFAULT).trial());
}

#[test]
fn a_failed_allocation_leaves_no_trace_with_small_blocks() {
    require!(Tool("e2fsck"));
    let layout = ImageParameters { inodes: 1_000, ..ImageParameters::SMALL_BLOCKS };
    fail_allocations(&Ext4Target::new(layout).trial());
}

#[test]
fn nothing_is_changed_after_a_failed_write() {
    require!(Tool("e2fsck"));
    for layout in [ImageParameters::DEFAULT, ImageParameters::SMALL_BLOCKS] {
        fail_writes(&Ext4Target::new(layout).trial());
    }
}

#[test]
fn writing_over_data_changes_nothing_else() {
    for layout in [
        ImageParameters::DEFAULT,
        ImageParameters::SMALL_BLOCKS,
        ImageParameters::BLOCK_MAPS,
        ImageParameters::NO_JOURNAL,
    ] {
        overwrites(&Ext4Target::new(layout).trial());
    }
}

/// For each block size, the smallest possible journal and one of an odd size; also without checksums, which allows more
/// tags per descriptor.
#[test]
fn small_durable_changes_go_round_the_journal_and_round_again() {
    require!(Tool("e2fsck"));
    let old = ImageParameters {
        features: "^metadata_csum,^orphan_file,^64bit",
        ..ImageParameters::DEFAULT
    };
    let all = [
        (ImageParameters::DEFAULT, 1024, 1024),
        (ImageParameters::DEFAULT, 4096, 1024),
        (ImageParameters::DEFAULT, 1024, 1031),
        (ImageParameters::DEFAULT, 2048, 1500),
        (old, 4096, 1025),
        (old, 1024, 1024),
    ];
    for (layout, block_size, blocks) in all.into_iter().step_by(testkit::effort(2, 1, 1)) {
        let journal_bytes = Some(blocks * u64::from(block_size));
        let target = Ext4Target::new(ImageParameters { block_size, journal_bytes, ..layout });
        let journal = ImageParameters::journal_of(&target.make(0).unwrap());
        rounds(&target.trial(), &journal, testkit::effort(4, 6, 10));
    }
}
