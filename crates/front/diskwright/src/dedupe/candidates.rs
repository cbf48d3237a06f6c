//! Regular files of a tree, each once.

use std::collections::HashSet;

use vfs::path::{LastLink, Order};
use vfs::{FileType, Ino, Paths};

use crate::list::{absolute, join};
use crate::{Error, Result};

/// A regular file with contents.
pub(super) struct Candidate {
    pub(super) ino: Ino,
    /// Size in bytes.
    pub(super) size: u64,
    /// One of its paths.
    pub(super) path: Box<[u8]>,
}

/// The files of a tree in the order of a sorted walk.
pub(super) struct Candidates(Vec<Candidate>);

impl Candidates {
    /// Finds the files at and below `path`. Symbolic links are not followed.
    pub(super) fn below(paths: Paths<'_>, path: &[u8]) -> Result<Self> {
        let top = absolute(path);
        let ino = paths.resolve(path, LastLink::Keep).map_err(|e| Error::file(path, e))?;
        let mut walk = paths.walk(ino, Order::Sorted);
        let (mut found, mut linked) = (Vec::new(), HashSet::new());
        while let Some(visit) = walk.advance() {
            let path = join(&top, walk.path());
            let attributes = visit.map_err(|e| Error::file(&path, e))?.attributes;
            let is_wanted = attributes.file_type == FileType::Regular && attributes.size > 0;
            if is_wanted && (attributes.links < 2 || linked.insert(attributes.ino)) {
                let (ino, size) = (attributes.ino, attributes.size);
                found.push(Candidate { ino, size, path: path.into() });
            }
        }
        Ok(Self(found))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Candidate> {
        self.0.iter()
    }

    /// Returns the files with sizes that several files have, by size.
    pub(super) fn by_size(&self) -> Vec<Vec<&Candidate>> {
        let mut all: Vec<&Candidate> = self.iter().collect();
        // A stable sort: the first file of the walk is the source of the others.
        all.sort_by_key(|candidate| candidate.size);
        let groups = all.chunk_by(|one, two| one.size == two.size);
        groups.filter(|group| group.len() > 1).map(<[_]>::to_vec).collect()
    }
}
