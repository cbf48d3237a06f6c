//! Tests of names that apply to every format, and concurrent operations on the same names.

use testkit::require;
use testkit::trial::{many_threads, no_circle, refusals, taken, unnamed};

use crate::changing::ImageParameters;
use crate::changing::crashing::Ext4Target;

const SMALL_BLOCKS: ImageParameters =
    ImageParameters { inodes: 4_000, size: 32 << 20, ..ImageParameters::SMALL_BLOCKS };
const LARGE_BLOCKS: ImageParameters =
    ImageParameters { inodes: 4_000, size: 32 << 20, ..ImageParameters::DEFAULT };

#[test]
fn failed_operations_change_nothing() {
    require!(Tool("e2fsck"));
    refusals(&Ext4Target::new(SMALL_BLOCKS).trial());
}

#[test]
fn a_taken_name_comes_before_a_full_file_system() {
    require!(Tool("e2fsck"));
    for layout in [
        SMALL_BLOCKS,
        LARGE_BLOCKS,
        ImageParameters { size: 32 << 20, ..ImageParameters::BLOCK_MAPS },
    ] {
        taken(&Ext4Target::new(layout).trial());
    }
}

#[test]
fn a_file_without_a_name_gets_one() {
    require!(Tool("e2fsck"));
    unnamed(&Ext4Target::new(LARGE_BLOCKS).trial());
}

#[test]
fn threads_on_the_same_directories() {
    require!(Tool("e2fsck"));
    for layout in [SMALL_BLOCKS, LARGE_BLOCKS] {
        many_threads(&Ext4Target::new(layout).trial(), true);
    }
}

#[test]
fn threads_on_directories_of_their_own() {
    require!(Tool("e2fsck"));
    many_threads(&Ext4Target::new(SMALL_BLOCKS).trial(), false);
}

#[test]
fn no_circle_is_made() {
    require!(Tool("e2fsck"));
    no_circle(&Ext4Target::new(SMALL_BLOCKS).trial());
}
