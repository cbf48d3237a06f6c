//! Replies, assembled from their chunks.

use std::collections::BTreeMap;
use std::io::{self, Read};

use crate::nbd::protocol::{Chunk, chunk, command, errno, part, violation};
use crate::nbd::stream::{read_array, read_vec};

/// Maximum length of the payload of an error. A message may have 4096 bytes.
const ERROR_BYTES_MAX: u32 = 8 << 10;
/// Maximum length of the payload of a block status.
const STATUS_BYTES_MAX: u32 = 1 << 20;
/// Maximum number of chunks besides one for each 512 bytes of contents.
const CHUNKS_MAX: u32 = 64;

/// A successful reply.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Contents of a read.
    pub(super) contents: Vec<u8>,
    /// Lengths and flags of consecutive extents.
    pub(super) extents: Vec<(u32, u32)>,
}

/// An error of the server.
#[derive(Debug)]
pub(super) struct Refusal {
    number: u32,
    message: String,
}

/// The parts of a reply that have arrived.
#[derive(Debug)]
pub(super) struct PartialReply {
    command: u16,
    offset: u64,
    len: u32,
    allocation_id: Option<u32>,
    answer: Answer,
    /// Parts of the contents that have arrived: their ends by their starts, relative to the offset. Neighbours are
    /// merged.
    covered: BTreeMap<u64, u64>,
    chunks: u32,
    refusal: Option<Refusal>,
}

impl PartialReply {
    /// Starts the reply to a request.
    pub(super) fn new(command: u16, offset: u64, len: u32, allocation_id: Option<u32>) -> Self {
        let (answer, covered) = (Answer::default(), BTreeMap::new());
        Self { command, offset, len, allocation_id, answer, covered, chunks: 0, refusal: None }
    }

    /// Reads the rest of a simple reply.
    pub(super) fn add_simple(
        &mut self,
        error: u32,
        has_chunks: bool,
        reader: &mut impl Read,
    ) -> io::Result<()> {
        if self.chunks > 0 || has_chunks && self.command == command::READ {
            return Err(violation("a simple reply instead of chunks"));
        }
        if error != errno::NONE {
            self.refusal = Some(Refusal { number: error, message: String::new() });
        } else if self.command == command::READ {
            self.answer.contents = read_vec(reader, self.len)?;
            self.covered.insert(0, self.len.into());
        }
        Ok(())
    }

    /// Reads the payload of a chunk.
    pub(super) fn add(&mut self, chunk: &Chunk, reader: &mut impl Read) -> io::Result<()> {
        self.chunks += 1;
        if self.chunks > self.len / 512 + CHUNKS_MAX {
            return Err(violation(format!("a reply with more than {} chunks", self.chunks - 1)));
        }
        let reads = self.command == command::READ;
        match (chunk.kind, chunk.len) {
            (chunk::NONE, 0) if chunk.is_last => Ok(()),
            (chunk::DATA, 9..) if reads => {
                let at = self.cover(reader, u64::from(chunk.len) - 8)?;
                let end = at + chunk.len as usize - 8;
                reader.read_exact(&mut self.answer.contents[at..end])
            }
            (chunk::HOLE, 12) if reads => {
                let mut payload = [0; 12];
                reader.read_exact(&mut payload)?;
                let len = u32::from_be_bytes(part(&payload, 8));
                self.cover(&mut &payload[..8], len.into()).map(drop)
            }
            (chunk::BLOCK_STATUS, 12..=STATUS_BYTES_MAX) if self.wants_status(chunk.len) => {
                self.add_status(&read_vec(reader, chunk.len)?)
            }
            (kind, 6..=ERROR_BYTES_MAX) if kind & chunk::IS_ERROR != 0 => {
                self.add_error(&read_vec(reader, chunk.len)?)
            }
            (kind, len) => Err(violation(format!("a chunk of type {kind:#x} with {len} bytes"))),
        }
    }

    /// Reads the offset of `len` bytes of contents, and marks them as covered. Returns their start in the contents, which
    /// are zeros so far.
    fn cover(&mut self, reader: &mut impl Read, len: u64) -> io::Result<usize> {
        let mut offset = [0; 8];
        reader.read_exact(&mut offset)?;
        let offset = u64::from_be_bytes(offset);
        let outside = || violation(format!("a chunk of bytes {offset}+{len}, not requested"));
        let start = offset.checked_sub(self.offset).ok_or_else(outside)?;
        let end = start.checked_add(len).filter(|end| *end <= self.len.into() && len > 0);
        let end = end.ok_or_else(outside)?;
        let before = self.covered.range(..end).next_back().map(|(start, end)| (*start, *end));
        if before.is_some_and(|(_, before)| before > start) {
            return Err(violation(format!("two chunks of bytes {offset}+{len}")));
        }
        let start_of_all = before.filter(|(_, end)| *end == start).map_or(start, |found| found.0);
        let end_of_all = self.covered.remove(&end).unwrap_or(end);
        self.covered.insert(start_of_all, end_of_all);
        if self.answer.contents.is_empty() {
            self.answer.contents = vec![0; self.len as usize];
        }
        Ok(start as usize)
    }

