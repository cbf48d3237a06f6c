//! Repairs of the trees of realtime groups and of the superblock of the realtime device, judged by xfs_repair.

use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, JoinedDevice, MemoryDevice};
use operations::repair::{Staging, make_plan, write_in_place};
use testkit::crash::write_image;
use testkit::require;
use vfs::check::Silent;
use xfs::format::checksum;
use xfs::repair::Repair;

use crate::checking::findings;
use crate::common::image::unpack_device;
use crate::realtime_check::{RealtimeImage, codes, is_accepted};
use crate::realtime_groups_check::{BLOCK, IMAGES, SHARED, blocks, with_block};

fn joined(image: &MemoryDevice, realtime: &MemoryDevice) -> Arc<dyn BlockDevice> {
    let (image, realtime) = (Arc::new(image.fork()), Arc::new(realtime.fork()));
    Arc::new(JoinedDevice::new(image, None, Some(realtime)).unwrap())
}

/// Repairs an image with its realtime device, in place.
fn repaired(image: &MemoryDevice, realtime: &MemoryDevice, name: &str) -> [MemoryDevice; 2] {
    let staging = Arc::new(Staging::new(joined(image, realtime)));
    let plan = make_plan(&Repair::default(), &staging, &Silent);
    let plan = plan.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(plan.left.is_empty(), "{name}: {:#?}", plan.left);
    let both = [Arc::new(image.fork()), Arc::new(realtime.fork())];
    let device = JoinedDevice::new(both[0].clone(), None, Some(both[1].clone())).unwrap();
    write_in_place(&device, &plan.steps, &mut |_, _| true).unwrap();
    [both[0].fork(), both[1].fork()]
}

fn assert_sound(folder: &Path, [image, realtime]: &[MemoryDevice; 2], name: &str) {
    let found = findings(joined(image, realtime)).unwrap();
    assert!(found.is_empty(), "{name}: {found:#?}");
    let path = folder.join("repaired.rt");
    write_image(realtime, &path).unwrap();
    assert!(is_accepted(image, &path), "{name}");
}

#[test]
fn damaged_trees_of_groups_are_rebuilt() {
    require!(Tool("xfs_repair"));
    let subject = RealtimeImage::of(SHARED.0);
    let realtime = unpack_device(SHARED.1);
    let folder = testkit::scratch();
    let [maps, counts] = [b"MAPR", b"RCNT"].map(|magic| blocks(&subject, magic));
    let leaf = maps.iter().copied().find(|(at, _)| subject.bytes[at + 5] == 0).unwrap();
    let node = maps.iter().copied().find(|(at, _)| subject.bytes[at + 5] != 0);
    let mut cases = vec![
        ("an owner", with_block(&subject, leaf, 72 + 24 + 15)),
        ("a logical block", with_block(&subject, leaf, 72 + 24 + 23)),
        ("a leaf", with_block(&subject, leaf, 3)),
        ("a sibling", with_block(&subject, leaf, 63)),
        ("a count", with_block(&subject, counts[0], 72 + 11)),
        ("a block of references", with_block(&subject, counts[0], 3)),
        ("a log position of a map", with_block(&subject, leaf, 34)),
        ("a log position of a bitmap", with_block(&subject, blocks(&subject, b"BMPZ")[0], 26)),
    ];
    cases.extend(node.map(|node| ("a node", with_block(&subject, node, 3))));
    let both = subject.changed(|bytes| {
        for (at, _) in [leaf, counts[0]] {
            bytes[at..at + BLOCK].fill(0);
        }
    });
    cases.push(("both trees", both));
    for (name, image) in cases {
        assert!(!codes(&image).is_empty(), "{name}");
        let repaired = repaired(&image, &realtime, name);
        assert_sound(folder.path(), &repaired, name);
    }
}

/// Random damage of several blocks of the trees.
#[test]
fn random_damage_of_trees_of_groups_is_repaired() {
    require!(Tool("xfs_repair"));
    let folder = testkit::scratch();
    let (subject, realtime) = (RealtimeImage::of(SHARED.0), unpack_device(SHARED.1));
    let mut random = fastrand::Rng::with_seed(47);
    for round in 0..testkit::effort(4, 6, 300) {
        let all: Vec<_> =
            [b"MAPR", b"RCNT"].into_iter().flat_map(|magic| blocks(&subject, magic)).collect();
        let image = subject.changed(|bytes| {
            for _ in 0..random.usize(1..6) {
                let (start, crc_at) = all[random.usize(..all.len())];
                bytes[start + random.usize(..300)] ^= 1 << random.u32(..8);
                if random.bool() {
                    checksum::seal(&mut bytes[start..start + BLOCK], crc_at);
                }
            }
        });
        let name = format!("round {round}");
        let repaired = repaired(&image, &realtime, &name);
        assert_sound(folder.path(), &repaired, &name);
    }
}

#[test]
fn the_superblock_of_the_device_is_rewritten() {
    require!(Tool("xfs_repair"));
    let folder = testkit::scratch();
    for (image, realtime) in IMAGES {
        for at in [0, 13, 24, 41, 100] {
            let damaged = unpack_device(realtime);
            let mut block = vec![0; BLOCK];
            damaged.read_at(0, &mut block).unwrap();
            block[at] ^= 1;
            if at != 100 {
                checksum::seal(&mut block, 4);
            }
            damaged.write_at(0, &block).unwrap();
            let name = format!("byte {at}");
            let repaired = repaired(&unpack_device(image), &damaged, &name);
            assert_sound(folder.path(), &repaired, &name);
        }
    }
}
