//! Fast commits: changes since the last full commit, as tags with a length and a value. Everything is little-endian.
//!
//! The area starts with a HEAD tag, which contains the number of the transaction that the fast commits belong to: the
//! next one. Each fast commit ends with a TAIL tag at the end of a block. It contains the transaction again and the
//! CRC-32C of all tags since the last TAIL. Tags do not cross blocks. Tags after the last valid TAIL belong to an
//! incomplete fast commit.

use vfs::{Corruption, Ino};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Tid;
use crate::format::address::{Block, FileBlock};
use crate::format::checksum::crc32c;
use crate::format::extent::{Extent, WRITTEN_LEN_MAX};
use crate::format::inode::GOOD_OLD_INODE_SIZE;

const TAG_ADD_RANGE: u16 = 1;
const TAG_DEL_RANGE: u16 = 2;
const TAG_CREAT: u16 = 3;
const TAG_LINK: u16 = 4;
const TAG_UNLINK: u16 = 5;
const TAG_INODE: u16 = 6;
const TAG_PAD: u16 = 7;
const TAG_TAIL: u16 = 8;
const TAG_HEAD: u16 = 9;

/// Maximum length of a name in a tag, in bytes.
const NAME_LEN_MAX: usize = 255;

/// Header of a tag.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawTagHeader {
    tag: U16,
    len: U16,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    features: U32,
    tid: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawTail {
    tid: U32,
    crc: U32,
}

/// An extent in the form of an extent tree entry.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAddRange {
    ino: U32,
    block: U32,
    len: U16,
    start_hi: U16,
    start_lo: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDelRange {
    ino: U32,
    block: U32,
    len: U32,
}

/// A directory entry. The name follows.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawEntry {
    parent: U32,
    ino: U32,
}

const TAG_HEADER_SIZE: usize = size_of::<RawTagHeader>();
const _: () = assert!(TAG_HEADER_SIZE == 4);
const _: () = assert!(size_of::<RawHead>() == 8);
const _: () = assert!(size_of::<RawTail>() == 8);
const _: () = assert!(size_of::<RawAddRange>() == 16);
const _: () = assert!(size_of::<RawDelRange>() == 12);
const _: () = assert!(size_of::<RawEntry>() == 8);

/// A change, described by its resulting state, so that it can be applied repeatedly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FastCommitTag {
    /// The file has this extent.
    AddRange {
        /// The file's inode.
        ino: Ino,
        /// The extent.
        extent: Extent,
    },
    /// The file has no blocks in this range.
    DelRange {
        /// The file's inode.
        ino: Ino,
        /// First block of the range.
        block: FileBlock,
        /// Number of blocks of the range.
        len: u32,
    },
    /// The inode is new and has this entry.
    Create(FastCommitEntry),
    /// The inode has this entry.
    Link(FastCommitEntry),
    /// The inode no longer has this entry.
    Unlink(FastCommitEntry),
    /// The inode's slot starts with these bytes, except for its block map.
    Inode {
        /// The inode number.
        ino: Ino,
        /// Contents: at least 128 bytes, at most the inode size.
        raw: Box<[u8]>,
    },
}

/// A directory entry in a fast commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCommitEntry {
    /// Inode of the directory.
    pub parent: Ino,
    /// Inode that the entry leads to.
    pub ino: Ino,
    /// Name of 1 to 255 bytes.
    pub name: Box<[u8]>,
}

/// Result of scanning a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanned {
    /// More fast commits may follow in the next block.
    More,
    /// The scan is complete.
    End,
}

/// Parser of the fast-commit area, block by block.
#[derive(Debug)]
pub struct FastCommitScan {
    expected: Tid,
    inode_size: usize,
    has_head: bool,
    crc: u32,
    /// True after a valid tail. The fast commit that it ends may be empty.
    has_complete: bool,
    complete: Vec<FastCommitTag>,
    /// Tags since the last tail.
    open: Vec<FastCommitTag>,
    /// True if a head of this transaction has unknown features.
    has_unknown_features: bool,
}

impl FastCommitScan {
    /// Starts a scan for fast commits after the log's last transaction. `expected` is the number of the next
    /// transaction.
    #[must_use]
    pub(crate) fn new(expected: Tid, inode_size: u16) -> Self {
        Self {
            expected,
            inode_size: inode_size.into(),
            has_head: false,
            crc: 0,
            has_complete: false,
            complete: Vec::new(),
            open: Vec::new(),
            has_unknown_features: false,
        }
    }

    /// Reads the next block of the area.
    ///
    /// # Errors
    /// If the first fast commit of this transaction is damaged: a tail with a wrong checksum, an invalid
    /// tag. After a valid tail, such blocks are stale or an interrupted fast commit, and the scan ends
    /// there. Kernels use the same rule. Unknown features in a head of this transaction are always an error.
    pub(crate) fn block(&mut self, block: &[u8]) -> Result<Scanned, Corruption> {
        let outcome = self.tags(block);
        match outcome {
            Err(_) if self.has_complete && !self.has_unknown_features => Ok(Scanned::End),
            outcome => outcome,
        }
    }

    /// Returns the changes of all complete fast commits, in order.
    #[must_use]
    pub(crate) fn finish(self) -> Vec<FastCommitTag> {
        self.complete
    }

