//! Changes of attributes in damaged images, and on failing devices. The error names the cause, and nothing is changed.

use crate::common;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use common::image::{device, golden};
use common::layout::{ImageStructures, StructureKind};
use disk::{BlockDevice, MemoryDevice};
use ext4::format::address::{Block, Group};
use ext4::format::inode::{Inode, flags};
use ext4::format::superblock::SUPERBLOCK_OFFSET;
use ext4::{Ext4, OpenOptions};
use testkit::{e2fsck, require, scratch};
use vfs::path::LastLink;
use vfs::{Error, FileSystem, Ino, Paths};

type EditBytes = fn(&mut [u8]);
type EditInode = fn(&mut Inode);

const APART: &[u8] = b"user.in-an-inode";

struct Victim {
    image: Vec<u8>,
    layout: ImageStructures,
    ino: Ino,
}

impl Victim {
    /// Uses a golden image whose file `small` has attributes in the inode, in a block and possibly in another inode.
    fn new(name: &str) -> Self {
        let image = golden(name);
        let ino = find(&open(device(&image)), "small");
        Self { layout: ImageStructures::of(&image), image, ino }
    }

    fn edit(&mut self, ino: Ino, edit: impl FnOnce(&mut Inode)) {
        let slot = &mut self.image[self.layout.slot_range(ino)];
        let mut inode = Inode::from_slot(slot);
        edit(&mut inode);
        let bytes = inode.as_bytes();
        slot[..bytes.len()].copy_from_slice(bytes);
    }

    /// Returns the attribute block of the victim.
    fn block(&mut self) -> &mut [u8] {
        let mut all = self.layout.structures.iter();
        let found = all.find(|s| s.kind == StructureKind::Attributes && s.ino == self.ino).unwrap();
        let range = self.layout.block_range(found.block);
        &mut self.image[range]
    }

    /// Returns the bytes after the fixed fields in the victim's slot.
    fn tail(&mut self) -> &mut [u8] {
        let range = self.layout.slot_range(self.ino);
        &mut self.image[range][160..]
    }

    /// Returns the inode that contains the large value.
    fn value(&self) -> Ino {
        let mut all = self.layout.inodes.iter().copied();
        let is_value = |i: &Ino| self.layout.inode(&self.image, *i).has_flag(flags::EA_INODE);
        all.find(is_value).expect("a large value")
    }

    /// Makes the entry of the large value refer to another inode.
    fn refer_to(&mut self, ino: u32) {
        let old = (self.value().0 as u32).to_le_bytes();
        let start = self.layout.slot_range(self.ino).start + 160;
        let slot = std::iter::once(start..start + 96);
        let places = slot.chain(
            self.layout
                .structures
                .iter()
                .filter(|s| s.kind == StructureKind::Attributes && s.ino == self.ino)
                .map(|s| self.layout.block_range(s.block)),
        );
        let mut found = 0;
        for at in places.flat_map(|place| place.step_by(4)).collect::<Vec<_>>() {
            if self.image[at..at + 4] == old {
                self.image[at..at + 4].copy_from_slice(&ino.to_le_bytes());
                found += 1;
            }
        }
        assert_eq!(found, 1, "the entry that refers to the value");
    }

    fn seal(&mut self) -> &mut Self {
        self.layout.seal(&mut self.image);
        self
    }

    /// Asserts that only free blocks and the superblock changed. A large value may have used free blocks, and the
    /// superblock records that the image is open.
    #[track_caller]
    fn assert_unchanged(&self, now: &[u8]) {
        let geometry = &self.layout.geometry;
        let size = geometry.block_size() as usize;
        for (number, (old, new)) in self.image.chunks(size).zip(now.chunks(size)).enumerate() {
            let block = Block(number as u64);
            let holds_superblock = number == SUPERBLOCK_OFFSET as usize / size;
            if old == new || holds_superblock {
                continue;
            }
            assert!(block >= geometry.first_block(Group(0)), "block {number} was written");
            let group = &self.layout.groups[geometry.group_of(block).0 as usize];
            let bitmap = &self.image[self.layout.block_range(group.block_bitmap)];
            let bit = geometry.bit_of(block) as usize;
            assert_eq!(bitmap[bit / 8] >> (bit % 8) & 1, 0, "block {number} was written");
        }
    }

