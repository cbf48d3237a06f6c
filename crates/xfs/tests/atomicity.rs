//! An operation that fails leaves no trace.

use crate::changing;

use changing::{Layout, MIB, XfsTarget};
use oracle::require;
use workload::trial::{fail_allocations, fail_reads, overwrites};

#[test]
fn a_failed_read_leaves_no_trace() {
    require!(Tool("xfs_repair"));
    fail_reads(&XfsTarget::new(Layout::DEFAULT).trial());
}

#[test]
fn a_failed_read_leaves_no_trace_with_small_blocks() {
    require!(Tool("xfs_repair"));
    fail_reads(&XfsTarget::new(Layout::SMALL_BLOCKS).trial());
}

#[test]
fn a_failed_allocation_leaves_no_trace() {
    require!(Tool("xfs_repair"));
    fail_allocations(&XfsTarget::new(Layout::DEFAULT).trial());
}

#[test]
fn a_failed_allocation_leaves_no_trace_with_small_blocks() {
    require!(Tool("xfs_repair"));
    let layout = Layout { size: 32 * MIB, ..Layout::SMALL_BLOCKS };
    fail_allocations(&XfsTarget::new(layout).trial());
}

#[test]
fn writing_over_data_changes_nothing_else() {
    for layout in [Layout::DEFAULT, Layout::SMALL_BLOCKS, Layout::PLAIN] {
        overwrites(&XfsTarget::new(layout).trial());
    }
}
