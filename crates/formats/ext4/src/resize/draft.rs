//! Blocks to change together, as an overlay of the image.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use disk::BlockDevice;
use vfs::{Error, Result};

use crate::format::address::Block;

/// Whole changed blocks, by number.
pub(super) type ChangedBlocks = BTreeMap<u64, Vec<u8>>;

/// Overlay of changed blocks over the device.
pub(super) struct Draft {
    device: Arc<dyn BlockDevice>,
    block_size: usize,
    blocks: ChangedBlocks,
}

impl Draft {
    pub(super) fn new(device: Arc<dyn BlockDevice>, block_size: usize) -> Self {
        Self { device, block_size, blocks: ChangedBlocks::new() }
    }

    /// Returns the device below.
    pub(super) fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    /// Returns a block with its changes.
    pub(super) fn read(&self, block: Block) -> Result<Vec<u8>> {
        match self.blocks.get(&block.0) {
            Some(bytes) => Ok(bytes.clone()),
            None => self.read_device(block),
        }
    }

    fn read_device(&self, block: Block) -> Result<Vec<u8>> {
        self.read_run(block.0..block.0 + 1)
    }

    /// Returns contiguous blocks as they are on the device, without changes.
    pub(super) fn read_run(&self, blocks: Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (blocks.end - blocks.start) as usize * self.block_size];
        let offset = blocks.start * self.block_size as u64;
        self.device.read_at(offset, &mut bytes).map_err(Error::Device)?;
        Ok(bytes)
    }

    /// Replaces a whole block.
    pub(super) fn write(&mut self, block: Block, bytes: Vec<u8>) {
        debug_assert_eq!(bytes.len(), self.block_size);
        self.blocks.insert(block.0, bytes);
    }

    /// Replaces a whole block if its contents differ.
    pub(super) fn update(&mut self, block: Block, bytes: Vec<u8>) -> Result<()> {
        let is_same = match self.blocks.get(&block.0) {
            Some(known) => *known == bytes,
            None => self.read_device(block)? == bytes,
        };
        if !is_same {
            self.write(block, bytes);
        }
        Ok(())
    }

    /// Changes bytes of a block.
    pub(super) fn edit(&mut self, block: Block, offset: usize, bytes: &[u8]) -> Result<()> {
        let range = offset..offset + bytes.len();
        if let Some(whole) = self.blocks.get_mut(&block.0) {
            whole[range].copy_from_slice(bytes);
            return Ok(());
        }
        let mut whole = self.read_device(block)?;
        if whole[range.clone()] != *bytes {
            whole[range].copy_from_slice(bytes);
            self.write(block, whole);
        }
        Ok(())
    }

    /// Returns the number of changed blocks.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Iterates over the changed blocks of a range.
    pub(super) fn changed(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &[u8])> {
        self.blocks.range(range).map(|(block, bytes)| (*block, &**bytes))
    }

    /// Returns all changes and clears the draft.
    pub(super) fn take(&mut self) -> ChangedBlocks {
        std::mem::take(&mut self.blocks)
    }
}
