//! Walking directories of any form does not allocate memory from the heap.

extern crate diskwright_xfs as xfs;

use std::ops::ControlFlow;
use std::sync::Arc;

use allocation_counter::measure;
use disk::MemoryDevice;
use vfs::{Cookie, FileSystem, NewInode};
use xfs::Xfs;
use xfs::mkfs::{Options, PreviousContents};

const SIZE: u64 = 1 << 30;
const NEW: NewInode = NewInode {
    permissions: 0o755,
    uid: 0,
    gid: 0,
    time: vfs::Timestamp { sec: 1_700_000_000, nsec: 0 },
    parent_time: None,
};

/// Numbers of names in the directories of a tree, with conditions on their sizes in bytes: shortform (empty and not),
/// block, leaf, node.
type Forms = [(u32, fn(size: u64, block: u64) -> bool); 5];
const FORMS: Forms = [
    (0, |size, _| size < 256),
    (5, |size, _| size < 256),
    (60, |size, block| size == block),
    (400, |size, block| size > block),
    (5_000, |size, block| size > 8 * block),
];

fn name(n: u32) -> Vec<u8> {
    format!("a-name-{n:07}").into_bytes()
}

fn make(dir_block: Option<u32>) -> Xfs {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let options = Options { dir_block_size: dir_block, ..Options::new(SIZE) };
    let layout = xfs::mkfs::plan(&options).unwrap();
    xfs::mkfs::format(&*device, &layout, PreviousContents::Zeros).unwrap();
    Xfs::open_in_progress(device, 256 << 20).unwrap()
}

#[test]
fn walking_a_tree_takes_no_heap() {
    for dir_block in [None, Some(16 << 10)] {
        let fs = make(dir_block);
        let file = fs.create(fs.root(), b"file", &NEW).unwrap();
        for (names, has_form) in FORMS {
            let dir = fs.mkdir(fs.root(), &name(names), &NEW).unwrap();
            (0..names).for_each(|n| fs.link(file, dir, &name(n), None).unwrap());
            let size = fs.attributes(dir).unwrap().size;
            let block = u64::from(dir_block.unwrap_or(4096));
            assert!(has_form(size, block) || dir_block.is_some(), "{names} names: {size} bytes");
        }
        let walk = || {
            for (names, _) in FORMS {
                let mut digits = *b"a-name-0000000";
                write_number(&mut digits, names);
                let dir = fs.lookup(fs.root(), &digits).unwrap();
                let mut entries = 0;
                fs.readdir(dir, Cookie(0), &mut |_| {
                    entries += 1;
                    ControlFlow::Continue(())
                })
                .unwrap();
                assert_eq!(entries, names + 2);
            }
        };
        // The first walk fills the cache, and allocates the memory that the thread keeps.
        walk();
        assert_eq!(measure(walk).count_total, 0, "{dir_block:?}");
        assert!(measure(|| drop(std::hint::black_box(vec![0_u8; 9]))).count_total > 0);
    }
}

/// Writes a number over the last digits, without using the heap.
fn write_number(name: &mut [u8; 14], mut number: u32) {
    for digit in name.iter_mut().rev().take(7) {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}
