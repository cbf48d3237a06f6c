//! Writing.

use std::ops::Range;

use vfs::data::overwrite;
use vfs::{Ino, Result};

use super::data::DataRuns;
use super::read::bytes_at;
use super::{WRITTEN_PER_OP_MAX, blocks_of};
use crate::Xfs;
use crate::bmap::{self, Place, Want};
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::op::Op;

impl Xfs {
    pub(crate) fn write_file(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        self.check_writable()?;
        if data.is_empty() {
            return Ok(());
        }
        let _lock = self.locks.exclusive(&[ino]);
        let geometry = &self.volume.geometry;
        blocks_of(geometry, offset, data.len() as u64)?;
        let mut done = 0;
        while done < data.len() {
            let before = self.load_file(ino)?;
            let at = offset + done as u64;
            before.protection().check_write(at, before.inode.size())?;
            let part = &data[done..];
            // Pieces end with blocks.
            let len_max = WRITTEN_PER_OP_MAX - at % geometry.block_size() as u64;
            let part = &part[..part.len().min(len_max as usize)];
            if self.overwrite(&before, at, part)? {
                done += part.len();
                continue;
            }
            let (len, _) = self.atomically_then(
                |op| op.prepare_part(&before, at, part.len() as u64),
                |(len, runs)| {
                    runs.iter().try_for_each(|run| self.write_run(run, at, &part[..*len]))
                },
            )?;
            done += len;
        }
        Ok(())
    }

    /// Writes over what was written of a file before, with no operation, as nothing but data changes.
    /// Whether it could: not if some of the bytes are past the size, on blocks that no data was written
    /// to, or on blocks that are another file's, too. The caller has the file's lock exclusively.
    fn overwrite(&self, file: &Handle, offset: u64, data: &[u8]) -> Result<bool> {
        let end = offset + data.len() as u64;
        if end > file.inode.size() || bmap::may_share(file) && !self.has_own(file, offset..end)? {
            return Ok(false);
        }
        overwrite(&self.engine, offset, data, |at| bytes_at(self, file, at))
    }
}

impl Xfs {
    /// Whether all of some bytes of a file are in blocks that data was written to and that nobody else
    /// has. That stays so as long as the file is locked.
    fn has_own(&self, file: &Handle, bytes: Range<u64>) -> Result<bool> {
        let blocks = blocks_of(&self.volume.geometry, bytes.start, bytes.end - bytes.start)?;
        self.atomically(|op| {
            let mut at = blocks.start;
            while at < blocks.end {
                let run = bmap::run_at(op, file, Fork::Data, at)?;
                let Place::Written(start) = run.place else { return Ok(false) };
                let (is_own, len) = op.own_blocks(start, run.len.min(blocks.end.0 - at.0))?;
                if !is_own {
                    return Ok(false);
                }
                at = at.plus(len);
            }
            Ok(true)
        })
    }
}

impl Op<'_> {
    /// Provides blocks for as many of `len` bytes as one operation may write; how many that are, and
    /// where they go.
    fn prepare_part(
        &mut self,
        before: &Handle,
        offset: u64,
        len: u64,
    ) -> Result<(usize, DataRuns)> {
        let fs = self.fs;
        let mut file = before.clone();
        let blocks = blocks_of(&fs.volume.geometry, offset, len)?;
        let mut runs = DataRuns::new();
        let (mut at, mut changes) = (blocks.start, 0);
        while at < blocks.end && changes < fs.changes_per_op() {
            let piece = self.provide(&mut file, at, blocks.end, Want::Written)?;
            changes += u32::from(piece.is_change());
            fs.copy_edges(at, &piece, &(offset..offset + len))?;
            fs.push_run(&mut runs, at, &piece);
            at = at.plus(piece.len);
        }
        let end = fs.byte_of(at).min(offset + len);
        // Before the data, because a new first block is among what is zeroed.
        let gap = file.inode.size()..offset;
        self.zero_written(&mut file, gap)?;
        file.inode.set_size(file.inode.size().max(end));
        self.stage_if_changed(file, before);
        Ok(((end - offset) as usize, runs))
    }
}
