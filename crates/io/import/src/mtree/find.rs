//! Resolution of a manifest's files, from the manifest and from the host.

use std::path::Path;

use super::keywords::{FileType, Keywords};
use super::node::ManifestNode;
use super::parse::ManifestFile;
use crate::directory::{FoundFile, HostTree};
use crate::rule_file::fault::{RuleFault, shown_path, text};
use crate::rule_file::lines::{self, RuleFile};
use crate::{Content, EntryKind, Metadata, SourceError, Time, Xattr};

/// Resolves the files of one manifest.
pub(super) struct Finder<'a> {
    file: &'a RuleFile,
    root: HostTree,
    /// The whole host, for contents with an absolute path.
    host: Option<HostTree>,
    /// The directory of the last file. Its path contains no symbolic links.
    plain_directory: Vec<u8>,
    time: Time,
}

impl<'a> Finder<'a> {
    pub(super) fn new(file: &'a RuleFile, root: &Path, time: Time) -> Result<Self, SourceError> {
        let (root, plain_directory) = (HostTree::open(root)?, Vec::new());
        Ok(Self { file, root, host: None, plain_directory, time })
    }

    /// Resolves a file; `None` if it is optional and missing.
    pub(super) fn node(
        &mut self,
        listed: &ManifestFile,
    ) -> Result<Option<ManifestNode>, SourceError> {
        let (words, path) = (&listed.words, &listed.path);
        let fault = |fault| self.file.fault(listed.line, fault);
        let found = if self.is_plain(path)? {
            self.root.find(path, words.contents.is_none())?
        } else {
            None
        };
        let there = found.as_ref().map(|found| file_type(&found.kind));
        let Some(file_type) = words.file_type.or(there) else {
            let expected = "a type, or a file at this path in the root directory";
            let fault = fault(RuleFault::expected("type", expected, path));
            return if words.is_optional { Ok(None) } else { Err(fault) };
        };
        // A host file of another type is ignored.
        let other = there.filter(|there| *there != file_type);
        let found = found.filter(|_| other.is_none());
        let metadata = self.metadata(listed, file_type, found.as_ref().map(|found| found.metadata));
        let is_linked =
            file_type == FileType::File && words.contents.is_none() && words.links != Some(1);
        let linked = found.as_ref().filter(|found| is_linked && found.links > 1).map(|f| f.id);
        let kind = if file_type == FileType::File {
            let from = match &words.contents {
                Some(place) => self.contents(place, listed.line)?,
                None => found,
            };
            match content(path, words, from, other).map_err(fault)? {
                Some(content) => EntryKind::File(content),
                None => return Ok(None),
            }
        } else {
            special(file_type, words, found).map_err(fault)?
        };
        let mut xattrs = words.xattrs.clone();
        Xattr::normalize(&mut xattrs);
        let (path, digests, line) = (path.clone(), words.digests.clone(), listed.line);
        Ok(Some(ManifestNode { path, kind, digests, line, metadata, xattrs, linked }))
    }

    /// Returns whether all components before the last are directories: a symbolic link could lead out of the tree.
    fn is_plain(&mut self, path: &[u8]) -> Result<bool, SourceError> {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for (end, _) in slashes {
            let directory = &path[..end];
            let is_known = self
                .plain_directory
                .strip_prefix(directory)
                .is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
            if is_known {
                continue;
            }
            let found = self.root.find(directory, false)?;
            if !found.is_some_and(|found| matches!(found.kind, EntryKind::Directory)) {
                return Ok(false);
            }
            self.plain_directory = directory.to_vec();
        }
        Ok(true)
    }

    /// Returns the file at `contents=`.
    fn contents(&mut self, place: &[u8], line: usize) -> Result<Option<FoundFile>, SourceError> {
        if place.starts_with(b"/") {
            let path = lines::path(place).map_err(|fault| self.file.fault(line, fault))?;
            let host = match &mut self.host {
                Some(host) => host,
                none => none.insert(HostTree::open(Path::new("/"))?),
            };
            return host.find(&path, true);
        }
        // The author of a manifest may refer to contents outside of the tree.
        self.root.find(place, true)
    }

