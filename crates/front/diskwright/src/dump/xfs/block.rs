//! Block: its type by magic number, header and bytes.

use vfs::Ino;
use xfs::format::address::Block;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::{Dump, Fields, Source};
use crate::dump::bytes::hex_lines;
use crate::text::uuid_text;

/// Layout of a block header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Tree of a group, with siblings of 32 bits.
    ShortTree,
    /// Tree of a file, with siblings of 64 bits.
    LongTree,
    /// Magic number, checksum, block number, LSN, UUID and owner: directory data and free blocks.
    Directory,
    /// Siblings before the magic number: leaves and nodes of directories and attributes.
    Names,
    /// Magic number, offset, size, checksum, UUID, owner, block number, LSN: remote values and targets.
    Remote,
    /// Unknown layout; not shown.
    Other,
}

/// Types by the first four bytes.
const KINDS: [(&[u8; 4], &str, Shape); 24] = [
    (b"XFSB", "superblock", Shape::Other),
    (b"AB3B", "tree of free space by block", Shape::ShortTree),
    (b"AB3C", "tree of free space by size", Shape::ShortTree),
    (b"IAB3", "inode tree", Shape::ShortTree),
    (b"FIB3", "free inode tree", Shape::ShortTree),
    (b"RMB3", "reverse map tree", Shape::ShortTree),
    (b"R3FC", "reference count tree", Shape::ShortTree),
    (b"ABTB", "tree of free space by block", Shape::ShortTree),
    (b"ABTC", "tree of free space by size", Shape::ShortTree),
    (b"IABT", "inode tree", Shape::ShortTree),
    (b"BMA3", "tree of a file's map", Shape::LongTree),
    (b"BMAP", "tree of a file's map", Shape::LongTree),
    (b"XDB3", "directory, block form", Shape::Directory),
    (b"XDD3", "directory data", Shape::Directory),
    (b"XDF3", "directory free index", Shape::Directory),
    (b"XD2B", "directory, block form", Shape::Other),
    (b"XD2D", "directory data", Shape::Other),
    (b"XD2F", "directory free index", Shape::Other),
    (b"XSLM", "target of a symbolic link", Shape::Remote),
    (b"XARM", "remote attribute value", Shape::Remote),
    (b"DQ\x01\x01", "quota", Shape::Other),
    (b"DQ\x01\x02", "quota", Shape::Other),
    (b"DQ\x01\x04", "quota", Shape::Other),
    (b"\xfe\xed\xba\xbe", "log record", Shape::Other),
];
/// Types by the two bytes at offset 8.
const NAME_KINDS: [(u16, &str); 8] = [
    (0x3df1, "directory leaf"),
    (0x3dff, "directory leaf of a tree"),
    (0x3ebe, "node of a directory or of attributes"),
    (0x3bee, "leaf of attributes"),
    (0xd2f1, "directory leaf"),
    (0xd2ff, "directory leaf of a tree"),
    (0xfebe, "node of a directory or of attributes"),
    (0xfbee, "leaf of attributes"),
];

impl Source {
    pub(super) fn block_contents(&self, block: Block) -> vfs::Result<Dump> {
        let bytes = self.block_bytes(block)?;
        let geometry = self.geometry();
        let (ag, ag_block) = geometry.locate(block);
        let mut dump = Dump::default();
        dump.fields.add("block", block.0);
        dump.fields.add("byte", geometry.byte_of(block));
        dump.fields.add("group", ag.0);
        dump.fields.add("group_block", ag_block.0);
        dump.fields.add("fsblock", geometry.fs_block(ag, ag_block).0);
        let (kind, shape) = self.kind(&bytes);
        dump.fields.add("kind", kind);
        let mut header = Fields::default();
        self.header_fields(shape, &bytes, &mut header);
        if !header.0.is_empty() {
            dump.fields.add("header", header);
        }
        if bytes.starts_with(b"IN") {
            let first = geometry.first_ino(ag_block);
            let Ino(first) = geometry.ino(ag, first);
            dump.fields.add("first_inode", first);
        }
        dump.fields.add("bytes", hex_lines(&bytes));
        Ok(dump)
    }

    /// Returns the probable type of a block. File contents may match any type.
    fn kind(&self, bytes: &[u8]) -> (&'static str, Shape) {
        let magic = bytes.first_chunk::<4>();
        if let Some(&(_, kind, shape)) = KINDS.iter().find(|(known, ..)| magic == Some(known)) {
            return (kind, shape);
        }
        if bytes.starts_with(b"IN") {
            return ("inodes", Shape::Other);
        }
        let at_8 = bytes.get(8..10).map(|two| u16::from_be_bytes([two[0], two[1]]));
        let found = NAME_KINDS.iter().find(|(known, _)| at_8 == Some(*known));
        let unknown = ("data, or a structure without a magic number", Shape::Other);
        found.map_or(unknown, |&(_, kind)| (kind, Shape::Names))
    }

