//! Damages blocks of every kind in memory and checks that none of them is written.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use engine::Tag;
use vfs::{Error, FileSystem, Ino, NewInode, SetAttributes};

use crate::format::address::{Block, FileBlock, Group};
use crate::format::dirent;
use crate::format::extent::{self, Extent};
use crate::format::htree::{self, IndexKind, RootInfo};
use crate::format::inode::BlockOwner;
use crate::format::orphan;
use crate::format::xattr::{AttributeName, NewAttribute, NewValue, encode_block};
use crate::kind::BlockKind;
use crate::mkfs::{self, FeatureChange, Options, PreviousContents};
use crate::{Ext4, OpenOptions};

const SIZE: u64 = 16 << 20;
const BLOCK_SIZE: usize = 4096;
/// An unused block, the position of generated blocks.
const SPARE: Block = Block(4000);
const OWNER: BlockOwner = BlockOwner { ino: Ino(12), seed: 77 };
/// An inode in use that no operation here needs, and its slot in the first inode table.
const LOST_FOUND: Ino = Ino(11);
const LOST_FOUND_SLOT: usize = 10 * 256;

/// A valid block.
struct Sound {
    tag: Tag,
    block: Block,
    /// Contents of a generated block; `None` if the block exists in the image.
    made: Option<Vec<u8>>,
}

