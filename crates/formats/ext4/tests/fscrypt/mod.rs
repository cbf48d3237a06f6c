//! Encrypted directories with and without their keys. The judge is the kernel that made the image: `golden/make-fscrypt`
//! recorded what it shows.

use std::collections::BTreeSet;
use std::sync::Arc;

use disk::BlockDevice;
use ext4::fscrypt::EncryptionKeys;
use ext4::{Ext4, OpenOptions};
use sha2::{Digest, Sha256};
use vfs::{Cookie, EncryptionFault, Error, FileSystem, FileType, Ino};

use crate::common::image::{device, unpack};

const IMAGE: &[u8] = include_bytes!("../golden/fscrypt.img.gz");
/// Output of the recipe: a line for each file, with and without the keys.
const SHOWN: &[u8] = include_bytes!("../golden/fscrypt.txt.gz");

const KEYS: [&[u8]; 3] = [
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_",
    b"diskwright-fscrypt-key-32-bytes.",
    b"sixteen-byte-key",
];

fn keys(raw: &[&[u8]]) -> EncryptionKeys {
    let mut keys = EncryptionKeys::new();
    for key in raw {
        keys.add(key.to_vec()).unwrap();
    }
    keys
}

fn open_with(device: Arc<dyn BlockDevice>, keys: EncryptionKeys) -> Ext4 {
    Ext4::open(device, &OpenOptions { keys, ..OpenOptions::default() }).unwrap()
}

fn open(keys: EncryptionKeys) -> Ext4 {
    open_with(device(&unpack(IMAGE)), keys)
}

/// Returns the lines of the kernel that begin with a word, without it.
fn shown(word: &str) -> BTreeSet<String> {
    let text = String::from_utf8(unpack(SHOWN)).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    lines.map(str::to_owned).collect()
}

/// Returns the names and inodes of a directory, without `.` and `..`. Both orders of listing must have the same names,
/// and each name must lead to its inode.
fn entries(fs: &Ext4, dir: Ino) -> Vec<(String, Ino)> {
    let (mut all, mut unordered) = (BTreeSet::new(), BTreeSet::new());
    let add = |to: &mut BTreeSet<(String, Ino)>, entry: vfs::DirEntry<'_>| {
        if !matches!(entry.name, b"." | b"..") {
            to.insert((String::from_utf8(entry.name.to_vec()).unwrap(), entry.ino));
        }
        std::ops::ControlFlow::Continue(())
    };
    fs.readdir(dir, Cookie(0), &mut |entry| add(&mut all, entry)).unwrap();
    fs.for_each_entry(dir, &mut |entry| add(&mut unordered, entry)).unwrap();
    assert_eq!(all, unordered);
    for (name, ino) in &all {
        assert_eq!(fs.lookup(dir, name.as_bytes()).ok(), Some(*ino), "{name}");
    }
    all.into_iter().collect()
}

/// Reads a file in pieces of a size that is not that of blocks, and as a whole.
fn contents(fs: &Ext4, ino: Ino) -> Vec<u8> {
    let size = fs.attributes(ino).unwrap().size as usize;
    let mut whole = vec![1; size];
    assert_eq!(fs.read(ino, 0, &mut whole).unwrap(), size);
    if size < 100_000 {
        let (mut at, mut piece) = (0, [0; 777]);
        while at < size {
            let len = fs.read(ino, at as u64, &mut piece).unwrap();
            assert_eq!(piece[..len], whole[at..at + len]);
            at += len;
        }
    }
    whole
}

/// Adds a line for each file of a directory, as the recipe does.
fn show(fs: &Ext4, dir: Ino, path: &str, lines: &mut BTreeSet<String>) {
    for (name, ino) in entries(fs, dir) {
        let attributes = fs.attributes(ino).unwrap();
        let path = format!("{path}{name}");
        let kind = match attributes.file_type {
            FileType::Regular => 0x8000,
            FileType::Directory => 0x4000,
            FileType::Symlink => 0xa000,
            _ => 0x1000,
        };
        let mode = kind | u32::from(attributes.permissions);
        let mut line = format!("{mode:x} {} {} {path}", attributes.size, ino.0);
        match attributes.file_type {
            FileType::Symlink => {
                let target = fs.readlink(ino).unwrap();
                line.push_str(&format!(" -> {}", String::from_utf8(target).unwrap()));
            }
            FileType::Regular if attributes.size > 0 => {
                let digest = Sha256::digest(contents(fs, ino));
                line.push_str(&format!(" = {digest:x}"));
            }
            FileType::Directory => show(fs, ino, &format!("{path}/"), lines),
            _ => {}
        }
        lines.insert(line);
    }
}

/// Reports the first lines that differ.
#[track_caller]
fn same(ours: &BTreeSet<String>, kernel: &BTreeSet<String>) {
    let (more, fewer): (Vec<_>, Vec<_>) =
        (ours.difference(kernel).take(5).collect(), kernel.difference(ours).take(5).collect());
    assert!(more.is_empty() && fewer.is_empty(), "ours: {more:#?}, kernel: {fewer:#?}");
    assert!(ours.len() > 1000);
}

