//! Corrections by device tables.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::choice::parent;
use crate::rule_file::capability::XATTR_NAME;
use crate::rule_file::fault::{RuleFault, shown_path};
use crate::rule_file::lines::at_line;
use crate::table::{DeviceTable, Row, RowSubject};
use crate::{Entry, EntryKind, Metadata, SourceError, Time, Xattr};

/// The rows of all tables, by path.
#[derive(Debug, Default)]
pub(super) struct Tables {
    files: Vec<PathBuf>,
    /// Each with the index of its file.
    rows: Vec<(usize, Row)>,
    by_path: HashMap<Vec<u8>, Vec<usize>>,
    /// True if there are rows for directories with everything below.
    recursive: bool,
}

impl Tables {
    pub(super) fn add(&mut self, file: &Path, table: DeviceTable) {
        let number = self.files.len();
        self.files.push(file.to_owned());
        for row in table.rows {
            self.recursive |= row.node == RowSubject::Recursive;
            self.by_path.entry(row.path.clone()).or_default().push(self.rows.len());
            self.rows.push((number, row));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Applies the rows of an entry and of the directories above it, in the order of the rows.
    pub(super) fn apply(&self, entry: &mut Entry, seen: &mut [bool]) -> Result<(), SourceError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut rows = self.by_path.get(&entry.path).cloned().unwrap_or_default();
        if self.recursive && !entry.path.is_empty() {
            let mut path = &entry.path[..];
            while !path.is_empty() {
                path = parent(path);
                let above = self.by_path.get(path).into_iter().flatten().copied();
                rows.extend(
                    above.filter(|index| self.rows[*index].1.node == RowSubject::Recursive),
                );
            }
            rows.sort_unstable();
        }
        for index in rows {
            let (file, row) = &self.rows[index];
            let is_itself = row.path == entry.path;
            if is_itself {
                seen[index] = true;
            }
            let applied = apply_row(row, entry, is_itself);
            applied.map_err(|fault| at_line(&self.files[*file], row.line, fault))?;
        }
        Ok(())
    }

    /// Returns an error if a row has an additional name of a file as its path.
    pub(super) fn check_link(&self, path: &[u8], first: &[u8]) -> Result<(), SourceError> {
        let Some(index) = self.by_path.get(path).and_then(|rows| rows.first()) else {
            return Ok(());
        };
        let (file, row) = &self.rows[*index];
        let (path, first) = (shown_path(path), shown_path(first));
        Err(at_line(&self.files[*file], row.line, RuleFault::FurtherName { path, first }))
    }

    /// Returns entries for rows without a file. The first row of each path creates the file, later rows change it.
    pub(super) fn missing(&self, seen: &[bool], time: Time) -> Result<Vec<Entry>, SourceError> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut made = std::collections::HashSet::new();
        for ((file, row), seen) in self.rows.iter().zip(seen) {
            if *seen || row.node == RowSubject::OptionalFile || made.contains(&row.path) {
                continue;
            }
            let Some(kind) = row.node.kind() else {
                let fault = RuleFault::Missing(shown_path(&row.path));
                return Err(at_line(&self.files[*file], row.line, fault));
            };
            made.insert(row.path.clone());
            let permissions = row.permissions.unwrap_or(0o644);
            let (uid, gid, mtime) = (row.uid, row.gid, time);
            let metadata = Metadata { permissions, uid, gid, mtime, atime: None, ctime: None };
            let (path, xattrs) = (row.path.clone(), Vec::new());
            entries.push(Entry { path, kind, metadata, xattrs, inode: None });
        }
        Ok(entries)
    }
}

fn apply_row(row: &Row, entry: &mut Entry, is_itself: bool) -> Result<(), RuleFault> {
    if is_itself {
        let is_same = match (row.node, &mut entry.kind) {
            (RowSubject::File | RowSubject::OptionalFile, EntryKind::File(_))
            | (RowSubject::Directory | RowSubject::Recursive, EntryKind::Directory)
            | (RowSubject::Fifo, EntryKind::Fifo)
            | (RowSubject::Socket, EntryKind::Socket) => true,
            (RowSubject::CharDevice { .. }, kind @ EntryKind::CharDevice { .. })
            | (RowSubject::BlockDevice { .. }, kind @ EntryKind::BlockDevice { .. }) => {
                if let Some(new) = row.node.kind() {
                    *kind = new;
                }
                true
            }
            _ => false,
        };
        if !is_same {
            let (path, expected) = (shown_path(&row.path), row.node.name());
            return Err(RuleFault::OtherType { path, expected, found: entry.kind.name() });
        }
    }
    let is_link = matches!(entry.kind, EntryKind::Symlink(_));
    let metadata = &mut entry.metadata;
    (metadata.uid, metadata.gid) = (row.uid, row.gid);
    if let Some(permissions) = row.permissions.filter(|_| !is_link) {
        metadata.permissions = permissions;
    }
    if let Some(capabilities) = row.capabilities.filter(|_| is_itself) {
        Xattr::set(&mut entry.xattrs, XATTR_NAME, &capabilities.to_xattr());
    }
    Ok(())
}
