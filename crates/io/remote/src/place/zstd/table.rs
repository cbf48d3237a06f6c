//! The seek table: a skippable frame with two or three words per frame, and a footer of nine bytes.

use std::ops::Range;

use disk::BlockDevice;

use super::ZstdError;

const SKIPPABLE_MAGIC: u32 = 0x184d_2a5e;
const SEEKABLE_MAGIC: u32 = 0x8f92_eab1;
const HEADER_BYTES: u64 = 8;
const FOOTER_BYTES: u64 = 9;

/// Flag in the footer's descriptor: each entry has a checksum.
const CHECKSUMS: u8 = 0x80;
/// Reserved bits of the descriptor, which must be zero.
const RESERVED: u8 = 0x7c;

/// Maximum number of frames in a table.
const FRAMES_MAX: u64 = 0x800_0000;

/// Maximum decompressed size of a frame. A frame is held in memory as a whole.
const FRAME_BYTES_MAX: u32 = 64 << 20;

/// Number of entries that are read together.
const ENTRIES_AT_ONCE: u64 = 8192;

/// Locations of all frames.
pub(super) struct FrameTable {
    /// Start of each frame, in the file and in the contents, and the end of the last.
    starts: Vec<(u64, u64)>,
    longest: u64,
}

/// Byte ranges of one frame.
pub(super) struct FrameLocation {
    pub(super) stored: Range<u64>,
    pub(super) contents: Range<u64>,
}

impl FrameTable {
    pub(super) fn read(device: &dyn BlockDevice, name: &str) -> Result<Self, ZstdError> {
        let damaged = |problem: String| ZstdError::Damaged { name: name.to_owned(), problem };
        let read = |at: u64, bytes: &mut [u8]| {
            let failed = |source| ZstdError::Read { name: name.to_owned(), source };
            device.read_at(at, bytes).map_err(failed)
        };
        let no_table = || ZstdError::NoTable { name: name.to_owned() };
        let end = device.len().checked_sub(FOOTER_BYTES).ok_or_else(no_table)?;
        let mut footer = [0; FOOTER_BYTES as usize];
        read(end, &mut footer)?;
        if word(&footer, 5) != SEEKABLE_MAGIC {
            return Err(no_table());
        }
        let (frames, descriptor) = (u64::from(word(&footer, 0)), footer[4]);
        if descriptor & RESERVED != 0 || frames > FRAMES_MAX {
            let what = format!("{frames} frames with the descriptor {descriptor:#x}");
            return Err(damaged(what));
        }
        let entry_bytes = if descriptor & CHECKSUMS == 0 { 8 } else { 12 };
        let entries = end.checked_sub(frames * entry_bytes).filter(|&at| at >= HEADER_BYTES);
        let entries =
            entries.ok_or_else(|| damaged(format!("{frames} frames do not fit into the file")))?;
        let mut header = [0; HEADER_BYTES as usize];
        read(entries - HEADER_BYTES, &mut header)?;
        let size = frames * entry_bytes + FOOTER_BYTES;
        if word(&header, 0) != SKIPPABLE_MAGIC || u64::from(word(&header, 4)) != size {
            return Err(damaged(format!("it is not inside a skippable frame of {size} bytes")));
        }
        let mut table = Self { starts: vec![(0, 0)], longest: 0 };
        for first in (0..frames).step_by(ENTRIES_AT_ONCE as usize) {
            let count = ENTRIES_AT_ONCE.min(frames - first);
            let mut bytes = vec![0; (count * entry_bytes) as usize];
            read(entries + first * entry_bytes, &mut bytes)?;
            for entry in bytes.chunks_exact(entry_bytes as usize) {
                table.add(word(entry, 0), word(entry, 4)).map_err(damaged)?;
            }
        }
        let stored = table.starts.last().map_or(0, |&(stored, _)| stored);
        if stored != entries - HEADER_BYTES {
            let found = entries - HEADER_BYTES;
            return Err(damaged(format!(
                "its frames have {stored} bytes in total, but the file has {found}"
            )));
        }
        Ok(table)
    }

    fn add(&mut self, stored: u32, contents: u32) -> Result<(), String> {
        if contents > FRAME_BYTES_MAX {
            return Err(format!(
                "a frame has {contents} bytes, more than the limit of {FRAME_BYTES_MAX}; compress \
                 the image again with smaller frames"
            ));
        }
        let (at, place) = self.starts.last().copied().unwrap_or_default();
        self.starts.push((at + u64::from(stored), place + u64::from(contents)));
        self.longest = self.longest.max(contents.into());
        Ok(())
    }

    /// Returns the length of the contents.
    pub(super) fn len(&self) -> u64 {
        self.starts.last().map_or(0, |&(_, contents)| contents)
    }

    /// Returns the maximum decompressed size of a frame.
    pub(super) fn longest(&self) -> u64 {
        self.longest
    }

    /// Returns the frames that overlap `range`.
    pub(super) fn frames(&self, range: &Range<u64>) -> impl Iterator<Item = FrameLocation> {
        let first = self.starts.partition_point(|&(_, start)| start <= range.start);
        let frames = self.starts[first.saturating_sub(1)..].windows(2);
        let end = range.end;
        frames.take_while(move |frame| frame[0].1 < end).map(|frame| FrameLocation {
            stored: frame[0].0..frame[1].0,
            contents: frame[0].1..frame[1].1,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