    fn tags(&mut self, block: &[u8]) -> Result<Scanned, Corruption> {
        let mut rest = block;
        while let Ok((header, after)) = RawTagHeader::read_from_prefix(rest) {
            let (tag, len) = (header.tag.get(), usize::from(header.len.get()));
            if !self.has_head && tag != TAG_HEAD {
                return Ok(Scanned::End);
            }
            let Some(value) = after.get(..len) else {
                return Err(damage("a tag extends past its block").mismatch(after.len(), len));
            };
            if tag == TAG_TAIL {
                // Its length covers the rest of the block.
                return self.tail(&rest[..TAG_HEADER_SIZE], value);
            }
            if tag == TAG_HEAD {
                let head = RawHead::read_from_bytes(value).map_err(|_| bad_length("head", len))?;
                if head.tid != self.expected.0 {
                    return Ok(Scanned::End);
                }
                if head.features != 0 {
                    self.has_unknown_features = true;
                    return Err(damage("unknown features").mismatch(0, head.features));
                }
                self.has_head = true;
            } else if tag != TAG_PAD {
                let change = self.change(tag, value)?;
                self.open.push(change);
            }
            self.crc = crc32c(self.crc, &rest[..TAG_HEADER_SIZE + len]);
            rest = &after[len..];
        }
        Ok(Scanned::More)
    }

    fn tail(&mut self, header: &[u8], value: &[u8]) -> Result<Scanned, Corruption> {
        let Ok((tail, _)) = RawTail::read_from_prefix(value) else {
            return Err(bad_length("tail", value.len()));
        };
        let crc = crc32c(crc32c(self.crc, header), tail.tid.as_bytes());
        if tail.tid != self.expected.0 {
            let found = Tid(tail.tid.get());
            return Err(
                damage("its tail belongs to another transaction").mismatch(self.expected, found)
            );
        }
        if tail.crc != crc {
            return Err(Corruption::checksum(STRUCTURE, crc, tail.crc.get()));
        }
        self.crc = 0;
        self.has_complete = true;
        self.complete.append(&mut self.open);
        Ok(Scanned::More)
    }

    fn change(&self, tag: u16, value: &[u8]) -> Result<FastCommitTag, Corruption> {
        match tag {
            TAG_ADD_RANGE => add_range(value),
            TAG_DEL_RANGE => {
                let raw = RawDelRange::read_from_bytes(value)
                    .map_err(|_| bad_length("range to delete", value.len()))?;
                Ok(FastCommitTag::DelRange {
                    ino: Ino(raw.ino.get().into()),
                    block: FileBlock(raw.block.get()),
                    len: raw.len.get(),
                })
            }
            TAG_CREAT => entry(value).map(FastCommitTag::Create),
            TAG_LINK => entry(value).map(FastCommitTag::Link),
            TAG_UNLINK => entry(value).map(FastCommitTag::Unlink),
            TAG_INODE => self.inode(value),
            _ => Err(damage("unknown tag").mismatch("1 to 9", tag)),
        }
    }

    fn inode(&self, value: &[u8]) -> Result<FastCommitTag, Corruption> {
        let bad = || bad_length("inode", value.len());
        let (ino, raw) = U32::read_from_prefix(value).map_err(|_| bad())?;
        if !(GOOD_OLD_INODE_SIZE..=self.inode_size).contains(&raw.len()) {
            return Err(bad());
        }
        Ok(FastCommitTag::Inode { ino: Ino(ino.get().into()), raw: raw.into() })
    }
}

fn add_range(value: &[u8]) -> Result<FastCommitTag, Corruption> {
    let bad = || bad_length("range to add", value.len());
    let raw = RawAddRange::read_from_bytes(value).map_err(|_| bad())?;
    let len = u32::from(raw.len.get());
    let unwritten = len > WRITTEN_LEN_MAX;
    let extent = Extent {
        block: FileBlock(raw.block.get()),
        len: if unwritten { len - WRITTEN_LEN_MAX } else { len },
        start: Block(u64::from(raw.start_hi.get()) << 32 | u64::from(raw.start_lo.get())),
        unwritten,
    };
    if extent.len == 0 || extent.end() > 1 << 32 {
        return Err(damage("an extent has an invalid length").mismatch("1 to 32768", len));
    }
    Ok(FastCommitTag::AddRange { ino: Ino(raw.ino.get().into()), extent })
}

fn entry(value: &[u8]) -> Result<FastCommitEntry, Corruption> {
    let bad = || bad_length("directory entry", value.len());
    let (raw, name) = RawEntry::read_from_prefix(value).map_err(|_| bad())?;
    if name.is_empty() || name.len() > NAME_LEN_MAX {
        return Err(bad());
    }
    Ok(FastCommitEntry {
        parent: Ino(raw.parent.get().into()),
        ino: Ino(raw.ino.get().into()),
        name: name.into(),
    })
}

const STRUCTURE: &str = "fast commit";

fn damage(problem: &'static str) -> Corruption {
    Corruption::new(STRUCTURE, problem)
}

fn bad_length(what: &str, found: usize) -> Corruption {
    Corruption::new(STRUCTURE, format!("invalid length of a tag: {what}, {found} bytes"))
}
