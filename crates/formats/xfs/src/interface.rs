//! The parts of [`operations::Mounted`] in which XFS differs. The shared part takes the locks and flushes deferred
//! creates.

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};

use operations::inode::look_at;
use operations::mounted::{KeepAttributes, ReadDirectories, ReadInodes, WholeVolume};
use operations::profile::{ListingClock, ListingProfile};
use operations::{Mode, data};
use vfs::survey::{ImageGeometry, Sink};
use vfs::{
    Attributes, Cookie, DirEntry, Error, FileAttributes, FileAttributesChange, FilePart, Ino,
    MappedExtent, Result, StatFs,
};

use crate::format::features::Incompat;
use crate::format::hash;
use crate::format::inode::flags;
use crate::inode::Handle;
use crate::xattr::parent::NamedLink;
use crate::{XfsCore, dir, file, inode, xattr};

impl ReadInodes for XfsCore {
    fn attributes_of_inode(&self, inode: &Handle) -> Result<Attributes> {
        inode::attributes(self, inode)
    }

    fn link_target(&self, inode: &Handle) -> Result<Vec<u8>> {
        file::readlink(self, inode)
    }

    fn read_contents(&self, file: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        data::require_regular(file)?;
        data::read(self, file, offset, buf)
    }

    fn contents_in_place(
        &self,
        file: &Handle,
        offset: u64,
        len: u64,
        take: &mut dyn FnMut(&[FilePart<'_>]),
    ) -> Result<bool> {
        data::require_regular(file)?;
        data::read_in_place(self, file, offset, len, take)
    }

    fn extents_of(
        &self,
        file: &Handle,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(MappedExtent) -> ControlFlow<()>,
    ) -> Result<()> {
        data::require_regular(file)?;
        data::extent_map(self, file, offset, len, each)
    }
}

impl ReadDirectories for XfsCore {
    fn find_name(&self, dir: &Handle, name: &[u8]) -> Result<Ino> {
        let found = dir::lookup(&mut &*self, dir, name)?.ok_or(Error::NotFound)?;
        Ok(found.ino)
    }

    fn list(
        &self,
        dir: &Handle,
        from: Cookie,
        mut clock: ListingClock<'_>,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        dir::readdir(self, dir, from, &mut clock, each)
    }

    fn may_fold_names(&self) -> bool {
        self.volume.geometry.features.ascii_ci()
    }

    fn fold_name<'n>(&self, _dir: Ino, name: &'n [u8]) -> Result<Cow<'n, [u8]>> {
        Ok(Cow::Owned(name.iter().map(|&byte| hash::fold(byte)).collect()))
    }

    fn listings(&self) -> &ListingProfile {
        &self.listings
    }
}

impl KeepAttributes for XfsCore {
    fn xattr(&self, inode: &Handle, name: &[u8]) -> Result<Vec<u8>> {
        xattr::get(&mut &*self, inode, name)?.ok_or(Error::NoAttribute)
    }

    fn xattr_names(&self, inode: &Handle, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        xattr::list(&mut &*self, inode, each)
    }

    fn store_xattr(&self, ino: Ino, name: &[u8], value: &[u8]) -> Result<()> {
        self.set_attribute(ino, name, value)
    }

    fn drop_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.remove_attribute(ino, name)
    }

    /// The number may come from anywhere, so it is looked up in the inode tree first: file data can look like an inode.
    fn parent_pointers(&self, ino: Ino, each: &mut dyn FnMut(Ino, &[u8])) -> Result<bool> {
        if !self.inode_in_use(ino)? {
            return Err(Error::NotFound);
        }
        if !self.volume.geometry.features.incompat(Incompat::PARENT) {
            return Ok(false);
        }
        look_at(self, ino, |inode| {
            let each = &mut |link: NamedLink<'_>| each(link.dir, link.name);
            xattr::parent::for_each(&mut &*self, inode, each)
        })?;
        Ok(true)
    }

    fn stored_file_attributes(&self, ino: Ino) -> Result<FileAttributes> {
        self.read_file_attributes(ino)
    }

    fn store_file_attributes(&self, ino: Ino, change: &FileAttributesChange) -> Result<()> {
        self.change_file_attributes(ino, change)
    }
}

impl XfsCore {
    /// Returns the totals of the data section, even if new files are on the realtime device.
    #[must_use]
    pub fn data_totals(&self) -> StatFs {
        self.volume.statfs(self.mode != Mode::InProgress)
    }
}

impl WholeVolume for XfsCore {
    fn totals(&self) -> Result<StatFs> {
        let totals = self.data_totals();
        if self.volume.geometry.realtime.is_none() {
            return Ok(totals);
        }
        // Kernels show the space of the device that new files use.
        let root = self.load(self.root_ino())?;
        if root.inode.flags() & flags::RTINHERIT == 0 {
            return Ok(totals);
        }
        let free = self.free_realtime_blocks()?;
        Ok(free.map_or(totals, |free| self.volume.realtime_statfs(totals, free)))
    }

    fn totals_of(&self, ino: Ino) -> Result<StatFs> {
        if self.volume.geometry.realtime.is_none() && !self.limits_projects() {
            return self.totals();
        }
        let inode = {
            let _lock = self.locks.shared(ino);
            match self.load_ordinary(ino) {
                Ok(handle) => handle.inode,
                // A deferred file.
                Err(Error::NotFound) => return self.totals(),
                Err(error) => return Err(error),
            }
        };
        let own = inode.flags();
        let is_realtime = own & (flags::RTINHERIT | flags::REALTIME) != 0;
        let mut totals = self.data_totals();
        if is_realtime && let Some(free) = self.free_realtime_blocks()? {
            totals = self.volume.realtime_statfs(totals, free);
        }
        if own & flags::PROJINHERIT == 0 || !self.limits_projects() {
            return Ok(totals);
        }
        self.within_project(totals, inode.projid(), is_realtime)
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
