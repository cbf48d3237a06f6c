//! Images of blocks in the journal, including transactions that were already written back.

use std::collections::HashMap;

use disk::BlockDevice;
use vfs::Result;

use crate::format::address::Block;
use crate::format::jbd2::{self, BlockType, ESCAPED, JournalLayout, JournalSuperblock, Tag, Tid};
use crate::format::superblock::Superblock;
use crate::log::JournalMap;

/// Age of a transaction: larger for later ones. Transaction numbers wrap around, ages do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Age(u32);

/// An image of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockImage {
    pub(super) age: Age,
    pub(super) tid: Tid,
    /// Block in the journal.
    pub(super) at: u32,
    tag: Tag,
}

/// All images of blocks in a journal. The contents stay on the device.
#[derive(Default)]
pub(super) struct JournalImages {
    journal: Option<(JournalMap, JournalLayout)>,
    /// The images of each block, oldest first.
    blocks: HashMap<Block, Vec<BlockImage>>,
}

impl JournalImages {
    /// Finds all descriptor blocks, and the images they describe. A file system without a journal has none.
    ///
    /// # Errors
    /// If the journal or its superblock cannot be read.
    pub(super) fn read(device: &dyn BlockDevice, sb: &Superblock) -> Result<Self> {
        let Some(map) = JournalMap::read(device, sb)? else { return Ok(Self::default()) };
        let first = map.read_block(device, map.superblock())?;
        let journal = JournalSuperblock::parse(&first, map.blocks())?;
        let mut blocks: HashMap<Block, Vec<BlockImage>> = HashMap::new();
        // Each image has a block of the log, so a journal with more of them is damaged.
        let mut left = journal.log.len();
        for at in journal.log.clone() {
            let Ok(bytes) = map.read_block(device, at) else { continue };
            let Some((BlockType::Descriptor, tid)) = jbd2::header(&bytes) else { continue };
            if !journal.layout.is_intact(&bytes) {
                continue;
            }
            let age = Age(tid.0.wrapping_sub(journal.sequence.0).wrapping_add(1 << 31));
            let mut image_at = at;
            for tag in jbd2::tags(&bytes, &journal.layout) {
                image_at = journal.after(image_at, 1);
                if image_at == at || left == 0 {
                    break;
                }
                left -= 1;
                blocks.entry(tag.block).or_default().push(BlockImage {
                    age,
                    tid,
                    at: image_at,
                    tag,
                });
            }
        }
        for images in blocks.values_mut() {
            images.sort_by_key(|image| image.age);
        }
        Ok(Self { journal: Some((map, journal.layout)), blocks })
    }

    /// Returns whether the journal has images of a block.
    pub(super) fn has(&self, block: Block) -> bool {
        self.blocks.contains_key(&block)
    }

    /// Returns all blocks that have images, in ascending order.
    pub(super) fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = self.blocks.keys().copied().collect();
        blocks.sort_unstable();
        blocks
    }

    /// Returns the images of a block, oldest first.
    pub(super) fn of(&self, block: Block) -> &[BlockImage] {
        self.blocks.get(&block).map_or(&[], Vec::as_slice)
    }

    /// Reads an image. Returns `None` if a later transaction has overwritten it.
    pub(super) fn bytes(&self, device: &dyn BlockDevice, image: &BlockImage) -> Option<Vec<u8>> {
        let (map, layout) = self.journal.as_ref()?;
        let mut bytes = map.read_block(device, image.at).ok()?;
        if jbd2::must_escape(&bytes) || !image.tag.matches(layout, image.tid, &bytes) {
            return None;
        }
        if image.tag.escaped {
            bytes.get_mut(..ESCAPED.len())?.copy_from_slice(&ESCAPED);
        }
        Some(bytes)
    }
}
