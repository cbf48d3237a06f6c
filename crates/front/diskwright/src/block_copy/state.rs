//! State files: the digests of the chunks of a copy.
//!
//! A state file is text. Its last line is the SHA-256 of all lines before it, so any damage is found:
//!
//! ```text
//! diskwright copy state 1
//! format ext4
//! uuid 0123…
//! bytes 1073741824
//! block 4096
//! chunk 1048576
//! 0 9f86d0…
//! 17 60303a…
//! image 5feceb…
//! end 6b86b2…
//! ```

use std::io::{self, Write};

use sha2::{Digest as _, Sha256};

use super::chunk::{CHUNK_BYTES, Digest};
use super::lines::Lines;
use crate::Format;
use crate::copy_error::StateError;
use crate::text::{hex, uuid_text};

/// First line of a state file.
const TITLE: &str = "diskwright copy state 1";

/// The copied file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CopiedSystem {
    pub(super) format: Format,
    pub(super) uuid: [u8; 16],
    /// Length in bytes.
    pub(super) bytes: u64,
    /// Block size in bytes.
    pub(super) block_bytes: u32,
}

impl CopiedSystem {
    /// Returns the number of chunks, used or not.
    pub(super) fn chunks(&self) -> u64 {
        self.bytes.div_ceil(CHUNK_BYTES)
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "format {}", self.format.name())?;
        writeln!(out, "uuid {}", hex(&self.uuid))?;
        writeln!(out, "bytes {}\nblock {}\nchunk {CHUNK_BYTES}", self.bytes, self.block_bytes)
    }

    pub(super) fn parse(lines: &mut Lines<'_>) -> Result<Self, StateError> {
        let format = lines.field("format", "ext4 or xfs", |text| text.parse().ok())?;
        let uuid = lines.field("uuid", "32 hexadecimal digits", |text| {
            uuid::Uuid::try_parse(text).ok().map(uuid::Uuid::into_bytes)
        })?;
        let bytes = lines.field("bytes", "a length above 0", |text| {
            text.parse().ok().filter(|&bytes: &u64| (1..=i64::MAX as u64).contains(&bytes))
        })?;
        let block_bytes = lines.field("block", "a block size", |text| {
            text.parse().ok().filter(|size: &u32| size.is_power_of_two() && *size >= 512)
        })?;
        lines.field("chunk", "1048576", |text| {
            text.parse().ok().filter(|&size: &u64| size == CHUNK_BYTES)
        })?;
        Ok(Self { format, uuid, bytes, block_bytes })
    }

    /// Returns the first property in which another file system differs: its name, and the values of both.
    pub(super) fn difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let uuid = |system: &Self| uuid_text(&system.uuid);
        let bytes = |system: &Self| system.bytes.to_string();
        match () {
            () if self.format != other.format => {
                Some(("format", self.format.name().into(), other.format.name().into()))
            }
            () if self.uuid != other.uuid => Some(("UUID", uuid(self), uuid(other))),
            () if self.bytes != other.bytes => Some(("length", bytes(self), bytes(other))),
            () if self.block_bytes != other.block_bytes => {
                let size = |system: &Self| system.block_bytes.to_string();
                Some(("block size", size(self), size(other)))
            }
            () => None,
        }
    }
}

/// Digest of a chunk. Bytes of blocks that are not in use count as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ChunkDigest {
    pub(super) number: u64,
    pub(super) sha256: Digest,
}

impl ChunkDigest {
    /// Reads the line of a chunk.
    pub(super) fn parse(lines: &mut Lines<'_>, system: &CopiedSystem) -> Result<Self, StateError> {
        let (number, sha256) = lines.chunk(system.chunks())?;
        Ok(Self { number, sha256 })
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{} {}", self.number, hex(&self.sha256))
    }
}

/// Digests of the chunks of a complete copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyState {
    pub(super) system: CopiedSystem,
    /// All chunks with blocks in use, in order.
    pub(super) chunks: Vec<ChunkDigest>,
}

impl CopyState {
    /// Returns the SHA-256 of the lines of the chunks. It identifies the contents of all blocks in use.
    pub fn digest(&self) -> [u8; 32] {
        digest_of(self.chunks.iter().copied())
    }

