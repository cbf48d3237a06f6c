//! The parts of [`operations::Mounted`] in which ext4 differs. The shared part takes the locks and flushes deferred
//! creates.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::{ControlFlow, Range};

use operations::Mode;
use operations::inode::look_at_dir;
use operations::mounted::{
    KeepAttributes, ReadDirectories, ReadInodes, ShareContents, WholeVolume,
};
use operations::profile::{ListingClock, ListingProfile};
use vfs::survey::{ImageGeometry, Sink};
use vfs::{
    Attributes, Cookie, DirEntry, Error, FileAttributes, FileAttributesChange, FilePart, FileType,
    Ino, MappedExtent, NAME_LEN_MAX, Result, StatFs,
};

use crate::Ext4Core;
use crate::dir;
use crate::dir::compare::NameEncoding;
use crate::dir::listing::{DirectoryListing, Scratch};
use crate::file;
use crate::format::features::Incompat;
use crate::format::inode::flags;
use crate::inode::{self, Handle};
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

impl ReadInodes for Ext4Core {
    fn attributes_of_inode(&self, inode: &Handle) -> Result<Attributes> {
        let mut attributes = inode::attributes(self, inode)?;
        // The stored size is that of the encrypted target.
        if inode.has_flag(flags::ENCRYPT)
            && !self.key_cache.is_empty()
            && attributes.file_type == FileType::Symlink
            && let Some(target) = file::readlink(self, inode).ok()
        {
            attributes.size = target.len() as u64;
        }
        Ok(attributes)
    }

    fn link_target(&self, inode: &Handle) -> Result<Vec<u8>> {
        file::readlink(self, inode)
    }

    fn read_contents(&self, file: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        file::read(self, file, offset, buf)
    }

    fn contents_in_place(
        &self,
        file: &Handle,
        offset: u64,
        len: u64,
        take: &mut dyn FnMut(&[FilePart<'_>]),
    ) -> Result<bool> {
        file::read_in_place(self, file, offset, len, take)
    }

    fn extents_of(
        &self,
        file: &Handle,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(MappedExtent) -> ControlFlow<()>,
    ) -> Result<()> {
        file::extent_map(self, file, offset, len, each)
    }
}

impl ReadDirectories for Ext4Core {
    fn find_name(&self, dir: &Handle, name: &[u8]) -> Result<Ino> {
        dir::lookup(self, dir, name)
    }

    fn list(
        &self,
        dir: &Handle,
        from: Cookie,
        clock: ListingClock<'_>,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut listing = DirectoryListing::new(self, dir, clock);
        with_scratch(|scratch| listing.readdir(from, scratch, each))
    }

    fn list_unordered(
        &self,
        dir: &Handle,
        clock: ListingClock<'_>,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut listing = DirectoryListing::new(self, dir, clock);
        with_scratch(|scratch| listing.for_each_entry(scratch, each))
    }

    fn missing_name(&self, dir: &Handle) -> Error {
        inode::encryption::missing_key(self, dir).unwrap_or(Error::NotFound)
    }

    fn may_fold_names(&self) -> bool {
        self.volume.sb.features.incompat(Incompat::CASEFOLD)
    }

    fn fold_name<'n>(&self, dir: Ino, name: &'n [u8]) -> Result<Cow<'n, [u8]>> {
        look_at_dir(self, dir, |dir| Ok(NameEncoding::of(dir).folded(name)))
    }

    fn listings(&self) -> &ListingProfile {
        &self.listings
    }
}

impl KeepAttributes for Ext4Core {
    fn xattr(&self, inode: &Handle, name: &[u8]) -> Result<Vec<u8>> {
        xattr::get(self, inode, name)
    }

    fn xattr_names(&self, inode: &Handle, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        xattr::list(self, inode, each)
    }

    fn store_xattr(&self, ino: Ino, name: &[u8], value: &[u8]) -> Result<()> {
        self.set_attribute(ino, name, value)
    }

    fn drop_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.remove_attribute(ino, name)
    }

    fn stored_file_attributes(&self, ino: Ino) -> Result<FileAttributes> {
        self.read_file_attributes(ino)
    }

    fn store_file_attributes(&self, ino: Ino, change: &FileAttributesChange) -> Result<()> {
        self.change_file_attributes(ino, change)
    }
}

/// Blocks of ext4 belong to one file.
impl ShareContents for Ext4Core {}

impl WholeVolume for Ext4Core {
    fn totals(&self) -> Result<StatFs> {
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
            inodes_free: inodes,
            name_len_max: NAME_LEN_MAX as u32,
        })
    }

    fn totals_of(&self, ino: Ino) -> Result<StatFs> {
        let totals = self.totals()?;
        if !self.volume.projects || !self.has_project_quota() {
            return Ok(totals);
        }
        let _lock = self.locks.shared(ino);
        match self.load(ino) {
            Ok(found) if found.has_flag(flags::PROJINHERIT) => {
                self.within_project(totals, found.inode.projid())
            }
            // A deferred file.
            Ok(_) | Err(Error::NotFound) => Ok(totals),
            Err(error) => Err(error),
        }
    }

    fn stored_label(&self) -> Result<Vec<u8>> {
        self.current_label()
    }

    fn store_label(&self, label: &[u8]) -> Result<()> {
        self.change_label(label)
    }

    fn discard_free(&self, range: Range<u64>, len_min: u64) -> Result<u64> {
        self.trim_free(range, len_min)
    }

    fn shape_of_image(&self) -> Result<ImageGeometry> {
        self.shape()
    }

    fn survey(&self, sink: &mut dyn Sink) {
        self.tell_layout(sink);
    }
}
