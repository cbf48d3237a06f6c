//! Files of rules with one rule per line. Shared by the readers of manifests, tables, maps and contexts.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::fault::{RuleFault, text};
use crate::SourceError;

/// Maximum size of a file of rules in bytes: a manifest of about a million files.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// An ID of users and groups that means "none" in system calls.
const NO_ID: u32 = u32::MAX;

/// A file of rules in memory.
#[derive(Clone, Debug)]
pub(crate) struct RuleFile {
    pub(crate) name: PathBuf,
    pub(crate) bytes: Vec<u8>,
}

impl RuleFile {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self, SourceError> {
        let file = File::open(path).map_err(|e| SourceError::io("open", path, e))?;
        let mut bytes = Vec::new();
        let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|e| SourceError::io("read", path, e))?;
        let file = Self { name: path.to_owned(), bytes };
        if file.bytes.len() as u64 > FILE_BYTES_MAX {
            let fault = RuleFault::TooLarge { what: "the file's length", limit: FILE_BYTES_MAX };
            return Err(file.fault(0, fault));
        }
        Ok(file)
    }

    /// Reads an optional file.
    pub(crate) fn read_if_there(path: &Path) -> Result<Option<Self>, SourceError> {
        match Self::read(path) {
            Err(SourceError::Io { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    /// Returns the lines with their numbers, starting at 1, without blank lines and those that begin with `#`.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &[u8])> {
        lines_of(&self.bytes).filter(|(_, line)| !matches!(line.first(), None | Some(b'#')))
    }

    /// Returns the error for a fault in a line.
    pub(crate) fn fault(&self, line: usize, fault: RuleFault) -> SourceError {
        at_line(&self.name, line, fault)
    }
}

/// Returns the trimmed lines with their numbers.
pub(crate) fn lines_of(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = bytes.split(|&byte| byte == b'\n').enumerate();
    lines.map(|(index, line)| (index + 1, line.trim_ascii()))
}

/// Returns the error for a fault in a line of `file`; line 0 means the whole file.
pub(crate) fn at_line(file: &Path, line: usize, fault: RuleFault) -> SourceError {
    SourceError::Rule { file: file.to_owned(), line, fault: Box::new(fault) }
}

/// Returns the fields of a line, separated by blanks.
pub(crate) fn fields(line: &[u8]) -> Vec<&[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty()).collect()
}

/// Parses a decimal number.
pub(crate) fn number<T: FromStr>(
    field: &[u8],
    what: &'static str,
    expected: &'static str,
) -> Result<T, RuleFault> {
    let digits = field.first().is_some_and(u8::is_ascii_digit).then_some(field);
    let number = digits.and_then(|field| std::str::from_utf8(field).ok()?.parse().ok());
    number.ok_or_else(|| RuleFault::expected(what, expected, field))
}

/// Parses a user or group ID.
pub(crate) fn id(field: &[u8], what: &'static str) -> Result<u32, RuleFault> {
    let expected = "a number below 4294967295";
    let id = number(field, what, expected)?;
    if id == NO_ID { Err(RuleFault::expected(what, expected, field)) } else { Ok(id) }
}

/// Parses permission bits in octal.
pub(crate) fn permissions(field: &[u8]) -> Result<u16, RuleFault> {
    let digits = field.iter().all(|byte| (b'0'..=b'7').contains(byte)).then_some(field);
    let bits = digits.and_then(|field| std::str::from_utf8(field).ok());
    let bits = bits.and_then(|digits| u16::from_str_radix(digits, 8).ok());
    let bits = bits.filter(|bits| *bits <= 0o7777);
    bits.ok_or_else(|| RuleFault::Expected {
        what: "mode",
        expected: "octal permissions such as 0755",
        found: text(field),
    })
}

/// Parses a path, absolute or relative to the root, into the form of `Entry::path`.
pub(crate) fn path(field: &[u8]) -> Result<Vec<u8>, RuleFault> {
    let expected = "a path in the image without .. and without NUL bytes";
    let bad = || RuleFault::expected("path", expected, field);
    if field.is_empty() || field.contains(&0) {
        return Err(bad());
    }
    let mut path = Vec::with_capacity(field.len());
    for component in field.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => continue,
            b".." => return Err(bad()),
            name => {
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(name);
            }
        }
    }
    Ok(path)
}
