//! Positions of the structures in a golden image, so that tests can damage particular ones and restore the checksums.
//! With valid checksums, damage reaches the code behind the checksum tests.

use ext4::format::address::{Block, FileBlock, Group};
use ext4::format::checksum::{crc16, crc32c, inode_seed};
use ext4::format::extent::{self, ExtentNode};
use ext4::format::geometry::Geometry;
use ext4::format::group::{self, GroupDescriptor, GroupFlags};
use ext4::format::htree::{self, Index, IndexKind};
use ext4::format::inode::{self, Inode, flags};
use ext4::format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use ext4::format::{dirent, xattr};
use vfs::Ino;
use zerocopy::{FromBytes, IntoBytes};

/// Byte range of the checksum in a group descriptor.
const DESCRIPTOR_CHECKSUM: std::ops::Range<usize> = 0x1e..0x20;
/// Offsets of the low halves of the bitmap checksums in a descriptor.
const BITMAP_CHECKSUMS_LOW: [usize; 2] = [0x18, 0x1a];
/// Offsets of the high halves, if there are any.
const BITMAP_CHECKSUMS_HIGH: [usize; 2] = [0x38, 0x3a];

/// Kind of an inode's metadata block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StructureKind {
    Leaf,
    IndexRoot,
    IndexNode,
    Extents,
    Attributes,
}

/// A metadata block of an inode.
#[derive(Clone, Copy, Debug)]
pub struct Structure {
    pub kind: StructureKind,
    pub ino: Ino,
    pub block: Block,
}

/// Structures of a valid image.
pub struct ImageStructures {
    pub sb: Superblock,
    pub geometry: Geometry,
    pub groups: Vec<GroupDescriptor>,
    /// Inodes in use.
    pub inodes: Vec<Ino>,
    pub structures: Vec<Structure>,
}

impl ImageStructures {
    /// Finds the structures of a valid image.
    pub fn of(image: &[u8]) -> Self {
        let sb = superblock(image).expect("a golden superblock");
        let geometry = Geometry::new(&sb);
        let mut layout =
            Self { sb, geometry, groups: Vec::new(), inodes: Vec::new(), structures: Vec::new() };
        for group in geometry.groups() {
            let bytes = &image[layout.descriptor_range(group)];
            let descriptor = GroupDescriptor::parse(bytes, &layout.sb, group);
            layout.groups.push(descriptor.expect("a golden group descriptor"));
        }
        for ino in (1..=u64::from(geometry.inodes_count)).map(Ino) {
            let (group, index) = geometry.place_of(ino).expect("an inode of the file system");
            let group = &layout.groups[group.0 as usize];
            let unused = geometry.inodes_per_group - group.itable_unused;
            let initialised = !group.flags.contains(GroupFlags::INODE_UNINIT) && index < unused;
            if initialised && layout.inode(image, ino).mode() != 0 {
                layout.inodes.push(ino);
                layout.add_inode(image, ino);
            }
        }
        layout
    }

    /// Returns the byte range of a group's descriptor.
    pub fn descriptor_range(&self, group: Group) -> std::ops::Range<usize> {
        let (block, offset) = self.geometry.descriptor_position(group);
        let start = self.geometry.byte_of(block) as usize + offset;
        start..start + usize::from(self.geometry.desc_size)
    }

    /// Returns the byte range of an inode's slot.
    pub fn slot_range(&self, ino: Ino) -> std::ops::Range<usize> {
        let (group, index) = self.geometry.place_of(ino).expect("an inode of the file system");
        let table = self.groups[group.0 as usize].inode_table;
        let (block, offset) = self.geometry.inode_position(table, index);
        let start = self.geometry.byte_of(block) as usize + offset;
        start..start + usize::from(self.geometry.inode_size)
    }

    /// Returns the byte range of a block.
    pub fn block_range(&self, block: Block) -> std::ops::Range<usize> {
        let start = self.geometry.byte_of(block) as usize;
        start..start + self.geometry.block_size() as usize
    }

    /// Returns the fixed fields of an inode.
    pub fn inode(&self, image: &[u8], ino: Ino) -> Inode {
        Inode::from_slot(&image[self.slot_range(ino)])
    }

    /// Returns the first structure of a kind.
    pub fn first(&self, kind: StructureKind) -> Structure {
        *self.structures.iter().find(|s| s.kind == kind).expect("the image has one")
    }

    fn add(&mut self, kind: StructureKind, ino: Ino, block: Block) {
        self.structures.push(Structure { kind, ino, block });
    }

    fn add_inode(&mut self, image: &[u8], ino: Ino) {
        let inode = self.inode(image, ino);
        if inode.file_acl() != 0 {
            self.add(StructureKind::Attributes, ino, Block(inode.file_acl()));
        }
        let mut blocks = Vec::new();
        if inode.has_flag(flags::EXTENTS) {
            self.add_extents(image, ino, inode.i_block(), &mut blocks);
        } else {
            for pointer in inode.i_block()[..48].as_chunks::<4>().0 {
                blocks.push(Block(u32::from_le_bytes(*pointer).into()));
            }
        }
        if inode.is_dir() && !inode.has_flag(flags::INLINE_DATA) {
            self.add_directory(image, ino, &inode, &blocks);
        }
    }

    fn add_extents(&mut self, image: &[u8], ino: Ino, bytes: &[u8], blocks: &mut Vec<Block>) {
        let node = ExtentNode::parse(bytes, None).expect("a golden extent tree node");
        for at in 0..node.len() {
            if node.depth() == 0 {
                let extent = node.extent(at);
                // Directories end before this block, but they may have holes before it.
                const END: u32 = 1 << 16;
                if extent.block.0 > END {
                    continue;
                }
                blocks.resize(extent.block.0 as usize, Block(0));
                blocks.extend((0..u64::from(extent.len)).map(|n| extent.start.plus(n)));
            } else {
                let leaf = node.index(at).leaf;
                self.add(StructureKind::Extents, ino, leaf);
                self.add_extents(image, ino, &image[self.block_range(leaf)], blocks);
            }
        }
    }

