//! Layout of one file according to other programs, and its path.

use std::collections::HashMap;

use testkit::{Mke2fs, MkfsXfs, debugfs, require, scratch, xfs_db};
use vfs::path::{Order, first_paths};
use vfs::survey::BlockUse;
use vfs::{FileSystem, Ino, Paths};

use crate::disk_map::common::{GOLDEN, Ledger, open_bytes, open_file, survey, unpack};

/// File size in bytes: 600 blocks of 4 KiB, so that ext3 needs indirect blocks.
const BYTES: usize = 600 * 4096;

#[test]
fn file_locations_agree_with_debugfs() {
    require!(Tool("mke2fs"), Tool("debugfs"));
    let home = scratch();
    let (image, source) = (home.path().join("image"), home.path().join("source"));
    std::fs::create_dir_all(source.join("dir")).unwrap();
    std::fs::write(source.join("dir/file"), vec![1; BYTES]).unwrap();
    for fs_type in ["ext3", "ext4"] {
        Mke2fs::new(fs_type).block_size(4096).populate(&source).create(&image, 64 << 20);
        let text = debugfs(&image, "blocks /dir/file");
        // The version of the program precedes this line.
        let line =
            text.lines().find(|line| line.split_whitespace().all(|w| w.parse::<u64>().is_ok()));
        let blocks = line.expect("a line of blocks").split_whitespace();
        let blocks: Vec<u64> = blocks.map(|word| word.parse().unwrap()).collect();
        assert!(blocks.len() >= 600, "{text}");
        let fs = open_file(&image);
        let ledger = Ledger::of(fs_type, &*fs);
        let of =
            |kind| blocks.iter().filter(|at| ledger.kinds[**at as usize] == Some(kind)).count();
        assert_eq!(of(BlockUse::Data), 600, "{fs_type}");
        assert_eq!(of(BlockUse::Data) + of(BlockUse::Maps), blocks.len(), "{fs_type}");
        assert_eq!(ledger.count(BlockUse::Data), 600, "{fs_type}");
        let ino = fs.lookup(fs.lookup(fs.root(), b"dir").unwrap(), b"file").unwrap();
        let file = ledger.files.iter().find(|file| file.ino == ino).expect("the file");
        assert_eq!(file.blocks, 600);
    }
}

#[test]
fn file_locations_agree_with_xfs_db() {
    require!(Tool("mkfs.xfs"), Tool("xfs_db"));
    let home = scratch();
    let (image, source) = (home.path().join("image"), home.path().join("source"));
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("file"), vec![1; BYTES]).unwrap();
    MkfsXfs::default().prototype(&source).create(&image, 320 << 20);
    let fs = open_file(&image);
    let ino = fs.lookup(fs.root(), b"file").unwrap();
    let text = xfs_db(&image, &[&format!("inode {ino}"), "bmap"]);
    let ledger = Ledger::of("xfs", &*fs);
    let group_blocks = fs.shape().unwrap().group_blocks;
    let mut count = 0;
    for line in text.lines().filter(|line| line.contains("startblock")) {
        // data offset 0 startblock 24 (0/24) count 600 flag 0
        let place = line.split(['(', ')']).nth(1).expect("a place");
        let (group, block) = place.split_once('/').expect("group and block");
        let number = |text: &str| text.trim().parse::<u64>().expect("a number");
        let after = line.split("count ").nth(1).expect("a count");
        let len = number(after.split_whitespace().next().expect("a count"));
        let start = number(group) * group_blocks + number(block);
        for at in start..start + len {
            assert_eq!(ledger.kinds[at as usize], Some(BlockUse::Data), "{line}");
        }
        count += len;
    }
    assert_eq!((count, ledger.count(BlockUse::Data)), (600, 600), "{text}");
}

/// Returns the paths of all inodes found by a walk.
fn walked(fs: &dyn FileSystem) -> HashMap<Ino, Vec<Vec<u8>>> {
    let mut paths = HashMap::<Ino, Vec<Vec<u8>>>::new();
    for walked in Paths::new(fs).walk(fs.root(), Order::Sorted) {
        let walked = walked.expect("a sound image");
        let path = [b"/".as_slice(), &walked.path].concat();
        paths.entry(walked.attributes.ino).or_default().push(path);
    }
    paths
}

fn assert_named(name: &str, fs: &dyn FileSystem) {
    let paths = walked(fs);
    // Also an inode without a name.
    let mut inos: Vec<Ino> = paths.keys().copied().chain([Ino(1 << 40)]).collect();
    inos.sort_unstable();
    let (found, errors) = first_paths(fs, &inos);
    assert_eq!((found.len(), errors), (inos.len(), 0), "{name}");
    for (ino, path) in inos.iter().zip(found) {
        match paths.get(ino) {
            Some(paths) => assert!(path.is_some_and(|path| paths.contains(&path)), "{name}: {ino}"),
            None => assert_eq!(path, None, "{name}: {ino}"),
        }
    }
}

#[test]
fn each_inode_is_found_by_one_of_its_paths() {
    for (name, packed) in GOLDEN.into_iter().flatten() {
        assert_named(name, &*open_bytes(&unpack(packed)).expect("a sound image"));
    }
}

#[test]
fn parent_pointers_give_paths() {
    require!(Tool("mkfs.xfs"));
    let home = scratch();
    let (image, source) = (home.path().join("image"), home.path().join("source"));
    std::fs::create_dir_all(source.join("a/b")).unwrap();
    for number in 0..50 {
        std::fs::write(source.join(format!("a/b/{number}")), "x").unwrap();
    }
    MkfsXfs::default().options("-n parent=1").prototype(&source).create(&image, 320 << 20);
    assert_named("parents", &*open_file(&image));
}

#[test]
fn files_in_many_pieces_are_named() {
    require!(Tool("mke2fs"), Tool("debugfs"));
    let home = scratch();
    let (image, source) = (home.path().join("image"), home.path().join("source"));
    std::fs::create_dir_all(source.join("deep/er")).unwrap();
    // Holes before each block, and blocks of other files in between.
    let mut bytes = vec![0_u8; 4096 * 64];
    bytes.chunks_mut(4096 * 2).for_each(|pair| pair[0] = 1);
    std::fs::write(source.join("deep/er/<file> & \"co\""), &bytes).unwrap();
    std::fs::write(source.join("plain"), vec![1; 4096 * 8]).unwrap();
    Mke2fs::new("ext4").block_size(4096).populate(&source).create(&image, 64 << 20);
    let survey = survey(&*open_file(&image), 100);
    assert_eq!(survey.files.files, 2);
    for file in &survey.files.worst {
        assert!(file.path.as_deref().is_some_and(|path| path.starts_with(b"/")), "{file:?}");
    }
}