    /// Asserts that every change of `names` fails because one of `structures` is damaged, and writes nothing.
    #[track_caller]
    fn assert_refused(&self, names: &[&[u8]], structures: &[&str]) {
        let device = device(&self.image);
        let fs = open(device.clone());
        for name in names {
            let results = [
                ("replacing", fs.set_xattr(self.ino, name, b"new")),
                ("making large", fs.set_xattr(self.ino, name, &[9; 700])),
                ("removing", fs.remove_xattr(self.ino, name)),
            ];
            for (what, result) in results {
                match result {
                    Err(Error::Corrupt(c)) => {
                        assert!(structures.contains(&c.structure()), "{what}: {c}");
                    }
                    other => panic!("{what} {}: {other:?}", name.escape_ascii()),
                }
            }
        }
        fs.sync().unwrap();
        self.assert_unchanged(&bytes(&*device));
    }
}

fn open(device: Arc<dyn BlockDevice>) -> Ext4 {
    let options = OpenOptions { cache_bytes: 256 << 10, ..OpenOptions::default() };
    Ext4::open_writable(device, &options).unwrap()
}

fn find(fs: &Ext4, path: &str) -> Ino {
    Paths::new(fs).resolve(path.as_bytes(), LastLink::Keep).unwrap()
}

fn bytes(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

const ANY: &[&[u8]] = &[b"user.long", b"user.short", b"user.absent"];

#[test]
fn damaged_blocks() {
    let edits: [(&str, EditBytes); 5] = [
        ("magic", |block| block[0] = 1),
        ("refcount", |block| block[4..8].fill(0)),
        ("blocks", |block| block[8] = 2),
        ("the offset of a value", |block| block[34..36].copy_from_slice(&1000_u16.to_le_bytes())),
        ("entries to the end", |block| block[32..].fill(0x31)),
    ];
    for image in ["ext4", "ext4-plain"] {
        for (what, edit) in edits {
            let mut victim = Victim::new(image);
            edit(victim.block());
            eprintln!("{image}: {what}");
            let structures = &["extended attribute block", "extended attributes"];
            victim.seal().assert_refused(ANY, structures);
        }
    }
    let mut victim = Victim::new("ext4");
    victim.block()[500] ^= 1;
    victim.assert_refused(ANY, &["extended attribute block"]);
}

#[test]
fn damaged_areas_in_inodes() {
    let edits: [(&str, EditBytes); 3] = [
        ("the offset of a value", |tail| tail[6..8].copy_from_slice(&95_u16.to_le_bytes())),
        ("the size of a value", |tail| tail[12..16].fill(0xff)),
        ("entries to the end", |tail| tail[4..].fill(0x11)),
    ];
    for (what, edit) in edits {
        let mut victim = Victim::new("ext4");
        edit(victim.tail());
        eprintln!("{what}");
        victim.seal().assert_refused(ANY, &["extended attributes"]);
    }
}

#[test]
fn attribute_blocks_that_cannot_be_one() {
    let places: [fn(&Victim) -> u64; 3] = [
        |_| 1 << 40,
        |v| v.layout.groups[0].inode_table.0,
        // A node of a file's extent tree.
        |v| v.layout.first(StructureKind::Extents).block.0,
    ];
    for place in places {
        let mut victim = Victim::new("ext4");
        let (ino, block) = (victim.ino, place(&victim));
        victim.edit(ino, |inode| inode.set_file_acl(block));
        victim.layout.structures.retain(|s| s.ino != ino || s.kind != StructureKind::Attributes);
        victim.seal().assert_refused(ANY, &["inode", "extended attribute block"]);
    }
}

#[test]
fn values_that_cannot_be_one() {
    let names = &[APART];
    let structure = &["extended attribute inode"];
    // The inode itself, a directory, a reserved inode, a free inode, and an impossible number.
    let numbers: [fn(&Victim) -> u32; 5] = [|v| v.ino.0 as u32, |_| 2, |_| 7, |_| 60, |_| u32::MAX];
    for refer in numbers {
        let mut victim = Victim::new("ea-inode");
        victim.refer_to(refer(&victim));
        victim.seal().assert_refused(names, structure);
    }
    let edits: [(&str, EditInode); 5] = [
        ("count", |inode| inode.set_value_refcount(0)),
        ("flag", |inode| inode.set_flag(flags::EA_INODE, false)),
        ("size", |inode| inode.set_size(1)),
        ("attributes", |inode| inode.set_file_acl(150)),
        ("type", |inode| inode.set_mode(0o40600)),
    ];
    for (what, edit) in edits {
        let mut victim = Victim::new("ea-inode");
        let value = victim.value();
        victim.edit(value, edit);
        eprintln!("{what}");
        victim.seal().assert_refused(names, structure);
    }
}

#[test]
fn values_whose_blocks_are_not_theirs() {
    let places: [fn(&Victim) -> u64; 3] =
        [|v| v.layout.groups[0].inode_table.0, |v| v.layout.geometry.blocks_count + 5, |_| 199];
    for place in places {
        let mut victim = Victim::new("ea-inode");
        let (value, Block(block)) = (victim.value(), Block(place(&victim)));
        victim.edit(value, |inode| {
            inode.i_block_mut()[20..24].copy_from_slice(&(block as u32).to_le_bytes());
        });
        victim.seal().assert_refused(&[APART], &["block map", "block bitmap"]);
    }
}

/// A memory device that fails after a number of accesses.
struct Failing {
    memory: Arc<MemoryDevice>,
    left: AtomicI64,
    /// The failed access was a write.
    lost: AtomicBool,
}

impl Failing {
    fn count(&self, is_write: bool) -> io::Result<()> {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.lost.store(is_write, Ordering::Relaxed);
            return Err(io::Error::other("made to fail"));
        }
        Ok(())
    }
}

