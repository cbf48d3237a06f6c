//! Implements the directory part of the operations on names.

use std::borrow::Cow;

use operations::names::{Directories, Entry};
use operations::{Outcome, deferred_create};
use vfs::{FileType, Ino, Result};

use crate::XfsCore;
use crate::deferred_create::NameKeys;
use crate::dir::{self, Spot};
use crate::inode::Handle;
use crate::op::Op;

/// The inode that a name leads to, in a locked directory.
#[derive(Clone, Copy, Debug)]
pub struct Located {
    ino: Ino,
    /// Location of its entry, as a hint to find it again.
    spot: Option<Spot>,
}

impl Directories for XfsCore {
    type Found = Located;

    fn root_directory(&self) -> Ino {
        self.root_ino()
    }

    fn find_entry(&self, dir: &Handle, name: &[u8]) -> Result<Option<Located>> {
        let found = dir::locate(self, dir, name)?;
        Ok(found.map(|(found, spot)| Located { ino: found.ino, spot }))
    }

    fn ino_of(found: &Located) -> Ino {
        found.ino
    }

    fn stored_name<'n>(
        &self,
        dir: &Handle,
        name: &'n [u8],
        _found: &Located,
    ) -> Result<Cow<'n, [u8]>> {
        if !self.volume.geometry.features.ascii_ci() {
            return Ok(Cow::Borrowed(name));
        }
        dir::stored_name(self, dir, name).map(Cow::Owned)
    }

    fn parent_of(&self, dir: &Handle) -> Result<Option<Ino>> {
        Ok(dir::lookup(&mut &*self, dir, b"..")?.map(|found| found.ino))
    }

    fn is_empty(&self, dir: &Handle) -> Result<bool> {
        Ok(!self.deferred.has_names(dir.ino()) && dir::is_empty(&mut &*self, dir)?)
    }

    fn add_entry(op: &mut Op<'_>, dir: &mut Handle, entry: Entry<'_>) -> Outcome<()> {
        op.add_entry(dir, entry)?;
        deferred_create::note_name(op.fs, dir, entry.name, || Ok(Some(NameKeys)))
    }

    fn replace_entry(
        op: &mut Op<'_>,
        dir: &mut Handle,
        _found: &Located,
        entry: Entry<'_>,
    ) -> Outcome<()> {
        op.replace_entry(dir, entry).map(drop)
    }

    fn remove_entry(
        op: &mut Op<'_>,
        dir: &mut Handle,
        name: &[u8],
        found: &Located,
    ) -> Outcome<()> {
        op.remove_entry(dir, name, found.spot.as_ref()).map(drop)
    }

    fn set_parent(op: &mut Op<'_>, dir: &mut Handle, _from: Ino, to: Ino) -> Outcome<()> {
        let entry = Entry { name: b"..", ino: to, file_type: FileType::Directory };
        op.replace_entry(dir, entry).map(drop)
    }

    fn stage_dir(op: &mut Op<'_>, dir: Handle, _before: &Handle) -> Outcome<()> {
        op.stage(dir);
        Ok(())
    }
}
