//! Contents of the bitmap and the summary of a group, or of a section without groups, after growing.

use vfs::{Corruption, Ino, Result};

use crate::XfsCore;
use crate::format::address::{Block, FileBlock};
use crate::format::geometry::Geometry;
use crate::format::inode::Fork;
use crate::format::realtime::space::{SpaceFile, SpaceLayout};
use crate::inode::Handle;
use crate::map::{self, Place};

/// Contents of both files.
pub(super) struct Contents {
    pub(super) layout: SpaceLayout,
    /// Words of the bitmap before, for `old_extents` extents.
    old: Vec<u32>,
    old_extents: u64,
    /// Number of extents in use at the start of a new group.
    used: u64,
    summary: Vec<u32>,
}

impl Contents {
    /// Returns the contents for a layout, given the words of the bitmap before. All other extents are free, except for
    /// the first `used` ones.
    pub(super) fn new(layout: SpaceLayout, (old, old_extents): (Vec<u32>, u64), used: u64) -> Self {
        let mut contents = Self { layout, old, old_extents, used, summary: Vec::new() };
        contents.summary = layout.count_runs(|index| contents.word(index));
        contents
    }

    /// Returns a word of the bitmap.
    fn word(&self, index: u64) -> u32 {
        let below = |end| SpaceLayout::bits_below(index, end);
        let known = below(self.old_extents);
        let old = self.old.get(index as usize).copied().unwrap_or(0) & known;
        old | (below(self.layout.extents()) & !known & !below(self.used))
    }

    /// Returns a block of a file for a place on the device.
    pub(super) fn block(
        &self,
        geometry: &Geometry,
        (file, owner): (SpaceFile, Ino),
        (at, place): (u64, Block),
    ) -> Vec<u8> {
        let layout = &self.layout;
        let per_block = layout.words_per_block();
        let mut block = vec![0; geometry.block_size()];
        let words = layout.bytes_of(0..per_block as usize);
        layout.change(&mut block[words], |nth, _| {
            let index = at * per_block + nth as u64;
            match file {
                SpaceFile::Bitmap => self.word(index),
                SpaceFile::Summary => self.summary.get(index as usize).copied().unwrap_or(0),
            }
        });
        layout.init(geometry, (file, owner), place, &mut block);
        block
    }
}

/// Reads the words of a bitmap.
pub(super) fn read_bitmap(
    fs: &XfsCore,
    layout: &SpaceLayout,
    bitmap: &Handle,
) -> Result<(Vec<u32>, u64)> {
    let geometry = &fs.volume.geometry;
    let (mut words, mut at) = (Vec::new(), 0);
    let mut block = vec![0; geometry.block_size()];
    while at < layout.bitmap_blocks() {
        let run = map::run_at(&mut &*fs, bitmap, Fork::Data, FileBlock(at))?;
        let Place::Written(start) = run.place else {
            let damage = Corruption::new(SpaceFile::Bitmap.name(), "number of blocks");
            let damage = damage.of_inode(bitmap.ino().0);
            return Err(damage.mismatch(layout.bitmap_blocks(), at).into());
        };
        let first = geometry.device_block(start);
        for nth in 0..run.len.min(layout.bitmap_blocks() - at) {
            let place = Block(first.0 + nth);
            let device = fs.engine.device();
            device.read_at(geometry.byte_of(place), &mut block).map_err(vfs::Error::Device)?;
            let file = (SpaceFile::Bitmap, bitmap.ino());
            layout.verify(geometry, file, place, &block).map_err(|c| c.at_block(place.0))?;
            words.extend((0..layout.words_per_block() as usize).map(|n| layout.word(&block, n)));
        }
        at += run.len;
    }
    Ok((words, layout.extents()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_with_their_old_parts() {
        let layout = SpaceLayout::new(12, 100, false);
        // Extents 0 to 3 and 40 to 69 were free, of 70.
        let old = (vec![0xf, 0xffff_ff00, 0x3f], 70);
        let contents = Contents::new(layout, old, 0);
        assert_eq!([0, 1, 2, 3, 4].map(|nth| contents.word(nth)), [0xf, 0xffff_ff00, !0, 0xf, 0]);
        let mut expected = vec![0; 7];
        // Runs of 4 and of 60 extents.
        (expected[2], expected[5]) = (1, 1);
        assert_eq!(contents.summary, expected);
        let new = Contents::new(layout, (Vec::new(), 0), 1);
        assert_eq!((new.word(0), new.summary[6]), (0xffff_fffe, 1));
    }
}
