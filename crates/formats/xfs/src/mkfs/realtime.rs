//! The realtime section of a new file system, without groups: its bitmap and its summary.
//!
//! Both files follow the first inodes, the bitmap first. All extents are free.

use super::layout::{GroupRun, Layout};
use crate::format::address::{AgBlock, AgNumber, FileBlock};
use crate::format::extent::{Extent, LEN_MAX};
use crate::format::inode::{Fork, Inode};
use crate::format::realtime::space::{SpaceFile, SpaceLayout};

impl Layout {
    /// Returns the size of the realtime section in bytes; 0 if there is none.
    #[must_use]
    pub(crate) fn realtime_bytes(&self) -> u64 {
        self.superblock().rblocks.get() << self.geometry.block_log
    }

    /// Returns the number of blocks of the bitmap and the summary.
    pub(super) fn space_blocks(&self) -> u64 {
        let layout = self.geometry.realtime.map(|realtime| realtime.space(0));
        layout.map_or(0, |layout| layout.bitmap_blocks() + layout.summary_blocks())
    }

    /// Returns the blocks of a file in the first group.
    pub(super) fn space_run(&self, file: SpaceFile) -> Option<GroupRun> {
        let layout = self.geometry.realtime?.space(0);
        let all = self.ag(AgNumber(0)).realtime;
        let bitmap = layout.bitmap_blocks() as u32;
        Some(match file {
            SpaceFile::Bitmap => GroupRun { start: all.start, len: bitmap },
            SpaceFile::Summary => GroupRun { start: all.start + bitmap, len: all.len - bitmap },
        })
    }

    /// Gives an inode the blocks of a file.
    pub(super) fn fill_space_inode(&self, inode: &mut Inode, file: SpaceFile) {
        let Some(GroupRun { start, len }) = self.space_run(file) else { return };
        let (mut at, mut count) = (0, 0);
        while at < u64::from(len) {
            let part = (u64::from(len) - at).min(LEN_MAX);
            let block = self.geometry.fs_block(AgNumber(0), AgBlock(start + at as u32));
            let extent =
                Extent { offset: FileBlock(at), start: block, len: part, unwritten: false };
            let bytes = inode.fork_mut(Fork::Data);
            extent.put(&mut bytes[count * crate::format::extent::EXTENT_SIZE..]);
            (at, count) = (at + part, count + 1);
        }
        let fits = inode.set_extents(Fork::Data, count as u64);
        debug_assert!(fits, "a group has few runs of the maximum length");
        inode.set_nblocks(len.into());
        inode.set_size(u64::from(len) << self.geometry.block_log);
    }

    /// Returns the contents of a block of a file.
    pub(super) fn space_block(&self, file: SpaceFile, at: u32) -> Vec<u8> {
        let mut block = vec![0; self.geometry.block_size()];
        let Some(realtime) = self.geometry.realtime else { return block };
        let layout = realtime.space(0);
        let per_block = layout.words_per_block();
        let first = u64::from(at) * per_block;
        let words = layout.bytes_of(0..per_block as usize);
        let counter = layout.counter_of(0, layout.extents());
        layout.change(&mut block[words], |nth, _| {
            let word = first + nth as u64;
            match file {
                SpaceFile::Bitmap => SpaceLayout::bits_below(word, layout.extents()),
                SpaceFile::Summary => u32::from(word == counter),
            }
        });
        block
    }
}
