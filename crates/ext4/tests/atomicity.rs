//! An operation that fails leaves no trace.

use crate::changing;

use changing::Layout;
use changing::crashing::Ext4Target;
use oracle::require;
use workload::trial::{fail_allocations, fail_reads, overwrites};

#[test]
fn a_failed_read_leaves_no_trace() {
    require!(Tool("e2fsck"));
    fail_reads(&Ext4Target::new(Layout::DEFAULT).trial());
}

#[test]
fn a_failed_read_leaves_no_trace_with_small_blocks() {
    require!(Tool("e2fsck"));
    fail_reads(&Ext4Target::new(Layout::SMALL_BLOCKS).trial());
}

#[test]
fn a_failed_allocation_leaves_no_trace() {
    require!(Tool("e2fsck"));
    fail_allocations(&Ext4Target::new(Layout::DEFAULT).trial());
}

#[test]
fn a_failed_allocation_leaves_no_trace_with_small_blocks() {
    require!(Tool("e2fsck"));
    let layout = Layout { inodes: 1_000, ..Layout::SMALL_BLOCKS };
    fail_allocations(&Ext4Target::new(layout).trial());
}

#[test]
fn writing_over_data_changes_nothing_else() {
    for layout in [Layout::DEFAULT, Layout::SMALL_BLOCKS, Layout::BLOCK_MAPS, Layout::NO_JOURNAL] {
        overwrites(&Ext4Target::new(layout).trial());
    }
}
