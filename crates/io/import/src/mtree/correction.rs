//! A manifest as a correction of another source.

use std::path::Path;

use super::find::file_type;
use super::parse::{Lines, ManifestFile, parse};
use crate::rule_file::fault::{RuleFault, shown_path, text};
use crate::rule_file::lines::RuleFile;
use crate::rule_file::names::IdNames;
use crate::{Entry, EntryKind, SourceError, Xattr};

/// A manifest whose attributes replace those of a source. Sizes, types and link targets are compared; digests are not,
/// because contents are not read.
#[derive(Clone, Debug)]
pub struct ManifestCorrection {
    file: RuleFile,
    lines: Lines,
}

impl ManifestCorrection {
    /// Reads a manifest. User and group names are looked up in the tree `root`.
    ///
    /// # Errors
    /// If it cannot be read or is invalid.
    pub(crate) fn read(file: &Path, root: Option<&Path>) -> Result<Self, SourceError> {
        Self::of(RuleFile::read(file)?, &IdNames::of_root(root)?)
    }

    /// Parses bytes that were read from `name`.
    ///
    /// # Errors
    /// Returns the errors of `Self::read`.
    pub fn parse(name: &Path, bytes: &[u8]) -> Result<Self, SourceError> {
        let file = RuleFile { name: name.to_owned(), bytes: bytes.to_vec() };
        Self::of(file, &IdNames::default())
    }

    fn of(file: RuleFile, names: &IdNames) -> Result<Self, SourceError> {
        let lines = parse(&file, names)?;
        Ok(Self { file: RuleFile { bytes: Vec::new(), ..file }, lines })
    }

    /// Returns the number of paths.
    pub(crate) fn len(&self) -> usize {
        self.lines.listed.len()
    }

    /// Returns the number of files whose flags cannot be stored.
    pub(crate) fn flagged(&self) -> u64 {
        self.lines.listed.iter().filter(|listed| listed.words.has_flags).count() as u64
    }

    /// Returns the index of a path.
    pub(crate) fn index(&self, path: &[u8]) -> Option<usize> {
        self.lines.by_path.get(path).copied()
    }

    /// Applies a line's attributes to an entry. Returns whether anything changed.
    pub(crate) fn apply(&self, index: usize, entry: &mut Entry) -> Result<bool, SourceError> {
        let listed = &self.lines.listed[index];
        compare(listed, entry).map_err(|fault| self.file.fault(listed.line, fault))?;
        if listed.words.keeps_attributes {
            return Ok(false);
        }
        let before = (entry.metadata, entry.xattrs.clone());
        let metadata = &mut entry.metadata;
        metadata.permissions = listed.words.permissions.unwrap_or(metadata.permissions);
        metadata.uid = listed.uid.unwrap_or(metadata.uid);
        metadata.gid = listed.gid.unwrap_or(metadata.gid);
        metadata.mtime = listed.words.time.unwrap_or(metadata.mtime);
        for xattr in &listed.words.xattrs {
            Xattr::set(&mut entry.xattrs, &xattr.name, &xattr.value);
        }
        Ok(before != (entry.metadata, entry.xattrs.clone()))
    }

    /// Checks that an additional name of a file has the attributes of the first one.
    pub(crate) fn check_link(&self, path: &[u8], first: &[u8]) -> Result<(), SourceError> {
        let Some(own) = self.index(path).map(|index| &self.lines.listed[index]) else {
            return Ok(());
        };
        let target = self.index(first).map(|index| &self.lines.listed[index]);
        let is_same = target.is_some_and(|target| {
            let said = |listed: &ManifestFile| {
                let words = &listed.words;
                (words.permissions, listed.uid, listed.gid, words.time)
            };
            said(own) == said(target) && own.words.xattrs == target.words.xattrs
        });
        if is_same || own.words.keeps_attributes {
            return Ok(());
        }
        let (path, first) = (shown_path(path), shown_path(first));
        Err(self.file.fault(own.line, RuleFault::FurtherName { path, first }))
    }

    /// Returns an error for the first line whose path the source does not contain.
    pub(crate) fn check_all(&self, seen: &[bool]) -> Result<(), SourceError> {
        let missing = self.lines.listed.iter().zip(seen);
        let first = missing
            .filter(|(listed, seen)| !**seen && !listed.words.is_optional)
            .map(|(listed, _)| listed)
            .min_by_key(|listed| listed.line);
        first.map_or(Ok(()), |listed| {
            Err(self.file.fault(listed.line, RuleFault::Missing(shown_path(&listed.path))))
        })
    }
}

/// Compares a line's properties of the file itself with the entry.
fn compare(listed: &ManifestFile, entry: &Entry) -> Result<(), RuleFault> {
    let found = file_type(&entry.kind);
    let path = || shown_path(&entry.path);
    if let Some(expected) = listed.words.file_type.filter(|expected| *expected != found) {
        let (expected, found) = (expected.name(), entry.kind.name());
        return Err(RuleFault::OtherType { path: path(), expected, found });
    }
    let (what, expected, found) = match (&entry.kind, listed.words.size, &listed.words.link) {
        (EntryKind::File(content), Some(size), _) if content.size() != size => {
            ("size", size.to_string(), content.size().to_string())
        }
        (EntryKind::Symlink(target), _, Some(link)) if target != link => {
            ("target", text(link), text(target))
        }
        _ => return Ok(()),
    };
    Err(RuleFault::Mismatch { path: path(), what, expected, found })
}