/// Offset and bytes to write over a valid block, and the expected message.
type Harm = (usize, Vec<u8>, &'static str);

fn made(tag: Tag, fill: impl FnOnce(&mut [u8])) -> Sound {
    let mut block = vec![0; BLOCK_SIZE];
    fill(&mut block);
    Sound { tag, block: SPARE, made: Some(block) }
}

fn le32(value: u32) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

fn le16(value: u16) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

/// Returns a valid block of each kind.
fn sound(fs: &Ext4, kind: BlockKind) -> Sound {
    let groups = &fs.volume.groups;
    let there = |tag, block| Sound { tag, block, made: None };
    match kind {
        BlockKind::Descriptors => there(kind.plain(), fs.volume.geometry.gdt_block(0)),
        BlockKind::InodeTable => there(kind.plain(), groups.inode_table(Group(0))),
        BlockKind::BlockBitmap => there(kind.of_group(0), groups.places(Group(0)).block_bitmap),
        BlockKind::InodeBitmap => there(kind.of_group(0), groups.places(Group(0)).inode_bitmap),
        BlockKind::Superblock => there(kind.plain(), fs.volume.superblock_place().0),
        BlockKind::DirectoryLeaf => made(kind.of(OWNER), |block| {
            dirent::write_record(block, BLOCK_SIZE - dirent::TAIL_SIZE, 12, 1, b"name");
            dirent::write_tail(block);
        }),
        BlockKind::HtreeRoot => made(kind.of(OWNER), |block| {
            let info = RootInfo { hash_version: 1, indirect_levels: 0 };
            htree::write_root_info(&mut block[htree::ROOT_INFO_RANGE], info);
            fill_index(block, IndexKind::Root);
        }),
        BlockKind::HtreeNode => made(kind.of(OWNER), |block| fill_index(block, IndexKind::Node)),
        BlockKind::ExtentNode => made(kind.of(OWNER), |block| {
            extent::write_header(
                &mut block[..extent::ENTRY_SIZE],
                2,
                extent::capacity(BLOCK_SIZE),
                0,
            );
            for at in 0..2 {
                let extent = Extent {
                    block: FileBlock(at as u32 * 10),
                    len: 10,
                    start: Block(100),
                    unwritten: false,
                };
                block[extent::entry_range(at)].copy_from_slice(&extent.encode());
            }
        }),
        BlockKind::Indirect => made(kind.of(OWNER), |_| {}),
        BlockKind::Xattr => made(kind.plain(), |block| {
            let name = AttributeName { index: 1, suffix: b"name" };
            let attribute = NewAttribute { name, value: NewValue::Here(b"value") };
            assert!(encode_block(block, &mut [attribute]));
        }),
        BlockKind::Orphan => made(kind.of(OWNER), |block| orphan::seal(block, SPARE, None)),
        BlockKind::Quota => made(kind.plain(), |block| {
            // Magic number, version, number of blocks, and a root with one child after it.
            block[..8].copy_from_slice(&[0x11, 0x1f, 0xc0, 0xd9, 1, 0, 0, 0]);
            block[20] = 6;
            block[1024] = 2;
        }),
    }
}

fn fill_index(block: &mut [u8], place: IndexKind) {
    let limit = place.limit(BLOCK_SIZE, true);
    htree::write_counts(&mut block[htree::count_range(place)], limit, 2, FileBlock(1));
    htree::insert(&mut block[htree::insert_range(place, 1, 1)], 0x8000_0000, FileBlock(2));
}

/// Returns ways to damage a block of each kind.
fn harms(kind: BlockKind) -> Vec<Harm> {
    match kind {
        BlockKind::Descriptors => vec![
            (8, le32(u32::MAX), "inode table outside the file system"),
            (0, le32(0), "block bitmap outside the file system"),
            (8, le32(2000), "the inode table was moved"),
            (12, le16(u16::MAX), "too many free blocks"),
        ],
        BlockKind::InodeTable => vec![
            (LOST_FOUND_SLOT, le16(0xf1ed), "its mode has no valid file type"),
            (LOST_FOUND_SLOT + 0x28, le16(0), "wrong magic"),
            (LOST_FOUND_SLOT + 0x2a, le16(9), "more entries than the maximum"),
            (LOST_FOUND_SLOT + 0x3c, le32(u32::MAX), "blocks outside the file system"),
            (LOST_FOUND_SLOT + 0x68, le32(u32::MAX), "block of its attributes"),
            (LOST_FOUND_SLOT + 0x80, le16(33), "extra_isize"),
            // Without the flag for extents, the root of the tree is read as pointers.
            (LOST_FOUND_SLOT + 0x20, le32(0), "a pointer past the last block"),
        ],
        BlockKind::DirectoryLeaf => vec![
            (0, le32(u32::MAX), "an entry refers to an inode past the last one"),
            (4, le16(6), "the chain of entries is broken at byte 0"),
            (4, le16(4092), "the chain of entries is broken at byte 4092"),
            (6, vec![0], "an entry without a name"),
            (BLOCK_SIZE - 5, vec![0], "no checksum at its end"),
        ],
        BlockKind::HtreeRoot => vec![
            (htree::ROOT_INFO_RANGE.start + 5, vec![7], "root information"),
            (0x22, le16(0), "wrong count"),
            (0x20, le16(3), "wrong limit"),
        ],
        BlockKind::HtreeNode => vec![
            (8 + 2, le16(u16::MAX), "wrong count"),
            (8 + 2, le16(3), "its hashes are not in order"),
        ],
        BlockKind::ExtentNode => vec![
            (0, le16(1), "wrong magic"),
            (6, le16(6), "wrong depth"),
            (12 + 4, le16(11), "its entries overlap"),
            (24 + 8, le32(u32::MAX), "blocks outside the file system"),
        ],
        BlockKind::Indirect => vec![(400, le32(4096), "a pointer past the last block")],
        BlockKind::Xattr => vec![
            (0, le32(0), "wrong magic number"),
            (4, le32(0), "its reference count is 0"),
            (32 + 2, le16(4094), "a value runs past the end"),
            (32 + 2, le16(40), "values overlap the entries"),
        ],
        BlockKind::BlockBitmap => vec![
            (0, vec![0xfe], "blocks in use are marked as free"),
            (BLOCK_SIZE - 1, vec![0x7f], "expected bit 32767 set"),
        ],
        BlockKind::InodeBitmap => vec![(BLOCK_SIZE - 1, vec![0x7f], "expected bit 32767 set")],
        BlockKind::Orphan => vec![
            (8, le32(u32::MAX), "an inode past the last one"),
            (BLOCK_SIZE - 8, le32(0), "magic number"),
        ],
        BlockKind::Superblock => vec![
            (1024 + 0x38, le16(0), "magic number"),
            (1024 + 0x28, le32(7), "inodes_per_group"),
            (1024 + 0x04, le32(4095), "it describes another file system"),
        ],
        BlockKind::Quota => vec![
            (4, le32(9), "version"),
            (28, le32(6), "a free block past the last one"),
            (1024, le32(u32::MAX), "a pointer is outside the file"),
            // A leaf whose header counts one entry, but which contains two.
            (1024 + 16, [vec![9; 72], vec![7; 72]].concat(), "number of entries in a leaf"),
        ],
    }
}

/// Creates a file system on a memory device and opens it for writing.
fn open(features: &str) -> (Arc<MemoryDevice>, Ext4) {
    let features = FeatureChange::parse_list(features).unwrap();
    let options = Options { block_size: Some(4096), features, ..Options::new(SIZE) };
    let device = Arc::new(MemoryDevice::new(SIZE));
    mkfs::format(&*device, &mkfs::plan(&options).unwrap(), PreviousContents::Zeros).unwrap();
    let fs = Ext4::open_writable(device.clone(), &OpenOptions::default()).unwrap();
    (device, fs)
}

fn write(fs: &Ext4, of: &Sound, at: usize, bytes: &[u8]) {
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

fn refuse(features: &str, kind: BlockKind, (at, bytes, says): &Harm) {
    let (device, fs) = open(features);
    let sound = sound(&fs, kind);
    if let Some(made) = &sound.made {
        write(&fs, &sound, 0, made);
    }
    fs.create(fs.root(), b"before", &NewInode::default()).unwrap();
    fs.engine.sync().unwrap();
    let before = all_bytes(&device);
    // Another, valid block of the same checkpoint.
    let other = Sound { block: Block(SPARE.0 - 1), ..self::sound(&fs, BlockKind::Indirect) };
    write(&fs, &other, 0, &[0; BLOCK_SIZE]);
    write(&fs, &sound, *at, bytes);
    assert_refused(fs.engine.sync(), sound.block, says);
    assert_refused(fs.create(fs.root(), b"after", &NewInode::default()), sound.block, says);
    assert_refused(fs.sync(), sound.block, says);
    assert_refused(fs.close(), sound.block, says);
    assert!(all_bytes(&device) == before, "{kind:?}, {says}: something was written");
}

/// Damages each kind in several ways, in file systems with and without a journal.
#[test]
fn no_kind_of_block_is_written_that_is_wrong() {
    for kind in BlockKind::ALL {
        let harms = harms(kind);
        assert!(!harms.is_empty(), "no way to make {kind:?} wrong");
        for harm in &harms {
            for features in ["", "-has_journal"] {
                refuse(features, kind, harm);
            }
        }
    }
}

/// If the fault is in an inode, the message contains its number.
#[test]
fn an_invalid_inode_is_named() {
    let (_, fs) = open("");
    let sound = sound(&fs, BlockKind::InodeTable);
    write(&fs, &sound, LOST_FOUND_SLOT, &le16(0xf1ed));
    let Err(engine::Error::Corrupt(fault)) = fs.engine.sync() else { panic!() };
    assert_eq!(fault.inode(), Some(LOST_FOUND.0));
}

/// Images of other implementations that break our stricter rules can still be changed.
#[test]
fn unusual_blocks_can_be_changed() {
    let (device, fs) = open("-has_journal,-metadata_csum");
    let bitmap = sound(&fs, BlockKind::InodeBitmap);
    let table = sound(&fs, BlockKind::InodeTable);
    drop(fs);
    let offset = bitmap.block.0 * BLOCK_SIZE as u64;
    device.write_at(offset + BLOCK_SIZE as u64 - 1, &[0]).unwrap();
    // A free slot with contents that look like an inode in use. It is not changed.
    let slot = table.block.0 * BLOCK_SIZE as u64 + 14 * 256;
    device.write_at(slot, &[0xff; 128]).unwrap();
    let mark = |state: u8| device.write_at(1024 + 0x3a, &[state]).unwrap();
    mark(1);
    let fs = Ext4::open_writable(device.clone(), &OpenOptions::default()).unwrap();
    let file = fs.create(fs.root(), b"file", &NewInode::default()).unwrap();
    fs.write(file, 0, b"contents", None).unwrap();
    fs.sync().unwrap();
    fs.close().unwrap();
    let mut found = [1; 1];
    device.read_at(offset + BLOCK_SIZE as u64 - 1, &mut found).unwrap();
    assert_eq!(found, [0]);
}

/// A cached block remembers which slots have verified checksums. Reads and changes of one inode do not hide the damage of
/// another one in its block.
#[test]
fn damage_of_an_inode_is_found_at_each_access() {
    let (device, fs) = open("");
    let table = sound(&fs, BlockKind::InodeTable);
    drop(fs);
    let byte = table.block.0 * BLOCK_SIZE as u64 + LOST_FOUND_SLOT as u64 + 4;
    let mut size = [0; 1];
    device.read_at(byte, &mut size).unwrap();
    device.write_at(byte, &[size[0] ^ 1]).unwrap();
    let fs = Ext4::open_writable(device, &OpenOptions::default()).unwrap();
    for mode in [0o700, 0o755] {
        assert!(matches!(fs.attributes(LOST_FOUND), Err(Error::Corrupt(_))));
        let change = SetAttributes { permissions: Some(mode), ..SetAttributes::default() };
        fs.set_attributes(fs.root(), &change).unwrap();
        assert_eq!(fs.attributes(fs.root()).unwrap().permissions, mode);
        assert!(matches!(fs.set_attributes(LOST_FOUND, &change), Err(Error::Corrupt(_))));
    }
}