impl BlockDevice for Failing {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.count(false)?;
        self.memory.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.count(true)?;
        self.memory.write_at(offset, data)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.count(true)?;
        self.memory.zero_range(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        self.memory.flush()
    }
}

type XattrOperation = fn(&Ext4, Ino) -> Result<(), Error>;

#[test]
fn a_device_that_fails_at_any_access() {
    require!(Tool("e2fsck"));
    let changes: [(&str, XattrOperation); 6] = [
        ("to the inode", |fs, ino| fs.set_xattr(ino, b"user.short", b"new")),
        ("to the block", |fs, ino| fs.set_xattr(ino, b"user.short", &[7; 200])),
        ("apart", |fs, ino| fs.set_xattr(ino, b"user.short", &[7; 20_000])),
        ("from the block", |fs, ino| fs.remove_xattr(ino, b"user.long")),
        ("from apart", |fs, ino| fs.remove_xattr(ino, APART)),
        ("apart replaced", |fs, ino| fs.set_xattr(ino, APART, &[8; 30_000])),
    ];
    let image = golden("ea-inode");
    for (what, change) in changes {
        let mut failures = 0;
        for nth in 0.. {
            let memory = device(&image);
            let failing = Arc::new(Failing {
                memory,
                left: AtomicI64::new(-1),
                lost: AtomicBool::new(false),
            });
            let fs = open(failing.clone());
            let ino = Paths::new(&open(device(&image))).resolve(b"small", LastLink::Keep).unwrap();
            failing.left.store(nth, Ordering::Relaxed);
            let result = change(&fs, ino);
            failing.left.store(-1, Ordering::Relaxed);
            match result {
                Ok(()) => {
                    fs.close().unwrap();
                    let scratch = scratch();
                    let path = scratch.path().join("image");
                    std::fs::write(&path, bytes(&*failing.memory)).unwrap();
                    e2fsck(&path);
                    break;
                }
                Err(Error::Device(_)) => failures += 1,
                Err(other) => panic!("{what}, access {nth}: {other}"),
            }
            let fresh = open(device(&image));
            let totals = |fs: &Ext4| fs.statfs().unwrap();
            assert_eq!(totals(&fs), totals(&fresh), "{what}, access {nth}");
            for name in [b"user.short".as_slice(), b"user.long", APART] {
                let (now, then) = (fs.get_xattr(ino, name), fresh.get_xattr(ino, name));
                assert_eq!(now.unwrap(), then.unwrap(), "{what}, access {nth}");
            }
            // A failed write prevents all further changes, a failed read does not.
            let again = change(&fs, ino);
            if failing.lost.load(Ordering::Relaxed) {
                assert!(matches!(again, Err(Error::Device(_))), "{what} after access {nth}");
            } else {
                again.unwrap_or_else(|e| panic!("{what} after access {nth}: {e}"));
            }
        }
        assert!(failures > 0, "{what}: nothing could fail");
    }
}
