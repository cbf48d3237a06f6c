//! `vfs::FileSystem` for every format.
//!
//! Each method chooses a way through the layer of deferred creates, and calls an operation or a method of the format.

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};

use vfs::survey::{ImageGeometry, Sink, TellsLayout};
use vfs::{
    AllocateMode, Attributes, Cookie, DirEntry, Error, FileAttributes, FileAttributesChange,
    FilePart, FileSystem, Ino, MappedExtent, NewInode, RenameMode, Result, SetAttributes,
    SpecialFile, StatFs, Timestamp,
};

use super::{MountFormat, Mounted};
use crate::inode::{look_at, look_at_dir, set_attributes};
use crate::profile::{ListingProfile, MeasuresListings};
use crate::{data, names, orphans};

impl<F: MountFormat> FileSystem for Mounted<F> {
    fn root(&self) -> Ino {
        self.layer.format().root_directory()
    }

    fn folds_names(&self) -> bool {
        self.layer.format().may_fold_names()
    }

    fn folded_name<'n>(&self, dir: Ino, name: &'n [u8]) -> Result<Cow<'n, [u8]>> {
        let fs = self.layer.format();
        if fs.may_fold_names() { fs.fold_name(dir, name) } else { Ok(Cow::Borrowed(name)) }
    }

    fn is_far(&self) -> bool {
        self.layer.format().engine().reads_ahead()
    }

    fn read_ahead(&self, place: u64, len: u64) {
        self.layer.format().engine().request_contents(place, len);
    }

    fn statfs(&self) -> Result<StatFs> {
        let totals = self.layer.format().totals()?;
        let inodes_free = totals.inodes_free.saturating_sub(self.layer.files() as u64);
        Ok(StatFs { inodes_free, ..totals })
    }

    fn statfs_of(&self, ino: Ino) -> Result<StatFs> {
        let totals = self.layer.format().totals_of(ino)?;
        let inodes_free = totals.inodes_free.saturating_sub(self.layer.files() as u64);
        Ok(StatFs { inodes_free, ..totals })
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Ino> {
        self.layer.lookup(dir, name, |fs, dir| fs.find_name(dir, name))
    }

    fn missing_name(&self, dir: Ino) -> Error {
        let fs = self.layer.format();
        look_at_dir(fs, dir, |dir| Ok(fs.missing_name(dir))).unwrap_or(Error::NotFound)
    }

    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        self.layer.attributes(ino, |fs, inode| fs.attributes_of_inode(inode))
    }

    fn set_attributes(&self, ino: Ino, change: &SetAttributes) -> Result<()> {
        self.layer.change_inode(ino, |fs| set_attributes(fs, ino, change))
    }

    fn create(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino> {
        self.layer.create(dir, name, new, |fs| names::create(fs, dir, name, new))
    }

    fn mkdir(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino> {
        self.layer.change_dir(dir, |fs| names::mkdir(fs, dir, name, new))
    }

    fn mknod(&self, dir: Ino, name: &[u8], file: SpecialFile, new: &NewInode) -> Result<Ino> {
        self.layer.change_dir(dir, |fs| names::mknod(fs, dir, name, file, new))
    }

    fn symlink(&self, dir: Ino, name: &[u8], target: &[u8], new: &NewInode) -> Result<Ino> {
        self.layer.change_dir(dir, |fs| names::symlink(fs, dir, name, target, new))
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.layer.read_file(ino, |fs| look_at(fs, ino, |inode| fs.link_target(inode)))
    }

    fn create_unlinked(&self, dir: Ino, new: &NewInode) -> Result<Ino> {
        self.layer.change_dir(dir, |fs| names::create_unlinked(fs, dir, new))
    }

    fn link(&self, ino: Ino, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        self.layer.link_file(ino, dir, |fs| names::link(fs, ino, dir, name, time))
    }

    fn link_over(&self, ino: Ino, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        self.layer.link_file(ino, dir, |fs| names::link_over(fs, ino, dir, name, time))
    }

    fn unlink(&self, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        self.layer.change_dir(dir, |fs| names::unlink(fs, dir, name, time))
    }

    fn rmdir(&self, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()> {
        self.layer.change_dir(dir, |fs| names::rmdir(fs, dir, name, time))
    }

    fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        time: Option<Timestamp>,
    ) -> Result<()> {
        self.layer.move_names((from, to), |fs| names::rename(fs, from, to, mode, None, time))
    }

    fn rename_with_whiteout(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        whiteout: &NewInode,
        time: Option<Timestamp>,
    ) -> Result<()> {
        let whiteout = Some(whiteout);
        self.layer.move_names((from, to), |fs| names::rename(fs, from, to, mode, whiteout, time))
    }

    fn open(&self, ino: Ino) -> Result<()> {
        self.layer.open(ino, |fs| orphans::open_inode(fs, ino))
    }

    /// A deferred file has names, so closing it frees nothing.
    fn close(&self, ino: Ino) -> Result<()> {
        orphans::close_inode(self.layer.format(), ino)
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.layer.read_file(ino, |fs| look_at(fs, ino, |file| fs.read_contents(file, offset, buf)))
    }

    fn read_in_place(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        take: &mut dyn FnMut(&[FilePart<'_>]),
    ) -> Result<bool> {
        self.layer.read_file(ino, |fs| {
            look_at(fs, ino, |file| fs.contents_in_place(file, offset, len, take))
        })
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], time: Option<Timestamp>) -> Result<()> {
        self.layer.change_file(ino, |fs| data::write(fs, ino, offset, data, time))
    }

    fn allocate(&self, ino: Ino, offset: u64, len: u64, mode: AllocateMode) -> Result<()> {
        self.layer.change_file(ino, |fs| data::allocate(fs, ino, offset, len, mode))
    }

    fn truncate(&self, ino: Ino, size: u64, time: Option<Timestamp>) -> Result<()> {
        self.layer.change_file(ino, |fs| data::resize(fs, ino, size, time))
    }

    fn can_clone(&self) -> bool {
        self.layer.format().may_clone()
    }

    fn clone_range(
        &self,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
        time: Option<Timestamp>,
    ) -> Result<()> {
        self.layer.change_files((from.0, to.0), |fs| fs.clone_contents(from, to, len, time))
    }

    fn exchange_range(
        &self,
        one: (Ino, u64),
        two: (Ino, u64),
        len: u64,
        time: Option<Timestamp>,
    ) -> Result<()> {
        self.layer.change_files((one.0, two.0), |fs| fs.exchange_contents(one, two, len, time))
    }

    fn dedupe_range(&self, from: (Ino, u64), to: (Ino, u64), len: u64) -> Result<bool> {
        self.layer.change_files((from.0, to.0), |fs| fs.dedupe_contents(from, to, len))
    }

    fn extent_map(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(MappedExtent) -> ControlFlow<()>,
    ) -> Result<()> {
        self.layer
            .read_file(ino, |fs| look_at(fs, ino, |file| fs.extents_of(file, offset, len, each)))
    }

    fn readdir(
        &self,
        dir: Ino,
        from: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.layer.list_dir(dir, |fs| {
            let clock = fs.listings().clock();
            look_at_dir(fs, dir, |dir| {
                if from == Cookie::default() {
                    data::read_ahead(fs, dir);
                }
                fs.list(dir, from, clock, each)
            })
        })
    }

    fn for_each_entry(
        &self,
        dir: Ino,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.layer.list_dir(dir, |fs| {
            let clock = fs.listings().clock();
            look_at_dir(fs, dir, |dir| {
                data::read_ahead(fs, dir);
                fs.list_unordered(dir, clock, each)
            })
        })
    }

    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.layer.read_file(ino, |fs| look_at(fs, ino, |inode| fs.xattr(inode, name)))
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8]) -> Result<()> {
        self.layer.change_inode(ino, |fs| fs.store_xattr(ino, name, value))
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.layer.change_inode(ino, |fs| fs.drop_xattr(ino, name))
    }

    fn list_xattrs(&self, ino: Ino, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.layer.read_file(ino, |fs| look_at(fs, ino, |inode| fs.xattr_names(inode, each)))
    }

    fn parents(&self, ino: Ino, each: &mut dyn FnMut(Ino, &[u8])) -> Result<bool> {
        self.layer.read_file(ino, |fs| fs.parent_pointers(ino, each))
    }

    fn file_attributes(&self, ino: Ino) -> Result<FileAttributes> {
        self.layer.read_file(ino, |fs| fs.stored_file_attributes(ino))
    }

    fn set_file_attributes(&self, ino: Ino, change: &FileAttributesChange) -> Result<()> {
        self.layer.change_inode(ino, |fs| fs.store_file_attributes(ino, change))
    }

    fn trim(&self, range: Range<u64>, len_min: u64) -> Result<u64> {
        self.layer.format().discard_free(range, len_min)
    }

    /// Makes all earlier changes durable, including those of other inodes.
    fn fsync(&self, _ino: Ino) -> Result<()> {
        self.layer.sync(crate::sync)
    }

    fn fdatasync(&self, _ino: Ino) -> Result<()> {
        self.layer.sync(crate::sync_data)
    }

    fn sync(&self) -> Result<()> {
        self.layer.sync(crate::sync)
    }

    fn label(&self) -> Result<Vec<u8>> {
        self.layer.format().stored_label()
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        self.layer.format().store_label(label)
    }

    fn shut_down(&self) -> Result<()> {
        self.layer.format().engine().stop();
        Ok(())
    }
}

impl<F: MountFormat> TellsLayout for Mounted<F> {
    fn shape(&self) -> Result<ImageGeometry> {
        self.layer.format().shape_of_image()
    }

    fn tell_layout(&self, sink: &mut dyn Sink) {
        self.layer.format().survey(sink);
    }
}

impl<F: MountFormat> MeasuresListings for Mounted<F> {
    fn listing_profile(&self) -> &ListingProfile {
        self.layer.format().listings()
    }
}
