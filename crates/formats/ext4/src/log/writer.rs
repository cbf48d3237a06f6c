//! Writes one transaction: collects its blocks in a buffer and writes them to the blocks of the journal's map.

use std::ops::Range;

use disk::BlockDevice;
use engine::{Result, Size};

use super::map::JournalMap;
use crate::format::address::Block;
use crate::format::jbd2::{
    Checksums, Commit, DescriptorWriter, ESCAPED, JournalLayout, JournalSuperblock, Tag, Tid,
    crc32_be, encode_revokes, must_escape,
};

/// Size of the buffer in bytes.
pub(super) const BUFFER_BYTES: usize = 1 << 20;

/// Minimum number of images per thread that collects them.
pub(super) const IMAGES_PER_THREAD: usize = 512;

/// Maximum contents of a buffer: descriptors, each full except the last one, and their images.
struct BufferShape {
    images: usize,
    descriptors: usize,
}

impl BufferShape {
    fn of(layout: &JournalLayout) -> Self {
        let buffer_blocks = BUFFER_BYTES / layout.block_size;
        let tags_max = layout.tags_max();
        let (full, rest) = (buffer_blocks / (tags_max + 1), buffer_blocks % (tags_max + 1));
        // A descriptor needs room for at least one image.
        let images = full * tags_max + rest.saturating_sub(1);
        Self { images, descriptors: full + usize::from(rest > 1) }
    }
}

/// Returns the number of log blocks for a checkpoint, as [`TransactionWriter`] writes it: full buffers and the last one,
/// revokes and the commit block.
pub(super) fn blocks_of(layout: &JournalLayout, size: Size) -> u64 {
    let buffer = BufferShape::of(layout);
    let (buffers, last) = (size.images / buffer.images, size.images % buffer.images);
    let descriptors = buffers * buffer.descriptors + last.div_ceil(layout.tags_max());
    let revokes = size.freed.div_ceil(layout.revokes_max());
    (size.images + descriptors + revokes + 1) as u64
}

/// A descriptor block whose images are being collected.
struct OpenDescriptor {
    writer: DescriptorWriter,
    /// Its offset in the buffer.
    at: usize,
}

/// A transaction that is being written to the log.
pub(super) struct TransactionWriter<'w> {
    pub(super) device: &'w dyn BlockDevice,
    pub(super) map: &'w JournalMap,
    pub(super) sb: &'w JournalSuperblock,
    pub(super) tid: Tid,
    buffer: Vec<u8>,
    /// Journal block of the start of the buffer.
    next: u32,
    /// Number of blocks that may still be written before the log reaches its tail.
    room: u32,
    open: Option<OpenDescriptor>,
    /// State of the version 1 checksum.
    crc: u32,
}

impl<'w> TransactionWriter<'w> {
    /// Starts at the journal block `head`, with `room` free blocks from there on. Collects the blocks in `buffer`.
    pub(super) fn new(
        device: &'w dyn BlockDevice,
        map: &'w JournalMap,
        sb: &'w JournalSuperblock,
        mut buffer: Vec<u8>,
        tid: Tid,
        (head, room): (u32, u32),
    ) -> Self {
        buffer.clear();
        Self { device, map, sb, tid, buffer, next: head, room, open: None, crc: u32::MAX }
    }

    /// Splits off `threads` writers for the first of `images` images, and returns the indexes of the images of each. The caller
    /// adds them and calls [`TransactionWriter::finish_part`]; all other images follow in this writer. The writers may
    /// be used at the same time. Must be called before the first image.
    ///
    /// There are none for one thread, if the transaction is small, or if one checksum covers all of it.
    pub(super) fn split_off(
        &mut self,
        images: usize,
        threads: usize,
    ) -> Result<Vec<(Range<usize>, Self)>> {
        let layout = &self.sb.layout;
        let buffer = BufferShape::of(layout);
        let buffers = images / buffer.images;
        let threads = threads.min(buffers);
        if threads <= 1 || layout.checksums == Checksums::Transaction {
            return Ok(Vec::new());
        }
        let mut start = 0;
        let mut split_off = |number: usize| {
            let buffers = (number + 1) * buffers / threads - number * buffers / threads;
            let range = start..start + buffers * buffer.images;
            start = range.end;
            let blocks = (buffers * (buffer.images + buffer.descriptors)) as u32;
            let (next, bytes) = (self.next, Vec::with_capacity(BUFFER_BYTES));
            self.take_room(blocks)?;
            self.next = self.sb.after(self.next, blocks);
            let part = Self { buffer: bytes, next, room: blocks, open: None, ..*self };
            Ok((range, part))
        };
        (0..threads).map(&mut split_off).collect()
    }

    /// Writes the collected images of a writer that was split off.
    pub(super) fn finish_part(mut self) -> Result<()> {
        self.close_descriptor();
        self.write()
    }