#[test]
fn all_policies_are_read_with_their_keys() {
    let fs = open(keys(&KEYS));
    let mut lines = BTreeSet::new();
    show(&fs, fs.root(), "", &mut lines);
    same(&lines, &shown("open"));
}

#[test]
fn names_without_keys_are_those_of_the_kernel() {
    let fs = open(EncryptionKeys::new());
    let mut lines = BTreeSet::new();
    show_locked(&fs, fs.root(), "", &mut lines);
    // The kernel shows an encoded form of the targets of links, which we do not have.
    let kernel = shown("locked").into_iter().map(|line| {
        let line = line.split(" -> ").next().unwrap().trim_end_matches(['=', ' ']).to_owned();
        match line.strip_prefix("a1ff ").and_then(|rest| rest.split_once(' ')) {
            Some((_, rest)) => format!("a1ff {rest}"),
            None => line,
        }
    });
    same(&lines, &kernel.collect());
}

fn show_locked(fs: &Ext4, dir: Ino, path: &str, lines: &mut BTreeSet<String>) {
    for (name, ino) in entries(fs, dir) {
        let attributes = fs.attributes(ino).unwrap();
        let path = format!("{path}{name}");
        let permissions = u32::from(attributes.permissions);
        let size = attributes.size;
        let line = match attributes.file_type {
            FileType::Symlink => {
                let read = fs.readlink(ino);
                assert!(matches!(read, Err(Error::Encrypted(_))), "{read:?}");
                format!("a1ff {} {path}", ino.0)
            }
            FileType::Regular if path.starts_with("plain/") => {
                format!("81a4 {size} {} {path} = {:x}", ino.0, Sha256::digest(contents(fs, ino)))
            }
            FileType::Regular => {
                let read = fs.read(ino, 0, &mut [0; 10]);
                assert!(matches!(read, Err(Error::Encrypted(_))), "{read:?}");
                format!("{:x} {size} {} {path}", 0x8000 | permissions, ino.0)
            }
            FileType::Directory => {
                show_locked(fs, ino, &format!("{path}/"), lines);
                format!("{:x} {size} {} {path}", 0x4000 | permissions, ino.0)
            }
            _ => format!("{:x} {size} {} {path}", 0x1000 | permissions, ino.0),
        };
        lines.insert(line);
    }
}

#[test]
fn case_is_ignored_in_encrypted_directories() {
    let fs = open(keys(&KEYS));
    for dir in ["v2-fold", "v2-fold-adiantum"] {
        let ino = fs.lookup(fs.root(), dir.as_bytes()).unwrap();
        assert_eq!(fs.lookup(ino, b"SMALL").unwrap(), fs.lookup(ino, b"small").unwrap(), "{dir}");
        assert!(matches!(fs.lookup(ino, b"smal"), Err(Error::NotFound)));
    }
    let dir = fs.lookup(fs.root(), b"v2-fold").unwrap();
    let many = fs.lookup(dir, b"MANY").unwrap();
    for number in [1, 200, 400] {
        let name = format!("A-FILE-of-many-with-a-NAME-of-some-length-{number}");
        fs.lookup(many, name.as_bytes()).unwrap();
    }
    let read: BTreeSet<String> = ["STRASSE", "äpfel", "mixed case"]
        .iter()
        .map(|name| fs.lookup(dir, name.as_bytes()).unwrap())
        .map(|ino| String::from_utf8(contents(&fs, ino)).unwrap().trim_end().to_owned())
        .collect();
    assert_eq!(read, shown("folded"));
}

#[test]
fn a_wrong_key_is_reported_with_both_identifiers() {
    let fs = open(keys(&KEYS[1..2]));
    let dir = fs.lookup(fs.root(), b"v2-xts").unwrap();
    let (_, ino) = entries(&fs, dir)
        .into_iter()
        .find(|(_, ino)| {
            let attributes = fs.attributes(*ino).unwrap();
            attributes.file_type == FileType::Regular && attributes.size > 0
        })
        .unwrap();
    let Err(Error::Encrypted(fault)) = fs.read(ino, 0, &mut [0; 1]) else { panic!("no error") };
    let EncryptionFault::MissingKey { needed, given } = *fault else { panic!("{fault:?}") };
    assert_eq!(needed.to_string(), "identifier 3f872b09427a09ff6d1b63a7f332d084");
    assert_eq!(given.len(), 1);
    let identifiers = shown("identifier");
    assert!(identifiers.contains(given[0].to_string().trim_start_matches("identifier ")));
    // A user who gives a name gets the same error, and a lookup that of kernels.
    assert!(matches!(fs.lookup(dir, b"small"), Err(Error::NotFound)));
    let path = vfs::Paths::new(&fs).metadata(b"v2-xts/small");
    assert!(matches!(path, Err(Error::Encrypted(_))), "{path:?}");
    // Directories of the given key are open.
    vfs::Paths::new(&fs).metadata(b"v2-xts-8/small").unwrap();
    let missing = vfs::Paths::new(&fs).metadata(b"v2-xts-8/none");
    assert!(matches!(missing, Err(Error::NotFound)));
}
