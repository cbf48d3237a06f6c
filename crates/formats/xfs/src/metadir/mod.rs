//! The metadata directory tree (`metadir`): files of the file system itself, found by path below `sb_metadirino`.
//!
//! INVARIANT: inodes of the tree have the flag METADATA, and no inode outside of it has. Callers with an inode number
//! from outside get `NotFound` for them (`operations::Inodes::load` of [`XfsCore`]); only this module, quotas and
//! recovery reach them, by [`XfsCore::load`].

mod make;

use vfs::{Corruption, Error, Ino, Result};

use crate::XfsCore;
use crate::dir;
use crate::format::features::Incompat;
use crate::format::metafile::MetafileType;
use crate::inode::Handle;

impl XfsCore {
    /// Returns the root of the metadata directory tree; `None` if the image has none.
    pub(crate) fn metadir_root(&self) -> Option<Ino> {
        let sb = &self.volume.sb;
        sb.features.incompat(Incompat::METADIR).then(|| Ino(sb.raw.metadirino.get()))
    }

    /// Returns the metadata file at a path such as `rtgroups/0.bitmap`; `None` if there is none, or no tree. Must not
    /// be called by a thread with a running operation.
    ///
    /// # Errors
    /// `Corrupt` if an inode on the path is not in use, not metadata, or not of the type that its path requires.
    pub(crate) fn metafile(&self, path: &str) -> Result<Option<Handle>> {
        let Some(root) = self.metadir_root() else { return Ok(None) };
        let mut handle = self.metadata_inode(root, b"")?;
        let mut end = 0;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            handle.require_metadir()?;
            let found = dir::lookup(&mut &*self, &handle, name.as_bytes())?;
            let Some(found) = found else { return Ok(None) };
            end = path[end..].find(name).map_or(end, |at| end + at + name.len());
            handle = self.metadata_inode(found.ino, &path.as_bytes()[..end])?;
        }
        Ok(Some(handle))
    }

    /// Reads an inode of the tree, and checks that it is of the type that its path requires.
    fn metadata_inode(&self, ino: Ino, path: &[u8]) -> Result<Handle> {
        let shown = String::from_utf8_lossy(path);
        let fault = |problem: String| {
            Error::from(Corruption::new("metadata directory", problem).of_inode(ino.0))
        };
        let handle = self.load(ino).map_err(|error| match error {
            Error::NotFound => fault(format!("/{shown} is an inode that is not in use")),
            other => other,
        })?;
        if !handle.inode.is_metadata() {
            return Err(fault(format!("/{shown} is an inode without the metadata flag")));
        }
        let found = handle.inode.metafile_type();
        match MetafileType::of_path(path) {
            Some(expected) if expected != found => {
                let damage = Corruption::new("metadata directory", format!("type of /{shown}"));
                Err(damage.of_inode(ino.0).mismatch(expected.name(), found.name()).into())
            }
            _ => Ok(handle),
        }
    }
}

impl Handle {
    fn require_metadir(&self) -> Result<()> {
        match self.inode.is_dir() {
            true => Ok(()),
            false => Err(self.corrupt("metadata directory", "it is not a directory")),
        }
    }
}
