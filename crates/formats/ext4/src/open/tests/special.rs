//! Case-insensitive directories, encryption, hash collisions, and features that we also write.

use std::fs;
use std::path::Path;

use testkit::{Mke2fs, debugfs, debugfs_write, populate_with_kernel, require, scratch};
use vfs::{Error, Ino};

use super::{list_from, list_thoroughly, lookup, open, read, readlink};
use crate::format::address::Block;
use crate::format::xattr::{Area, Value, entry_hash};
use crate::kind::BlockKind;

const MIB: u64 = 1 << 20;

/// Returns the hash that e2fsprogs computes for a case-insensitive name.
fn folded_hash(image: &Path, name: &str) -> u32 {
    let request = format!("dx_hash -h half_md4 -c -e utf8-12.1 \"{name}\"");
    let output = debugfs(image, &request);
    let digits = output.split("is 0x").nth(1).and_then(|rest| rest.split(' ').next());
    let digits = digits.unwrap_or_else(|| panic!("{request}: {output}"));
    u32::from_str_radix(digits, 16).unwrap()
}

/// Stored names and other spellings that match them.
const FOLDED: [(&str, &str); 12] = [
    ("\u{c4}rger", "\u{e4}RGER"),
    ("\u{c4}rger", "A\u{308}rger"),
    ("STRASSE", "stra\u{df}e"),
    ("stra\u{df}e 2", "STRASSE 2"),
    ("\u{1e9b}\u{323}", "\u{1e69}"),
    ("\u{130}stanbul", "i\u{307}STANBUL"),
    ("a\u{200d}b", "AB"),
    ("\u{1f80}", "\u{3b1}\u{313}\u{3b9}"),
    ("\u{3a3}\u{3c2}\u{3c3}", "\u{3c2}\u{3a3}\u{3a3}"),
    ("\u{ac00}", "\u{1100}\u{1161}"),
    ("\u{fb03}", "FFI"),
    ("Some File 7", "SOME fILE 7"),
];

/// Stored names and similar ones that do not match them.
const NOT_FOLDED: [(&str, &str); 2] = [("\u{fb03} 2", "FI 2"), ("istanbul", "\u{131}stanbul")];

#[test]
fn names_are_found_without_regard_to_case() {
    require!(Tool("mke2fs"), Tool("debugfs"), Tool("e2fsck"));
    let scratch = scratch();
    let (source, image) = (scratch.path().join("source"), scratch.path().join("image"));
    for dir in ["large", "small"] {
        fs::create_dir_all(source.join(dir)).unwrap();
        for (name, _) in FOLDED.iter().chain(&NOT_FOLDED) {
            fs::write(source.join(dir).join(name), "").unwrap();
        }
    }
    for number in 0..900 {
        fs::write(source.join(format!("large/Some File {number}")), "").unwrap();
    }
    let mke2fs = Mke2fs::new("ext4").features("casefold").extended("encoding=utf8-12.1");
    mke2fs.block_size(1024).populate(&source).create(&image, 32 * MIB);
    for dir in ["large", "small"] {
        debugfs_write(&image, &format!("set_inode_field {dir} flags 0x40080000"));
    }
    // Indexes the large directory by the folded names.
    let output = testkit::command("e2fsck").args(["-fyD"]).arg(&image).output().unwrap();
    assert!(output.status.code().is_some_and(|code| code < 4), "{output:?}");
    let fs = open(&image);
    let root = fs.load(Ino(2)).unwrap();
    for dir in ["large", "small"] {
        let handle = fs.load(lookup(&fs, &root, dir.as_bytes()).unwrap()).unwrap();
        assert_eq!(crate::dir::index::is_indexed(&fs, &handle), dir == "large");
        let listed = list_thoroughly(&fs, &handle);
        let ino_of = |name: &str| listed.iter().find(|l| l.name == name.as_bytes()).unwrap().ino;
        for (stored, wanted) in FOLDED {
            let found = lookup(&fs, &handle, wanted.as_bytes());
            assert_eq!(found.ok(), Some(Ino(ino_of(stored))), "{dir}/{wanted}");
        }
        for (_, wanted) in NOT_FOLDED {
            let found = lookup(&fs, &handle, wanted.as_bytes());
            assert!(matches!(found, Err(Error::NotFound)), "{dir}/{wanted}");
        }
    }
    for (name, _) in FOLDED {
        let mut folded = Vec::new();
        crate::dir::casefold::fold(name.as_bytes(), &mut folded);
        let mut hasher = fs.volume.hasher(1).unwrap();
        hasher.seed = [0; 4];
        assert_eq!(hasher.hash(&folded).major, folded_hash(&image, name), "{name}");
    }
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
    assert!(matches!(read, Err(Error::Encrypted(_))), "{read:?}");
    assert!(matches!(readlink(&fs, &load(b"link")), Err(Error::Encrypted(_))));
    let listed = list_thoroughly(&fs, &load(b"dir"));
    // The hash of the name in 8 bytes, and the name.
    let name = &listed[2].name;
    assert!(name.len() == 19 && name.ends_with(b"pbnNpZGU"), "{name:?}");
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
    let (info, _) = crate::dir::index::root(&mut &*fs, &wide).unwrap();
    assert_eq!((info.hash_version, info.indirect_levels), (99, 1));
    let all = list_from(&fs, &wide, 0, usize::MAX).unwrap();
    assert_eq!(all.len(), 5002);
    assert!(all.is_sorted_by_key(|listed| listed.next));
    assert!(lookup(&fs, &wide, b"a rather long name, number 4999").is_ok());
}

/// Legacy hashes of short names collide, and names of equal hash may be in several leaves.
#[test]
fn names_of_equal_hash_are_all_found() {
    require!(Root, Tool("mke2fs"), Tool("tune2fs"), Mount("ext4"));
    let scratch = scratch();
    let image = scratch.path().join("image");
    Mke2fs::new("ext4").block_size(1024).create(&image, 64 * MIB);
    let tune2fs = testkit::command("tune2fs").args(["-E", "hash_alg=legacy"]).arg(&image).output();
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

/// Returns groups of names with equal legacy hashes.
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
    let block = fs.block(Block(file.inode.file_acl()), BlockKind::Xattr.plain()).unwrap();
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
}
