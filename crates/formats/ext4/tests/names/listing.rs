//! Listings in batches while entries are added and removed: entries that exist throughout are listed exactly once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use ext4::Ext4;
use ext4::format::hash::{HashVersion, NameHasher};
use testkit::{Mke2fs, debugfs_write, require};
use vfs::{Cookie, FileSystem, Ino};

use crate::names::common::{ImageFile, NEW};

/// Lists a directory in batches, and calls `change` between two batches.
fn list(
    fs: &Ext4,
    dir: Ino,
    batch: &mut dyn FnMut() -> usize,
    change: &mut dyn FnMut(&Ext4),
) -> Vec<Vec<u8>> {
    let (mut names, mut from) = (Vec::new(), Cookie(0));
    loop {
        let (mut left, mut is_end) = (batch(), true);
        fs.readdir(dir, from, &mut |entry| {
            names.push(entry.name.to_vec());
            from = entry.next;
            left -= 1;
            if left > 0 {
                return ControlFlow::Continue(());
            }
            is_end = false;
            ControlFlow::Break(())
        })
        .unwrap();
        if is_end {
            return names;
        }
        change(fs);
    }
}

/// Lists a directory repeatedly while names change, from none to several blocks of them.
fn names_that_stay_are_shown_once(image: &ImageFile, dir: &[u8], seed: u64, names_max: u32) {
    let fs = image.open();
    let dir = fs.lookup(fs.root(), dir).unwrap();
    let file = fs.create(fs.root(), b"file", &NEW).unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    let name = |n: u32| format!("{n:-<width$}", width = 3 + (n as usize * 31) % 120).into_bytes();
    let mut present = BTreeSet::new();
    for round in 0..60 {
        let before: BTreeSet<u32> = present.clone();
        let mut touched = BTreeSet::new();
        let (mut batches, growing) = (random.clone(), round % 6 < 3);
        let shown = list(&fs, dir, &mut || batches.usize(1..40), &mut |fs| {
            for _ in 0..random.usize(..30) {
                let n = random.u32(..names_max);
                if present.contains(&n) && (!growing || random.u8(..4) == 0) {
                    fs.unlink(dir, &name(n), None).unwrap();
                    present.remove(&n);
                    touched.insert(n);
                } else if present.insert(n) {
                    fs.link(file, dir, &name(n), None).unwrap();
                    touched.insert(n);
                }
            }
        });
        let mut counts = BTreeMap::new();
        for name in shown {
            *counts.entry(name).or_insert(0) += 1;
        }
        assert_eq!((counts[b".".as_slice()], counts[b"..".as_slice()]), (1, 1));
        for n in 0..names_max {
            let count = counts.get(&name(n)).copied().unwrap_or(0);
            let stayed = !touched.contains(&n);
            assert!(
                !stayed || count == u32::from(before.contains(&n)),
                "round {round}, {n}: {count}"
            );
        }
    }
    image.close(fs);
}

fn with_directory(mke2fs: &Mke2fs) -> ImageFile {
    let image = ImageFile::new(mke2fs, 16);
    let fs = image.open();
    fs.mkdir(fs.root(), b"dir", &NEW).unwrap();
    image.close(fs);
    image
}

#[test]
fn listings_outlast_changes() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("tune2fs"));
    for (seed, (block_size, features, hash)) in [
        (1024, "dir_index", ""),
        (4096, "dir_index", ""),
        // Hashes of this version have 31 bits, so names sometimes have the same hash.
        (1024, "dir_index", "legacy"),
        (1024, "dir_index", "tea"),
        (1024, "^dir_index", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let image = with_directory(&Mke2fs::new("ext4").block_size(block_size).features(features));
        if !hash.is_empty() {
            debugfs_write(&image.path, &format!("set_super_value def_hash_version {hash}"));
        }
        for names_max in [30, 400, 3_000] {
            names_that_stay_are_shown_once(&image, b"dir", seed as u64, names_max);
            let fs = image.open();
            fs.unlink(fs.root(), b"file", None).unwrap();
            let dir = fs.lookup(fs.root(), b"dir").unwrap();
            for (name, _) in crate::names::common::entries(&fs, dir) {
                fs.unlink(dir, &name, None).unwrap();
            }
            image.close(fs);
        }
    }
}

