//! Parser of prototype files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::words::Words;
use crate::host::as_path;
use crate::rule_file::fault::{RuleFault, shown_path, text};
use crate::rule_file::lines::{RuleFile, id, number};
use crate::{EntryKind, SourceError};

/// Maximum path length of an entry in bytes, as in system calls.
const PATH_BYTES_MAX: usize = 4096;

/// An entry.
#[derive(Debug)]
pub(super) struct Described {
    /// In the form of `Entry::path`.
    pub(super) path: Vec<u8>,
    pub(super) permissions: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) what: ProtoKind,
    pub(super) line: usize,
}

/// Type of an entry, with its data.
#[derive(Debug)]
pub(super) enum ProtoKind {
    /// Anything except a regular file.
    Node(EntryKind),
    /// A regular file with the contents of this host file.
    Contents(PathBuf),
}

/// A directory whose entries are being read.
#[derive(Debug)]
struct UnfinishedDirectory {
    /// Length of its path in bytes.
    path_len: usize,
    /// Names with their line numbers.
    names: HashMap<Box<[u8]>, usize>,
}

/// A parser of a file from its beginning.
#[derive(Debug)]
pub(super) struct Parser {
    file: Arc<RuleFile>,
    words: Words,
    slashes_are_spaces: bool,
    /// The directories of the next entry, the root first.
    open: Vec<UnfinishedDirectory>,
    path: Vec<u8>,
    state: ParserState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParserState {
    AtRoot,
    InRoot,
    Over,
}

impl Parser {
    /// Parses everything before the root.
    pub(super) fn new(file: Arc<RuleFile>, slashes_are_spaces: bool) -> Result<Self, SourceError> {
        let (words, state) = (Words::new(), ParserState::AtRoot);
        let (open, path) = (Vec::new(), Vec::new());
        let mut parser = Self { file, words, slashes_are_spaces, open, path, state };
        let header = |parser: &mut Self| {
            parser.word("the name of a boot file", |_| Ok(()))?;
            for what in ["the number of blocks", "the number of inodes"] {
                parser.word(what, |word| number::<u64>(word, what, "a number, which may be 0"))?;
            }
            Ok(())
        };
        header(&mut parser).map_err(|fault| parser.at_line(fault))?;
        Ok(parser)
    }

    /// Returns the next entry; `None` at the end and after an error.
    pub(super) fn next(&mut self) -> Result<Option<Described>, SourceError> {
        let next = self.described();
        if !matches!(next, Ok(Some(_))) {
            self.state = ParserState::Over;
        }
        next.map_err(|fault| self.at_line(fault))
    }

    /// Ends the stream.
    pub(super) fn end(&mut self) {
        self.state = ParserState::Over;
    }

    /// Returns the error for contents that are not a regular file.
    pub(super) fn other_type(&self, line: usize, path: &Path, found: &'static str) -> SourceError {
        let path = path.display().to_string();
        self.file.fault(line, RuleFault::OtherType { path, expected: "regular file", found })
    }

    fn at_line(&self, fault: RuleFault) -> SourceError {
        self.file.fault(self.words.line(), fault)
    }

    fn described(&mut self) -> Result<Option<Described>, RuleFault> {
        match self.state {
            ParserState::Over => return Ok(None),
            ParserState::AtRoot => self.state = ParserState::InRoot,
            ParserState::InRoot => {
                if !self.enter_name()? {
                    return Ok(None);
                }
            }
        }
        let line = self.words.line();
        let mode = self.word("the mode", mode)?;
        let (uid, gid) = (
            self.word("the owner", |word| id(word, "owner"))?,
            self.word("the group", |word| id(word, "group"))?,
        );
        if self.open.is_empty() && mode.kind != b'd' {
            return Err(RuleFault::expected(
                "the first mode",
                "the mode of a directory (the root)",
                &[mode.kind],
            ));
        }
        let what = self.what(mode.kind)?;
        let path = self.path.clone();
        if mode.kind == b'd' {
            self.open.push(UnfinishedDirectory { path_len: path.len(), names: HashMap::new() });
        }
        Ok(Some(Described { path, permissions: mode.permissions, uid, gid, what, line }))
    }

