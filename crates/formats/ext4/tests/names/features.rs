//! Directories of special kinds: inline, case-insensitive, and with too many links.

use std::fs;

use testkit::{
    KernelMount, Mke2fs, MountOptions, Tree, debugfs_write, populate_with_kernel, require,
};
use vfs::{Error, FileSystem, Ino, RenameMode};

use crate::names::common::{ImageFile, NEW, entries, later};

fn names(fs: &dyn FileSystem, dir: Ino) -> Vec<String> {
    let names = entries(fs, dir).into_iter().map(|(name, _)| name);
    names.map(|name| String::from_utf8(name).unwrap()).collect()
}

#[test]
fn inline_directories_get_a_block() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    for (block_size, features) in [(1024, "inline_data"), (4096, "inline_data,^dir_index")] {
        let image =
            ImageFile::new(&Mke2fs::new("ext4").block_size(block_size).features(features), 16);
        populate_with_kernel(&image.path, "ext4", |root| {
            for dir in ["add", "remove", "replace", "move", "parent", "empty", "both"] {
                fs::create_dir(root.join(dir)).unwrap();
            }
            for dir in ["add", "remove", "replace", "both"] {
                for name in ["one", "two", "three-three-three-three-three-three", "four"] {
                    fs::write(root.join(dir).join(name), "x").unwrap();
                }
            }
            // Some entries are after the attribute, some in `i_block`.
            fs::remove_file(root.join("both/one")).unwrap();
            fs::create_dir(root.join("move/below")).unwrap();
        });
        let fs = image.open();
        let at = |name: &str| fs.lookup(fs.root(), name.as_bytes()).unwrap();
        fs.create(at("add"), b"five", &NEW).unwrap();
        fs.unlink(at("remove"), b"two", later(1)).unwrap();
        let (replace, both) = (at("replace"), at("both"));
        fs.rename((replace, b"four"), (replace, b"one"), RenameMode::Replace, later(2)).unwrap();
        fs.rename((both, b"two"), (both, b"four"), RenameMode::Exchange, later(2)).unwrap();
        let (from, to) = (at("move"), at("parent"));
        fs.rename((from, b"below"), (to, b"moved"), RenameMode::NoReplace, later(3)).unwrap();
        let moved = fs.lookup(to, b"moved").unwrap();
        assert_eq!(fs.lookup(moved, b"..").unwrap(), to);
        fs.rmdir(fs.root(), b"empty", later(4)).unwrap();
        fs.rmdir(fs.root(), b"move", later(4)).unwrap();
        assert_eq!(names(&fs, at("add")).len(), 5);
        assert_eq!(names(&fs, both), ["four", "three-three-three-three-three-three", "two"]);
        image.close(fs);
        let mount = KernelMount::new(&image.path, &MountOptions::read_only("ext4"));
        let tree = Tree::of(mount.path());
        assert_eq!(tree.node("parent").nlink, 3);
        tree.node("parent/moved");
    }
}

#[test]
fn names_in_any_case_are_one() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let mke2fs = Mke2fs::new("ext4").block_size(1024).features("casefold");
    let image = ImageFile::new(&mke2fs.arguments(["-E", "encoding=utf8"]), 16);
    // debugfs is used because not every kernel has the feature.
    debugfs_write(&image.path, "mkdir Folded");
    debugfs_write(&image.path, "set_inode_field Folded flags 0x40080000");
    let fs = image.open();
    let dir = fs.lookup(fs.root(), b"Folded").unwrap();
    let file = fs.create(dir, b"Name", &NEW).unwrap();
    assert_eq!(fs.lookup(dir, b"nAME").unwrap(), file);
    assert!(matches!(fs.create(dir, b"NAME", &NEW), Err(Error::Exists)));
    let below = fs.mkdir(dir, b"Below", &NEW).unwrap();
    fs.create(below, "\u{c4}rger".as_bytes(), &NEW).unwrap();
    assert!(fs.lookup(below, "a\u{308}RGER".as_bytes()).is_ok(), "it inherits the flag");
    for n in 0..400 {
        fs.create(dir, format!("A File With Number {n}").as_bytes(), &NEW).unwrap();
    }
    for n in (0..400).step_by(2) {
        fs.unlink(dir, format!("a file with number {n}").as_bytes(), later(1)).unwrap();
    }
    let (old, new) = (b"a FILE with number 1".as_slice(), b"moved".as_slice());
    fs.rename((dir, old), (dir, new), RenameMode::NoReplace, later(2)).unwrap();
    fs.rename((dir, new), (dir, b"name"), RenameMode::Replace, later(2)).unwrap();
    assert_eq!(names(&fs, dir).len(), 2 + 199);
    assert!(names(&fs, dir).contains(&"Name".to_owned()), "a replaced name keeps its spelling");
    image.close(fs);
}

/// More subdirectories than the link count can represent, with and without `dir_nlink`.
#[test]
fn directories_count_their_links_as_far_as_they_can() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for (features, counts) in [("dir_nlink", true), ("^dir_nlink", false)] {
        let mke2fs = Mke2fs::new("ext4").block_size(1024).features(features);
        let image = ImageFile::new(&mke2fs.arguments(["-N", "70000"]), 160);
        let fs = image.open();
        let top = fs.mkdir(fs.root(), b"top", &NEW).unwrap();
        let name = |n: u32| format!("{n}").into_bytes();
        for n in 2..65_000 {
            fs.mkdir(top, &name(n), &NEW).unwrap();
        }
        assert_eq!(fs.attributes(top).unwrap().links, 65_000);
        let more = fs.mkdir(top, b"more", &NEW);
        let moved = fs.rename((fs.root(), b"lost+found"), (top, b"l"), RenameMode::Replace, None);
        if counts {
            more.unwrap();
            moved.unwrap();
            assert_eq!(fs.attributes(top).unwrap().links, 1);
            fs.rename((top, b"l"), (fs.root(), b"lost+found"), RenameMode::Replace, None).unwrap();
            fs.rmdir(top, b"more", None).unwrap();
            fs.rmdir(top, &name(2), None).unwrap();
            assert_eq!(fs.attributes(top).unwrap().links, 1, "nobody knows how many are left");
            fs.mkdir(top, b"more", &NEW).unwrap();
            fs.mkdir(top, b"still more", &NEW).unwrap();
        } else {
            assert!(matches!(more, Err(Error::TooManyLinks)));
            assert!(matches!(moved, Err(Error::TooManyLinks)));
            let taken = fs.mkdir(top, &name(7), &NEW);
            assert!(matches!(taken, Err(Error::Exists)), "{taken:?}");
            fs.rmdir(top, &name(2), None).unwrap();
            assert_eq!(fs.attributes(top).unwrap().links, 64_999);
        }
        image.close(fs);
    }
}

#[test]
fn a_file_has_as_many_names_as_it_can_count() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let image = ImageFile::ext4(4096, "dir_index", 32);
    let fs = image.open();
    let file = fs.create(fs.root(), b"0", &NEW).unwrap();
    let link = |n: u32| fs.link(file, fs.root(), n.to_string().as_bytes(), None);
    for n in 1..65_000 {
        link(n).unwrap();
    }
    assert!(matches!(link(65_000), Err(Error::TooManyLinks)));
    assert!(matches!(link(8), Err(Error::Exists)));
    fs.unlink(fs.root(), b"7", None).unwrap();
    link(65_000).unwrap();
    image.close(fs);
}
