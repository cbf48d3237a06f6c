//! Logs whose last records did not reach the disk completely.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use disk::BlockDevice;
use testkit::{Ignore, require, scratch};
use xfs::format::log::{BLOCK_SIZE, RECORD_MAGIC};
use xfs::log_end;

use crate::log_recovery::support::{
    Load, MIB, Stop, by_kernel, by_us, copy, device, dirty, log_place, superblock, sync, tree,
};

/// Contents in place of a block of a torn record.
#[derive(Clone, Copy, Debug)]
enum Instead {
    /// Contents before the first cycle.
    Zeros,
    /// Contents of the previous cycle.
    Older,
    /// A partially written block.
    Garbage,
}

struct TornCase {
    /// Blocks, counted back from the head.
    blocks: Range<u64>,
    instead: Instead,
}

fn spoil(image: &Path, case: &TornCase) {
    let device = device(image);
    let (sb, file) = (superblock(&*device), fs::File::options().write(true).open(image).unwrap());
    let end = log_end(&*device, &sb).unwrap().unwrap();
    let place = log_place(&sb);
    let ring = (place.end - place.start) / BLOCK_SIZE as u64;
    let cycle = end.last.unwrap().lsn.cycle;
    for back in case.blocks.clone() {
        let block = (u64::from(end.head) + ring - 1 - back) % ring;
        let offset = place.start + block * BLOCK_SIZE as u64;
        match case.instead {
            Instead::Zeros => file.write_all_at(&[0; BLOCK_SIZE], offset).unwrap(),
            Instead::Older => {
                let mut bytes = [0x5a; BLOCK_SIZE];
                bytes[..4].copy_from_slice(&(cycle - 1).to_be_bytes());
                file.write_all_at(&bytes, offset).unwrap();
            }
            // The cycle is written, the rest is not. For a header, the kernel reports a wrong UUID then, while this
            // implementation takes the header for torn.
            Instead::Garbage => {
                let mut magic = [0; 4];
                device.read_at(offset, &mut magic).unwrap();
                if magic != RECORD_MAGIC.to_be_bytes() {
                    file.write_all_at(&[0xa5; 300], offset + 100).unwrap();
                }
            }
        }
    }
}

/// Asserts that this implementation recovers the same as the kernel, or refuses without a change what the kernel
/// refuses.
fn assert_alike(image: &Path, case: &TornCase) {
    let what = format!("{:?} at {:?}", case.instead, case.blocks);
    let torn = copy(image, "torn");
    spoil(&torn, case);
    let (ours, theirs) = (copy(&torn, "ours"), copy(&torn, "theirs"));
    match (by_us(&ours), by_kernel(&theirs)) {
        (Ok(_), Ok(())) => {
            let found = testkit::differences(&tree(&theirs), &tree(&ours), &Ignore::default());
            assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
            testkit::xfs_repair(&ours);
        }
        (Err(_), Err(_)) => {
            assert_eq!(testkit::digest(&ours), testkit::digest(&torn), "{what}: it was changed");
        }
        (ours, theirs) => panic!("{what}: we say {ours:?}, the kernel {theirs:?}"),
    }
}

#[test]
fn torn_records_at_the_end_are_dropped_as_the_kernel_does() {
    require!(Tool("mkfs.xfs"), Tool("xfs_io"), Tool("xfs_repair"), Mount("xfs"));
    for (rounds, size, instead) in [
        (1, "-l size=7000b", Instead::Zeros),
        (1, "-l size=7000b", Instead::Garbage),
        (8, "-l size=2500b", Instead::Older),
        (8, "-l size=2500b", Instead::Garbage),
    ] {
        let home = scratch();
        let image = dirty(home.path(), size, 128 * MIB, Stop::Flushed, |root| {
            let mut load = Load::new(rounds);
            for _ in 0..rounds {
                load.run(root, 500);
                sync(root);
            }
            // Many small records.
            for _ in 0..60 {
                load.run(root, 4);
                sync(root);
            }
        });
        // In a log that has wrapped around, complete records may have been written back: only the last ones cannot have
        // been.
        let all = [0..1, 3..4, 0..20, 60..63, 600..601];
        for blocks in all.into_iter().take(if rounds == 1 { 5 } else { 2 }) {
            assert_alike(&image, &TornCase { blocks, instead });
        }
    }
}
