//! A tree with every kind of entry, and comparable forms of streams.
#![allow(missing_docs, unreachable_pub)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use import::{Body, Content, DataRun, Entry, EntryKind, Metadata, Source, Xattr};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chownat, lsetxattr,
    makedev, mknodat, utimensat,
};

/// An entry with its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeItem {
    pub path: String,
    pub kind: ItemKind,
    pub metadata: Metadata,
    pub xattrs: Vec<Xattr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemKind {
    File { size: u64, runs: Vec<(u64, u64)>, data: Vec<u8> },
    Other(String),
}

/// Reads a whole stream with all contents.
pub fn collect(source: &mut dyn Source) -> Result<Vec<TreeItem>, import::SourceError> {
    let mut items = Vec::new();
    while let Some(entry) = source.next_entry()? {
        let Entry { path, kind, metadata, xattrs, .. } = entry;
        let kind = match kind {
            EntryKind::File(content) => read_file(source, &content)?,
            other => ItemKind::Other(format!("{other:?}")),
        };
        let path = String::from_utf8_lossy(&path).into_owned();
        items.push(TreeItem { path, kind, metadata, xattrs });
    }
    assert!(source.next_entry()?.is_none());
    Ok(items)
}

fn read_file(source: &mut dyn Source, content: &Content) -> Result<ItemKind, import::SourceError> {
    let runs: Vec<_> = content.runs().iter().map(|run| (run.offset, run.len)).collect();
    // Grows with the bytes actually read: the sizes may be wrong.
    let mut data = Vec::new();
    match content.body() {
        Body::Empty => assert!(runs.is_empty()),
        Body::Stream => {
            let mut chunk = [0; 1000];
            loop {
                match source.read(&mut chunk)? {
                    0 => break,
                    n => data.extend_from_slice(&chunk[..n]),
                }
            }
            assert_eq!(data.len() as u64, content.data_len());
        }
        Body::Detached(detached) => {
            let file = detached.open()?;
            for &DataRun { offset, len } in content.runs() {
                let at = data.len();
                data.resize(at + len as usize, 0);
                file.read_at(offset, &mut data[at..])?;
            }
            let mut whole = vec![1; content.size() as usize];
            file.read_at(0, &mut whole)?;
            check_holes(&whole, &runs, &data);
            assert!(file.read_at(content.size(), &mut [0]).is_err());
            file.finish()?;
        }
    }
    Ok(ItemKind::File { size: content.size(), runs, data })
}

fn check_holes(whole: &[u8], runs: &[(u64, u64)], data: &[u8]) {
    let mut expected = vec![0; whole.len()];
    let mut at = 0;
    for &(offset, len) in runs {
        let (offset, len) = (offset as usize, len as usize);
        expected[offset..offset + len].copy_from_slice(&data[at..at + len]);
        at += len;
    }
    assert!(whole == expected);
}

/// Returns the items by path, without the root's times and without access and change times, which archives may lack.
pub fn by_path(items: Vec<TreeItem>) -> BTreeMap<String, TreeItem> {
    items
        .into_iter()
        .map(|mut item| {
            item.metadata.atime = None;
            item.metadata.ctime = None;
            (item.path.clone(), item)
        })
        .collect()
}

pub fn is_root() -> bool {
    testkit::satisfied("devices and owners in the tree of a test", &[testkit::Need::Root])
}

