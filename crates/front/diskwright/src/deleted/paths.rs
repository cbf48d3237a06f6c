//! Paths of directories, in use or deleted.

use std::collections::{HashMap, HashSet};

use vfs::path::Order;
use vfs::{FileSystem, FileType, Ino, Paths};

use crate::fs::join;

/// Maximum number of deleted directories in a path.
const DEPTH_MAX: usize = 256;

/// Names of deleted directories, and the paths of those in use that contain deleted names.
pub(super) struct DirectoryPaths {
    in_use: HashMap<Ino, Vec<u8>>,
    deleted: HashMap<Ino, (Option<Ino>, Vec<u8>)>,
}

impl DirectoryPaths {
    /// Finds the paths of all directories in `wanted` by a walk through the image, which stops when all are found.
    /// `deleted` has the parent and the name of deleted directories.
    pub(super) fn find(
        fs: &dyn FileSystem,
        wanted: &HashSet<Ino>,
        deleted: HashMap<Ino, (Option<Ino>, Vec<u8>)>,
    ) -> Self {
        let mut in_use = HashMap::new();
        let is_dir = |ino: &Ino| {
            fs.attributes(*ino).is_ok_and(|found| found.file_type == FileType::Directory)
        };
        let mut missing: HashSet<Ino> = wanted.iter().copied().filter(is_dir).collect();
        let mut walk = Paths::new(fs).walk(fs.root(), Order::Physical);
        while !missing.is_empty() {
            match walk.advance() {
                Some(Ok(visit)) if missing.remove(&visit.attributes.ino) => {
                    in_use.insert(visit.attributes.ino, join(b"/", walk.path()));
                }
                Some(_) => {}
                None => break,
            }
        }
        Self { in_use, deleted }
    }

    /// Returns the path of a name in a directory, if it is known.
    pub(super) fn path(&self, dir: Option<Ino>, name: &[u8]) -> Option<Vec<u8>> {
        let mut names = vec![name];
        let mut at = dir?;
        let top = loop {
            if let Some(path) = self.in_use.get(&at) {
                break path;
            }
            let (parent, name) = self.deleted.get(&at)?;
            names.push(name);
            if names.len() > DEPTH_MAX {
                return None;
            }
            at = (*parent)?;
        };
        Some(names.iter().rev().fold(top.clone(), |path, name| join(&path, name)))
    }
}