    /// Adds the image of a block.
    pub(super) fn image(&mut self, block: u64, image: &[u8]) -> Result<()> {
        if self.open.as_ref().is_none_or(|open| open.writer.is_full(&self.sb.layout)) {
            self.close_descriptor();
            self.make_room(2)?;
            let at = self.zeros()?;
            let writer = DescriptorWriter::start(&mut self.buffer[at..], self.tid);
            self.open = Some(OpenDescriptor { writer, at });
        }
        self.take_room(1)?;
        let at = self.buffer.len();
        self.buffer.extend_from_slice(image);
        let escaped = must_escape(image);
        if escaped {
            self.buffer[at..at + ESCAPED.len()].fill(0);
        }
        let layout = &self.sb.layout;
        let checksum = match layout.checksums {
            Checksums::None | Checksums::Transaction => 0,
            Checksums::V2 | Checksums::V3 => layout.image_checksum(self.tid, &self.buffer[at..]),
        };
        if let Some(open) = &mut self.open {
            let descriptor = &mut self.buffer[open.at..open.at + layout.block_size];
            open.writer.push(descriptor, layout, Tag { block: Block(block), escaped, checksum });
        }
        if self.buffer.len() + layout.block_size > BUFFER_BYTES {
            self.close_descriptor();
            self.write()?;
        }
        Ok(())
    }

    /// Adds revokes of blocks.
    pub(super) fn revokes(&mut self, blocks: &[u64]) -> Result<()> {
        self.close_descriptor();
        for some in blocks.chunks(self.sb.layout.revokes_max()) {
            self.make_room(1)?;
            let at = self.zeros()?;
            encode_revokes(&mut self.buffer[at..], &self.sb.layout, self.tid, some);
        }
        Ok(())
    }

    /// Writes all collected blocks, and zeros at the position of the commit block. The device must be flushed before
    /// [`TransactionWriter::commit`].
    ///
    /// A device may write the commit block partly, in sectors of 512 bytes. Only its first sector is not zero, so with
    /// the zeros in place the block is either complete or absent. Otherwise its checksum would cover old bytes of the
    /// log, and kernels reject a journal with a wrong checksum.
    pub(super) fn finish_blocks(&mut self) -> Result<()> {
        self.close_descriptor();
        if self.room == 0 {
            return self.write();
        }
        self.make_room(1)?;
        let size = self.sb.layout.block_size;
        let commit = self.sb.after(self.next, (self.buffer.len() / size) as u32);
        self.buffer.resize(self.buffer.len() + size, 0);
        self.write()?;
        self.next = commit;
        Ok(())
    }

    /// Writes the commit block. Returns the journal block after it, the room that is left, and the buffer.
    pub(super) fn commit(mut self, commit: Commit) -> Result<((u32, u32), Vec<u8>)> {
        let at = self.zeros()?;
        commit.encode(&mut self.buffer[at..], &self.sb.layout, self.tid, self.crc);
        self.write()?;
        Ok(((self.next, self.room), self.buffer))
    }

    /// Counts blocks of the log as used.
    fn take_room(&mut self, blocks: u32) -> Result<()> {
        let Some(room) = self.room.checked_sub(blocks) else {
            return Err(std::io::Error::other("a checkpoint larger than the journal").into());
        };
        self.room = room;
        Ok(())
    }

    /// Appends a block of zeros to the buffer. Returns its offset.
    fn zeros(&mut self) -> Result<usize> {
        self.take_room(1)?;
        let at = self.buffer.len();
        self.buffer.resize(at + self.sb.layout.block_size, 0);
        Ok(at)
    }

    /// Writes the buffer if `blocks` more do not fit.
    fn make_room(&mut self, blocks: usize) -> Result<()> {
        if self.buffer.len() + blocks * self.sb.layout.block_size > BUFFER_BYTES {
            self.write()?;
        }
        Ok(())
    }

    fn close_descriptor(&mut self) {
        let Some(open) = self.open.take() else { return };
        let layout = &self.sb.layout;
        let descriptor = &mut self.buffer[open.at..open.at + layout.block_size];
        open.writer.finish(descriptor, layout);
        if layout.checksums == Checksums::Transaction {
            self.crc = crc32_be(self.crc, &self.buffer[open.at..]);
        }
    }

    /// Writes the buffer, which must have no open descriptor, and clears it.
    fn write(&mut self) -> Result<()> {
        let size = self.sb.layout.block_size;
        let mut rest = &self.buffer[..];
        while !rest.is_empty() {
            let Some((offset, together)) = self.map.place_of(self.next) else {
                return Err(std::io::Error::other("the log position is outside the journal").into());
            };
            let to_end = self.sb.log.end - self.next;
            let count = (rest.len() / size).min(together.min(to_end) as usize);
            let (now, later) = rest.split_at(count * size);
            self.device.write_at(offset, now)?;
            self.next = self.sb.after(self.next, count as u32);
            rest = later;
        }
        self.buffer.clear();
        Ok(())
    }
}
