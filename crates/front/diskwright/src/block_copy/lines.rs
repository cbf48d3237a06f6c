//! Lines of state files, journals and increments.

use sha2::{Digest as _, Sha256};

use super::chunk::Digest;
use crate::copy_error::StateError;

/// Maximum number of bytes of a line that a message shows.
const SHOWN_MAX: usize = 80;

/// Lines of a text, each with its number.
pub(super) struct Lines<'t> {
    text: &'t [u8],
    /// Start of the next line.
    at: usize,
    /// The last line returned, for messages.
    last: &'t [u8],
    line: u64,
}

impl<'t> Lines<'t> {
    pub(super) fn new(text: &'t [u8]) -> Self {
        Self { text, at: 0, last: b"", line: 0 }
    }

    /// Creates an error about the last line.
    pub(super) fn wrong(&self, expected: impl Into<String>) -> StateError {
        let shown = &self.last[..self.last.len().min(SHOWN_MAX)];
        let found = String::from_utf8_lossy(shown).into_owned();
        StateError { line: self.line, expected: expected.into(), found }
    }

    /// Returns the number of bytes before the next line.
    pub(super) fn next_start(&self) -> usize {
        self.at
    }

    /// Returns whether the next line begins with a text.
    pub(super) fn is_next(&self, start: &str) -> bool {
        self.text[self.at..].starts_with(start.as_bytes())
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.text.len()
    }

    /// Returns the next line, without its newline.
    pub(super) fn next(&mut self, expected: &str) -> Result<&'t str, StateError> {
        let rest = &self.text[self.at..];
        let end = rest.iter().position(|&byte| byte == b'\n');
        self.line += 1;
        self.last = &rest[..end.unwrap_or(rest.len())];
        self.at += end.map_or(rest.len(), |end| end + 1);
        match (end, std::str::from_utf8(self.last)) {
            (Some(_), Ok(line)) => Ok(line),
            (None, _) => Err(self.wrong(format!("{expected} and a newline"))),
            (_, Err(_)) => Err(self.wrong(expected)),
        }
    }

    pub(super) fn literal(&mut self, expected: &str) -> Result<(), StateError> {
        let line = self.next(expected)?;
        if line == expected { Ok(()) } else { Err(self.wrong(expected)) }
    }

    /// Reads a line with a name and a value.
    pub(super) fn field<T>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, StateError> {
        let line = self.next(name)?;
        let value = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(' '));
        value.and_then(parse).ok_or_else(|| self.wrong(format!("{name} and {expected}")))
    }

    /// Reads the line of a chunk: its number, below `chunks`, and its digest.
    pub(super) fn chunk(&mut self, chunks: u64) -> Result<(u64, Digest), StateError> {
        let line = self.next("a chunk")?;
        let (number, digest) =
            line.split_once(' ').ok_or_else(|| self.wrong("a chunk number and a digest"))?;
        let number = self.chunk_number(number, chunks)?;
        let sha256 = parse_digest(digest).ok_or_else(|| self.wrong("a digest of 64 digits"))?;
        Ok((number, sha256))
    }

    pub(super) fn chunk_number(&self, text: &str, chunks: u64) -> Result<u64, StateError> {
        let number = text.parse().ok().filter(|number| *number < chunks);
        number.ok_or_else(|| self.wrong(format!("a chunk number below {chunks}")))
    }

    /// Reads a line with a name and this digest.
    pub(super) fn digest(&mut self, name: &str, computed: Digest) -> Result<(), StateError> {
        let expected = format!("the digest {}", vfs::text::hex(&computed));
        self.field(name, &expected, |text| parse_digest(text).filter(|stored| *stored == computed))
            .map(|_| ())
    }

    /// Reads the last line, with the digest of all lines before it.
    pub(super) fn end(&mut self) -> Result<(), StateError> {
        self.digest("end", Sha256::digest(&self.text[..self.at]).into())?;
        if self.is_at_end() {
            return Ok(());
        }
        self.line += 1;
        self.last = &self.text[self.at..];
        Err(self.wrong("the end of the file"))
    }
}

/// Parses 64 hexadecimal digits.
pub(super) fn parse_digest(text: &str) -> Option<Digest> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let mut digest = [0; 32];
    if pairs.len() != digest.len() {
        return None;
    }
    for (byte, [high, low]) in digest.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(digest)
}
