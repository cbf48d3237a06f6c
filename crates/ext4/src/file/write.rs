//! Writing.

use vfs::data::overwrite;
use vfs::{Ino, Result};

use super::data::{DataRuns, push};
use super::inline::Unpacked;
use super::{CHANGES_PER_OP_MAX, WRITTEN_PER_OP_MAX};
use crate::Ext4;
use crate::block_map::Want;
use crate::format::address::FileBlock;
use crate::format::inode::flags;
use crate::op::{Handle, Op};
use crate::read::file::bytes_at;

impl Ext4 {
    pub(crate) fn write_file(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        self.check_writable()?;
        if data.is_empty() {
            return Ok(());
        }
        let _lock = self.locks.exclusive(&[ino]);
        let mut done = 0;
        while done < data.len() {
            let before = self.load_file(ino)?;
            self.blocks_of(&before, offset, data.len() as u64)?;
            let at = offset + done as u64;
            before.protection().check_write(at, before.inode.size())?;
            let unpacked = self.unpack(&before)?;
            let part = &data[done..];
            // Pieces end with blocks.
            let len_max = WRITTEN_PER_OP_MAX - at % u64::from(self.volume.geometry.block_size());
            let part = &part[..part.len().min(len_max as usize)];
            if self.overwrite(&before, at, part)? {
                done += part.len();
                continue;
            }
            let (len, _) = self.atomically_then(
                |op| op.prepare_part(&before, unpacked.as_ref(), at, part.len() as u64),
                |(len, runs)| {
                    runs.iter().try_for_each(|run| self.write_run(run, at, &part[..*len]))
                },
            )?;
            done += len;
        }
        Ok(())
    }

    /// Writes over what was written of a file before, with no operation, as nothing but data changes.
    /// Whether it could: not if some of the bytes are past the size, or on blocks that no data was
    /// written to. The caller has the file's lock exclusively.
    fn overwrite(&self, file: &Handle, offset: u64, data: &[u8]) -> Result<bool> {
        let end = offset + data.len() as u64;
        if end > file.inode.size() || file.has_flag(flags::INLINE_DATA) {
            return Ok(false);
        }
        overwrite(&self.engine, offset, data, |at| bytes_at(self, file, at))
    }
}

impl Op<'_> {
    /// Provides blocks for as many of `len` bytes as one operation may write; how many that are, and
    /// where they go.
    fn prepare_part(
        &mut self,
        before: &Handle,
        unpacked: Option<&Unpacked>,
        offset: u64,
        len: u64,
    ) -> Result<(usize, DataRuns)> {
        let fs = self.fs;
        let mut file = *before;
        self.use_unpacked(&mut file, unpacked)?;
        let blocks = fs.blocks_of(&file, offset, len)?;
        let mut runs = DataRuns::new();
        let (mut at, mut changes) = (blocks.start, 0);
        while at < blocks.end && changes < CHANGES_PER_OP_MAX {
            let piece = self.provide(&mut file, FileBlock(at), blocks.end, Want::Written)?;
            changes += u32::from(piece.is_change());
            push(&mut runs, at, &piece);
            at += piece.len;
        }
        let end = fs.byte_of(at).min(offset + len);
        // Before the data, because a new first block is among what is zeroed.
        self.zero_written(&file, file.inode.size()..offset)?;
        file.inode.set_size(file.inode.size().max(end));
        self.stage_contents(file, before, unpacked);
        Ok(((end - offset) as usize, runs))
    }
}
