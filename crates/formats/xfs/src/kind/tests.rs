//! Blocks of every kind, corrupted in memory. None of them must ever be written.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use engine::Tag;
use operations::RunOperations;
use vfs::{Error, FileSystem, FileType, Ino, NewInode};
use zerocopy::IntoBytes;

use super::BlockKind;
use crate::format::address::{AgBlock, AgNumber, Block, FileBlock, FsBlock};
use crate::format::attr::{self, Identity, remote};
use crate::format::bytes::{put16, put32, put64};
use crate::format::dir::{self, DirLayout, data, free, leaf, magic};
use crate::format::extent::Extent;
use crate::format::geometry::Geometry;
use crate::format::{quota, symlink};
use crate::mkfs::Options;
use crate::stub::make;
use crate::{OpenOptions, Xfs};

const SIZE: u64 = 32 << 20;
const BLOCK_SIZE: usize = 4096;
const AG: AgNumber = AgNumber(1);
const INO: Ino = Ino(128);
/// Byte offset of the first record in a leaf of a group's tree, and in a leaf of a fork's tree.
const SHORT: usize = 56;
const LONG: usize = 72;

/// A valid block.
struct Sound {
    tag: Tag,
    block: Block,
    /// Its contents, if the test makes them up. Other blocks exist on the image.
    made: Option<Vec<u8>>,
}

