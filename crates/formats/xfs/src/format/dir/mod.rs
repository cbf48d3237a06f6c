//! Directory blocks in memory: layout, verification and changes.
//!
//! A directory is in its inode (*shortform*) or in directory blocks of one size, each of which may be several
//! file-system blocks. They are in three ranges of the directory's logical address space: entries from 0, the hash
//! index (*leaves* and *nodes*) from 32 GiB, the free-space index from 64 GiB. A directory of one data block has its
//! hash index at the end of that block (*block form*).

pub mod data;
pub mod free;
mod header;
pub mod leaf;
pub mod short;
#[cfg(test)]
mod tests;

use engine::Corruption;
use vfs::{FileType, Ino};

use super::address::{Block, FileBlock};
use super::geometry::Geometry;
use super::{checksum, hash};
pub(crate) use header::init_dir;
pub(crate) use header::{init_da, is_block_form, padding};

/// Start of the hash index in a directory's logical address space, in bytes (`XFS_DIR2_LEAF_OFFSET`).
const LEAF_SPACE: u64 = 32 << 30;
/// Start of the free-space index, in bytes (`XFS_DIR2_FREE_OFFSET`).
const FREE_SPACE: u64 = 64 << 30;
/// Unit of positions in data blocks, and the alignment of entries (`XFS_DIR2_DATA_ALIGN`).
pub(crate) const ALIGN: usize = 8;

/// Magic numbers; the first of each pair is that of version 5.
pub(crate) mod magic {
    /// Block form ("XDB3", "XD2B").
    pub(crate) const BLOCK: [u32; 2] = [0x5844_4233, 0x5844_3242];
    /// Data ("XDD3", "XD2D").
    pub(crate) const DATA: [u32; 2] = [0x5844_4433, 0x5844_3244];
    /// Free-space index ("XDF3", "XD2F").
    pub(crate) const FREE: [u32; 2] = [0x5844_4633, 0x5844_3246];
    /// The only leaf of a directory in leaf form.
    pub(crate) const LEAF1: [u16; 2] = [0x3df1, 0xd2f1];
    /// A leaf in node form.
    pub(crate) const LEAFN: [u16; 2] = [0x3dff, 0xd2ff];
    /// A node above leaves.
    pub(crate) const NODE: [u16; 2] = [0x3ebe, 0xfebe];
}

/// Parameters of the layout of directory blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirLayout {
    /// True if blocks have the headers of version 5.
    pub crc: bool,
    /// True if entries store the file type.
    pub ftype: bool,
    /// True if names that differ only in case are equal.
    pub folds_case: bool,
    /// Size of a directory block as a power of two.
    pub size_log: u8,
    /// Size of a block of the file system as a power of two.
    pub block_log: u8,
}

impl DirLayout {
    /// Returns the layout of a file system's directories.
    pub fn new(geometry: &Geometry) -> Self {
        Self {
            crc: geometry.features.crc(),
            ftype: geometry.features.ftype(),
            folds_case: geometry.features.ascii_ci(),
            size_log: geometry.dir_block_log,
            block_log: geometry.block_log,
        }
    }

    /// Returns the size of a directory block in bytes.
    pub(crate) const fn size(&self) -> usize {
        1 << self.size_log
    }

    /// Returns the number of file-system blocks of a directory block.
    pub(crate) const fn blocks(&self) -> u32 {
        1 << (self.size_log - self.block_log)
    }

    /// Returns the index in pairs of magic numbers.
    const fn version(&self) -> usize {
        if self.crc { 0 } else { 1 }
    }

    /// Returns the size of the header, which is the same for all kinds of blocks.
    pub(crate) const fn header(&self) -> usize {
        if self.crc { 64 } else { 16 }
    }

    /// Returns the size of an entry with a name of this length, in bytes.
    pub const fn entry_size(&self, name_len: usize) -> usize {
        (8 + 1 + name_len + self.ftype as usize + 2).next_multiple_of(ALIGN)
    }

    /// Returns the offset of `..` in the first data block; `.` is right after the header.
    pub(crate) const fn dot_dot(&self) -> usize {
        self.header() + self.entry_size(1)
    }

    /// Returns the lowest offset of other entries.
    pub const fn first_entry(&self) -> usize {
        self.dot_dot() + self.entry_size(2)
    }

    /// Returns the number of the hash index block at logical block `at`.
    pub(crate) fn leaf_number(&self, at: FileBlock) -> u32 {
        ((at.0 - self.leaf_first().0) / u64::from(self.blocks())) as u32
    }

    /// Returns the logical block of a hash index block by its number.
    pub(crate) fn leaf_at(&self, number: u32) -> FileBlock {
        self.leaf_first().plus(u64::from(number) * u64::from(self.blocks()))
    }

    /// Returns the maximum number of entries of a leaf in node form, or of a node.
    pub(crate) const fn leaf_capacity(&self) -> usize {
        (self.size() - self.header()) / leaf::ENTRY_SIZE
    }

    /// Returns the number of data blocks described by a free-space index block.
    pub(crate) const fn free_capacity(&self) -> usize {
        (self.size() - self.header()) / 2
    }

    /// Returns the room of an empty data block in bytes.
    pub(crate) const fn data_room(&self) -> usize {
        self.size() - self.header()
    }