    fn add_directory(&mut self, image: &[u8], ino: Ino, inode: &Inode, blocks: &[Block]) {
        let count = (inode.size() >> self.geometry.block_size_log) as usize;
        let mut kinds = vec![StructureKind::Leaf; count];
        if inode.has_flag(flags::INDEX) {
            kinds[0] = StructureKind::IndexRoot;
            let root = &image[self.block_range(blocks[0])];
            if htree::root_info(root).indirect_levels > 0 {
                let index = Index::new(root, IndexKind::Root);
                for FileBlock(at) in (0..index.count()).map(|at| index.block(at)) {
                    kinds[at as usize] = StructureKind::IndexNode;
                }
            }
        }
        for (kind, block) in kinds.into_iter().zip(blocks) {
            self.add(kind, ino, *block);
        }
    }

    /// Recomputes all checksums of a damaged image, as far as its superblock allows.
    pub fn seal(&self, image: &mut [u8]) {
        seal_superblock(image);
        let Some(sb) = superblock(image) else { return };
        if self.sb.features.metadata_csum() && sb.features.metadata_csum() {
            for structure in &self.structures {
                self.seal_structure(image, &sb, *structure);
            }
            for &ino in &self.inodes {
                let seed = self.seed(image, &sb, ino);
                inode::seal_slot(seed, &mut image[self.slot_range(ino)]);
            }
            for group in self.geometry.groups() {
                self.seal_bitmaps(image, &sb, group);
            }
        }
        for group in self.geometry.groups() {
            self.seal_descriptor(image, &sb, group);
        }
    }

    fn seed(&self, image: &[u8], sb: &Superblock, ino: Ino) -> u32 {
        inode_seed(sb.checksum_seed, ino, self.inode(image, ino).generation())
    }

    fn seal_structure(&self, image: &mut [u8], sb: &Superblock, structure: Structure) {
        let seed = self.seed(image, sb, structure.ino);
        let block = &mut image[self.block_range(structure.block)];
        match structure.kind {
            StructureKind::Leaf => dirent::seal(block, seed),
            StructureKind::IndexRoot => htree::seal(block, IndexKind::Root, seed),
            StructureKind::IndexNode => htree::seal(block, IndexKind::Node, seed),
            StructureKind::Extents => extent::seal(block, seed),
            StructureKind::Attributes => {
                xattr::seal_block(block, structure.block, sb.checksum_seed);
            }
        }
    }

    fn seal_bitmaps(&self, image: &mut [u8], sb: &Superblock, group: Group) {
        let descriptor = &self.groups[group.0 as usize];
        let uninitialised = [GroupFlags::BLOCK_UNINIT, GroupFlags::INODE_UNINIT];
        let block = &image[self.block_range(descriptor.block_bitmap)];
        let block = group::block_bitmap_checksum(block, sb);
        let inode = &image[self.block_range(descriptor.inode_bitmap)];
        let inode = group::inode_bitmap_checksum(inode, sb);
        let bytes = &mut image[self.descriptor_range(group)];
        for (nth, checksum) in [block, inode].into_iter().enumerate() {
            if descriptor.flags.contains(uninitialised[nth]) {
                continue;
            }
            let [low, high] = [checksum as u16, (checksum >> 16) as u16].map(u16::to_le_bytes);
            bytes[BITMAP_CHECKSUMS_LOW[nth]..][..2].copy_from_slice(&low);
            if bytes.len() >= 64 {
                bytes[BITMAP_CHECKSUMS_HIGH[nth]..][..2].copy_from_slice(&high);
            }
        }
    }

    fn seal_descriptor(&self, image: &mut [u8], sb: &Superblock, group: Group) {
        let bytes = &mut image[self.descriptor_range(group)];
        let number = group.0.to_le_bytes();
        let (before, after) =
            (&bytes[..DESCRIPTOR_CHECKSUM.start], &bytes[DESCRIPTOR_CHECKSUM.end..]);
        let checksum = if sb.features.metadata_csum() {
            let crc = crc32c(crc32c(sb.checksum_seed, &number), before);
            crc32c(crc32c(crc, &[0, 0]), after) as u16
        } else if sb.features.group_csum() {
            crc16(crc16(crc16(crc16(u16::MAX, &sb.raw.uuid), &number), before), after)
        } else {
            return;
        };
        bytes[DESCRIPTOR_CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    }
}

fn superblock_bytes(image: &[u8]) -> [u8; SUPERBLOCK_SIZE] {
    let start = SUPERBLOCK_OFFSET as usize;
    image[start..start + SUPERBLOCK_SIZE].try_into().expect("the length is that of the range")
}

pub fn superblock(image: &[u8]) -> Option<Superblock> {
    Superblock::parse(&superblock_bytes(image), image.len() as u64).ok()
}

/// Changes the superblock and recomputes its checksum.
pub fn edit_superblock(image: &mut [u8], edit: impl FnOnce(&mut RawSuperblock)) {
    let mut raw = RawSuperblock::read_from_bytes(&superblock_bytes(image)).expect("its size");
    edit(&mut raw);
    raw.seal();
    let start = SUPERBLOCK_OFFSET as usize;
    image[start..start + SUPERBLOCK_SIZE].copy_from_slice(raw.as_bytes());
}

fn seal_superblock(image: &mut [u8]) {
    edit_superblock(image, |_| {});
}
