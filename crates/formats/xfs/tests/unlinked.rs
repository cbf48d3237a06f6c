//! Open unlinked inodes: their lists on disk.

use crate::changing;

use std::sync::Arc;

use changing::{SMALL_CACHE_BYTES, TargetLayout, assert_clean, seem_finished};
use disk::{BlockDevice, MemoryDevice};
use testkit::require;
use vfs::{Error, FileSystem, Ino, NewInode};
use xfs::Xfs;
use xfs::format::address::{AgBlock, AgIno, AgNumber};
use xfs::format::ag::{self, RawAgi, UNLINKED_BUCKETS};
use xfs::format::bytes::{be32, put32};
use xfs::format::geometry::Geometry;
use xfs::format::inode::{NEXT_UNLINKED_OFFSET, seal_slot};

/// Enough files for lists with several members.
const FILES: usize = 700;

fn open(device: &Arc<MemoryDevice>) -> Result<Xfs, Error> {
    Xfs::open_in_progress(device.clone(), SMALL_CACHE_BYTES)
}

/// Returns an image of a crash with open unlinked files, the inodes that were open, and those that were closed
/// before.
fn left_open(layout: TargetLayout) -> (Arc<MemoryDevice>, Vec<Ino>, Vec<Ino>) {
    let device = Arc::new(layout.make());
    let fs = open(&device).unwrap();
    let mut random = fastrand::Rng::with_seed(9);
    let name = |number: usize| format!("file {number}").into_bytes();
    let mut numbers: Vec<usize> = (0..FILES).collect();
    let mut inos: Vec<Ino> = numbers
        .iter()
        .map(|&number| {
            let ino = fs.create(fs.root(), &name(number), &NewInode::default()).unwrap();
            fs.write(ino, 0, &[number as u8; 5_000], None).unwrap();
            fs.open(ino).unwrap();
            ino
        })
        .collect();
    random.shuffle(&mut numbers);
    for number in numbers {
        fs.unlink(fs.root(), &name(number), None).unwrap();
    }
    inos.push(fs.create_unlinked(fs.root(), &NewInode::default()).unwrap());
    random.shuffle(&mut inos);
    let closed = inos.split_off(FILES / 2);
    for &ino in &closed {
        vfs::FileSystem::close(&fs, ino).unwrap();
    }
    fs.sync().unwrap();
    seem_finished(&device);
    (device, inos, closed)
}

#[test]
fn lists_on_disk_have_what_is_open() {
    require!(Tool("xfs_repair"));
    for layout in [
        TargetLayout::DEFAULT,
        TargetLayout::PLAIN,
        TargetLayout::MANY_GROUPS,
        TargetLayout::SMALL_BLOCKS,
    ] {
        let (device, opened, closed) = left_open(layout);
        let fs = open(&device).unwrap();
        for &ino in &opened {
            assert_eq!(fs.attributes(ino).unwrap().links, 0);
        }
        for &ino in &closed {
            assert!(matches!(fs.attributes(ino), Err(Error::NotFound)), "{ino}");
        }
        fs.finish(None).unwrap();
        for &ino in &opened {
            assert!(matches!(fs.attributes(ino), Err(Error::NotFound)), "{ino}");
        }
        assert_clean(&device);
    }
}

#[test]
fn a_linked_inode_leaves_the_unlinked_list() {
    require!(Tool("xfs_repair"));
    let device = Arc::new(TargetLayout::DEFAULT.make());
    let fs = open(&device).unwrap();
    let inos: Vec<Ino> =
        (0..300).map(|_| fs.create_unlinked(fs.root(), &NewInode::default()).unwrap()).collect();
    for (number, &ino) in inos.iter().enumerate().filter(|(number, _)| number % 3 == 1) {
        fs.link(ino, fs.root(), format!("n{number}").as_bytes(), None).unwrap();
        vfs::FileSystem::close(&fs, ino).unwrap();
    }
    fs.finish(None).unwrap();
    for (number, &ino) in inos.iter().enumerate() {
        match fs.attributes(ino) {
            Ok(attributes) => assert_eq!((number % 3, attributes.links), (1, 1)),
            Err(error) => assert!(number % 3 != 1 && matches!(error, Error::NotFound)),
        }
    }
    assert_clean(&device);
}

/// Returns the first list of group 0 with at least two members: the bucket, and its first inode.
fn longest(device: &MemoryDevice, geometry: &Geometry) -> (usize, AgIno) {
    let (block, start) = ag::sector_place(geometry, ag::AGI_SECTOR);
    let mut header = vec![0; geometry.block_size()];
    let at = geometry.byte_of(geometry.block_of(AgNumber(0), AgBlock(block)));
    device.read_at(at, &mut header).unwrap();
    let buckets = start + std::mem::offset_of!(RawAgi, unlinked);
    let mut heads = (0..UNLINKED_BUCKETS).map(|n| (n, be32(&header, buckets + 4 * n)));
    let has_next = |ino: u32| next(device, geometry, AgIno(ino), None) != u32::MAX;
    let (bucket, ino) = heads.find(|&(_, ino)| ino != u32::MAX && has_next(ino)).unwrap();
    (bucket, AgIno(ino))
}

/// Returns the next inode after another one; `change` replaces it.
fn next(device: &MemoryDevice, geometry: &Geometry, ino: AgIno, change: Option<u32>) -> u32 {
    let (block, offset) = geometry.inode_place(ino);
    let at = geometry.byte_of(geometry.block_of(AgNumber(0), block)) + offset as u64;
    let mut slot = vec![0; geometry.inode_size()];
    device.read_at(at, &mut slot).unwrap();
    let next = be32(&slot, NEXT_UNLINKED_OFFSET);
    if let Some(to) = change {
        put32(&mut slot, NEXT_UNLINKED_OFFSET, to);
        seal_slot(&mut slot);
        device.write_at(at, &slot).unwrap();
    }
    next
}

#[test]
fn damaged_lists_are_found() {
    let (device, ..) = left_open(TargetLayout::DEFAULT);
    let geometry = Geometry::new(open(&Arc::new(device.fork())).unwrap().superblock());
    let (_, first) = longest(&device, &geometry);
    let second = AgIno(next(&device, &geometry, first, None));
    for (to, problem) in [
        (first.0, "it contains a loop"),
        (second.0, "it contains a loop"),
        (second.0 + 1, "of another bucket"),
        (0, "of another bucket"),
        (1 << 30, "of another bucket"),
    ] {
        let damaged = Arc::new(device.fork());
        next(&damaged, &geometry, second, Some(to));
        match open(&damaged).map(drop) {
            Err(Error::Corrupt(damage)) => {
                let text = damage.to_string();
                assert!(text.contains(problem) && text.contains("bucket"), "{to}: {text}");
            }
            other => panic!("{to}: {other:?}"),
        }
    }
}