pub fn run(command: &mut Command) {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Sets an extended attribute. Returns false if the file system does not support its kind.
pub fn set_xattr(path: &Path, name: &str, value: &[u8]) -> bool {
    let set = lsetxattr(path, name, value, XattrFlags::empty());
    if let Err(e) = set {
        eprintln!("SKIPPED: no attribute {name} here ({e})");
    }
    set.is_ok()
}

fn set_time(path: &Path, sec: i64, nsec: i64) {
    let time = Timespec { tv_sec: sec, tv_nsec: nsec };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Returns the attribute value of the ACL `user::rw-,user:1000:r--,group::r--,mask::r--,other::---`.
pub fn acl() -> Vec<u8> {
    let mut value = vec![2, 0, 0, 0];
    for (tag, permissions, id) in [
        (1_u16, 6_u16, u32::MAX),
        (2, 4, 1000),
        (4, 4, u32::MAX),
        (16, 4, u32::MAX),
        (32, 0, u32::MAX),
    ] {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// Creates a tree with every type of file. `is_posix` adds what only PAX archives support.
pub fn make_tree(root: &Path, is_posix: bool) {
    let at = |name: &str| root.join(name);
    fs::create_dir_all(at("dir/sub")).unwrap();
    fs::create_dir_all(at("empty dir")).unwrap();
    fs::write(at("dir/a"), b"hello").unwrap();
    fs::write(at("dir/empty"), b"").unwrap();
    let big: Vec<u8> = (0..300_000_u32).map(|i| (i / 7) as u8).collect();
    fs::write(at("dir/sub/big"), &big).unwrap();
    fs::hard_link(at("dir/a"), at("dir/sub/link-to-a")).unwrap();
    fs::hard_link(at("dir/a"), at("zz-link-to-a")).unwrap();
    let bytes = std::ffi::OsStr::from_bytes(b"bytes \x01\xff\n\\ name");
    fs::write(root.join(bytes), b"x").unwrap();
    let long = "n".repeat(255);
    fs::create_dir_all(at(&long)).unwrap();
    fs::write(at(&long).join(&long), b"long").unwrap();
    fs::hard_link(at(&long).join(&long), at(&long).join("other")).unwrap();
    symlink("dir/a", at("short link")).unwrap();
    symlink("t".repeat(1000), at("long link")).unwrap();
    let sparse = File::create(at("sparse")).unwrap();
    sparse.set_len(10 << 20).unwrap();
    for i in 0..40_u64 {
        sparse.write_all_at(&[i as u8 + 1; 4096], i * 200_000 / 4096 * 4096).unwrap();
    }
    File::create(at("all hole")).unwrap().set_len(1 << 20).unwrap();
    fs::set_permissions(at("dir/a"), fs::Permissions::from_mode(0o6751)).unwrap();
    fs::set_permissions(at("empty dir"), fs::Permissions::from_mode(0o1777)).unwrap();
    mknodat(CWD, at("fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    if is_root() {
        let device = |name, kind, dev| {
            mknodat(CWD, at(name), kind, Mode::from_raw_mode(0o600), dev).unwrap();
        };
        device("char", FileType::CharacterDevice, makedev(5, 1));
        device("block", FileType::BlockDevice, makedev(8, 300));
        let owner = |name, uid, gid| {
            let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            chownat(CWD, at(name), uid, gid, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        };
        owner("dir/empty", 1234, 5678);
        owner("short link", 4_000_000_000, 3_000_000_000);
    }
    let nsec = if is_posix { 123_456_789 } else { 0 };
    set_time(&at("dir/a"), 1_000_000_000, nsec);
    set_time(&at("short link"), 5_000_000_000, nsec);
    set_time(&at("dir/empty"), -10_000, nsec);
    let names = ["dir/sub/big", "dir/sub", "dir", &long, "empty dir", "sparse", "all hole", "fifo"];
    for name in names {
        set_time(&at(name), 1_700_000_000, nsec);
    }
    for entry in fs::read_dir(root).unwrap() {
        set_time(&entry.unwrap().path(), 1_600_000_000, nsec);
    }
    for name in ["other", &long] {
        set_time(&at(&long).join(name), 1_600_000_000, nsec);
    }
    if is_posix {
        set_xattr(&at("dir/sub/big"), "user.plain", b"value");
        set_xattr(&at("dir/sub/big"), "user.odd=%3D", b"\0\n=\xff");
        set_xattr(&at("dir/sub"), "user.long", &[7; 1500]);
        set_xattr(&at("short link"), "trusted.link", b"1");
        set_xattr(&at("dir/empty"), "security.capability", &capability());
    }
    set_time(root, 1_500_000_000, nsec);
}

/// A file capability (`cap_net_raw+ep`, revision 2).
fn capability() -> Vec<u8> {
    let words: [u32; 5] = [0x0200_0001, 1 << 13, 0, 0, 0];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
