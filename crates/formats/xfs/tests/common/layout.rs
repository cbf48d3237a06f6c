//! Locations of the structures of a valid image, so that damaged ones can be sealed: with valid checksums, damage
//! reaches the code behind them.

use disk::BlockDevice;
use vfs::Ino;
use xfs::format::address::{AgBlock, Block};
use xfs::format::ag::sector_place;
use xfs::format::checksum;
use xfs::format::geometry::Geometry;
use xfs::format::inode::{self, Inode};
use xfs::format::superblock::Superblock;

/// A structure.
#[derive(Clone, Copy, Debug)]
pub struct Structure {
    /// Its byte offset in the image.
    pub start: usize,
    /// Its length in bytes.
    pub len: usize,
    /// Byte offset of its checksum. Version 4 has none.
    pub crc_at: Option<usize>,
}

/// The structures of a valid image.
pub struct Layout {
    pub geometry: Geometry,
    /// Structures that can be identified, in order. In version 4, these are the ones with a magic number.
    pub structures: Vec<Structure>,
    /// Inodes in use.
    pub inodes: Vec<Ino>,
}

/// Byte offsets of the checksums in superblock, AGF, AGI and AGFL.
const HEADER_CRCS: [usize; 4] = [224, 216, 312, 32];

impl Layout {
    /// Finds the structures of a sound image.
    pub fn of(image: &[u8]) -> Self {
        let sb = Superblock::parse(image, image.len() as u64).expect("a golden superblock");
        let geometry = Geometry::new(&sb);
        let mut layout = Self { geometry, structures: Vec::new(), inodes: Vec::new() };
        for ag in geometry.ags() {
            for (sector, crc_at) in HEADER_CRCS.into_iter().enumerate() {
                let (block, offset) = sector_place(&geometry, sector as u32);
                let start = geometry.byte_of(geometry.block_of(ag, AgBlock(block))) as usize;
                let len = geometry.sector_size();
                let crc_at = Some(crc_at);
                layout.structures.push(Structure { start: start + offset, len, crc_at });
            }
        }
        for block in (0..geometry.blocks).map(Block) {
            layout.add_block(image, block);
        }
        if !geometry.features.crc() {
            layout.structures.iter_mut().for_each(|structure| structure.crc_at = None);
        }
        layout.structures.sort_by_key(|structure| structure.start);
        layout
    }

    fn add_block(&mut self, image: &[u8], block: Block) {
        let geometry = self.geometry;
        let start = geometry.byte_of(block) as usize;
        let bytes = &image[start..start + geometry.block_size()];
        if bytes.starts_with(&inode::MAGIC.to_be_bytes()) {
            return self.add_inodes(bytes, block);
        }
        let (block_len, dir_len) = (geometry.block_size(), geometry.dir_block_size());
        let is_old = !geometry.features.crc();
        let found = match &bytes[..4] {
            b"ABTB" | b"ABTC" | b"IABT" | b"BMAP" if is_old => Some((0, block_len)),
            b"XD2B" | b"XD2D" | b"XD2F" if is_old => Some((0, dir_len)),
            _ if is_old => match &bytes[8..10] {
                [0xd2, 0xf1 | 0xff] => Some((0, dir_len)),
                // Nodes of directories and of attributes have the same magic number.
                [0xfb, 0xee] | [0xfe, 0xbe] => Some((0, block_len)),
                _ => None,
            },
            b"AB3B" | b"AB3C" | b"IAB3" | b"FIB3" | b"RMB3" | b"R3FC" => Some((52, block_len)),
            b"BMA3" | b"MAPR" | b"RCNT" => Some((64, block_len)),
            b"BMPZ" | b"SUMY" => Some((4, block_len)),
            b"XDB3" | b"XDD3" | b"XDF3" => Some((4, dir_len)),
            b"XSLM" | b"XARM" => Some((12, block_len)),
            _ => match &bytes[8..10] {
                [0x3d, 0xf1 | 0xff] => Some((12, dir_len)),
                [0x3b, 0xee] => Some((12, block_len)),
                [0x3e, 0xbe] if self.is_directory(image, &bytes[48..56]) => Some((12, dir_len)),
                [0x3e, 0xbe] => Some((12, block_len)),
                _ => None,
            },
        };
        let structure = found.map(|(crc_at, len)| Structure { start, len, crc_at: Some(crc_at) });
        self.structures.extend(structure);
    }

    fn add_inodes(&mut self, block_bytes: &[u8], block: Block) {
        let geometry = self.geometry;
        let (ag, ag_block) = geometry.locate(block);
        let size = geometry.inode_size();
        for (nth, slot) in block_bytes.chunks_exact(size).enumerate() {
            let start = geometry.byte_of(block) as usize + nth * size;
            let crc_at = Some(inode::CRC_OFFSET);
            self.structures.push(Structure { start, len: size, crc_at });
            if Inode::from_slot(slot).mode() != 0 {
                let Ino(first) = geometry.ino(ag, geometry.first_ino(ag_block));
                self.inodes.push(Ino(first + nth as u64));
            }
        }
    }

    /// Returns whether the inode with the number in these bytes is a directory.
    fn is_directory(&self, image: &[u8], owner: &[u8]) -> bool {
        let owner = Ino(u64::from_be_bytes(owner.try_into().expect("eight bytes")));
        let Some((ag, ag_ino)) = self.geometry.split_ino(owner) else { return false };
        let (block, offset) = self.geometry.inode_place(ag_ino);
        let block = self.geometry.block_of(ag, block);
        let start = self.geometry.byte_of(block) as usize + offset;
        let slot = image.get(start..start + self.geometry.inode_size());
        slot.is_some_and(|slot| Inode::from_slot(slot).is_dir())
    }

    /// Updates the checksums of the structures that contain any of these bytes.
    pub fn seal(&self, device: &dyn BlockDevice, changed: std::ops::Range<usize>) {
        let first = self.structures.partition_point(|s| s.start + s.len <= changed.start);
        let touched = self.structures[first..].iter().take_while(|s| s.start < changed.end);
        for structure in touched {
            let Some(crc_at) = structure.crc_at else { continue };
            let mut bytes = vec![0; structure.len];
            device.read_at(structure.start as u64, &mut bytes).expect("memory reads");
            checksum::seal(&mut bytes, crc_at);
            device.write_at(structure.start as u64, &bytes).expect("memory writes");
        }
    }
}
