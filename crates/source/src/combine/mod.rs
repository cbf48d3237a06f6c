//! Several sources as one: each is put over those before it, as archives are unpacked over each other.
//!
//! Which file wins is decided before the first entry is given, by reading all sources without the contents of
//! their files. So the stream has every path once, and nothing has to be made that a later source replaces:
//! - A file of any type takes the name of one that an earlier source has there, which keeps its other names.
//! - A directory is one with that of an earlier source. Its attributes are those of the last source that lists it.
//!   It takes the place of a file or of a symbolic link, which is never followed.
//! - What is no directory takes the place of an empty directory only, as in tar.
//! - Hard links lead to files of their own source.

mod conflict;
mod names;
mod stream;

use std::collections::HashMap;

pub use conflict::Conflict;
use names::{Names, Node, Place, What};
pub use stream::Combined;

use crate::{Entry, EntryKind, InodeDetails, Metadata, Source, SourceError, Xattr};

/// One of several sources.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// What it is called in errors.
    pub name: String,
    /// The directory that its root becomes, in the form of [`Entry::path`].
    pub at: Vec<u8>,
    /// Whether times other than those of the last changes of contents are left out, because they say when the files
    /// came to the host.
    pub mtime_only: bool,
}

impl Part {
    /// The path that something of this source has in what is made of all.
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

    /// An entry as it is in what is made of all.
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

/// What several sources make together.
#[derive(Debug)]
pub struct Combination {
    parts: Vec<Part>,
    names: Names,
    /// Files with several names.
    linked: Vec<Linked>,
    /// Attributes of directories that are listed more than once, as they are at last.
    relisted: HashMap<Node, Listed>,
    /// By source: the first names of files that a later source took, and the name that remains.
    moved: Vec<HashMap<Vec<u8>, Vec<u8>>>,
}

/// A file with several names.
#[derive(Debug)]
struct Linked {
    source: u32,
    /// Its names, the first one first.
    names: Vec<(Node, Vec<u8>)>,
    /// The first of them that remains.
    remaining: usize,
}

/// What a source says of a directory.
#[derive(Clone, Debug)]
struct Listed {
    metadata: Metadata,
    xattrs: Vec<Xattr>,
    inode: Option<Box<InodeDetails>>,
}

impl Combination {
    /// Reads all sources, one for each part and in the same order, and decides what remains of each.
    ///
    /// # Errors
    /// What the sources report, and [`SourceError::Conflict`].
    pub fn plan<E: From<SourceError>>(
        parts: Vec<Part>,
        sources: impl IntoIterator<Item = Result<Box<dyn Source>, E>>,
    ) -> Result<Self, E> {
        let moved = vec![HashMap::new(); parts.len()];
        let (names, relisted) = (Names::new(), HashMap::new());
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

    /// Files there are, or a few more.
    pub fn count(&self) -> u64 {
        self.names.count() as u64
    }

    /// Makes the place of a source.
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
                self.add_directory(source, &path, Listed { metadata, xattrs, inode })
            }
            EntryKind::Hardlink(target) => self.add_link(source, path, target),
            _ => self.add_file(source, &path).map(drop),
        }
    }

    fn add_directory(&mut self, source: u32, path: &[u8], listed: Listed) -> Result<(), Conflict> {
        let node = match self.names.place(path)? {
            Place::Free(dir, name) => self.names.insert(dir, name, What::Directory, source)?,
            Place::Taken(node) => node,
        };
        let place = self.names.get_mut(node);
        match place.what {
            What::Directory if place.is_listed && place.source.is_some() => {
                self.relisted.insert(node, listed);
            }
            What::Directory => {}
            What::File(_) if place.source == Some(source) => return Err(Conflict::Repeated),
            What::File(_) => place.what = What::Directory,
        }
        if !place_is_listed(&mut self.names, node) {
            self.names.get_mut(node).source = Some(source);
        }
        Ok(())
    }

    /// Gives a file its name, and takes it from what had it.
    fn add_file(&mut self, source: u32, path: &[u8]) -> Result<Node, Conflict> {
        let node = match self.names.place(path)? {
            Place::Free(dir, name) => {
                return self.names.insert(dir, name, What::File(None), source);
            }
            Place::Taken(node) => node,
        };
        let is_empty = self.names.is_empty(node);
        let place = self.names.get_mut(node);
        if place.source == Some(source) {
            return Err(Conflict::Repeated);
        }
        if !is_empty || path.is_empty() {
            return Err(Conflict::NotEmpty);
        }
        (place.what, place.source, place.is_listed) = (What::File(None), Some(source), false);
        self.relisted.remove(&node);
        Ok(node)
    }

    fn add_link(&mut self, source: u32, path: Vec<u8>, target: Vec<u8>) -> Result<(), Conflict> {
        let first = self.names.find(&target).filter(|&node| {
            let place = self.names.get(node);
            place.source == Some(source) && matches!(place.what, What::File(_))
        });
        let Some(first) = first else { return Err(Conflict::LinkTarget(target)) };
        let node = self.add_file(source, &path)?;
        let file = match self.names.get(first).what {
            What::File(Some(file)) => file,
            _ => {
                let file = self.linked.len() as u32;
                let names = vec![(first, target)];
                self.linked.push(Linked { source, names, remaining: 0 });
                self.names.get_mut(first).what = What::File(Some(file));
                file
            }
        };
        self.names.get_mut(node).what = What::File(Some(file));
        self.linked[file as usize].names.push((node, path));
        Ok(())
    }

    /// Notes of files whose first name another source took under which name they remain.
    fn move_files(&mut self) {
        for (number, file) in self.linked.iter_mut().enumerate() {
            let remains = |&(node, _): &(Node, Vec<u8>)| {
                let place = self.names.get(node);
                place.source == Some(file.source) && place.what == What::File(Some(number as u32))
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

/// Whether a directory was listed before; from now on it was.
fn place_is_listed(names: &mut Names, node: Node) -> bool {
    std::mem::replace(&mut names.get_mut(node).is_listed, true)
}
