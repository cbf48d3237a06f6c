//! Reading the journal in large pieces.

use disk::BlockDevice;
use vfs::{Corruption, Error, Result};

use super::map::JournalMap;

impl JournalMap {
    /// Reads one block of the journal.
    ///
    /// # Errors
    /// `Corrupt` for a block outside the journal; `Device` if the device fails.
    pub fn read_block(&self, device: &dyn BlockDevice, block: u32) -> Result<Vec<u8>> {
        read_block(device, self, block)
    }
}

/// Reads a single block of the journal without read-ahead.
pub(super) fn read_block(
    device: &dyn BlockDevice,
    map: &JournalMap,
    block: u32,
) -> Result<Vec<u8>> {
    let Some((offset, _)) = map.place_of(block) else { return Err(outside(block)) };
    let mut bytes = vec![0; map.block_size()];
    device.read_at(offset, &mut bytes).map_err(Error::Device)?;
    Ok(bytes)
}

fn outside(block: u32) -> Error {
    Corruption::new("journal", format!("block {block} is outside the journal")).into()
}

/// Read-ahead size in bytes.
const READ_BYTES: usize = 256 << 10;

/// Reads blocks of the journal, preferably in ascending order.
pub(super) struct JournalReader<'j> {
    device: &'j dyn BlockDevice,
    map: &'j JournalMap,
    buffer: Vec<u8>,
    /// First journal block in the buffer.
    first: u32,
    count: u32,
}

impl<'j> JournalReader<'j> {
    pub(super) fn new(device: &'j dyn BlockDevice, map: &'j JournalMap) -> Self {
        Self { device, map, buffer: Vec::new(), first: 0, count: 0 }
    }

    /// Returns a block of the journal.
    pub(super) fn block(&mut self, block: u32) -> Result<&[u8]> {
        let size = self.map.block_size();
        let is_here = block >= self.first && block - self.first < self.count;
        if !is_here {
            self.fill(block)?;
        }
        let at = (block - self.first) as usize * size;
        Ok(&self.buffer[at..at + size])
    }

    fn fill(&mut self, block: u32) -> Result<()> {
        let size = self.map.block_size();
        let Some((offset, together)) = self.map.place_of(block) else {
            return Err(outside(block));
        };
        self.count = 0;
        let count = together.min((READ_BYTES / size).max(1) as u32);
        self.buffer.resize(count as usize * size, 0);
        self.device.read_at(offset, &mut self.buffer).map_err(Error::Device)?;
        (self.first, self.count) = (block, count);
        Ok(())
    }
}
