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

use std::ops::ControlFlow;

use disk::{BlockDevice, is_zero};
use vfs::survey::{BlockUse, Extent, FileLayout, Sink};
use vfs::{Error, Result};

use self::names::AlikeNames;
use crate::XfsCore;
use crate::format::address::{AgNumber, Block};
use crate::format::checksum;
use crate::log::{log_end, write_clean};

/// Number of bytes that are copied at a time.
const COPY_BYTES: u64 = 1 << 20;
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
            out,
            names: AlikeNames::new(key, self.geometry()),
            remarks: Vec::new(),
            is_rehearsal: false,
        };
        copy.fixed()?;
        for ag in self.geometry().ags() {
            copy.label(ag)?;
        }
        copy.log()?;
        copy.inodes()?;
        Ok(copy.remarks)
    }
}

/// State of a copy.
struct ObfuscatedCopy<'c> {
    fs: &'c XfsCore,
    out: &'c dyn BlockDevice,
    names: AlikeNames,
    remarks: Vec<String>,
    /// True while names of directories are only chosen, because parent pointers need them.
    is_rehearsal: bool,
}

impl ObfuscatedCopy<'_> {
    fn remark(&mut self, what: impl std::fmt::Display, error: &dyn std::fmt::Display) {
        if !self.is_rehearsal {
            self.remarks.push(format!("{what}: {error}"));
        }
    }

    /// Writes bytes. Zeros are there already.
    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        if self.is_rehearsal || is_zero(bytes) {
            return Ok(());
        }
        self.out.write_at(at, bytes).map_err(Error::Device)
    }

    fn read(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.fs.device().read_at(at, &mut bytes).map_err(Error::Device)?;
        Ok(bytes)
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
                    Ok(bytes) => self.write(at, &bytes)?,
                    Err(error) => self.remark(format_args!("bytes {at}+{part}"), &error),
                }
                at += part;
            }
        }
        Ok(())
    }

    /// Removes the label from the superblock of a group.
    fn label(&self, ag: AgNumber) -> Result<()> {
        let geometry = self.fs.geometry();
        let at = self.fs.header_byte(ag, 0);
        let mut sector = self.read(at, geometry.sector_size())?;
        if sector[..4] != *SUPERBLOCK_MAGIC {
            return Ok(());
        }
        sector[LABEL].fill(0);
        if geometry.features.crc() {
            checksum::seal(&mut sector, SUPERBLOCK_CRC);
        }
        self.write(at, &sector)
    }

    /// Writes an empty log after the end of the old one, because no block may have a later LSN.
    fn log(&mut self) -> Result<()> {
        let sb = self.fs.superblock();
        if sb.raw.logstart.get() == 0 {
            return Ok(());
        }
        let last = log_end(&**self.fs.device(), sb).ok().flatten().and_then(|end| end.last);
        let cycle = last.map_or(1, |record| record.lsn.cycle.saturating_add(1));
        write_clean(self.out, sb, cycle)
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