/// A listing that starts while the directory is inline continues after the conversion to a block and to an index.
#[test]
fn listings_outlast_the_end_of_inline_directories() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    for (seed, features) in ["inline_data,dir_index", "inline_data,^dir_index"].iter().enumerate() {
        let image = ImageFile::new(&Mke2fs::new("ext4").block_size(1024).features(features), 16);
        testkit::populate_with_kernel(&image.path, "ext4", |root: &std::path::Path| {
            for dir in 0..10 {
                let dir = root.join(format!("dir{dir}"));
                std::fs::create_dir(&dir).unwrap();
                for name in ["a", "bb", "ccc", "dddd", "eeeee", "ffffff", "ggggggg"] {
                    std::fs::write(dir.join(name), "").unwrap();
                }
            }
        });
        let fs = image.open();
        let file = fs.create(fs.root(), b"file", &NEW).unwrap();
        for number in 0..10 {
            let dir = fs.lookup(fs.root(), format!("dir{number}").as_bytes()).unwrap();
            let mut random = fastrand::Rng::with_seed(seed as u64 * 10 + number);
            let (mut batches, mut batch_count) = (random.clone(), 0);
            let mut shown = list(&fs, dir, &mut || batches.usize(1..4), &mut |fs| {
                batch_count += 1;
                // Without this limit, the listing would never end.
                if batch_count > 15 {
                    return;
                }
                for n in 0..random.u8(1..30) {
                    let name = format!("new-{batch_count}-{n}");
                    fs.link(file, dir, name.as_bytes(), None).unwrap();
                }
            });
            shown.retain(|name| !name.starts_with(b"new"));
            shown.sort();
            let expected = [".", "..", "a", "bb", "ccc", "dddd", "eeeee", "ffffff", "ggggggg"]
                .map(str::as_bytes);
            assert_eq!(shown, expected);
        }
        image.close(fs);
    }
}

/// Names with equal hashes, in several leaves.
#[test]
fn names_with_one_hash_are_distinguished() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let image = with_directory(&Mke2fs::new("ext4").block_size(1024).features("dir_index"));
    debugfs_write(&image.path, "set_super_value def_hash_version legacy");
    let fs = image.open();
    assert_eq!(fs.superblock().raw.def_hash_version, 0);
    let dir = fs.lookup(fs.root(), b"dir").unwrap();
    let file = fs.create(fs.root(), b"file", &NEW).unwrap();
    let colliding = colliding_names();
    let hasher = NameHasher { version: HashVersion::Legacy, unsigned: false, seed: [0; 4] };
    let hashes: BTreeSet<_> = colliding.iter().map(|name| hasher.hash(name).major).collect();
    assert_eq!(hashes.len(), 1);
    for n in 0..200 {
        fs.link(file, dir, format!("{n:-<100}").as_bytes(), None).unwrap();
    }
    for name in &colliding {
        fs.link(file, dir, name, None).unwrap();
    }
    // Each name is found, cannot be created twice, and keeps its position in listings while others are removed.
    for name in &colliding {
        assert_eq!(fs.lookup(dir, name).unwrap(), file);
        assert!(fs.link(file, dir, name, None).is_err());
    }
    let mut gone = colliding.iter().step_by(2);
    let shown = list(&fs, dir, &mut || 1, &mut |fs| {
        if let Some(name) = gone.next() {
            fs.unlink(dir, name, None).unwrap();
        }
    });
    for name in colliding.iter().skip(1).step_by(2) {
        assert_eq!(shown.iter().filter(|shown| *shown == name).count(), 1);
        fs.unlink(dir, name, None).unwrap();
        assert!(fs.lookup(dir, name).is_err());
    }
    image.close(fs);
}

/// Parts of names whose legacy hash is 0x1234_5678: a number, and the last two bytes. A search for each last byte that
/// yields the hash takes 300 million steps.
const COLLIDING: [(u32, u8, u8); 20] = [
    (0x3d314, 51, 101),
    (0x48cc1, 65, 97),
    (0x4a396, 11, 35),
    (0x668dc, 11, 96),
    (0x799e9, 94, 21),
    (0x7a679, 115, 98),
    (0x8eb4c, 43, 38),
    (0x900d2, 124, 96),
    (0xb14dd, 13, 117),
    (0xb7832, 87, 38),
    (0xf160e, 22, 106),
    (0x102b28, 5, 75),
    (0x12312e, 83, 42),
    (0x14c08a, 5, 34),
    (0x154614, 122, 8),
    (0x186db9, 122, 107),
    (0x18ecda, 14, 53),
    (0x191572, 93, 91),
    (0x1fe3a0, 93, 61),
    (0x2096e0, 114, 80),
];

/// Returns twenty long names of one hash, more than fit into two leaves.
fn colliding_names() -> Vec<Vec<u8>> {
    let name = |(number, byte, last)| {
        [&[b'x'; 100], format!("{number:x}-").as_bytes(), &[byte, last]].concat()
    };
    COLLIDING.into_iter().map(name).collect()
}
