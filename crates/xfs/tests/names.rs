//! What every format must do with names, in one thread and in many.

mod changing;

use changing::{Layout, XfsTarget};
use oracle::require;
use workload::trial::{many_threads, no_circle, refusals, unnamed};

#[test]
fn what_fails_leaves_no_trace() {
    require!(Tool("xfs_repair"));
    for layout in [Layout::DEFAULT, Layout::PLAIN] {
        refusals(&XfsTarget::new(layout).trial());
    }
}

#[test]
fn a_file_without_a_name_gets_one() {
    require!(Tool("xfs_repair"));
    for layout in [Layout::DEFAULT, Layout::PLAIN] {
        unnamed(&XfsTarget::new(layout).trial());
    }
}

#[test]
fn threads_on_the_same_directories() {
    require!(Tool("xfs_repair"));
    for layout in [Layout::SMALL_BLOCKS, Layout::MANY_GROUPS] {
        many_threads(&XfsTarget::new(layout).trial(), true);
    }
}

#[test]
fn threads_on_directories_of_their_own() {
    require!(Tool("xfs_repair"));
    many_threads(&XfsTarget::new(Layout::MANY_GROUPS).trial(), false);
}

#[test]
fn no_circle_is_made() {
    require!(Tool("xfs_repair"));
    no_circle(&XfsTarget::new(Layout::DEFAULT).trial());
}
