//! Copies of the metadata with random names, for reports of errors: without contents of files, and without names,
//! targets of links, and attributes of the original.
//!
//! All metadata keeps its place, so the copy has the length of the image and is sparse. Bytes between structures, unused
//! inodes and the journal are cleared, because they may contain old names.
//!
//! Names keep their lengths. Those of an indexed directory have hashes in the range of their leaf, so the index stays as
//! it is. If no such name is found, the directory loses its index.

mod attributes;
mod directories;
mod inodes;

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use disk::{BlockDevice, is_zero};
use operations::obfuscate::RandomNames;
use vfs::survey::{BlockUse, Extent, FileLayout, Sink};
use vfs::{Error, Ino, Result};

use crate::Ext4Core;
use crate::debug::MapEntry;
use crate::format::address::Block;
use crate::format::checksum::crc32c;
use crate::format::features::Incompat;
use crate::format::mmp::RawMmp;
use crate::format::superblock;
use zerocopy::IntoBytes;

/// Number of bytes that are copied at a time.
const COPY_BYTES: u64 = 1 << 20;
const SUPERBLOCK_OFFSET: u64 = 1024;
const SUPERBLOCK_SIZE: usize = 1024;
/// Label, and the directory of the last mount.
const SUPERBLOCK_NAMES: std::ops::Range<usize> = 0x78..0xc8;
const SUPERBLOCK_MOUNT_OPTIONS: std::ops::Range<usize> = 0x200..0x240;
const SUPERBLOCK_MAGIC: std::ops::Range<usize> = 0x38..0x3a;
const SUPERBLOCK_INCOMPAT: usize = 0x60;
/// `INCOMPAT_RECOVER`. The journal of the copy is empty.
const RECOVER: u8 = 4;
const JOURNAL_MAGIC: [u8; 4] = 0xc03b_3998_u32.to_be_bytes();
const JOURNAL_START: std::ops::Range<usize> = 0x1c..0x20;
const JOURNAL_CHECKSUM: std::ops::Range<usize> = 0xfc..0x100;
/// Low byte of the journal's incompatible features, and those with a checksum of its superblock.
const JOURNAL_INCOMPAT: (usize, u8) = (0x2b, 0x18);

impl Ext4Core {
    /// Writes the metadata with random names to `out`, which must be as long as the file system and contain zeros.
    /// Returns remarks about parts that could not be read and are missing.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn obfuscate(&self, key: u64, out: &dyn BlockDevice) -> Result<Vec<String>> {
        let mut copy = ObfuscatedCopy {
            fs: self,
            out,
            random: RandomNames::new(key),
            remarks: Vec::new(),
            attribute_names: HashMap::new(),
            used_names: HashSet::new(),
            attribute_blocks: HashSet::new(),
        };
        copy.fixed()?;
        copy.superblocks()?;
        copy.mmp()?;
        copy.journal()?;
        copy.inodes()?;
        Ok(copy.remarks)
    }
}

/// State of a copy.
struct ObfuscatedCopy<'c> {
    fs: &'c Ext4Core,
    out: &'c dyn BlockDevice,
    random: RandomNames,
    remarks: Vec<String>,
    /// New names of attributes by their namespace and name. Equal names stay equal.
    attribute_names: HashMap<(u8, Vec<u8>), Vec<u8>>,
    used_names: HashSet<(u8, Vec<u8>)>,
    /// Attribute blocks that were copied: several inodes may share one.
    attribute_blocks: HashSet<u64>,
}

