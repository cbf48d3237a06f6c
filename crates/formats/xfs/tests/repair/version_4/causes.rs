//! Single kinds of damage with which `xfs_repair` once kept more files.

use std::ops::Range;

use disk::{BlockDevice, MemoryDevice};
use xfs::format::address::FsBlock;
use xfs::format::bytes::be16;

use super::super::rule::{self, Base};
use super::bases;

/// Number of images that contain the files of [`super::fill`].
const FILLED: usize = super::KINDS.len();
/// Size of the header of a tree block of a fork.
const FORK_TREE_HEADER: usize = 24;

/// Returns the byte range of the slot of the inode at a path.
fn slot(base: &Base, path: &[u8]) -> Range<usize> {
    let geometry = &base.image.layout.geometry;
    let ino = base.tree().get(path).unwrap().attributes.ino;
    let (ag, ag_ino) = geometry.split_ino(ino).unwrap();
    let (block, at) = geometry.inode_place(ag_ino);
    let start = geometry.byte_of(geometry.block_of(ag, block)) as usize + at;
    start..start + geometry.inode_size()
}

/// Returns the first block of a directory that its inode lists.
fn first_block(base: &Base, path: &[u8]) -> u64 {
    let geometry = &base.image.layout.geometry;
    let slot = &base.image.bytes[slot(base, path)];
    assert_eq!(slot[5], 2, "a list of extents");
    let extent = xfs::format::extent::Extent::parse(&slot[100..]);
    let start: FsBlock = extent.start;
    geometry.byte_of(geometry.device_block(start))
}

/// Damages each image, and compares the repair with that of `xfs_repair`.
fn judge(harm: impl Fn(&Base, &MemoryDevice)) {
    for base in &bases()[..FILLED] {
        let damaged = base.image.base.fork();
        harm(base, &damaged);
        rule::compare(base, &damaged).unwrap_or_else(|loss| panic!("{}: {loss}", base.image.name));
    }
}

fn copy(base: &Base, from: &[u8], to: &[u8]) -> impl Fn(&MemoryDevice) {
    let (from, to) = (slot(base, from), slot(base, to));
    let bytes = base.image.bytes[from].to_vec();
    move |damaged| damaged.write_at(to.start as u64, &bytes).unwrap()
}

/// A directory keeps its children if another inode is overwritten with it.
#[test]
fn a_copy_of_a_directory_takes_no_children() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    judge(|base, damaged| copy(base, b"deep/deeper", b"fifo")(damaged));
}

/// A directory whose link count is 0 keeps its children, because it has a name.
#[test]
fn a_directory_without_links_keeps_its_children() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    judge(|base, damaged| {
        let links = slot(base, b"deep/deeper").start as u64 + 16;
        damaged.write_at(links, &[0; 4]).unwrap();
    });
}

/// A directory keeps its list of extents if it only counts attributes that it does not have.
#[test]
fn a_wrong_count_of_attributes_takes_nothing_from_the_data_fork() {
    const ATTRIBUTE_EXTENTS: u64 = 80;
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    judge(|base, damaged| {
        for path in [&b"of 900"[..], b"of 220"] {
            let count = slot(base, path).start as u64 + ATTRIBUTE_EXTENTS;
            damaged.write_at(count, &[0, 2]).unwrap();
        }
    });
}

/// The root is recreated if its slot contains a file. It gets nothing from that file.
#[test]
fn a_root_that_is_another_inode_is_recreated() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    judge(|base, damaged| copy(base, b"deep/deeper/deepest/file 26", b"")(damaged));
}

/// A single copy of the superblock is found at the group length in the AGF, if the first superblock states another one.
#[test]
fn a_wrong_length_of_groups_is_corrected() {
    const AGBLOCKS: u64 = 84;
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    judge(|base, damaged| {
        let blocks = base.image.layout.geometry.ag_blocks | 0xff00;
        damaged.write_at(AGBLOCKS, &blocks.to_be_bytes()).unwrap();
    });
}

/// A chunk without a tree is found if connected directories name a few of its inodes: a lost directory block named the
/// others.
#[test]
fn a_chunk_with_few_names_is_found() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    judge(|base, damaged| {
        for at in (0..base.image.bytes.len()).step_by(512) {
            if base.image.bytes[at..].starts_with(b"IABT") {
                damaged.write_at(at as u64, &[0; 512]).unwrap();
            }
        }
        damaged.write_at(first_block(base, b"of 40"), &[0x5a; 512]).unwrap();
    });
}

/// Bits of an extent's start that no block of the file system has are cleared.
#[test]
fn an_extent_far_past_the_end_is_corrected() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let mut tried = 0;
    for base in &bases()[..FILLED] {
        for at in (0..base.image.bytes.len()).step_by(512) {
            let bytes = &base.image.bytes[at..];
            let is_leaf = bytes.starts_with(b"BMAP") && be16(bytes, 4) == 0 && be16(bytes, 6) > 1;
            if !is_leaf {
                continue;
            }
            let damaged = base.image.base.fork();
            let high = FORK_TREE_HEADER + 16 + 7;
            damaged.write_at((at + high) as u64, &[bytes[high] | 0x80]).unwrap();
            rule::compare(base, &damaged)
                .unwrap_or_else(|loss| panic!("{}, {at:#x}: {loss}", base.image.name));
            tried += 1;
        }
    }
    assert!(tried > 0);
}
