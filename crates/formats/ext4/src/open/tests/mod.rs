//! Reading images made by mke2fs and the kernel.

mod damage;
mod images;
mod special;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

use disk::FileDevice;
use operations::profile::ListingClock;
use testkit::{HOLE_GRANULE, Node, NodeKind, Tree};
use vfs::{Attributes, Cookie, ExtentPlace, FileType, Ino, Result, Timestamp};

use crate::dir::listing::{DirectoryListing, Scratch};
use crate::dir::lookup;
use crate::file::{extent_map, read, readlink};
use crate::inode::Handle;
use crate::inode::attributes;
use crate::xattr::{get as get_xattr, list as list_xattrs};
use crate::{Ext4, OpenOptions};

fn open(image: &Path) -> Ext4 {
    let device = FileDevice::new(File::open(image).unwrap()).unwrap();
    let options = OpenOptions { cache_bytes: 16 << 20, ..OpenOptions::default() };
    Ext4::open(Arc::new(device), &options).unwrap()
}

/// An entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ListedEntry {
    name: Vec<u8>,
    ino: u64,
    letter: Option<char>,
    next: u64,
}

/// Lists at most `count_max` entries of a directory from a cookie on.
fn list_from(fs: &Ext4, dir: &Handle, from: u64, count_max: usize) -> Result<Vec<ListedEntry>> {
    let mut all = Vec::new();
    let mut listing = DirectoryListing::new(fs, dir, ListingClock::off());
    listing.readdir(Cookie(from), &mut Scratch::default(), &mut |entry| {
        all.push(ListedEntry {
            name: entry.name.to_vec(),
            ino: entry.ino.0,
            letter: entry.file_type.map(FileType::letter),
            next: entry.next.0,
        });
        if all.len() < count_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(all)
}

/// Lists a directory and checks that all other ways to list it agree.
fn list_thoroughly(fs: &Ext4, dir: &Handle) -> Vec<ListedEntry> {
    let all = list_from(fs, dir, 0, usize::MAX).unwrap();
    assert_eq!((&all[0].name[..], all[0].ino), (&b"."[..], dir.ino().0));
    assert_eq!(all[1].name, b"..");
    let step = all.len() / 7 + 1;
    let mut pieces = Vec::new();
    while let Some(more) =
        Some(list_from(fs, dir, pieces.last().map_or(0, |l: &ListedEntry| l.next), step).unwrap())
        && !more.is_empty()
    {
        pieces.extend(more);
    }
    assert!(pieces == all, "a listing that is resumed differs");
    let mut unordered = BTreeSet::new();
    DirectoryListing::new(fs, dir, ListingClock::off())
        .for_each_entry(&mut Scratch::default(), &mut |entry| {
            assert!(unordered.insert((entry.name.to_vec(), entry.ino.0)));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(unordered, all.iter().map(|l| (l.name.clone(), l.ino)).collect());
    for entry in &all {
        assert_eq!(lookup(fs, dir, &entry.name).unwrap(), Ino(entry.ino));
    }
    let missing = lookup(fs, dir, b"surely no such name");
    assert!(matches!(missing, Err(vfs::Error::NotFound)), "{missing:?}");
    all
}

/// Names of each directory in listing order.
type Order = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

/// Reads a whole file system in the form in which the oracle reads a mounted one.
fn tree_of(fs: &Ext4) -> (Tree, Order) {
    let mut nodes = BTreeMap::new();
    let mut order = Order::new();
    let mut paths: HashMap<u64, BTreeSet<Vec<u8>>> = HashMap::new();
    let mut pending = VecDeque::from([(Vec::new(), Ino(2))]);
    while let Some((path, ino)) = pending.pop_front() {
        let handle = fs.load(ino).unwrap();
        let node = node_of(fs, &handle);
        if node.kind == NodeKind::Directory {
            let entries = list_thoroughly(fs, &handle);
            let names = order.entry(path.clone()).or_default();
            for entry in entries.into_iter().skip(2) {
                let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
                pending.push_back(([&path[..], slash, &entry.name].concat(), Ino(entry.ino)));
                if let Some(letter) = entry.letter {
                    let file_type = fs.load(Ino(entry.ino)).unwrap().inode.file_type();
                    assert_eq!(file_type.map(FileType::letter), Some(letter));
                }
                names.push(entry.name);
            }
        } else {
            paths.entry(ino.0).or_default().insert(path.clone());
        }
        nodes.insert(path, node);
    }
    for group in paths.into_values().filter(|group| group.len() > 1) {
        for path in &group {
            nodes.get_mut(path).unwrap().link_leader = group.first().cloned();
        }
    }
    (Tree { nodes }, order)
}

fn node_of(fs: &Ext4, handle: &Handle) -> Node {
    let attributes = attributes(fs, handle).unwrap();
    let pair = |time: Timestamp| (time.sec, i64::from(time.nsec));
    let Attributes { file_type, permissions, links, uid, gid, device, .. } = attributes;
    let mut node = Node {
        kind: match file_type {
            FileType::Regular => NodeKind::File,
            FileType::Directory => NodeKind::Directory,
            FileType::Symlink => NodeKind::Symlink,
            FileType::CharDevice => NodeKind::CharDevice,
            FileType::BlockDevice => NodeKind::BlockDevice,
            FileType::Fifo => NodeKind::Fifo,
            FileType::Socket => NodeKind::Socket,
        },
        permissions: permissions.into(),
        uid,
        gid,
        size: 0,
        atime: pair(attributes.atime),
        ctime: pair(attributes.ctime),
        mtime: pair(attributes.mtime),
        nlink: links.into(),
        link_leader: None,
        rdev: rustix::fs::makedev(device.major, device.minor),
        target: Vec::new(),
        xattrs: xattrs_of(fs, handle),
        content: 0,
        data: Vec::new(),
    };
    match file_type {
        FileType::Regular => read_file(fs, handle, &mut node),
        FileType::Symlink => {
            node.size = attributes.size;
            node.target = readlink(fs, handle).unwrap();
        }
        _ => {}
    }
    node
}

fn xattrs_of(fs: &Ext4, handle: &Handle) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = Vec::new();
    list_xattrs(fs, handle, &mut |name| names.push(name.to_vec())).unwrap();
    let value = |name: Vec<u8>| {
        let value = get_xattr(fs, handle, &name).unwrap();
        (name, value)
    };
    names.into_iter().map(value).collect()
}

fn read_file(fs: &Ext4, handle: &Handle, node: &mut Node) {
    node.size = handle.inode.size();
    node.data = data_ranges(fs, handle);
    let mut granule = vec![0; HOLE_GRANULE as usize];
    for range in &node.data {
        for start in range.clone().step_by(granule.len()) {
            let len = read(fs, handle, start, &mut granule).unwrap();
            if granule[..len].iter().any(|&b| b != 0) {
                node.content = crc32c::crc32c_append(node.content, &start.to_le_bytes());
                node.content = crc32c::crc32c_append(node.content, &granule[..len]);
            }
        }
    }
}

/// Returns the ranges of a file with data, in the granularity of the oracle.
fn data_ranges(fs: &Ext4, handle: &Handle) -> Vec<Range<u64>> {
    let size = handle.inode.size();
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    extent_map(fs, handle, 0, u64::MAX, &mut |extent| {
        assert_eq!(extent.offset, at);
        at += extent.len;
        if matches!(extent.place, ExtentPlace::Device(_) | ExtentPlace::Inline) {
            let start = extent.offset - extent.offset % HOLE_GRANULE;
            let end = at.next_multiple_of(HOLE_GRANULE).min(size);
            match ranges.last_mut() {
                Some(last) if last.end >= start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(at, size);
    ranges
}
