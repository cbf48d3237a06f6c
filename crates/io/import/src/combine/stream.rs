//! The entries of a combination, in the order of the sources.

use std::collections::HashSet;
use std::sync::Arc;

use super::names::{NameKind, NodeIndex, split};
use super::{Combination, Part};
use crate::host::as_path;
use crate::{Entry, EntryKind, Progress, Source, SourceChange, SourceError};

/// Reads several sources and omits replaced entries.
pub struct Combined {
    plan: Arc<Combination>,
    sources: Vec<Box<dyn Source>>,
    /// Index of the current source.
    at: usize,
    /// Directories with several listings that were already returned.
    given: HashSet<NodeIndex>,
    /// The directory of the last entry, which is usually that of the next one, too.
    last: Option<(Vec<u8>, NodeIndex)>,
    done: u64,
}

impl Combined {
    /// Reads sources that were reopened. Their entries must be the same as during planning.
    pub fn new(plan: &Arc<Combination>, sources: Vec<Box<dyn Source>>) -> Self {
        let (plan, given) = (Arc::clone(plan), HashSet::new());
        Self { plan, sources, at: 0, given, last: None, done: 0 }
    }

    fn find(&mut self, path: &[u8]) -> Option<NodeIndex> {
        let names = &self.plan.names;
        let (parent, name) = split(path);
        if name.is_empty() {
            return names.find(path);
        }
        let dir = match &self.last {
            Some((last, dir)) if last == parent => *dir,
            _ => {
                let dir = names.find(parent)?;
                self.last = Some((parent.to_vec(), dir));
                dir
            }
        };
        names.within_directory(dir, name)
    }

    /// Returns the entry with its path in the combination, if it remains.
    fn remaining(&mut self, entry: Entry) -> Result<Option<Entry>, SourceError> {
        let Some(node) = self.find(&entry.path) else { return Err(changed(&entry)) };
        let plan = &self.plan;
        let place = plan.names.get(node);
        let is_own = place.source == Some(self.at as u32);
        match (&entry.kind, place.what) {
            (EntryKind::Directory, NameKind::Directory) if is_own => {
                Ok(self.directory(node, entry))
            }
            (EntryKind::Directory, NameKind::Directory) => Ok(None),
            (EntryKind::Hardlink(_), NameKind::File(Some(file))) if is_own => {
                let file = &plan.linked[file as usize];
                let (_, first) = &file.names[file.remaining];
                if *first == entry.path {
                    return Ok(None);
                }
                let kind = EntryKind::Hardlink(first.clone());
                Ok(Some(Entry { kind, ..entry }))
            }
            (EntryKind::Directory | EntryKind::Hardlink(_), _) if is_own => Err(changed(&entry)),
            (EntryKind::Directory | EntryKind::Hardlink(_), _) => Ok(None),
            (_, NameKind::File(_)) if is_own => Ok(Some(entry)),
            (_, NameKind::Directory) if is_own => Err(changed(&entry)),
            // The file remains under another name.
            _ => {
                let name = plan.moved[self.at].get(&entry.path);
                Ok(name.map(|name| Entry { path: name.clone(), ..entry }))
            }
        }
    }

    /// Returns a directory with its final attributes, once.
    fn directory(&mut self, node: NodeIndex, entry: Entry) -> Option<Entry> {
        let Some(last) = self.plan.relisted.get(&node) else { return Some(entry) };
        self.given.insert(node).then(|| {
            let last = last.clone();
            Entry { metadata: last.metadata, xattrs: last.xattrs, inode: last.inode, ..entry }
        })
    }
}

fn changed(entry: &Entry) -> SourceError {
    SourceError::Changed { path: as_path(&entry.path).into_owned(), change: SourceChange::Modified }
}

impl Combined {
    fn next_remaining(&mut self) -> Result<Option<Entry>, SourceError> {
        while let Some(source) = self.sources.get_mut(self.at) {
            let Some(entry) = source.next_entry()? else {
                self.at += 1;
                continue;
            };
            let part: &Part = &self.plan.parts[self.at];
            let entry = part.placed(entry);
            if let Some(entry) = self.remaining(entry)? {
                self.done += 1;
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

impl Source for Combined {
    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        let next = self.next_remaining();
        if next.is_err() {
            self.at = self.sources.len();
        }
        next
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize, SourceError> {
        self.sources.get_mut(self.at).map_or(Ok(0), |source| source.read(buf))
    }

    fn entries_min(&mut self) -> u64 {
        self.plan.count()
    }

    fn progress(&self) -> Progress {
        Progress { done: self.done, total: Some(self.plan.count()) }
    }
}
