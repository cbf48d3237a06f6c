//! Prototype files of mkfs.xfs(8): a tree described by words, with contents from host files.
//!
//! The file consists of an obsolete name, two numbers, and the root directory: `MODE UID GID` and its entries up to a
//! `$`. Each entry is `NAME MODE UID GID`, followed by data that depends on the type. A mode has six characters: the
//! type (`-`, `b`, `c`, `d`, `p`, `l`), `u` or `-`, `g` or `-`, and three octal digits. A regular file has the path of
//! its contents (and their extended attributes), a device two numbers, a symbolic link its target. A word that begins
//! with `:` starts a comment up to the end of the line.
//!
//! Each stream parses the file again word by word, so memory does not grow with the tree: only the names of the current
//! directories are kept.

mod parse;
mod words;

use std::path::Path;
use std::sync::Arc;

use crate::directory::HostTree;
use crate::rule_file::lines::RuleFile;
use crate::{Entry, EntryKind, Metadata, Progress, Source, SourceError, Time, Xattr};
use parse::{Described, Parser, ProtoKind};

/// Options for reading a prototype file.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProtofileOptions {
    /// A slash in a name means a space, which words cannot contain.
    pub slashes_are_spaces: bool,
    /// Time of all files.
    pub time: Time,
}

/// A prototype file whose syntax has been checked.
#[derive(Clone, Debug)]
pub struct Protofile {
    file: Arc<RuleFile>,
    options: ProtofileOptions,
    entries: u64,
}

impl Protofile {
    /// Reads a prototype file. Contents are looked up later, by the stream.
    ///
    /// # Errors
    /// If it cannot be read, or is malformed.
    pub fn load(file: &Path, options: ProtofileOptions) -> Result<Self, SourceError> {
        let file = Arc::new(RuleFile::read(file)?);
        let mut parser = Parser::new(Arc::clone(&file), options.slashes_are_spaces)?;
        let mut entries = 0;
        while parser.next()?.is_some() {
            entries += 1;
        }
        Ok(Self { file, options, entries })
    }

    /// Returns its files in its order, every path once, without missing directories.
    ///
    /// # Errors
    /// If the root of the host cannot be opened.
    pub fn source(&self) -> Result<ProtofileSource, SourceError> {
        Ok(ProtofileSource {
            parser: Parser::new(Arc::clone(&self.file), self.options.slashes_are_spaces)?,
            host: HostTree::open(Path::new("/"))?,
            time: self.options.time,
            done: 0,
            entries: self.entries,
        })
    }
}

/// The files of a prototype file. Contents can be read at any time and from any thread.
#[derive(Debug)]
pub struct ProtofileSource {
    parser: Parser,
    host: HostTree,
    time: Time,
    done: u64,
    entries: u64,
}

impl ProtofileSource {
    fn entry(&self, described: Described) -> Result<Entry, SourceError> {
        let Described { path, permissions, uid, gid, what, line } = described;
        let (kind, xattrs) = match what {
            ProtoKind::Node(kind) => (kind, Vec::new()),
            ProtoKind::Contents(of) => self.contents(&of, line)?,
        };
        let metadata =
            Metadata { permissions, uid, gid, mtime: self.time, atime: None, ctime: None };
        Ok(Entry { path, kind, metadata, xattrs, inode: None })
    }

    /// Returns a regular file with the contents and extended attributes of a host file. Symbolic links are followed.
    fn contents(&self, of: &Path, line: usize) -> Result<(EntryKind, Vec<Xattr>), SourceError> {
        let found = std::fs::canonicalize(of).map_err(|e| SourceError::io("open", of, e))?;
        let whole = found.as_os_str().as_encoded_bytes();
        let path = whole.strip_prefix(b"/").unwrap_or(whole);
        match self.host.find(path, true)? {
            Some(found) if matches!(found.kind, EntryKind::File(_)) => {
                Ok((found.kind, self.host.xattrs(path)?))
            }
            Some(found) => Err(self.parser.other_type(line, of, found.kind.name())),
            None => {
                Err(SourceError::io("open", of, std::io::Error::from(std::io::ErrorKind::NotFound)))
            }
        }
    }
}

impl Source for ProtofileSource {
    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        let Some(described) = self.parser.next()? else { return Ok(None) };
        self.done += 1;
        let entry = self.entry(described);
        if entry.is_err() {
            self.parser.end();
        }
        entry.map(Some)
    }

    fn read(&mut self, _: &mut [u8]) -> Result<usize, SourceError> {
        Ok(0)
    }

    fn entries_min(&mut self) -> u64 {
        self.entries
    }

    fn progress(&self) -> Progress {
        Progress { done: self.done, total: Some(self.entries) }
    }
}
