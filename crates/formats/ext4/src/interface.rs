//! `vfs::FileSystem` for ext4. Each method is one call: either of the operation core, which takes the locks, or of code
//! that only ext4 has.
//!
//! Each format repeats the list of methods. Rust's orphan rule forbids the core a blanket implementation of the `vfs`
//! trait, and a wrapper type in the core would hide the methods that only one format has.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::{ControlFlow, Range};

use operations::data;
use operations::inode::{look_at, look_at_dir, set_attributes};
use operations::profile::{ListingProfile, MeasuresListings};
use operations::{Mode, RunOperations, deferred_create, names};
use vfs::{
    AllocateMode, Attributes, Cookie, DirEntry, FileAttributes, FileAttributesChange, FilePart,
    FileSystem, Ino, MappedExtent, NAME_LEN_MAX, NewInode, RenameMode, Result, SetAttributes,
    SpecialFile, StatFs, Timestamp,
};

use crate::Ext4;
use crate::dir;
use crate::dir::compare::Style;
use crate::dir::listing::{Listing, Scratch};
use crate::file;
use crate::format::features::Incompat;
use crate::inode;
use crate::xattr;

thread_local! {
    /// Buffers for listings, one set per thread, so that listing allocates nothing per entry.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Runs `list` with this thread's buffers, or with new ones if they are in use.
fn with_scratch<R>(list: impl FnOnce(&mut Scratch) -> R) -> R {
    SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
        Ok(mut scratch) => list(&mut scratch),
        Err(_) => list(&mut Scratch::default()),
    })
}

impl FileSystem for Ext4 {
    fn root(&self) -> Ino {
        self.root_ino()
    }

    fn folds_names(&self) -> bool {
        self.volume.sb.features.incompat(Incompat::CASEFOLD)
    }

    fn folded_name<'n>(&self, dir: Ino, name: &'n [u8]) -> Result<Cow<'n, [u8]>> {
        if !self.folds_names() {
            return Ok(Cow::Borrowed(name));
        }
        look_at_dir(self, dir, |dir| Ok(Style::of(dir).folded(name)))
    }

    fn is_far(&self) -> bool {
        RunOperations::engine(self).reads_ahead()
    }

    fn statfs(&self) -> Result<StatFs> {
        let volume = &self.volume;
        let (clusters, inodes) = volume.groups.totals();
        let blocks_free = clusters << volume.sb.cluster_blocks_log;
        let unreserved = match self.mode {
            Mode::InProgress => clusters,
            Mode::ReadOnly | Mode::Writable => volume.groups.unreserved(),
        } << volume.sb.cluster_blocks_log;
        let overhead =
            u64::from(volume.sb.raw.overhead_clusters.get()) << volume.sb.cluster_blocks_log;
        Ok(StatFs {
            block_size: volume.geometry.block_size(),
            blocks: volume.geometry.blocks_count.saturating_sub(overhead),
            blocks_free,
            blocks_available: unreserved.saturating_sub(volume.sb.raw.reserved_blocks()),
            blocks_for_contents: unreserved,
            inodes: u64::from(volume.geometry.inodes_count),
            inodes_free: inodes.saturating_sub(self.deferred.files() as u64),
            name_len_max: NAME_LEN_MAX as u32,
        })
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Ino> {
        look_at_dir(self, dir, |dir| match self.deferred.find(dir.ino(), name) {
            Some(ino) => Ok(ino),
            None => dir::lookup(self, dir, name),
        })
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
        look_at(self, ino, |inode| file::read(self, inode, offset, buf))
    }

    fn read_in_place(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        take: &mut dyn FnMut(&[FilePart<'_>]),
    ) -> Result<bool> {
        deferred_create::flush_file(self, ino)?;
        look_at(self, ino, |inode| file::read_in_place(self, inode, offset, len, take))
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
        look_at(self, ino, |inode| file::extent_map(self, inode, offset, len, each))
    }

    fn readdir(
        &self,
        dir: Ino,
        from: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let _flushed = deferred_create::flush_dir(self, dir)?;
        let clock = self.listings.clock();
        look_at_dir(self, dir, |dir| {
            if from == Cookie(0) {
                operations::data::read_ahead(self, dir);
            }
            let mut listing = Listing::new(self, dir, clock);
            with_scratch(|scratch| listing.readdir(from, scratch, each))
        })
    }

    fn for_each_entry(
        &self,
        dir: Ino,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let _flushed = deferred_create::flush_dir(self, dir)?;
        let clock = self.listings.clock();
        look_at_dir(self, dir, |dir| {
            operations::data::read_ahead(self, dir);
            let mut listing = Listing::new(self, dir, clock);
            with_scratch(|scratch| listing.for_each_entry(scratch, each))
        })
    }

    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        deferred_create::flush_file(self, ino)?;
        look_at(self, ino, |inode| xattr::get(self, inode, name))
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
        look_at(self, ino, |inode| xattr::list(self, inode, each))
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

    /// Makes all earlier changes durable, including those of other inodes and waiting files.
    fn fsync(&self, _ino: Ino) -> Result<()> {
        deferred_create::flush_all(self)?;
        operations::sync(self)
    }

    /// DeferredCreates files become durable too: a file that waits cannot be found after a crash without its name.
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

impl MeasuresListings for Ext4 {
    fn listing_profile(&self) -> &ListingProfile {
        &self.listings
    }
}
