//! XFS behind the format-blind interface: each method takes the inode's lock and calls what does the
//! work.

use std::ops::{ControlFlow, Range};

use vfs::{
    AllocateMode, Attributes, Cookie, DirEntry, Error, FileAttributes, FileAttributesChange,
    FileSystem, Ino, ListingProfile, MappedExtent, NewInode, RenameMode, Result, SetAttributes,
    SpecialFile, StatFs, Timestamp,
};

use crate::format::features::Incompat;
use crate::fs::Mode;
use crate::{Xfs, attr, dir, file, inode};

impl FileSystem for Xfs {
    fn root(&self) -> Ino {
        self.root_ino()
    }

    fn folds_names(&self) -> bool {
        self.volume.geometry.features.ascii_ci()
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(self.volume.statfs(self.mode != Mode::Fresh))
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Ino> {
        let _lock = self.locks.shared(dir);
        let found = dir::lookup(&mut &*self, &self.load_dir(dir)?, name)?;
        found.map(|found| found.ino).ok_or(Error::NotFound)
    }

    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        let _lock = self.locks.shared(ino);
        inode::attributes(self, &self.load(ino)?)
    }

    fn set_attributes(&self, ino: Ino, change: &SetAttributes) -> Result<()> {
        self.change_attributes(ino, change)
    }

    fn create(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino> {
        self.create_file(dir, name, new)
    }

    fn mkdir(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino> {
        self.create_dir(dir, name, new)
    }

    fn mknod(&self, dir: Ino, name: &[u8], file: SpecialFile, new: &NewInode) -> Result<Ino> {
        self.create_special(dir, name, file, new)
    }

    fn symlink(&self, dir: Ino, name: &[u8], target: &[u8], new: &NewInode) -> Result<Ino> {
        self.create_symlink(dir, name, target, new)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let _lock = self.locks.shared(ino);
        file::readlink(self, &self.load(ino)?)
    }

    fn create_unlinked(&self, dir: Ino, new: &NewInode) -> Result<Ino> {
        self.create_open(dir, new)
    }

    fn link(&self, ino: Ino, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        self.add_link(ino, dir, name, time)
    }

    fn link_over(&self, ino: Ino, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        self.replace_link(ino, dir, name, time)
    }

    fn unlink(&self, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        self.remove_file(dir, name, time)
    }

    fn rmdir(&self, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        self.remove_dir(dir, name, time)
    }

    fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        time: Option<Timestamp>,
    ) -> Result<()> {
        self.rename_entry(from, to, mode, None, time)
    }

    fn rename_with_whiteout(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        whiteout: &NewInode,
        time: Option<Timestamp>,
    ) -> Result<()> {
        self.rename_entry(from, to, mode, Some(whiteout), time)
    }

    fn open(&self, ino: Ino) -> Result<()> {
        self.open_inode(ino)
    }

    fn close(&self, ino: Ino) -> Result<()> {
        self.close_inode(ino)
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let _lock = self.locks.shared(ino);
        file::read(self, &self.load(ino)?, offset, buf)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        self.write_file(ino, offset, data)
    }

    fn allocate(&self, ino: Ino, offset: u64, len: u64, mode: AllocateMode) -> Result<()> {
        self.allocate_range(ino, offset, len, mode)
    }

    fn truncate(&self, ino: Ino, size: u64) -> Result<()> {
        self.resize_file(ino, size)
    }

    fn extent_map(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(MappedExtent) -> ControlFlow<()>,
    ) -> Result<()> {
        let _lock = self.locks.shared(ino);
        file::extent_map(self, &self.load(ino)?, offset, len, each)
    }

    fn readdir(
        &self,
        dir: Ino,
        from: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut clock = self.listings.clock();
        let _lock = self.locks.shared(dir);
        dir::readdir(self, &self.load_dir(dir)?, from, &mut clock, each)
    }

    fn listing_profile(&self) -> Option<&ListingProfile> {
        Some(&self.listings)
    }

    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let _lock = self.locks.shared(ino);
        attr::get(&mut &*self, &self.load(ino)?, name)?.ok_or(Error::NoAttribute)
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8]) -> Result<()> {
        self.set_attribute(ino, name, value)
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.remove_attribute(ino, name)
    }

    fn list_xattrs(&self, ino: Ino, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        let _lock = self.locks.shared(ino);
        attr::list(&mut &*self, &self.load(ino)?, each)
    }

    /// The number may come from anywhere, so that what lies there must not be believed before the tree
    /// of inodes knows it: data of a file can look like an inode.
    fn parents(&self, ino: Ino, each: &mut dyn FnMut(Ino, &[u8])) -> Result<bool> {
        if !self.inode_in_use(ino)? {
            return Err(Error::NotFound);
        }
        if !self.volume.geometry.features.incompat(Incompat::PARENT) {
            return Ok(false);
        }
        let _lock = self.locks.shared(ino);
        attr::parent::for_each(&mut &*self, &self.load(ino)?, &mut |link| {
            each(link.dir, link.name);
        })?;
        Ok(true)
    }

    fn file_attributes(&self, ino: Ino) -> Result<FileAttributes> {
        self.read_file_attributes(ino)
    }

    fn set_file_attributes(&self, ino: Ino, change: &FileAttributesChange) -> Result<()> {
        self.change_file_attributes(ino, change)
    }

    fn trim(&self, range: Range<u64>, len_min: u64) -> Result<u64> {
        self.trim_free(range, len_min)
    }

    fn fsync(&self, _ino: Ino) -> Result<()> {
        self.sync()
    }

    fn sync(&self) -> Result<()> {
        if self.check_writable().is_err() {
            return Ok(());
        }
        Ok(self.engine.sync()?)
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
