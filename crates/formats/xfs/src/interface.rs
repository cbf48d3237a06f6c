//! Implements `vfs::FileSystem` for XFS. Each method is one call: of the operation core, for what both formats do alike
//! (the core takes the locks), or of code of this format.
//!
//! Each format has its own list of methods. The orphan rule forbids the core to implement the trait for every format,
//! and a wrapper type in the core would hide the methods that only one format has.

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};

use operations::data;
use operations::inode::{look_at, look_at_dir, set_attributes};
use operations::profile::{ListingProfile, MeasuresListings};
use operations::{Mode, RunOperations, deferred_create, names};
use vfs::{
    AllocateMode, Attributes, Cookie, DirEntry, Error, FileAttributes, FileAttributesChange,
    FilePart, FileSystem, Ino, MappedExtent, NewInode, RenameMode, Result, SetAttributes,
    SpecialFile, StatFs, Timestamp,
};

use crate::format::features::Incompat;
use crate::format::hash;
use crate::xattr::parent::Link;
use crate::{Xfs, dir, file, inode, xattr};

impl FileSystem for Xfs {
    fn root(&self) -> Ino {
        self.root_ino()
    }

    fn folds_names(&self) -> bool {
        self.volume.geometry.features.ascii_ci()
    }

    fn folded_name<'n>(&self, _dir: Ino, name: &'n [u8]) -> Result<Cow<'n, [u8]>> {
        if !self.folds_names() {
            return Ok(Cow::Borrowed(name));
        }
        Ok(Cow::Owned(name.iter().map(|&byte| hash::fold(byte)).collect()))
    }

    fn is_far(&self) -> bool {
        RunOperations::engine(self).reads_ahead()
    }

    fn statfs(&self) -> Result<StatFs> {
        let statfs = self.volume.statfs(self.mode != Mode::InProgress);
        let inodes_free = statfs.inodes_free.saturating_sub(self.deferred.files() as u64);
        Ok(StatFs { inodes_free, ..statfs })
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Ino> {
        let found = look_at_dir(self, dir, |dir| match self.deferred.find(dir.ino(), name) {
            Some(ino) => Ok(Some(ino)),
            None => Ok(dir::lookup(&mut &*self, dir, name)?.map(|found| found.ino)),
        });
        found?.ok_or(Error::NotFound)
    }

    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        if let Some(attributes) = deferred_create::attributes(self, ino)? {
            return Ok(attributes);
        }
        look_at(self, ino, |inode| {
            let mut attributes = inode::attributes(self, inode)?;
            if let Some(time) = self.deferred.time(ino) {
                (attributes.mtime, attributes.ctime) = (time, time);
            }
            Ok(attributes)
        })
    }

    fn set_attributes(&self, ino: Ino, change: &SetAttributes) -> Result<()> {
        let _flushed = deferred_create::flush_inode(self, ino)?;
        set_attributes(self, ino, change)
    }

    fn create(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino> {
        if let Some(ino) = deferred_create::create(self, dir, name, new)? {
            return Ok(ino);
        }
        let _flushed = deferred_create::flush_dir(self, dir)?;
        deferred_create::retry_after_flush(self, || names::create(self, dir, name, new))
    }

    fn mkdir(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino> {
        let _flushed = deferred_create::flush_dir(self, dir)?;
        deferred_create::retry_after_flush(self, || names::mkdir(self, dir, name, new))
    }

    fn mknod(&self, dir: Ino, name: &[u8], file: SpecialFile, new: &NewInode) -> Result<Ino> {
        let _flushed = deferred_create::flush_dir(self, dir)?;
        deferred_create::retry_after_flush(self, || names::mknod(self, dir, name, file, new))
    }

    fn symlink(&self, dir: Ino, name: &[u8], target: &[u8], new: &NewInode) -> Result<Ino> {
        let _flushed = deferred_create::flush_dir(self, dir)?;
        deferred_create::retry_after_flush(self, || names::symlink(self, dir, name, target, new))
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        deferred_create::flush_file(self, ino)?;
        look_at(self, ino, |inode| file::readlink(self, inode))
    }

    fn create_unlinked(&self, dir: Ino, new: &NewInode) -> Result<Ino> {
        let _flushed = deferred_create::flush_dir(self, dir)?;
        deferred_create::retry_after_flush(self, || names::create_unlinked(self, dir, new))
    }

    fn link(&self, ino: Ino, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        deferred_create::flush_file(self, ino)?;
        let _flushed = deferred_create::flush_dir(self, dir)?;
        deferred_create::retry_after_flush(self, || names::link(self, ino, dir, name, time))
    }

    fn link_over(&self, ino: Ino, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        deferred_create::flush_file(self, ino)?;
        let _flushed = deferred_create::flush_dir(self, dir)?;
        deferred_create::retry_after_flush(self, || names::link_over(self, ino, dir, name, time))
    }

    fn unlink(&self, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        let _flushed = deferred_create::flush_dir(self, dir)?;
        names::unlink(self, dir, name, time)
    }

    fn rmdir(&self, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        let _flushed = deferred_create::flush_dir(self, dir)?;
        names::rmdir(self, dir, name, time)
    }

    fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        time: Option<Timestamp>,
    ) -> Result<()> {
        let _flushed =
            (deferred_create::flush_dir(self, from.0)?, deferred_create::flush_dir(self, to.0)?);
        let _moved = (
            deferred_create::flush_named_dir(self, from)?,
            deferred_create::flush_named_dir(self, to)?,
        );
        deferred_create::retry_after_flush(self, || names::rename(self, from, to, mode, None, time))
    }

    fn rename_with_whiteout(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        whiteout: &NewInode,
        time: Option<Timestamp>,
    ) -> Result<()> {
        let _flushed =
            (deferred_create::flush_dir(self, from.0)?, deferred_create::flush_dir(self, to.0)?);
        let _moved = (
            deferred_create::flush_named_dir(self, from)?,
            deferred_create::flush_named_dir(self, to)?,
        );
        deferred_create::retry_after_flush(self, || {
            names::rename(self, from, to, mode, Some(whiteout), time)
        })
    }

    fn open(&self, ino: Ino) -> Result<()> {
        if deferred_create::open(self, ino)? {
            return Ok(());
        }
        operations::orphans::open_inode(self, ino)
    }

    fn close(&self, ino: Ino) -> Result<()> {
        operations::orphans::close_inode(self, ino)
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        deferred_create::flush_file(self, ino)?;
        look_at(self, ino, |inode| {
            data::require_regular(inode)?;
            data::read(self, inode, offset, buf)
        })
    }

    fn read_in_place(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        take: &mut dyn FnMut(&[FilePart<'_>]),
    ) -> Result<bool> {
        deferred_create::flush_file(self, ino)?;
        look_at(self, ino, |inode| {
            data::require_regular(inode)?;
            data::read_in_place(self, inode, offset, len, take)
        })
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], time: Option<Timestamp>) -> Result<()> {
        deferred_create::flush_file(self, ino)?;
        deferred_create::retry_after_flush(self, || data::write(self, ino, offset, data, time))
    }

    fn allocate(&self, ino: Ino, offset: u64, len: u64, mode: AllocateMode) -> Result<()> {
        deferred_create::flush_file(self, ino)?;
        deferred_create::retry_after_flush(self, || data::allocate(self, ino, offset, len, mode))
    }

    fn truncate(&self, ino: Ino, size: u64, time: Option<Timestamp>) -> Result<()> {
        deferred_create::flush_file(self, ino)?;
        deferred_create::retry_after_flush(self, || data::resize(self, ino, size, time))
    }

    fn extent_map(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(MappedExtent) -> ControlFlow<()>,
    ) -> Result<()> {
        deferred_create::flush_file(self, ino)?;
        look_at(self, ino, |inode| {
            data::require_regular(inode)?;
            data::extent_map(self, inode, offset, len, each)
        })
    }

    fn readdir(
        &self,
        dir: Ino,
        from: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let _flushed = deferred_create::flush_dir(self, dir)?;
        let mut clock = self.listings.clock();
        look_at_dir(self, dir, |dir| {
            if from == Cookie(0) {
                operations::data::read_ahead(self, dir);
            }
            dir::readdir(self, dir, from, &mut clock, each)
        })
    }

    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        deferred_create::flush_file(self, ino)?;
        look_at(self, ino, |inode| xattr::get(&mut &*self, inode, name))?.ok_or(Error::NoAttribute)
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8]) -> Result<()> {
        let _flushed = deferred_create::flush_inode(self, ino)?;
        deferred_create::retry_after_flush(self, || self.set_attribute(ino, name, value))
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let _flushed = deferred_create::flush_inode(self, ino)?;
        self.remove_attribute(ino, name)
    }

    fn list_xattrs(&self, ino: Ino, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        deferred_create::flush_file(self, ino)?;
        look_at(self, ino, |inode| xattr::list(&mut &*self, inode, each))
    }

    /// The number may come from anywhere, so it is looked up in the inode tree first: file data can look like an inode.
    fn parents(&self, ino: Ino, each: &mut dyn FnMut(Ino, &[u8])) -> Result<bool> {
        deferred_create::flush_file(self, ino)?;
        if !self.inode_in_use(ino)? {
            return Err(Error::NotFound);
        }
        if !self.volume.geometry.features.incompat(Incompat::PARENT) {
            return Ok(false);
        }
        look_at(self, ino, |inode| {
            let each = &mut |link: Link<'_>| each(link.dir, link.name);
            xattr::parent::for_each(&mut &*self, inode, each)
        })?;
        Ok(true)
    }

    fn file_attributes(&self, ino: Ino) -> Result<FileAttributes> {
        deferred_create::flush_file(self, ino)?;
        self.read_file_attributes(ino)
    }

    fn set_file_attributes(&self, ino: Ino, change: &FileAttributesChange) -> Result<()> {
        let _flushed = deferred_create::flush_inode(self, ino)?;
        self.change_file_attributes(ino, change)
    }

    fn trim(&self, range: Range<u64>, len_min: u64) -> Result<u64> {
        self.trim_free(range, len_min)
    }

    fn fsync(&self, _ino: Ino) -> Result<()> {
        deferred_create::flush_all(self)?;
        operations::sync(self)
    }

    fn fdatasync(&self, _ino: Ino) -> Result<()> {
        deferred_create::flush_all(self)?;
        operations::sync_data(self)
    }

    fn sync(&self) -> Result<()> {
        deferred_create::flush_all(self)?;
        operations::sync(self)
    }

    fn label(&self) -> Result<Vec<u8>> {
        self.current_label()
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        self.change_label(label)
    }

    fn shut_down(&self) -> Result<()> {
        self.engine.stop();
        Ok(())
    }
}

impl MeasuresListings for Xfs {
    fn listing_profile(&self) -> &ListingProfile {
        &self.listings
    }
}