/// Offset and bytes to write over a valid block, and a part of the expected error.
type Harm = (usize, Vec<u8>, &'static str);

/// An unused block, for blocks that are made up.
fn spare(geometry: &Geometry) -> Block {
    geometry.block_of(AG, AgBlock(geometry.ag_len(AG) - 20))
}

fn be16(value: u16) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

fn be32(value: u32) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

fn made(geometry: &Geometry, tag: Tag, fill: impl FnOnce(&mut Vec<u8>)) -> Sound {
    let mut block = vec![0; BLOCK_SIZE];
    fill(&mut block);
    Sound { tag, block: spare(geometry), made: Some(block) }
}

/// Returns a valid block of the given kind.
fn sound(fs: &Xfs, kind: BlockKind) -> Sound {
    let geometry = &fs.volume.geometry;
    let (place, layout) = (spare(geometry), DirLayout::new(geometry));
    if let Some(shape) = kind.btree() {
        let is_short = !shape.long;
        let tag = if is_short { kind.of_group(AG) } else { kind.of_inode(INO, 0) };
        return made(geometry, tag, |block| {
            shape.init(geometry, place, tag.owner, 0, block);
            let area = shape.leaf_area(geometry);
            put16(&mut block[area.count_range()], 0, 2);
            for (at, record) in records(kind).into_iter().enumerate() {
                block[area.entry_range(at, at + 1)].copy_from_slice(&record);
            }
        });
    }
    let at = |at: FileBlock| kind.of_inode(INO, at.0 as u32);
    match kind {
        BlockKind::AgHeader => {
            let block = geometry.block_of(AgNumber(0), AgBlock(0));
            Sound { tag: kind.of_group(AgNumber(0)), block, made: None }
        }
        BlockKind::Inodes => {
            let (ag, ino) = geometry.split_ino(fs.root()).unwrap();
            let block = geometry.block_of(ag, geometry.inode_place(ino).0);
            Sound { tag: kind.plain(), block, made: None }
        }
        BlockKind::DirData => made(geometry, at(FileBlock(0)), |block| {
            fill_data(geometry, place, block);
        }),
        BlockKind::DirLeaf => made(geometry, at(layout.leaf_first()), |block| {
            dir::init_da(geometry, INO, place, magic::LEAFN, block);
            leaf::set_counts(&layout, block, 2, 1);
            block[layout.header()..][..16]
                .copy_from_slice(&[0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0, 7, 0, 0, 0, 0]);
        }),
        BlockKind::DirFree => made(geometry, at(layout.free_first()), |block| {
            dir::init_dir(geometry, INO, place, magic::FREE, block);
            free::enter(&layout, block, 0, 64);
        }),
        BlockKind::AttrLeaf => made(geometry, at(FileBlock(0)), |block| {
            let who = Identity { owner: INO.0, block: place };
            attr::write_info(block, geometry, attr::BlockType::Node, who);
            let children = [3, 8].map(|hash| attr::node::Child { hash, block: hash });
            attr::node::fill(block, attr::AttrLayout::new(geometry), 1, &children);
        }),
        BlockKind::AttrRemote => made(geometry, at(FileBlock(0)), |block| {
            let who = Identity { owner: INO.0, block: place };
            remote::fill(block, geometry, who, 0, b"value");
        }),
        BlockKind::Symlink => made(geometry, at(FileBlock(0)), |block| {
            let header = symlink::header(geometry, INO, place, 0, 6);
            block[..symlink::HEADER_SIZE].copy_from_slice(header.as_bytes());
            block[symlink::HEADER_SIZE..][..6].copy_from_slice(b"target");
        }),
        BlockKind::Dquots => made(geometry, kind.of_inode(INO, 2), |block| {
            let first = 2 * quota::per_block(BLOCK_SIZE);
            quota::init_block(quota::QuotaKind::Group, first, true, &geometry.meta_uuid, block);
        }),
        BlockKind::RealtimeBitmap | BlockKind::RealtimeSummary => {
            made(geometry, kind.of_inode(INO, 0), |block| block[..4].fill(0x55))
        }
        _ => unreachable!("{kind:?} is no buffer of its own"),
    }
}

/// Fills a directory's first data block, of any size, with `.` and `..`.
fn fill_data(geometry: &Geometry, place: Block, block: &mut Vec<u8>) {
    let layout = DirLayout::new(geometry);
    dir::init_dir(geometry, INO, place, magic::DATA, block);
    let entry = |name| data::NewEntry { name, ino: INO, file_type: FileType::Directory };
    let first = layout.header();
    let entries = [(first, entry(&b"."[..])), (layout.dot_dot(), entry(&b".."[..]))];
    data::fill(&layout, block, layout.size(), entries.into_iter());
}

/// Two valid leaf records in order.
fn records(kind: BlockKind) -> [Vec<u8>; 2] {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect();
    match kind {
        BlockKind::BnoBtree => [words(&[100, 5]), words(&[200, 3])],
        BlockKind::CntBtree => [words(&[200, 3]), words(&[100, 5])],
        BlockKind::RmapBtree | BlockKind::RtRmapBtree => {
            [words(&[100, 5, 0, 128, 0, 0]), words(&[200, 5, 0, 128, 0, 5])]
        }
        BlockKind::RefcountBtree | BlockKind::RtRefcountBtree => {
            [words(&[100, 5, 2]), words(&[200, 5, 3])]
        }
        BlockKind::InoBtree | BlockKind::FinoBtree => {
            [words(&[64, 0x4002, 0, 3]), words(&[128, 0x4001, 0, 1])]
        }
        _ => [0, 10].map(|offset| {
            let mut record = vec![0; 16];
            let (offset, start) = (FileBlock(offset), FsBlock(100));
            Extent { offset, start, len: 10, unwritten: false }.put(&mut record);
            record
        }),
    }
}

/// Returns ways to corrupt a block of each kind.
fn harms(kind: BlockKind) -> Vec<Harm> {
    if let Some(shape) = kind.btree() {
        let first = if shape.long { LONG } else { SHORT };
        let [low, high] = records(kind);
        let mut harms = vec![
            (0, be32(7), "wrong magic number"),
            (4, be16(12), "level (expected below 12, found 12)"),
            // A leaf relabelled as a node is invalid; the error depends on the tree.
            (4, be16(1), shape.name),
            (6, be16(600), "numrecs"),
            (8, vec![0x7f; 8], "sibling"),
            (first, [high, low].concat(), "order of entries at 1"),
            (first + shape.record_size, vec![0xff; shape.record_size], "invalid record 1"),
        ];
        if matches!(kind, BlockKind::InoBtree | BlockKind::FinoBtree) {
            harms.push((first + 7, vec![3], "invalid record 0"));
        }
        return harms;
    }
    match kind {
        BlockKind::AgHeader => header_harms(),
        BlockKind::Inodes => inode_harms(),
        BlockKind::AttrLeaf | BlockKind::AttrRemote | BlockKind::Symlink => harms_of_values(kind),
        BlockKind::Dquots => vec![
            (0, be16(7), "an invalid quota record"),
            (3, vec![0], "an invalid quota record"),
            (136 + 3, vec![1], "an invalid quota record"),
            (136 + 4, be32(60), "an invalid quota record (expected 0x4451 1 4 61"),
        ],
        _ => harms_of_directories(kind),
    }
}

fn header_harms() -> Vec<Harm> {
    vec![
        (0, be32(7), "wrong magic number"),
        (4, be32(1024), "blocksize"),
        (8, vec![0, 0, 0, 0, 0, 0, 0x1f, 0xff], "it describes another file system"),
        (512 + 8, be32(9), "AGF, group 0, block 0: it belongs to another group"),
        (512 + 12, be32(9), "AGF, group 0, block 0: length"),
        (512 + 16, be32(u32::MAX), "AGF, group 0, block 0: root of a tree"),
        (512 + 28, be32(10), "AGF, group 0, block 0: levels of a tree"),
        (512 + 48, be32(7), "AGF, group 0, block 0: flcount"),
        (1024 + 4, be32(2), "AGI, group 0, block 0: versionnum"),
        (1024 + 20, be32(u32::MAX), "AGI, group 0, block 0: root of a tree"),
        (1024 + 28, be32(u32::MAX), "AGI, group 0, block 0: freecount"),
        (1536 + 36, be32(1 << 20), "AGFL, group 0, block 0: a block outside of the group"),
    ]
}

fn inode_harms() -> Vec<Harm> {
    // The second inode of the block, after the root directory; and a free inode.
    vec![
        (512, be16(1), "wrong magic number"),
        (512 + 2, be16(0xf1ed), "its mode has no valid file type"),
        (512 + 4, vec![2], "version"),
        (512 + 5, vec![0], "format"),
        (512 + 56, vec![0xff; 8], "size"),
        (512 + 82, vec![0xff], "forkoff"),
        (512 + 158, be16(7), "it contains another inode number"),
        (7 * 512, be16(0), "wrong magic number"),
    ]
}

fn harms_of_values(kind: BlockKind) -> Vec<Harm> {
    match kind {
        BlockKind::AttrLeaf => vec![
            (8, be16(7), "wrong magic number"),
            (56, be16(0), "count of entries"),
            (58, be16(6), "level"),
            (64, be32(9), "hashes are not in order"),
            // Relabelled as a leaf, it is invalid.
            (8, be16(attr::LEAF_MAGIC), "attribute leaf"),
        ],
        BlockKind::AttrRemote => vec![
            (0, be32(7), "wrong magic number"),
            (4, be32(65536), "not part of a value"),
            (8, be32(4096), "not part of a value"),
            (40, vec![0; 8], "it contains another location"),
        ],
        BlockKind::Symlink => vec![
            (0, be32(7), "wrong magic number"),
            (8, be32(1025), "invalid length"),
            (32, vec![0; 8], "it belongs to another inode"),
        ],
        _ => Vec::new(),
    }
}

fn harms_of_directories(kind: BlockKind) -> Vec<Harm> {
    match kind {
        BlockKind::DirData => vec![
            (0, be32(7), "wrong magic number"),
            (40, vec![0; 8], "it belongs to another inode"),
            (48 + 2, be16(8), "length of bestfree[0]"),
            (64 + 8, vec![0], "an entry without a name"),
            (64 + 9, vec![b'/'], "a name with '/' or NUL"),
            (64, vec![0x7f; 8], "an entry with an invalid inode number"),
            (64 + 14, be16(8), "wrong tag at byte 64"),
            (96 + 2, be16(8), "wrong tag at byte 96"),
        ],
        BlockKind::DirLeaf => vec![
            (8, be16(7), "wrong magic number"),
            (56, be16(600), "count"),
            (58, be16(0), "stale entries (expected 1, found 0)"),
            (64, be32(8), "order of hashes at entry 1"),
        ],
        BlockKind::DirFree => vec![
            (48, be32(1), "firstdb"),
            (52, be32(u32::MAX), "nvalid"),
            (56, be32(2), "nused"),
            (64, be16(0xfff0), "free space of a data block"),
        ],
        BlockKind::Part => vec![
            (48 + 2, be16(8), "length of bestfree[0]"),
            (4 * BLOCK_SIZE - 2, be16(1), "wrong tag at byte 96"),
        ],
        _ => Vec::new(),
    }
}

/// Makes a file system on a memory device and opens it writable. Directory blocks have four file-system blocks if
/// `is_wide`.
fn open(is_wide: bool) -> (Arc<MemoryDevice>, Xfs) {
    let dir_block_size = is_wide.then_some(4 * BLOCK_SIZE as u32);
    let options =
        Options { allow_small: true, ag_count: Some(2), dir_block_size, ..Options::new(SIZE) };
    let device = Arc::new(make(&options));
    let fs = Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap();
    (device, fs)
}

fn write(fs: &Xfs, of: &Sound, at: usize, bytes: &[u8]) {
    let mut txn = fs.engine.begin().unwrap();
    let id = match of.made {
        Some(_) if at == 0 && bytes.len() == BLOCK_SIZE => txn.create(of.block.0, of.tag),
        _ => txn.buffer(of.block.0, of.tag),
    };
    txn.edit(id.unwrap(), at..at + bytes.len()).copy_from_slice(bytes);
    txn.commit();
}

fn all_bytes(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; SIZE as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

#[track_caller]
fn assert_refused<T>(result: Result<T, impl Into<Error>>, block: Block, says: &str) {
    let Err(Error::Corrupt(fault)) = result.map_err(Into::into) else {
        panic!("a block that should say {says:?} was not refused");
    };
    assert_eq!(fault.block(), Some(block.0), "{fault}");
    assert!(fault.to_string().contains(says), "{fault}, not {says}");
}

fn refuse(kind: BlockKind, (at, bytes, says): &Harm) {
    let (device, fs) = open(false);
    let sound = sound(&fs, kind);
    if let Some(made) = &sound.made {
        write(&fs, &sound, 0, made);
    }
    fs.create(fs.root(), b"before", &NewInode::default()).unwrap();
    fs.engine.sync().unwrap();
    let before = all_bytes(&device);
    // Another, valid block of the same checkpoint.
    let other = self::sound(&fs, BlockKind::Symlink);
    let other = Sound { block: Block(other.block.0 - 1), ..other };
    let mut contents = other.made.clone().unwrap();
    put64(&mut contents, 40, fs.volume.geometry.daddr(other.block));
    write(&fs, &other, 0, &contents);
    write(&fs, &sound, *at, bytes);
    assert_refused(fs.engine.sync(), sound.block, says);
    assert_refused(fs.create(fs.root(), b"after", &NewInode::default()), sound.block, says);
    assert_refused(fs.sync(), sound.block, says);
    assert_refused(fs.close(), sound.block, says);
    assert!(all_bytes(&device) == before, "{kind:?}, {says}: something was written");
}

/// Structures that are sealed as a whole are refused at sealing, in the operation, which leaves no trace.
fn refuse_whole((at, bytes, says): &Harm) {
    let (device, fs) = open(true);
    fs.create(fs.root(), b"before", &NewInode::default()).unwrap();
    fs.engine.sync().unwrap();
    let before = all_bytes(&device);
    let first = spare(&fs.volume.geometry);
    let outcome = fs.atomically(|op| {
        let mut block = vec![0; 4 * BLOCK_SIZE];
        fill_data(&fs.volume.geometry, first, &mut block);
        let places = (0..4).map(|step| Block(first.0 + step)).collect();
        let index = op.wholes.add(INO, FileBlock(0), dir::DirBlockKind::Data, places, block);
        op.wholes.edit(index, *at..at + bytes.len()).copy_from_slice(bytes);
        Ok(())
    });
    assert_refused(outcome, first, says);
    assert_refused(fs.create(fs.root(), b"after", &NewInode::default()), first, says);
    assert_refused(fs.sync(), first, says);
    assert!(all_bytes(&device) == before, "{says}: something was written");
}

/// Corrupts each kind in several ways.
#[test]
fn no_kind_of_block_is_written_that_is_wrong() {
    // Without realtime groups, all contents of the bitmap and the summary are valid.
    let others = [BlockKind::Raw, BlockKind::RealtimeBitmap, BlockKind::RealtimeSummary];
    for kind in BlockKind::ALL.into_iter().filter(|kind| !others.contains(kind)) {
        let harms = harms(kind);
        assert!(!harms.is_empty(), "no way to make {kind:?} wrong");
        for harm in &harms {
            if kind == BlockKind::Part { refuse_whole(harm) } else { refuse(kind, harm) }
        }
    }
}

/// The same blocks are written while they are valid.
#[test]
fn valid_blocks_are_written() {
    let (device, fs) = open(false);
    for kind in
        BlockKind::ALL.into_iter().filter(|kind| !matches!(kind, BlockKind::Part | BlockKind::Raw))
    {
        let sound = sound(&fs, kind);
        let Some(made) = &sound.made else { continue };
        write(&fs, &sound, 0, made);
        fs.engine.empty_log().unwrap();
        let mut found = vec![0; BLOCK_SIZE];
        device.read_at(sound.block.0 * BLOCK_SIZE as u64, &mut found).unwrap();
        super::verify(&fs.volume.geometry, sound.tag, sound.block, &found).unwrap();
        let mut txn = fs.engine.begin().unwrap();
        txn.forget(sound.block.0);
        txn.commit();
    }
}

/// Keys and pointers of nodes are checked, too.
#[test]
fn invalid_tree_nodes_are_refused() {
    for kind in BlockKind::ALL {
        let Some(shape) = kind.btree() else { continue };
        for (key, pointer, says) in [(9, 100, "order of entries at 1"), (1, 0, "pointer 1")] {
            let (_, fs) = open(false);
            let geometry = &fs.volume.geometry;
            let area = shape.node_area(geometry);
            let mut node = sound(&fs, kind);
            let block = node.made.as_mut().unwrap();
            block[SHORT..].fill(0);
            shape.init(geometry, node.block, node.tag.owner, 1, block);
            put16(&mut block[area.count_range()], 0, 2);
            // The first word of the key; for trees with another order or wide keys, the second.
            let word = if kind == BlockKind::CntBtree || kind == BlockKind::Bmbt { 4 } else { 0 };
            for (at, value) in [(0, key), (1, 5)] {
                put32(&mut block[area.entry_range(at, at + 1)], word, value);
            }
            let size = area.pointer_size;
            let value = if shape.long && pointer == 0 { u64::MAX >> 1 } else { pointer };
            for (at, value) in [(0, 100), (1, value)] {
                let bytes = value.to_be_bytes();
                block[area.pointer_range(at, at + 1)].copy_from_slice(&bytes[8 - size..]);
            }
            let made = node.made.clone().unwrap();
            write(&fs, &node, 0, &made);
            assert_refused(fs.engine.sync(), node.block, says);
        }
    }
}
