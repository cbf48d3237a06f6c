//! Directories that ignore case, encryption, hash collisions, and values we also write.

use std::fs;
use std::path::Path;
use std::process::Command;

use oracle::{
    Ignore, KernelMount, Mke2fs, MountOptions, debugfs, debugfs_write, populate_with_kernel,
    require, scratch,
};
use vfs::{Error, Ino};

use super::{list_from, list_thoroughly, lookup, open, read, readlink};
use crate::format::address::Block;
use crate::format::xattr::{Area, Value, entry_hash};
use crate::kind::Kind;

const MIB: u64 = 1 << 20;

fn names(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn names_are_found_without_regard_to_case() {
    require!(Root, Tool("mke2fs"), Tool("chattr"), Mount("ext4"));
    let scratch = scratch();
    let image = scratch.path().join("image");
    let mke2fs = Mke2fs::new("ext4").features("casefold").extended("encoding=utf8-12.1");
    mke2fs.block_size(1024).create(&image, 32 * MIB);
    if KernelMount::attempt(&image, &MountOptions::read_write("ext4")).is_err() {
        eprintln!("SKIPPED names_are_found_without_regard_to_case: the kernel mounts no casefold");
        return;
    }
    let odd = ["\u{c4}rger", "STRASSE", "\u{1e9b}\u{323}", "\u{130}stanbul", "a\u{200d}b"];
    populate_with_kernel(&image, "ext4", |root| {
        for dir in ["large", "small"] {
            let dir = root.join(dir);
            fs::create_dir(&dir).unwrap();
            assert!(Command::new("chattr").arg("+F").arg(&dir).status().unwrap().success());
            for name in odd {
                fs::write(dir.join(name), name).unwrap();
            }
        }
        for number in 0..900 {
            fs::write(root.join(format!("large/Some File {number}")), "").unwrap();
        }
    });
    let wanted = [
        "\u{e4}RGER",
        "A\u{308}rger",
        "stra\u{df}e",
        "strasse",
        "\u{1e69}",
        "i\u{307}STANBUL",
        "AB",
        "some file 7",
        "SOME FILE 899",
        "some file 900",
        "a",
        "\u{131}stanbul",
    ];
    let mount = KernelMount::new(&image, &MountOptions::read_only("ext4"));
    let fs = open(&image);
    let root = fs.load(Ino(2)).unwrap();
    for dir in ["large", "small"] {
        let handle = fs.load(lookup(&fs, &root, dir.as_bytes()).unwrap()).unwrap();
        let listed = list_thoroughly(&fs, &handle);
        let listed: Vec<_> =
            listed.into_iter().skip(2).map(|l| String::from_utf8(l.name).unwrap()).collect();
        assert_eq!(listed, names(&mount.path().join(dir)));
        for name in wanted {
            use std::os::unix::fs::MetadataExt;
            let expected = fs::metadata(mount.path().join(dir).join(name)).ok().map(|m| m.ino());
            let found = lookup(&fs, &handle, name.as_bytes()).ok().map(|ino| ino.0);
            assert_eq!(found, expected, "{dir}/{name}");
        }
    }
    mount.unmount();
}

#[test]
fn encrypted_things_are_shown_as_such() {
    require!(Tool("mke2fs"), Tool("debugfs"));
    let scratch = scratch();
    let (source, image) = (scratch.path().join("source"), scratch.path().join("image"));
    fs::create_dir_all(source.join("dir")).unwrap();
    fs::write(source.join("dir/inside"), "x").unwrap();
    fs::write(source.join("file"), "x").unwrap();
    std::os::unix::fs::symlink("target", source.join("link")).unwrap();
    Mke2fs::new("ext4").features("encrypt").populate(&source).create(&image, 8 * MIB);
    for path in ["dir", "file", "link"] {
        debugfs_write(&image, &format!("set_inode_field {path} flags 0x80800"));
    }
    let fs = open(&image);
    let root = fs.load(Ino(2)).unwrap();
    let load = |name: &[u8]| fs.load(lookup(&fs, &root, name).unwrap()).unwrap();
    let read = read(&fs, &load(b"file"), 0, &mut [0; 1]);
    assert!(matches!(read, Err(Error::Encrypted)), "{read:?}");
    assert!(matches!(readlink(&fs, &load(b"link")), Err(Error::Encrypted)));
    let listed = list_thoroughly(&fs, &load(b"dir"));
    assert_eq!(listed[2].name, b"encrypted:aW5zaWRl");
}

#[test]
fn a_directory_of_an_unknown_hash_reads() {
    require!(Root, Tool("mke2fs"), Mount("ext4"));
    let scratch = scratch();
    let image = scratch.path().join("image");
    Mke2fs::new("ext4").block_size(1024).features("^metadata_csum").create(&image, 64 * MIB);
    populate_with_kernel(&image, "ext4", |root| {
        fs::create_dir(root.join("wide")).unwrap();
        for number in 0..5000 {
            fs::write(root.join(format!("wide/a rather long name, number {number}")), "").unwrap();
        }
    });
    let blocks = debugfs(&image, "blocks /wide");
    let first: u64 = blocks.split_whitespace().next().unwrap().parse().unwrap();
    let file = fs::OpenOptions::new().write(true).open(&image).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[99], first * 1024 + 0x1c).unwrap();
    let fs = open(&image);
    let root = fs.load(Ino(2)).unwrap();
    let wide = fs.load(lookup(&fs, &root, b"wide").unwrap()).unwrap();
    let (info, _) = super::super::index::root(&fs, &wide).unwrap();
    assert_eq!((info.hash_version, info.indirect_levels), (99, 1));
    let all = list_from(&fs, &wide, 0, usize::MAX).unwrap();
    assert_eq!(all.len(), 5002);
    assert!(all.is_sorted_by_key(|listed| listed.next));
    assert!(lookup(&fs, &wide, b"a rather long name, number 4999").is_ok());
}