impl ObfuscatedCopy<'_> {
    fn remark(&mut self, what: impl std::fmt::Display, error: &dyn std::fmt::Display) {
        self.remarks.push(format!("{what}: {error}"));
    }

    /// Writes bytes. Zeros are there already.
    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        if is_zero(bytes) {
            return Ok(());
        }
        self.out.write_at(at, bytes).map_err(Error::Device)
    }

    fn read(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.fs.device().read_at(at, &mut bytes).map_err(Error::Device)?;
        Ok(bytes)
    }

    fn read_block(&self, block: Block) -> Result<Vec<u8>> {
        self.read(self.byte_of(block), self.fs.geometry().block_size() as usize)
    }

    fn byte_of(&self, block: Block) -> u64 {
        self.fs.geometry().byte_of(block)
    }

    /// Copies metadata without names.
    fn fixed(&mut self) -> Result<()> {
        let mut plain = PlainExtents::default();
        self.fs.tell_layout(&mut plain);
        self.remarks.append(&mut plain.remarks);
        for (start, len) in plain.extents {
            let (mut at, end) = (self.byte_of(Block(start)), self.byte_of(Block(start + len)));
            while at < end {
                let part = COPY_BYTES.min(end - at);
                match self.read(at, part as usize) {
                    Ok(mut bytes) => {
                        if at == 0 {
                            // The boot sector is not part of the file system.
                            bytes[..SUPERBLOCK_OFFSET as usize].fill(0);
                        }
                        self.write(at, &bytes)?;
                    }
                    Err(error) => self.remark(format_args!("bytes {at}+{part}"), &error),
                }
                at += part;
            }
        }
        Ok(())
    }

    /// Removes names from all copies of the superblock.
    fn superblocks(&mut self) -> Result<()> {
        let geometry = *self.fs.geometry();
        for group in geometry.groups().filter(|group| geometry.has_superblock(*group)) {
            let at = match group.0 {
                0 => SUPERBLOCK_OFFSET,
                _ => self.byte_of(geometry.first_block(group)),
            };
            let mut bytes = self.read(at, SUPERBLOCK_SIZE)?;
            if bytes[SUPERBLOCK_MAGIC] != [0x53, 0xef] {
                continue;
            }
            bytes[SUPERBLOCK_NAMES].fill(0);
            bytes[SUPERBLOCK_MOUNT_OPTIONS].fill(0);
            bytes[SUPERBLOCK_INCOMPAT] &= !RECOVER;
            superblock::seal(&mut bytes);
            self.write(at, &bytes)?;
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
        self.write(self.byte_of(block), raw.as_bytes())
    }

    /// Writes the superblock of an empty journal.
    fn journal(&mut self) -> Result<()> {
        let number = self.fs.superblock().raw.journal_inum.get();
        if number == 0 {
            return Ok(());
        }
        let Some(first) = self.first_block(Ino(number.into()))? else { return Ok(()) };
        let mut bytes = self.read(self.byte_of(first), 1024)?;
        if bytes[..4] != JOURNAL_MAGIC {
            return Ok(());
        }
        bytes[JOURNAL_START].fill(0);
        let (at, with_checksum) = JOURNAL_INCOMPAT;
        if bytes[at] & with_checksum != 0 {
            bytes[JOURNAL_CHECKSUM].fill(0);
            let checksum = crc32c(u32::MAX, &bytes);
            bytes[JOURNAL_CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
        }
        self.write(self.byte_of(first), &bytes)
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
            self.remark(format_args!("the block map of inode {ino}"), &error);
        }
        let geometry = self.fs.geometry();
        Ok(first.filter(|block| geometry.contains(*block, 1)))
    }
}

/// Receiver of the layout that keeps the extents of metadata without names.
#[derive(Default)]
struct PlainExtents {
    extents: Vec<(u64, u64)>,
    remarks: Vec<String>,
}

impl Sink for PlainExtents {
    fn extent(&mut self, Extent { start, len, kind }: Extent) {
        use BlockUse::{Allocation, Headers, Maps, System};
        if matches!(kind, Headers | Allocation | Maps | System) {
            match self.extents.last_mut() {
                Some((last, count)) if *last + *count == start => *count += len,
                _ => self.extents.push((start, len)),
            }
        }
    }

    fn file(&mut self, _file: FileLayout) {}

    fn remark(&mut self, remark: String) {
        self.remarks.push(remark);
    }

    fn progress(&mut self, _done: u64, _total: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
