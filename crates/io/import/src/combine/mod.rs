//! A combination of several sources: each is applied over those before it, as when archives are unpacked over each
//! other.
//!
//! The winner of each path is determined before the first entry is returned, by reading all sources without file
//! contents. So the stream contains every path once, and no file is created that a later source replaces:
//! - A file of any type replaces the name of a file of an earlier source, which keeps its other names.
//! - A directory is merged with that of an earlier source. It has the attributes of the last source that lists it. It
//!   replaces a file or a symbolic link, which is never followed.
//! - A non-directory replaces only an empty directory, as in tar.
//! - Hard links lead to files of their own source.

mod conflict;
mod names;
mod stream;

use std::collections::HashMap;

pub use conflict::Conflict;
use names::{MergedNames, NameKind, NodeIndex, ResolvedPath};
pub use stream::Combined;

use crate::{Entry, EntryKind, InodeDetails, Metadata, Source, SourceError, Xattr};

/// One of several sources.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Name in error messages.
    pub name: String,
    /// Target directory of the source's root, in the form of [`Entry::path`].
    pub at: Vec<u8>,
    /// If set, only modification times are used, because the other times are those of the copy on the host.
    pub mtime_only: bool,
}

impl Part {
    /// Returns the path in the combination of a path in this source.
    fn place(&self, path: Vec<u8>) -> Vec<u8> {
        if self.at.is_empty() {
            return path;
        }
        let mut place = self.at.clone();
        if !path.is_empty() {
            place.push(b'/');
            place.extend_from_slice(&path);
        }
        place
    }

    /// Returns the entry with its paths in the combination.
    fn placed(&self, mut entry: Entry) -> Entry {
        entry.path = self.place(entry.path);
        entry.kind = match entry.kind {
            EntryKind::Hardlink(target) => EntryKind::Hardlink(self.place(target)),
            kind => kind,
        };
        if self.mtime_only {
            (entry.metadata.atime, entry.metadata.ctime) = (None, None);
        }
        entry
    }

    fn conflict(&self, conflict: Conflict, entry: &[u8]) -> SourceError {
        SourceError::Conflict { name: self.name.clone(), entry: entry.to_vec(), conflict }
    }
}

/// The combination of several sources.
#[derive(Debug)]
pub struct Combination {
    parts: Vec<Part>,
    names: MergedNames,
    /// Files with several names.
    linked: Vec<Linked>,
    /// Final attributes of directories that are listed more than once.
    relisted: HashMap<NodeIndex, DirectoryAttributes>,
    /// By source: first names of files that a later source replaced, with a remaining name.
    moved: Vec<HashMap<Vec<u8>, Vec<u8>>>,
}

/// A file with several names.
#[derive(Debug)]
struct Linked {
    source: u32,
    /// Names in the order of the source.
    names: Vec<(NodeIndex, Vec<u8>)>,
    /// Index of the first remaining name.
    remaining: usize,
}

/// Attributes of a directory in a source.
#[derive(Clone, Debug)]
struct DirectoryAttributes {
    metadata: Metadata,
    xattrs: Vec<Xattr>,
    inode: Option<Box<InodeDetails>>,
}

impl Combination {
    /// Reads all sources, one for each part and in the same order, and determines the remaining entries.
    ///
    /// # Errors
    /// Returns the errors of the sources, and [`SourceError::Conflict`].
    pub fn plan<E: From<SourceError>>(
        parts: Vec<Part>,
        sources: impl IntoIterator<Item = Result<Box<dyn Source>, E>>,
    ) -> Result<Self, E> {
        let moved = vec![HashMap::new(); parts.len()];
        let (names, relisted) = (MergedNames::new(), HashMap::new());
        let mut plan = Self { parts, names, linked: Vec::new(), relisted, moved };
        for (at, source) in sources.into_iter().enumerate() {
            let mut source = source?;
            let part = plan.parts[at].clone();
            plan.put_at(&part.at).map_err(|conflict| part.conflict(conflict, &part.at))?;
            while let Some(entry) = source.next_entry()? {
                let entry = part.placed(entry);
                let path = entry.path.clone();
                plan.add(at as u32, entry).map_err(|conflict| part.conflict(conflict, &path))?;
            }
        }
        plan.move_files();
        Ok(plan)
    }

