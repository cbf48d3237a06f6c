//! Copies of the metadata with random names, for reports of errors: without contents of files, and without names,
//! targets of links, and attributes of the original.
//!
//! All metadata keeps its place, so the copy has the length of the image and is sparse. Bytes between structures, unused
//! inodes and the journal are cleared, because they may contain old names.
//!
//! Names keep their lengths. Those of an indexed directory have hashes in the range of their leaf, so the index stays as
//! it is. If no name of one to three bytes is left for a leaf, the new one has four bytes. If no name is found at all, the
//! directory loses its index.

mod attributes;
mod directories;
mod hashed;
mod inodes;

use std::collections::{HashMap, HashSet};

use disk::BlockDevice;
use operations::obfuscate::{MetadataCopy, PlainExtents, RandomNames};
use vfs::{Ino, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::Ext4Core;
use crate::debug::MapEntry;
use crate::format::address::Block;
use crate::format::features::Incompat;
use crate::format::jbd2::{self, RawJournalSuperblock};
use crate::format::mmp::RawMmp;
use crate::format::superblock::{self, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};

impl Ext4Core {
    /// Writes the metadata with random names to `out`, which must be as long as the file system and contain zeros.
    /// Returns remarks about parts that could not be read and are missing.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn obfuscate(&self, key: u64, out: &dyn BlockDevice) -> Result<Vec<String>> {
        let mut copy = ObfuscatedCopy {
            fs: self,
            copy: MetadataCopy::new(&**self.device(), out),
            random: RandomNames::new(key),
            attribute_names: HashMap::new(),
            used_names: HashSet::new(),
            attribute_blocks: HashSet::new(),
        };
        let mut plain = PlainExtents::default();
        self.tell_layout(&mut plain);
        // The boot sector is not part of the file system.
        copy.copy.copy(plain, self.geometry().block_size().into(), SUPERBLOCK_OFFSET)?;
        copy.superblocks()?;
        copy.mmp()?;
        copy.journal()?;
        copy.inodes()?;
        Ok(copy.copy.into_remarks())
    }
}

/// State of a copy.
struct ObfuscatedCopy<'c> {
    fs: &'c Ext4Core,
    copy: MetadataCopy<'c>,
    random: RandomNames,
    /// New names of attributes by their namespace and name. Equal names stay equal.
    attribute_names: HashMap<(u8, Vec<u8>), Vec<u8>>,
    used_names: HashSet<(u8, Vec<u8>)>,
    /// Attribute blocks that were copied: several inodes may share one.
    attribute_blocks: HashSet<u64>,
}

impl ObfuscatedCopy<'_> {
    fn read_block(&self, block: Block) -> Result<Vec<u8>> {
        self.copy.read(self.byte_of(block), self.fs.geometry().block_size() as usize)
    }

    fn byte_of(&self, block: Block) -> u64 {
        self.fs.geometry().byte_of(block)
    }

    /// Removes names from all copies of the superblock.
    fn superblocks(&mut self) -> Result<()> {
        let geometry = *self.fs.geometry();
        for group in geometry.groups().filter(|group| geometry.has_superblock(*group)) {
            let at = match group.0 {
                0 => SUPERBLOCK_OFFSET,
                _ => self.byte_of(geometry.first_block(group)),
            };
            let mut bytes = self.copy.read(at, SUPERBLOCK_SIZE)?;
            let Ok(raw) = RawSuperblock::mut_from_bytes(&mut bytes) else { continue };
            if raw.magic != superblock::MAGIC {
                continue;
            }
            (raw.volume_name, raw.last_mounted, raw.mount_opts) = ([0; 16], [0; 64], [0; 64]);
            // The journal of the copy is empty.
            let mut features = raw.features();
            features.incompat.remove(Incompat::RECOVER);
            raw.set_features(&features);
            raw.seal();
            self.copy.write(at, &bytes)?;
        }
        Ok(())
    }

    /// Removes the names of the host and of the device from the block of multiple mount protection.
    fn mmp(&mut self) -> Result<()> {
        let sb = self.fs.superblock();
        if !sb.features.incompat(Incompat::MMP) || sb.raw.mmp_block.get() == 0 {
            return Ok(());
        }
        let (block, seed) = (Block(sb.raw.mmp_block.get()), sb.checksum_seed);
        let bytes = self.read_block(block)?;
        let Ok(mut raw) = RawMmp::parse(&bytes, None) else { return Ok(()) };
        (raw.nodename, raw.bdevname) = ([0; 64], [0; 32]);
        raw.seal(self.fs.volume.checksums.then_some(seed));
        self.copy.write(self.byte_of(block), raw.as_bytes())
    }

    /// Writes the superblock of an empty journal.
    fn journal(&mut self) -> Result<()> {
        let number = self.fs.superblock().raw.journal_inum.get();
        if number == 0 {
            return Ok(());
        }
        let Some(first) = self.first_block(Ino(number.into()))? else { return Ok(()) };
        let bytes = self.copy.read(self.byte_of(first), size_of::<RawJournalSuperblock>())?;
        let Ok(mut raw) = RawJournalSuperblock::read_from_bytes(&bytes) else { return Ok(()) };
        if raw.h_magic != jbd2::MAGIC {
            return Ok(());
        }
        raw.start = 0.into();
        raw.seal();
        self.copy.write(self.byte_of(first), raw.as_bytes())
    }

    /// Returns the device block of the first block of a file. Damage is a remark.
    fn first_block(&mut self, ino: Ino) -> Result<Option<Block>> {
        let mut first = None;
        let walked = self.fs.walk_map(ino, &mut |entry| match entry {
            MapEntry::Extent { extent, .. } if extent.block.0 == 0 => first = Some(extent.start),
            MapEntry::Pointer { file, block } if file.0 == 0 => first = Some(block),
            _ => {}
        });
        if let Err(error) = walked {
            self.copy.remark(format_args!("the block map of inode {ino}"), &error);
        }
        let geometry = self.fs.geometry();
        Ok(first.filter(|block| geometry.contains(*block, 1)))
    }
}