    fn header_fields(&self, shape: Shape, bytes: &[u8], fields: &mut Fields) {
        match shape {
            Shape::ShortTree => short_tree(bytes, self.has_crc(), fields),
            Shape::LongTree => long_tree(bytes, self.has_crc(), fields),
            Shape::Directory => directory(bytes, fields),
            Shape::Names => names(bytes, self.has_crc(), fields),
            Shape::Remote => remote(bytes, fields),
            Shape::Other => {}
        }
    }
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct TreeStart {
    magic: U32,
    level: U16,
    numrecs: U16,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ShortTree {
    start: TreeStart,
    leftsib: U32,
    rightsib: U32,
    blkno: U64,
    lsn: U64,
    uuid: [u8; 16],
    owner: U32,
    crc: [u8; 4],
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct LongTree {
    start: TreeStart,
    leftsib: U64,
    rightsib: U64,
    blkno: U64,
    lsn: U64,
    uuid: [u8; 16],
    owner: U64,
    crc: [u8; 4],
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Directory {
    magic: U32,
    crc: [u8; 4],
    blkno: U64,
    lsn: U64,
    uuid: [u8; 16],
    owner: U64,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Names {
    forw: U32,
    back: U32,
    magic: U16,
    pad: U16,
    crc: [u8; 4],
    blkno: U64,
    lsn: U64,
    uuid: [u8; 16],
    owner: U64,
    count: U16,
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Remote {
    magic: U32,
    offset: U32,
    bytes: U32,
    crc: [u8; 4],
    uuid: [u8; 16],
    owner: U64,
    blkno: U64,
    lsn: U64,
}

const _: () = assert!(size_of::<ShortTree>() == 56);
const _: () = assert!(size_of::<LongTree>() == 68);
const _: () = assert!(size_of::<Directory>() == 48);
const _: () = assert!(std::mem::offset_of!(Names, count) == 56);
const _: () = assert!(size_of::<Remote>() == 56);

fn tree_start(start: &TreeStart, fields: &mut Fields) {
    fields.hex("magic", start.magic.get());
    fields.add("level", start.level);
    fields.add("numrecs", start.numrecs);
}

/// Adds block number and owner from the header (version 5).
fn place((blkno, lsn, owner): (U64, U64, u64), uuid: &[u8; 16], crc: [u8; 4], fields: &mut Fields) {
    fields.add("blkno", blkno);
    fields.hex("lsn", lsn.get());
    fields.add("uuid", uuid_text(uuid));
    fields.add("owner", owner);
    fields.hex("crc", u32::from_le_bytes(crc));
}

fn short_tree(bytes: &[u8], has_crc: bool, fields: &mut Fields) {
    let Ok((raw, _)) = ShortTree::ref_from_prefix(bytes) else { return };
    tree_start(&raw.start, fields);
    fields.add("leftsib", raw.leftsib);
    fields.add("rightsib", raw.rightsib);
    if has_crc {
        place((raw.blkno, raw.lsn, raw.owner.get().into()), &raw.uuid, raw.crc, fields);
    }
}

fn long_tree(bytes: &[u8], has_crc: bool, fields: &mut Fields) {
    let Ok((raw, _)) = LongTree::ref_from_prefix(bytes) else { return };
    tree_start(&raw.start, fields);
    fields.add("leftsib", raw.leftsib);
    fields.add("rightsib", raw.rightsib);
    if has_crc {
        place((raw.blkno, raw.lsn, raw.owner.get()), &raw.uuid, raw.crc, fields);
    }
}

fn directory(bytes: &[u8], fields: &mut Fields) {
    let Ok((raw, _)) = Directory::ref_from_prefix(bytes) else { return };
    fields.hex("magic", raw.magic.get());
    place((raw.blkno, raw.lsn, raw.owner.get()), &raw.uuid, raw.crc, fields);
}

fn names(bytes: &[u8], has_crc: bool, fields: &mut Fields) {
    let Ok((raw, _)) = Names::ref_from_prefix(bytes) else { return };
    fields.add("forw", raw.forw);
    fields.add("back", raw.back);
    fields.hex("magic", raw.magic.get());
    if has_crc {
        fields.add("count", raw.count);
        place((raw.blkno, raw.lsn, raw.owner.get()), &raw.uuid, raw.crc, fields);
    }
}

fn remote(bytes: &[u8], fields: &mut Fields) {
    let Ok((raw, _)) = Remote::ref_from_prefix(bytes) else { return };
    fields.hex("magic", raw.magic.get());
    fields.add("offset", raw.offset);
    fields.add("bytes", raw.bytes);
    place((raw.blkno, raw.lsn, raw.owner.get()), &raw.uuid, raw.crc, fields);
}