    /// Returns the logical block of the root of the hash index.
    pub(crate) const fn leaf_first(&self) -> FileBlock {
        FileBlock(LEAF_SPACE >> self.block_log)
    }

    /// Returns the logical block of the first free-space index block.
    pub(crate) const fn free_first(&self) -> FileBlock {
        FileBlock(FREE_SPACE >> self.block_log)
    }

    /// Returns the logical block of a data block.
    pub(crate) const fn data_at(&self, number: u32) -> FileBlock {
        FileBlock((number as u64) << (self.size_log - self.block_log))
    }

    /// Returns the logical block of the free-space index block that describes a data block, and the slot in it.
    pub(crate) const fn free_at(&self, number: u32) -> (FileBlock, usize) {
        let (free, slot) =
            (number as usize / self.free_capacity(), number as usize % self.free_capacity());
        (self.free_first().plus((free as u64) << (self.size_log - self.block_log)), slot)
    }

    /// Splits the address in a leaf into data block and byte offset.
    pub(crate) const fn split_address(&self, address: u32) -> (u32, usize) {
        let byte = (address as u64) << 3;
        ((byte >> self.size_log) as u32, (byte & ((1 << self.size_log) - 1)) as usize)
    }

    /// Returns the address of an entry for a leaf.
    pub(crate) const fn address(&self, number: u32, offset: usize) -> u32 {
        ((((number as u64) << self.size_log) + offset as u64) >> 3) as u32
    }

    /// Returns the maximum number of data blocks: as many as fit below the hash index.
    pub(crate) const fn data_blocks_max(&self) -> u64 {
        LEAF_SPACE >> self.size_log
    }

    /// Returns the hash of a name in the index.
    pub(crate) fn hash(&self, name: &[u8]) -> u32 {
        if self.folds_case { hash::folded_hash(name) } else { hash::name_hash(name) }
    }
}

/// Returns the code of a file type in entries (`XFS_DIR3_FT_*`).
pub(crate) const fn file_type_code(file_type: FileType) -> u8 {
    match file_type {
        FileType::Regular => 1,
        FileType::Directory => 2,
        FileType::CharDevice => 3,
        FileType::BlockDevice => 4,
        FileType::Fifo => 5,
        FileType::Socket => 6,
        FileType::Symlink => 7,
    }
}

/// Returns the file type of a code. 0 is "unknown", 8 a whiteout, whose type is in the inode.
pub(crate) const fn file_type_of(code: u8) -> Option<FileType> {
    Some(match code {
        1 => FileType::Regular,
        2 => FileType::Directory,
        3 => FileType::CharDevice,
        4 => FileType::BlockDevice,
        5 => FileType::Fifo,
        6 => FileType::Socket,
        7 => FileType::Symlink,
        _ => return None,
    })
}

/// Limit of file type codes (`XFS_DIR3_FT_MAX`).
const FILE_TYPE_CODES: u8 = 9;

/// The three kinds of directory blocks that are verified differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirBlockKind {
    /// Entries, with a hash index at the end in block form.
    Data,
    /// Hash index.
    Leaf,
    /// Free-space index.
    Free,
}

/// Checks a directory block that was just read. It belongs to `ino`, `at` is the low 32 bits of its logical block, and
/// it starts at `block` of the device.
pub(crate) fn verify(
    geometry: &Geometry,
    part: DirBlockKind,
    (ino, at): (Ino, u32),
    block: Block,
    data: &[u8],
) -> Result<(), Corruption> {
    let place = header::ExpectedBlock { geometry, ino, block, depth: header::Depth::Sealed };
    verify_at(&place, part, at, data)
}

/// Like [`verify`], without the checksum, before a block is sealed.
pub(crate) fn verify_structure(
    geometry: &Geometry,
    part: DirBlockKind,
    (ino, at): (Ino, u32),
    block: Block,
    data: &[u8],
) -> Result<(), Corruption> {
    let place = header::ExpectedBlock { geometry, ino, block, depth: header::Depth::Structure };
    verify_at(&place, part, at, data)
}

fn verify_at(
    place: &header::ExpectedBlock<'_>,
    part: DirBlockKind,
    at: u32,
    data: &[u8],
) -> Result<(), Corruption> {
    let layout = DirLayout::new(place.geometry);
    let outcome = match part {
        DirBlockKind::Data => {
            header::verify_dir(place, "directory data", data, &[magic::BLOCK, magic::DATA])
                .and_then(|()| data::verify(&layout, place.geometry, data))
        }
        DirBlockKind::Leaf => {
            header::verify_da(place, data).and_then(|()| leaf::verify(&layout, data))
        }
        DirBlockKind::Free => {
            header::verify_dir(place, "directory free index", data, &[magic::FREE])
                .and_then(|()| free::verify(&layout, at, data))
        }
    };
    outcome.map_err(|c| c.of_inode(place.ino.0))
}

/// Updates the checksum of a verified directory block.
pub(crate) fn seal(geometry: &Geometry, part: DirBlockKind, data: &mut [u8]) {
    if geometry.features.crc() {
        let at = if part == DirBlockKind::Leaf { header::DA_CRC } else { header::DIR_CRC };
        checksum::seal(data, at);
    }
}