    fn metadata(&self, listed: &ManifestFile, kind: FileType, found: Option<Metadata>) -> Metadata {
        let usual = Metadata {
            permissions: match kind {
                FileType::Directory => 0o755,
                FileType::Link => 0o777,
                _ => 0o644,
            },
            uid: 0,
            gid: 0,
            mtime: self.time,
            atime: None,
            ctime: None,
        };
        let base = found.map_or(usual, |found| Metadata { atime: None, ctime: None, ..found });
        if listed.words.keeps_attributes && found.is_some() {
            return base;
        }
        Metadata {
            permissions: listed.words.permissions.unwrap_or(base.permissions),
            uid: listed.uid.unwrap_or(base.uid),
            gid: listed.gid.unwrap_or(base.gid),
            mtime: listed.words.time.unwrap_or(base.mtime),
            ..base
        }
    }
}

/// Returns the contents of a regular file; `None` if it is optional and has none.
fn content(
    path: &[u8],
    words: &Keywords,
    from: Option<FoundFile>,
    other: Option<FileType>,
) -> Result<Option<Content>, RuleFault> {
    let content = match (from.map(|found| found.kind), other) {
        (Some(EntryKind::File(content)), _) => content,
        (Some(kind), _) => return Err(other_type(path, file_type(&kind))),
        (None, Some(other)) => return Err(other_type(path, other)),
        (None, None) if words.is_optional => return Ok(None),
        (None, None) if words.size == Some(0) && words.contents.is_none() => Content::hole(0),
        (None, None) => {
            let shown =
                words.contents.as_ref().map_or_else(|| shown_path(path), |place| text(place));
            return Err(RuleFault::NoContents(shown));
        }
    };
    match words.size {
        Some(size) if size != content.size() => Err(RuleFault::Mismatch {
            path: shown_path(path),
            what: "size",
            expected: size.to_string(),
            found: content.size().to_string(),
        }),
        _ => Ok(Some(content)),
    }
}

fn other_type(path: &[u8], found: FileType) -> RuleFault {
    let (path, expected) = (shown_path(path), FileType::File.name());
    RuleFault::OtherType { path, expected, found: found.name() }
}

/// Returns a file without contents.
fn special(
    file_type: FileType,
    words: &Keywords,
    found: Option<FoundFile>,
) -> Result<EntryKind, RuleFault> {
    let kind = found.map(|found| found.kind);
    Ok(match file_type {
        FileType::Directory | FileType::File => EntryKind::Directory,
        FileType::Fifo => EntryKind::Fifo,
        FileType::Socket => EntryKind::Socket,
        FileType::Link => match (&words.link, kind) {
            (Some(target), _) => EntryKind::Symlink(target.clone()),
            (None, Some(kind)) => kind,
            (None, None) => {
                return Err(RuleFault::expected("keywords", "link= of a symbolic link", b""));
            }
        },
        FileType::Char | FileType::Block => match (words.device, kind) {
            (Some((major, minor)), _) if file_type == FileType::Char => {
                EntryKind::CharDevice { major, minor }
            }
            (Some((major, minor)), _) => EntryKind::BlockDevice { major, minor },
            (None, Some(kind)) => kind,
            (None, None) => {
                return Err(RuleFault::expected("keywords", "device= of a device", b""));
            }
        },
    })
}

/// Returns the type of an entry. A hard link counts as a regular file here.
pub(super) fn file_type(kind: &EntryKind) -> FileType {
    match kind {
        EntryKind::Directory => FileType::Directory,
        EntryKind::File(_) | EntryKind::Hardlink(_) => FileType::File,
        EntryKind::Symlink(_) => FileType::Link,
        EntryKind::CharDevice { .. } => FileType::Char,
        EntryKind::BlockDevice { .. } => FileType::Block,
        EntryKind::Fifo => FileType::Fifo,
        EntryKind::Socket => FileType::Socket,
    }
}
