//! Writing one transaction: its blocks gathered in a buffer, and written where the journal's map
//! says.

use blockdev::BlockDevice;
use transaction::{Result, Size};

use super::map::JournalMap;
use crate::format::address::Block;
use crate::format::jbd2::{
    Checksums, Commit, DescriptorWriter, ESCAPED, JournalSuperblock, Layout, Tag, Tid, crc32_be,
    encode_revokes, must_escape,
};

/// Bytes gathered before they are written.
pub(super) const BUFFER_BYTES: usize = 1 << 20;

/// Blocks of the log that a checkpoint takes: as [`Writer`] writes them, a descriptor for so many images as it
/// has room for, but for the last one before the buffer is full, and the commit block.
pub(super) fn blocks_of(layout: &Layout, size: Size) -> u64 {
    let buffer_blocks = BUFFER_BYTES / layout.block_size;
    let tags_max = layout.tags_max();
    let (full, rest) = (buffer_blocks / (tags_max + 1), buffer_blocks % (tags_max + 1));
    // A descriptor needs room for one image at least.
    let images_per_buffer = full * tags_max + rest.saturating_sub(1);
    let descriptors_per_buffer = full + usize::from(rest > 1);
    let (buffers, last) = (size.images / images_per_buffer, size.images % images_per_buffer);
    let descriptors = buffers * descriptors_per_buffer + last.div_ceil(tags_max);
    let revokes = size.freed.div_ceil(layout.revokes_max());
    (size.images + descriptors + revokes + 1) as u64
}

/// A descriptor block whose images are being gathered.
struct Open {
    writer: DescriptorWriter,
    /// Where in the buffer it stands.
    at: usize,
}

/// A transaction being written to the log.
pub(super) struct Writer<'w> {
    pub(super) device: &'w dyn BlockDevice,
    pub(super) map: &'w JournalMap,
    pub(super) sb: &'w JournalSuperblock,
    pub(super) tid: Tid,
    buffer: &'w mut Vec<u8>,
    /// The journal block that the buffer starts with.
    next: u32,
    /// Blocks that may still be written before the log meets its tail.
    room: u32,
    open: Option<Open>,
    /// Register of version 1's checksum.
    crc: u32,
}

impl<'w> Writer<'w> {
    /// Starts at the journal block `head`, with `room` blocks free from there on.
    pub(super) fn new(
        device: &'w dyn BlockDevice,
        map: &'w JournalMap,
        sb: &'w JournalSuperblock,
        buffer: &'w mut Vec<u8>,
        tid: Tid,
        (head, room): (u32, u32),
    ) -> Self {
        buffer.clear();
        Self { device, map, sb, tid, buffer, next: head, room, open: None, crc: u32::MAX }
    }

    /// Adds the image of a block.
    pub(super) fn image(&mut self, block: u64, image: &[u8]) -> Result<()> {
        if self.open.as_ref().is_none_or(|open| open.writer.is_full(&self.sb.layout)) {
            self.close_descriptor();
            self.make_room(2)?;
            let at = self.zeros()?;
            let writer = DescriptorWriter::start(&mut self.buffer[at..], self.tid);
            self.open = Some(Open { writer, at });
        }
        self.take_room()?;
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

    /// Adds what is revoked.
    pub(super) fn revokes(&mut self, blocks: &[u64]) -> Result<()> {
        self.close_descriptor();
        for some in blocks.chunks(self.sb.layout.revokes_max()) {
            self.make_room(1)?;
            let at = self.zeros()?;
            encode_revokes(&mut self.buffer[at..], &self.sb.layout, self.tid, some);
        }
        Ok(())
    }

    /// Writes everything so far, and zeros where the commit block goes. The device must be flushed before
    /// [`Writer::commit`].
    ///
    /// A device may write a part of the commit block, in sectors of 512 bytes. Only the first has other bytes than
    /// zeros, so that with the zeros the commit block is there or it is not. Otherwise its checksum would cover old
    /// bytes of the log, and kernels refuse a journal with a wrong one.
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

    /// Writes the commit block. Returns the journal block behind it and the room that is left.
    pub(super) fn commit(mut self, commit: Commit) -> Result<(u32, u32)> {
        let at = self.zeros()?;
        commit.encode(&mut self.buffer[at..], &self.sb.layout, self.tid, self.crc);
        self.write()?;
        Ok((self.next, self.room))
    }

    /// Takes a block of the log.
    fn take_room(&mut self) -> Result<()> {
        let Some(room) = self.room.checked_sub(1) else {
            return Err(std::io::Error::other("a checkpoint larger than the journal's room").into());
        };
        self.room = room;
        Ok(())
    }

    /// A new block of zeros at the end of the buffer.
    fn zeros(&mut self) -> Result<usize> {
        self.take_room()?;
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

    /// Writes the buffer, which must have no open descriptor, and empties it.
    fn write(&mut self) -> Result<()> {
        let size = self.sb.layout.block_size;
        let mut rest = &self.buffer[..];
        while !rest.is_empty() {
            let Some((offset, together)) = self.map.place_of(self.next) else {
                return Err(std::io::Error::other("a log outside its journal").into());
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
