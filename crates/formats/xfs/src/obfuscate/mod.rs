//! Copies of the metadata with random names, for reports of errors: without contents of files, and without names,
//! targets of links, and attributes of the original.
//!
//! All metadata keeps its place, so the copy has the length of the image and is sparse. Bytes between structures, free
//! inodes and the log are cleared, because they may contain old names.
//!
//! Names keep their lengths and hashes, so the trees of directories and attributes stay as they are. A name of one byte
//! is its own hash and stays.

mod attributes;
mod directories;
mod inodes;
mod names;

use disk::BlockDevice;
use operations::obfuscate::{MetadataCopy, PlainExtents};
use vfs::Result;

use self::names::AlikeNames;
use crate::XfsCore;
use crate::format::address::{AgNumber, Block};
use crate::format::checksum;
use crate::log::{log_end, write_clean};

/// Label in a superblock, and its checksum.
const LABEL: std::ops::Range<usize> = 108..120;
const SUPERBLOCK_CRC: usize = 224;
const SUPERBLOCK_MAGIC: &[u8; 4] = b"XFSB";

impl XfsCore {
    /// Writes the metadata with random names to `out`, which must be as long as the file system and contain zeros.
    /// Returns remarks about parts that could not be read and are missing.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn obfuscate(&self, key: u64, out: &dyn BlockDevice) -> Result<Vec<String>> {
        let mut copy = ObfuscatedCopy {
            fs: self,
            copy: MetadataCopy::new(&**self.device(), out),
            names: AlikeNames::new(key, self.geometry()),
        };
        let mut plain = PlainExtents::default();
        self.tell_layout(&mut plain);
        copy.copy.copy(plain, self.geometry().block_size() as u64, 0)?;
        for ag in self.geometry().ags() {
            copy.label(ag)?;
        }
        copy.log(out)?;
        copy.inodes()?;
        Ok(copy.copy.into_remarks())
    }
}

/// State of a copy.
struct ObfuscatedCopy<'c> {
    fs: &'c XfsCore,
    copy: MetadataCopy<'c>,
    names: AlikeNames,
}

impl ObfuscatedCopy<'_> {
    fn byte_of(&self, block: Block) -> u64 {
        self.fs.geometry().byte_of(block)
    }

    /// Removes the label from the superblock of a group.
    fn label(&self, ag: AgNumber) -> Result<()> {
        let geometry = self.fs.geometry();
        let at = self.fs.header_byte(ag, 0);
        let mut sector = self.copy.read(at, geometry.sector_size())?;
        if sector[..4] != *SUPERBLOCK_MAGIC {
            return Ok(());
        }
        sector[LABEL].fill(0);
        if geometry.features.crc() {
            checksum::seal(&mut sector, SUPERBLOCK_CRC);
        }
        self.copy.write(at, &sector)
    }

    /// Writes an empty log after the end of the old one, because no block may have a later LSN.
    fn log(&self, out: &dyn BlockDevice) -> Result<()> {
        let sb = self.fs.superblock();
        if sb.raw.logstart.get() == 0 {
            return Ok(());
        }
        let last = log_end(&**self.fs.device(), sb).ok().flatten().and_then(|end| end.last);
        let cycle = last.map_or(1, |record| record.lsn.cycle.saturating_add(1));
        write_clean(out, sb, cycle)
    }
}
