//! Measures the cost of cutting large trees.

use operations::RunOperations;
use std::sync::Arc;

use disk::MemoryDevice;
use vfs::{FileSystem, NewInode};

use crate::mkfs::{self, FeatureChange, InodeCount, Options, PreviousContents};
use crate::{Ext4, OpenOptions};

/// Budget of one operation.
const BUDGET: u32 = 100;

struct Cost {
    operations: u64,
    /// Number of freed runs and changed metadata blocks.
    spent: u64,
}

/// Creates a file with `extents` extents and truncates it to zero.
fn cut(extents: u32) -> Cost {
    let size = 300 << 20;
    let options = Options {
        block_size: Some(1024),
        features: FeatureChange::parse_list("-has_journal,-orphan_file").unwrap(),
        inodes: InodeCount::Count(64),
        ..Options::new(size)
    };
    let device = Arc::new(MemoryDevice::new(size));
    mkfs::format(&*device, &mkfs::plan(&options).unwrap(), PreviousContents::Zeros).unwrap();
    let fs = Ext4::open_writable(device, &OpenOptions::default()).unwrap();
    let ino = fs.create(fs.root(), b"file", &NewInode::default()).unwrap();
    for extent in 0..u64::from(extents) {
        fs.write(ino, extent * 2048, b"x", None).unwrap();
    }
    let mut cost = Cost { operations: 0, spent: 0 };
    let mut done = false;
    while !done {
        let before = fs.load(ino).unwrap();
        let (now_done, left) = fs
            .atomically(|op| {
                let (mut file, mut budget) = (before, BUDGET);
                let done = op.remove_blocks(&mut file, 0..u32::MAX, &mut budget)?;
                op.stage(file);
                Ok((done, budget))
            })
            .unwrap();
        done = now_done;
        cost.operations += 1;
        cost.spent += u64::from(BUDGET - left);
    }
    assert_eq!(fs.attributes(ino).unwrap().blocks_512, 0);
    cost
}

#[test]
fn cutting_a_hundred_thousand_extents_is_linear() {
    let (small, large) = (cut(10_000), cut(100_000));
    for (cost, extents) in [(&small, 10_000), (&large, 100_000)] {
        // Each extent once, and less than one metadata block per ten extents.
        assert!(cost.spent >= extents && cost.spent < extents * 11 / 10, "{}", cost.spent);
        assert!(cost.operations <= cost.spent / u64::from(BUDGET - 1) + 1, "{}", cost.operations);
    }
    assert!(large.operations <= small.operations * 10 + 10);
}
