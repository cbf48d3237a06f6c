//! Reading buffer items: chunks of a buffer, or its cancel.

use engine::Corruption;

use super::BLOCK_SIZE;
use super::buffer::{BufferType, CANCEL, CHUNK, FORMAT_SIZE, TYPE_SHIFT};
use super::raw_item::{Parsed, RawItem, le16, le32, le64};

const STRUCTURE: &str = "log buffer item";

/// `blf_flags`: inodes, of which only `di_next_unlinked` is valid.
const INODE_BUF: u16 = 1;

/// A buffer item. Sizes and locations are in units of 512 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferItem<'t> {
    /// Flags, and the type of its contents.
    pub flags: u16,
    /// Its first block on the device.
    pub daddr: u64,
    /// Its number of blocks.
    pub blocks: u32,
    map: &'t [u8],
    raw: RawItem<'t>,
}

impl<'t> BufferItem<'t> {
    pub(super) fn parse(raw: &RawItem<'t>) -> Parsed<Self> {
        let format = raw.format(STRUCTURE, FORMAT_SIZE)?;
        let field = |at| le16(format, at).unwrap_or(0);
        let words = le32(format, 16).unwrap_or(0);
        let map = format[FORMAT_SIZE..].get(..(words as usize).saturating_mul(4));
        let Some(map) = map else {
            let damage = Corruption::new(STRUCTURE, "its map is truncated");
            return Err(damage.mismatch(format_args!("{words} words"), format.len() - FORMAT_SIZE));
        };
        let (flags, blocks) = (field(4), field(6).into());
        let daddr = le64(format, 8).unwrap_or(0);
        Ok(Self { flags, daddr, blocks, map, raw: *raw })
    }

    /// Returns whether it cancels the buffer.
    pub(crate) const fn is_cancel(&self) -> bool {
        self.flags & CANCEL != 0
    }

    /// Returns whether only the links of unlinked lists are valid.
    pub(crate) const fn is_inode_buffer(&self) -> bool {
        self.flags & INODE_BUF != 0
    }

    /// Returns the type of its contents.
    pub(crate) fn contents(&self) -> BufferType {
        BufferType::from_raw(self.flags >> TYPE_SHIFT)
    }

    /// Returns its size in bytes.
    pub(crate) const fn len(&self) -> usize {
        self.blocks as usize * BLOCK_SIZE
    }

    fn bit(&self, at: usize) -> bool {
        self.map.get(at / 8).is_some_and(|byte| byte & 1 << (at % 8) != 0)
    }

    /// Returns the logged bytes with their offsets in the buffer. Each region is a run of chunks; two may be
    /// contiguous.
    ///
    /// # Errors
    /// If bitmap and regions do not match each other, or the buffer.
    pub(crate) fn chunks(&self) -> Parsed<Vec<(usize, &'t [u8])>> {
        let fault = |problem| Corruption::new(STRUCTURE, problem);
        let bits = self.map.len() * 8;
        let next = |from: usize| (from..bits).find(|at| self.bit(*at));
        let mut chunks = Vec::with_capacity(self.raw.len() - 1);
        let mut at = 0;
        for bytes in self.raw.regions().skip(1) {
            let start = next(at).ok_or_else(|| fault("more regions than in its map"))?;
            let run = (start..bits).take_while(|at| self.bit(*at)).count();
            let count = bytes.len() / CHUNK;
            if count == 0 || count > run || bytes.len() % CHUNK != 0 {
                let expected = format_args!("up to {run} chunks of {CHUNK} bytes").to_string();
                return Err(fault("length of a region").mismatch(expected, bytes.len()));
            }
            at = start + count;
            if at * CHUNK > self.len() {
                return Err(fault("a chunk past its end").mismatch(self.len(), at * CHUNK));
            }
            chunks.push((start * CHUNK, bytes));
        }
        if next(at).is_some() {
            return Err(fault("fewer regions than in its map"));
        }
        Ok(chunks)
    }
}