    /// Checks whether a block status of this length is expected.
    fn wants_status(&self, len: u32) -> bool {
        self.command == command::BLOCK_STATUS
            && self.answer.extents.is_empty()
            && (len - 4).is_multiple_of(8)
    }

    fn add_status(&mut self, payload: &[u8]) -> io::Result<()> {
        let word = |at| u32::from_be_bytes(part(payload, at));
        if Some(word(0)) != self.allocation_id {
            return Err(violation(format!("a block status of the context {}", word(0))));
        }
        let mut left = u64::from(self.len);
        for at in (4..payload.len()).step_by(8) {
            let (len, flags) = (word(at), word(at + 4));
            // The last extent may be longer than the request.
            if len == 0 || left == 0 {
                return Err(violation("a block status with extents that were not requested"));
            }
            left = left.saturating_sub(len.into());
            self.answer.extents.push((len, flags));
        }
        Ok(())
    }

    /// Keeps the first error.
    fn add_error(&mut self, payload: &[u8]) -> io::Result<()> {
        let number = u32::from_be_bytes(part(payload, 0));
        let len = u16::from_be_bytes(part(payload, 4));
        let message = payload[6..].get(..len.into());
        let message = message.filter(|_| number != errno::NONE);
        let message = message.ok_or_else(|| violation("an invalid error"))?;
        let message = String::from_utf8_lossy(message).trim().to_owned();
        self.refusal.get_or_insert(Refusal { number, message });
        Ok(())
    }

    /// Returns the result after the last part.
    ///
    /// # Errors
    /// If the reply is incomplete.
    pub(super) fn finish(self) -> io::Result<Result<Answer, Refusal>> {
        if let Some(refusal) = self.refusal {
            return Ok(Err(refusal));
        }
        let is_whole = match self.command {
            command::READ => self.len == 0 || self.covered.get(&0) == Some(&self.len.into()),
            command::BLOCK_STATUS => !self.answer.extents.is_empty(),
            _ => true,
        };
        is_whole.then_some(Ok(self.answer)).ok_or_else(|| violation("an incomplete reply"))
    }
}

/// Parses a structured reply to a request from arbitrary bytes, for the fuzzer. Returns the contents and the number of
/// extents of a successful reply.
///
/// # Errors
/// If the bytes violate the protocol.
#[doc(hidden)]
pub fn parse_reply(
    command: u16,
    offset: u64,
    len: u32,
    mut bytes: &[u8],
) -> io::Result<Option<(Vec<u8>, usize)>> {
    let mut reply = PartialReply::new(command, offset, len, Some(1));
    loop {
        let chunk = Chunk::parse(&read_array(&mut bytes)?)?;
        reply.add(&chunk, &mut bytes)?;
        if chunk.is_last {
            let answer = reply.finish()?.ok();
            return Ok(answer.map(|answer| (answer.contents, answer.extents.len())));
        }
    }
}

impl Refusal {
    /// Describes the error.
    pub(super) fn into_error(self) -> io::Error {
        let error = error_of(self.number);
        if self.message.is_empty() {
            return error;
        }
        let said = disk::address::safe_line(&self.message);
        io::Error::new(error.kind(), format!("{error} ({said})"))
    }
}

/// Converts an error number of the protocol.
fn error_of(number: u32) -> io::Error {
    let (kind, what) = match number {
        errno::PERM => (io::ErrorKind::PermissionDenied, "permission denied by the server"),
        errno::NO_MEMORY => (io::ErrorKind::OutOfMemory, "the server is out of memory"),
        errno::INVALID => {
            (io::ErrorKind::InvalidInput, "the server rejects the request as invalid")
        }
        errno::NO_SPACE => (io::ErrorKind::StorageFull, "the server has no space left"),
        errno::OVERFLOW => {
            (io::ErrorKind::InvalidInput, "the server rejects the request as too large")
        }
        errno::UNSUPPORTED => (io::ErrorKind::Unsupported, "the server does not support it"),
        errno::SHUTDOWN => (io::ErrorKind::ConnectionAborted, "the server is shutting down"),
        errno::IO => (io::ErrorKind::Other, "the server's device returned an error"),
        _ => {
            return io::Error::other(format!("the server returned error {number}"));
        }
    };
    io::Error::new(kind, what)
}
