//! Finding and changing directory entries for operations on names.

use std::borrow::Cow;

use operations::names::{Directories, Entry};
use operations::{Outcome, deferred_create};
use vfs::{Error, Ino, Result};

use crate::Ext4Core;
use crate::dir::compare::NameEncoding;
use crate::dir::{self, FoundDirent};
use crate::format::inode::flags;
use crate::inode::Handle;
use crate::op::Op;

impl Directories for Ext4Core {
    type Found = FoundDirent;

    fn root_directory(&self) -> Ino {
        self.root_ino()
    }

    fn find_entry(&self, dir: &Handle, name: &[u8]) -> Result<Option<FoundDirent>> {
        dir::find(&mut &*self, dir, name)
    }

    /// Without the key, names of an encrypted directory can be removed, but neither moved nor replaced (kernel
    /// Documentation/filesystems/fscrypt.rst, "Without the key").
    fn admit_move(&self, dir: &Handle) -> Result<()> {
        if dir.has_flag(flags::ENCRYPT) { Err(Error::encrypted_read_only()) } else { Ok(()) }
    }

    fn ino_of(found: &FoundDirent) -> Ino {
        found.ino
    }

    fn stored_name<'n>(
        &self,
        dir: &Handle,
        name: &'n [u8],
        found: &FoundDirent,
    ) -> Result<Cow<'n, [u8]>> {
        if NameEncoding::of(dir) != NameEncoding::Folded {
            return Ok(Cow::Borrowed(name));
        }
        dir::stored_name(&mut &*self, dir, name, found).map(Cow::Owned)
    }

    fn parent_of(&self, dir: &Handle) -> Result<Option<Ino>> {
        dir::parent(&mut &*self, dir)
    }

    fn is_empty(&self, dir: &Handle) -> Result<bool> {
        Ok(!self.deferred.has_names(dir.ino()) && dir::is_empty(&mut &*self, dir)?)
    }

    fn add_entry(op: &mut Op<'_>, dir: &mut Handle, entry: Entry<'_>) -> Outcome<()> {
        op.add_entry(dir, entry)?;
        let fs = op.fs;
        deferred_create::note_name(fs, dir, entry.name, || op.hasher_to_defer(dir))
    }

    fn replace_entry(
        op: &mut Op<'_>,
        dir: &mut Handle,
        found: &FoundDirent,
        entry: Entry<'_>,
    ) -> Outcome<()> {
        op.replace_entry(dir, found, entry)
    }

    fn remove_entry(
        op: &mut Op<'_>,
        dir: &mut Handle,
        name: &[u8],
        found: &FoundDirent,
    ) -> Outcome<()> {
        op.remove_entry(dir, name, found)
    }

    fn set_parent(op: &mut Op<'_>, dir: &mut Handle, from: Ino, to: Ino) -> Outcome<()> {
        op.set_parent(dir, from, to)
    }

    fn stage_dir(op: &mut Op<'_>, dir: Handle, before: &Handle) -> Outcome<()> {
        op.stage_dir(dir, before)
    }
}