    /// Returns the number of files, or slightly more.
    pub(crate) fn count(&self) -> u64 {
        self.names.count() as u64
    }

    /// Creates the target directory of a source.
    fn put_at(&mut self, at: &[u8]) -> Result<(), Conflict> {
        self.names.directory(at).map(drop).map_err(|conflict| match conflict {
            Conflict::NotADirectory(path) => Conflict::Place(path),
            other => other,
        })
    }

    fn add(&mut self, source: u32, entry: Entry) -> Result<(), Conflict> {
        let Entry { path, kind, metadata, xattrs, inode } = entry;
        match kind {
            EntryKind::Directory => {
                self.add_directory(source, &path, DirectoryAttributes { metadata, xattrs, inode })
            }
            EntryKind::Hardlink(target) => self.add_link(source, path, target),
            _ => self.add_file(source, &path).map(drop),
        }
    }

    fn add_directory(
        &mut self,
        source: u32,
        path: &[u8],
        listed: DirectoryAttributes,
    ) -> Result<(), Conflict> {
        let node = match self.names.place(path)? {
            ResolvedPath::Free(dir, name) => {
                self.names.insert(dir, name, NameKind::Directory, source)?
            }
            ResolvedPath::Taken(node) => node,
        };
        let place = self.names.get_mut(node);
        match place.what {
            NameKind::Directory if place.is_listed && place.source.is_some() => {
                self.relisted.insert(node, listed);
            }
            NameKind::Directory => {}
            NameKind::File(_) if place.source == Some(source) => return Err(Conflict::Repeated),
            NameKind::File(_) => place.what = NameKind::Directory,
        }
        if !place_is_listed(&mut self.names, node) {
            self.names.get_mut(node).source = Some(source);
        }
        Ok(())
    }

    /// Assigns a path to a file, and removes it from its former owner.
    fn add_file(&mut self, source: u32, path: &[u8]) -> Result<NodeIndex, Conflict> {
        let node = match self.names.place(path)? {
            ResolvedPath::Free(dir, name) => {
                return self.names.insert(dir, name, NameKind::File(None), source);
            }
            ResolvedPath::Taken(node) => node,
        };
        let is_empty = self.names.is_empty(node);
        let place = self.names.get_mut(node);
        if place.source == Some(source) {
            return Err(Conflict::Repeated);
        }
        if !is_empty || path.is_empty() {
            return Err(Conflict::NotEmpty);
        }
        (place.what, place.source, place.is_listed) = (NameKind::File(None), Some(source), false);
        self.relisted.remove(&node);
        Ok(node)
    }

    fn add_link(&mut self, source: u32, path: Vec<u8>, target: Vec<u8>) -> Result<(), Conflict> {
        let first = self.names.find(&target).filter(|&node| {
            let place = self.names.get(node);
            place.source == Some(source) && matches!(place.what, NameKind::File(_))
        });
        let Some(first) = first else { return Err(Conflict::LinkTarget(target)) };
        let node = self.add_file(source, &path)?;
        let file = match self.names.get(first).what {
            NameKind::File(Some(file)) => file,
            _ => {
                let file = self.linked.len() as u32;
                let names = vec![(first, target)];
                self.linked.push(Linked { source, names, remaining: 0 });
                self.names.get_mut(first).what = NameKind::File(Some(file));
                file
            }
        };
        self.names.get_mut(node).what = NameKind::File(Some(file));
        self.linked[file as usize].names.push((node, path));
        Ok(())
    }

    /// Records the remaining names of files whose first name was replaced by another source.
    fn move_files(&mut self) {
        for (number, file) in self.linked.iter_mut().enumerate() {
            let remains = |&(node, _): &(NodeIndex, Vec<u8>)| {
                let place = self.names.get(node);
                place.source == Some(file.source)
                    && place.what == NameKind::File(Some(number as u32))
            };
            let Some(remaining) = file.names.iter().position(remains) else { continue };
            file.remaining = remaining;
            if remaining > 0 {
                let (first, name) = (file.names[0].1.clone(), file.names[remaining].1.clone());
                self.moved[file.source as usize].insert(first, name);
            }
        }
    }
}

/// Marks a directory as listed. Returns whether it was listed before.
fn place_is_listed(names: &mut MergedNames, node: NodeIndex) -> bool {
    std::mem::replace(&mut names.get_mut(node).is_listed, true)
}