    /// Returns the digest of a chunk; `None` if no block of it is in use.
    pub(super) fn find(&self, number: u64) -> Option<Digest> {
        let at = self.chunks.binary_search_by_key(&number, |chunk| chunk.number).ok()?;
        Some(self.chunks[at].sha256)
    }

    pub(super) fn to_text(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(80 * (self.chunks.len() + 8));
        self.write(&mut text).expect("memory");
        let end = hex(&Sha256::digest(&text));
        writeln!(text, "end {end}").expect("memory");
        text
    }

    fn write(&self, text: &mut Vec<u8>) -> io::Result<()> {
        writeln!(text, "{TITLE}")?;
        self.system.write(text)?;
        self.chunks.iter().try_for_each(|chunk| chunk.write(text))?;
        writeln!(text, "image {}", hex(&self.digest()))
    }

    /// Parses a state file.
    ///
    /// # Errors
    /// If a line is invalid, or a digest does not match.
    pub fn parse(text: &[u8]) -> Result<Self, StateError> {
        let mut lines = Lines::new(text);
        lines.literal(TITLE)?;
        let system = CopiedSystem::parse(&mut lines)?;
        let mut chunks: Vec<ChunkDigest> = Vec::new();
        while !lines.is_next("image ") {
            let before = chunks.last().map(|chunk| chunk.number);
            let chunk = ChunkDigest::parse(&mut lines, &system)?;
            if before.is_some_and(|before| before >= chunk.number) {
                return Err(lines.wrong("a higher chunk number than in the line before"));
            }
            chunks.push(chunk);
        }
        let state = Self { system, chunks };
        lines.digest("image", state.digest())?;
        lines.end()?;
        Ok(state)
    }
}

/// Returns the digest of chunks, which are in order.
pub(super) fn digest_of(chunks: impl IntoIterator<Item = ChunkDigest>) -> Digest {
    let mut hash = Sha256::new();
    let mut line = Vec::with_capacity(96);
    for chunk in chunks {
        line.clear();
        chunk.write(&mut line).expect("memory");
        hash.update(&line);
    }
    hash.finalize().into()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::block_copy) fn sample() -> CopyState {
        let system = CopiedSystem {
            format: Format::Xfs,
            uuid: *b"0123456789abcdef",
            bytes: 5 * CHUNK_BYTES - 4096,
            block_bytes: 4096,
        };
        let chunk = |number| ChunkDigest { number, sha256: Sha256::digest([number as u8]).into() };
        CopyState { system, chunks: [0, 1, 4].map(chunk).to_vec() }
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let state = sample();
        assert_eq!(CopyState::parse(&state.to_text()).unwrap(), state);
        assert_eq!((state.find(1), state.find(2)), (Some(state.chunks[1].sha256), None));
        let lines = String::from_utf8(state.to_text()).unwrap();
        let lines: Vec<&str> =
            lines.lines().filter(|line| line.as_bytes()[0].is_ascii_digit()).collect();
        let text = lines.join("\n") + "\n";
        assert_eq!(state.digest(), <[u8; 32]>::from(Sha256::digest(text)));
    }

    #[test]
    fn each_changed_byte_is_found_and_each_missing_end() {
        let text = sample().to_text();
        for at in 0..text.len() {
            for flip in [1, 0x20] {
                let mut changed = text.clone();
                changed[at] ^= flip;
                // Hexadecimal digits may be in upper case.
                let is_same = changed[at].eq_ignore_ascii_case(&text[at]);
                assert!(is_same || CopyState::parse(&changed).is_err(), "byte {at}");
            }
            assert!(CopyState::parse(&text[..at]).is_err(), "{at} bytes");
        }
        assert!(CopyState::parse(&[&text[..], b"\n"].concat()).is_err());
    }

    #[test]
    fn errors_name_the_line() {
        let text = String::from_utf8(sample().to_text()).unwrap();
        for (from, to, line, expected) in [
            ("state 1", "state 9", 1, "diskwright copy state 1"),
            ("format xfs", "format zfs", 2, "format and ext4 or xfs"),
            ("\n1 ", "\n0 ", 8, "a higher chunk number"),
            ("\n4 ", "\n5 ", 9, "a chunk number below 5"),
            ("chunk 1048576", "chunk 4096", 6, "1048576"),
        ] {
            let error = CopyState::parse(text.replace(from, to).as_bytes()).unwrap_err();
            assert!(error.line == line && error.to_string().contains(expected), "{error}");
        }
    }
}
