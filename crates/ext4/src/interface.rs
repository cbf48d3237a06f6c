//! ext4 behind the format-blind interface: each method takes the inode's lock and calls what does
//! the work.

use std::cell::RefCell;
use std::ops::{ControlFlow, Range};

use vfs::{
    AllocateMode, Attributes, Cookie, DirEntry, FileAttributes, FileAttributesChange, FileSystem,
    Ino, ListingProfile, MappedExtent, NAME_LEN_MAX, NewInode, RenameMode, Result, SetAttributes,
    SpecialFile, StatFs, Timestamp,
};

use crate::Ext4;
use crate::format::features::Incompat;
use crate::fs::Mode;
use crate::read;
use crate::read::listing::{Listing, Scratch};

thread_local! {
    /// Memory of listings, kept by each thread so that listing allocates nothing per entry.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Runs `list` with this thread's memory, or with new memory if a listing is under way on it.
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

    fn statfs(&self) -> Result<StatFs> {
        let volume = &self.volume;
        let (clusters, inodes) = volume.groups.totals();
        let blocks_free = clusters << volume.sb.cluster_blocks_log;
        let unreserved = match self.mode {
            Mode::Fresh => clusters,
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
            inodes_free: inodes,
            name_len_max: NAME_LEN_MAX as u32,
        })
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Ino> {
        let _lock = self.locks.shared(dir);
        read::directory::lookup(self, &self.load_dir(dir)?, name)
    }

    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        let _lock = self.locks.shared(ino);
        read::inode::attributes(self, &self.load(ino)?)
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
        read::file::readlink(self, &self.load(ino)?)
    }

    fn create_unlinked(&self, dir: Ino, new: &NewInode) -> Result<Ino> {
        self.create_orphan(dir, new)
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
        read::file::read(self, &self.load(ino)?, offset, buf)
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
        read::file::extent_map(self, &self.load(ino)?, offset, len, each)
    }

    fn readdir(
        &self,
        dir: Ino,
        from: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let clock = self.listings.clock();
        let _lock = self.locks.shared(dir);
        let handle = self.load_dir(dir)?;
        let mut listing = Listing::new(self, &handle, clock);
        with_scratch(|scratch| listing.readdir(from, scratch, each))
    }

    fn for_each_entry(
        &self,
        dir: Ino,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let clock = self.listings.clock();
        let _lock = self.locks.shared(dir);
        let handle = self.load_dir(dir)?;
        let mut listing = Listing::new(self, &handle, clock);
        with_scratch(|scratch| listing.for_each_entry(scratch, each))
    }

    fn listing_profile(&self) -> Option<&ListingProfile> {
        Some(&self.listings)
    }

    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let _lock = self.locks.shared(ino);
        read::xattr::get(self, &self.load(ino)?, name)
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8]) -> Result<()> {
        self.set_attribute(ino, name, value)
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.remove_attribute(ino, name)
    }

    fn list_xattrs(&self, ino: Ino, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        let _lock = self.locks.shared(ino);
        read::xattr::list(self, &self.load(ino)?, each)
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
