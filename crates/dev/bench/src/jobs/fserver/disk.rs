//! The jobs that read and write: blocks of 1 KiB, one call each.

use super::BLOCK_BYTES;
use super::task::{POOL, Task};
use crate::error::{Error, Result};
use crate::target::Target;

/// The file that a task writes.
const WORK: &[u8] = b"work";

/// Number of blocks between two checks for cancellation.
const BATCH: u64 = 4096;

impl<T: Target> Task<'_, T> {
    pub(super) fn disk_wrt(&mut self) -> Result<()> {
        let file = self.target.create(&self.dir, WORK, true)?;
        self.fill(&file)?;
        self.target.unlink(&self.dir, WORK)?;
        self.target.close(file)
    }

    pub(super) fn disk_rd(&mut self) -> Result<()> {
        let file = self.written()?;
        for block in 0..self.shared.blocks {
            self.read(&file, block)?;
            self.look(block)?;
        }
        self.target.close(file)?;
        self.target.unlink(&self.dir, WORK)
    }

    pub(super) fn disk_rr(&mut self) -> Result<()> {
        let file = self.written()?;
        for done in 0..self.shared.blocks {
            let block = self.random.u64(..self.shared.blocks);
            self.read(&file, block)?;
            self.look(done)?;
        }
        self.target.close(file)?;
        self.target.unlink(&self.dir, WORK)
    }

    pub(super) fn disk_rw(&mut self) -> Result<()> {
        let file = self.written()?;
        for done in 0..self.shared.blocks {
            let block = self.random.u64(..self.shared.blocks);
            self.target.write(&file, block * BLOCK_BYTES, &self.buffer)?;
            self.look(done)?;
        }
        self.target.unlink(&self.dir, WORK)?;
        self.target.close(file)
    }

    pub(super) fn disk_cp(&mut self) -> Result<()> {
        let from = self.target.open(&self.shared.top, POOL)?;
        let to = self.target.create(&self.dir, WORK, true)?;
        for block in 0..self.shared.blocks {
            self.read(&from, block)?;
            self.target.write(&to, block * BLOCK_BYTES, &self.buffer)?;
            self.look(block)?;
        }
        self.target.unlink(&self.dir, WORK)?;
        self.target.close(from)?;
        self.target.close(to)
    }

    /// Returns a new file that was written, closed and reopened.
    fn written(&mut self) -> Result<T::File> {
        let file = self.target.create(&self.dir, WORK, true)?;
        self.fill(&file)?;
        self.target.close(file)?;
        self.target.open(&self.dir, WORK)
    }

    fn fill(&mut self, file: &T::File) -> Result<()> {
        for block in 0..self.shared.blocks {
            self.target.write(file, block * BLOCK_BYTES, &self.buffer)?;
            self.look(block)?;
        }
        Ok(())
    }

    fn read(&mut self, file: &T::File, block: u64) -> Result<()> {
        let count = self.target.read(file, block * BLOCK_BYTES, &mut self.buffer)?;
        if count != self.buffer.len() {
            return Err(Error::Wrong(format!("block {block} of a file has {count} bytes")));
        }
        Ok(())
    }

    /// Checks for cancellation occasionally: with few tasks, files are large.
    fn look(&self, block: u64) -> Result<()> {
        if block % BATCH == BATCH - 1 { self.shared.context.advance(0) } else { Ok(()) }
    }
}