/// Legacy hashes of short names collide; those of equal hash may lie in several leaves.
#[test]
fn names_of_equal_hash_are_all_found() {
    require!(Root, Tool("mke2fs"), Tool("tune2fs"), Mount("ext4"));
    let scratch = scratch();
    let image = scratch.path().join("image");
    Mke2fs::new("ext4").block_size(1024).create(&image, 64 * MIB);
    let tune2fs = Command::new("tune2fs").args(["-E", "hash_alg=legacy"]).arg(&image).output();
    assert!(tune2fs.unwrap().status.success());
    let colliding = colliding_names(&open(&image), 400);
    populate_with_kernel(&image, "ext4", |root| {
        fs::create_dir(root.join("wide")).unwrap();
        for name in &colliding {
            fs::write(root.join("wide").join(name), "").unwrap();
        }
        for number in 0..300 {
            fs::write(root.join(format!("wide/other {number}")), "").unwrap();
        }
    });
    let fs = open(&image);
    let root = fs.load(Ino(2)).unwrap();
    let wide = fs.load(lookup(&fs, &root, b"wide").unwrap()).unwrap();
    assert_eq!(list_thoroughly(&fs, &wide).len(), 702);
    let mut from = 0;
    let mut one_by_one = 0;
    while let Some(entry) = list_from(&fs, &wide, from, 1).unwrap().pop() {
        assert!(entry.next > from);
        (from, one_by_one) = (entry.next, one_by_one + 1);
    }
    assert_eq!(one_by_one, 702);
}

/// Names of the same legacy hash: pairs of characters that hash alike, many times over.
fn colliding_names(fs: &crate::Ext4, count: usize) -> Vec<String> {
    let hasher = fs.volume.hasher(0).unwrap();
    let mut by_hash = std::collections::HashMap::<u32, Vec<String>>::new();
    for number in 0..3_000_000_u32 {
        let name = format!("{number:07}");
        let hash = hasher.hash(name.as_bytes()).major;
        by_hash.entry(hash).or_default().push(name);
    }
    let mut groups: Vec<_> = by_hash.into_values().filter(|group| group.len() > 1).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    groups.into_iter().flatten().take(count).collect()
}

#[test]
fn hashes_of_attributes_are_those_the_kernel_writes() {
    require!(Root, Tool("mke2fs"), Mount("ext4"));
    let scratch = scratch();
    let image = scratch.path().join("image");
    Mke2fs::new("ext4").inode_size(128).features("ea_inode").create(&image, 32 * MIB);
    populate_with_kernel(&image, "ext4", |root| {
        let file = root.join("file");
        fs::write(&file, "").unwrap();
        for (name, len) in
            [("user.one", 1), ("user.caf\u{e9}", 77), ("trusted.x", 0), ("user.large", 50_000)]
        {
            let value = vec![b'v'; len];
            rustix::fs::setxattr(&file, name, &value, rustix::fs::XattrFlags::empty()).unwrap();
        }
    });
    let fs = open(&image);
    let file = fs.load(lookup(&fs, &fs.load(Ino(2)).unwrap(), b"file").unwrap()).unwrap();
    let block = fs.block(Block(file.inode.file_acl()), Kind::Xattr.plain()).unwrap();
    let mut kinds = [0, 0];
    for entry in Area::in_block(&block).entries() {
        match entry.value {
            Value::Here(value) => {
                assert_eq!(entry.hash, entry_hash(entry.name, value));
                kinds[0] += 1;
            }
            Value::Inode { .. } => kinds[1] += 1,
        }
    }
    assert_eq!(kinds, [3, 1]);
    // Reading the large value checks its hashes.
    drop(block);
    assert_eq!(super::get_xattr(&fs, &file, b"user.large").unwrap().len(), 50_000);
    let _ = Ignore::default();
}