    /// Parses the name of the next entry, past the ends of directories. Returns false at the end of the root.
    fn enter_name(&mut self) -> Result<bool, RuleFault> {
        while let Some(directory) = self.open.last_mut() {
            self.path.truncate(directory.path_len);
            let Some(word) = self.words.next(&self.file.bytes) else {
                return Err(RuleFault::expected(
                    "the end",
                    "a $ for each directory",
                    b"the end of the file",
                ));
            };
            if word == b"$" {
                self.open.pop();
                continue;
            }
            let mut name: Box<[u8]> = word.into();
            if self.slashes_are_spaces {
                name.iter_mut().filter(|byte| **byte == b'/').for_each(|byte| *byte = b' ');
            }
            if matches!(&*name, b"." | b"..") || name.contains(&b'/') || name.contains(&0) {
                return Err(RuleFault::expected(
                    "the name",
                    "a name without slashes, not . or ..",
                    word,
                ));
            }
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&name);
            if self.path.len() > PATH_BYTES_MAX {
                let limit = PATH_BYTES_MAX as u64;
                return Err(RuleFault::TooLarge { what: "the length of a path", limit });
            }
            if let Some(line) = directory.names.insert(name, self.words.line()) {
                return Err(RuleFault::Twice { what: shown_path(&self.path), line });
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Parses the data after the owner.
    fn what(&mut self, kind: u8) -> Result<ProtoKind, RuleFault> {
        Ok(ProtoKind::Node(match kind {
            b'd' => EntryKind::Directory,
            b'p' => EntryKind::Fifo,
            b'l' => {
                EntryKind::Symlink(self.word("the target of the link", |word| Ok(word.to_vec()))?)
            }
            b'b' | b'c' => {
                let (major, minor) = (self.device_number("major")?, self.device_number("minor")?);
                match kind {
                    b'b' => EntryKind::BlockDevice { major, minor },
                    _ => EntryKind::CharDevice { major, minor },
                }
            }
            _ => {
                let path =
                    self.word("the path of the contents", |word| Ok(as_path(word).into_owned()))?;
                return Ok(ProtoKind::Contents(path));
            }
        }))
    }

    fn device_number(&mut self, what: &'static str) -> Result<u32, RuleFault> {
        self.word(what, |word| number(word, what, "the number of a device"))
    }

    /// Parses the next word with a function.
    fn word<T>(
        &mut self,
        what: &'static str,
        parse: impl FnOnce(&[u8]) -> Result<T, RuleFault>,
    ) -> Result<T, RuleFault> {
        match self.words.next(&self.file.bytes) {
            Some(word) => parse(word),
            None => {
                let (expected, found) = ("one more word", "the end of the file".to_owned());
                Err(RuleFault::Expected { what, expected, found })
            }
        }
    }
}

/// A mode of six characters.
struct Mode {
    kind: u8,
    permissions: u16,
}

fn mode(word: &[u8]) -> Result<Mode, RuleFault> {
    let wrong = || RuleFault::Expected {
        what: "the mode",
        expected: "a type (-, b, c, d, p or l), u or -, g or -, and three octal digits",
        found: text(word),
    };
    let &[kind, set_uid, set_gid, ref digits @ ..] = word else { return Err(wrong()) };
    let is_digits = digits.len() == 3 && digits.iter().all(|byte| (b'0'..=b'7').contains(byte));
    if !b"-bcdpl".contains(&kind) || !is_digits {
        return Err(wrong());
    }
    let bit = |byte: u8, letter: u8, bit: u16| match byte {
        b'-' => Ok(0),
        byte if byte == letter => Ok(bit),
        _ => Err(wrong()),
    };
    let bits = digits.iter().fold(0, |bits, digit| bits << 3 | u16::from(digit - b'0'));
    let permissions = bits | bit(set_uid, b'u', 0o4000)? | bit(set_gid, b'g', 0o2000)?;
    Ok(Mode { kind, permissions })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<String>, String> {
        let file = RuleFile { name: "proto".into(), bytes: text.into() };
        let mut parser = Parser::new(Arc::new(file), true).map_err(|e| e.to_string())?;
        let mut found = Vec::new();
        while let Some(entry) = parser.next().map_err(|e| e.to_string())? {
            let path = String::from_utf8_lossy(&entry.path).into_owned();
            let what = match entry.what {
                ProtoKind::Node(kind) => kind.name().to_owned(),
                ProtoKind::Contents(path) => path.display().to_string(),
            };
            found
                .push(format!("{path}|{:o}|{}:{}|{what}", entry.permissions, entry.uid, entry.gid));
        }
        Ok(found)
    }

    #[test]
    fn a_tree_is_described_by_words() {
        let text = "/stand/diskboot\n4872 110\nd--777 3 1\nusr d--777 3 1\nsh -ug755 3 1 /bin/sh\nken d--755 6 1\n$\n\
            b0 b--644 3 1 8 1\nc0 c--644 3 1 1 3\nfifo p--644 3 1\nslink l--644 3 1 /a/link\n: a comment $\n$\n\
            two/words -\x2d-644 0 0 x\n$\n";
        assert_eq!(
            parsed(text).unwrap(),
            [
                "|777|3:1|directory",
                "usr|777|3:1|directory",
                "usr/sh|6755|3:1|/bin/sh",
                "usr/ken|755|6:1|directory",
                "usr/b0|644|3:1|block device",
                "usr/c0|644|3:1|character device",
                "usr/fifo|644|3:1|named pipe",
                "usr/slink|644|3:1|symbolic link",
                "two words|644|0:0|x",
            ]
        );
    }

    #[test]
    fn errors_report_their_line() {
        for (text, expected) in [
            ("", "line 1: the name of a boot file"),
            ("x\n1", "line 2: the number of inodes"),
            ("x 1 many", "the number of inodes: expected a number"),
            (
                "x 0 0\n---644 0 0 a",
                "line 2: the first mode: expected the mode of a directory (the root)",
            ),
            ("x 0 0\nd--755 0 0\na", "line 3: the mode"),
            ("x 0 0\nd--755 0 0", "expected a $ for each directory"),
            ("x 0 0\nd--755 0 0\n. d--755 0 0 $ $", "line 3: the name"),
            ("x 0 0\nd--755 0 0\na s--755 0 0", "line 3: the mode: expected a type"),
            ("x 0 0\nd--755 0 0\na d--855 0 0", "found \"d--855\""),
            ("x 0 0\nd--755 0 0\na du-755 -1 0", "owner"),
            (
                "x 0 0\nd--755 0 0\na p--644 0 0\na p--644 0 0\n$",
                "line 4: /a is already set in line 3",
            ),
        ] {
            let error = parsed(text).expect_err(text);
            assert!(error.contains(expected), "{text:?}: {error}");
        }
        let deep = format!("x 0 0 d--755 0 0 {}", "aaaaaaaaaaaaaaa d--755 0 0 ".repeat(300));
        assert!(parsed(&deep).unwrap_err().contains("the length of a path exceeds the limit"));
    }
}
