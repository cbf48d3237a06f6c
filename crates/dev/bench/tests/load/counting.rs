//! A file system that counts calls.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use testkit::model::Model;
use vfs::{FileSystem, Ino, NewInode, Timestamp};

/// Number of calls of each method.
#[derive(Debug, Default)]
pub struct Calls {
    pub creates: AtomicU64,
    pub links: AtomicU64,
    pub unlinks: AtomicU64,
    pub opens: AtomicU64,
    pub closes: AtomicU64,
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    pub truncates: AtomicU64,
    /// Sum of the sizes of truncations.
    pub truncated_to: AtomicU64,
    pub listings: AtomicU64,
    pub attributes: AtomicU64,
    pub file_syncs: AtomicU64,
    pub syncs: AtomicU64,
}

impl Calls {
    pub fn of(count: &AtomicU64) -> u64 {
        count.load(Ordering::Relaxed)
    }
}

/// The model with counters. A certain write may set a flag.
#[derive(Default)]
pub struct Counting {
    pub model: Model,
    pub calls: Calls,
    /// Set by the write with this number, unless that is 0.
    pub stop: AtomicBool,
    pub stop_at_write: u64,
}

fn add(count: &AtomicU64, what: u64) -> u64 {
    count.fetch_add(what, Ordering::Relaxed) + what
}

/// Forwards methods to the model, and counts some of them.
macro_rules! pass_on {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty $(, $count:ident)?;)*) => {
        $(fn $name(&self, $($argument: $type),*) -> vfs::Result<$result> {
            $(add(&self.calls.$count, 1);)?
            self.model.$name($($argument),*)
        })*
    };
}

impl FileSystem for Counting {
    pass_on! {
        statfs() -> vfs::StatFs;
        lookup(dir: Ino, name: &[u8]) -> Ino;
        attributes(ino: Ino) -> vfs::Attributes, attributes;
        set_attributes(ino: Ino, change: &vfs::SetAttributes) -> ();
        create(dir: Ino, name: &[u8], new: &NewInode) -> Ino, creates;
        mkdir(dir: Ino, name: &[u8], new: &NewInode) -> Ino;
        mknod(dir: Ino, name: &[u8], file: vfs::SpecialFile, new: &NewInode) -> Ino;
        symlink(dir: Ino, name: &[u8], target: &[u8], new: &NewInode) -> Ino;
        readlink(ino: Ino) -> Vec<u8>;
        create_unlinked(dir: Ino, new: &NewInode) -> Ino;
        link(ino: Ino, dir: Ino, name: &[u8], time: Option<Timestamp>) -> (), links;
        link_over(ino: Ino, dir: Ino, name: &[u8], time: Option<Timestamp>) -> ();
        unlink(dir: Ino, name: &[u8], time: Option<Timestamp>) -> (), unlinks;
        rmdir(dir: Ino, name: &[u8], time: Option<Timestamp>) -> ();
        rename(
            from: (Ino, &[u8]),
            to: (Ino, &[u8]),
            mode: vfs::RenameMode,
            time: Option<Timestamp>
        ) -> ();
        open(ino: Ino) -> (), opens;
        close(ino: Ino) -> (), closes;
        read(ino: Ino, offset: u64, buf: &mut [u8]) -> usize, reads;
        allocate(ino: Ino, offset: u64, len: u64, mode: vfs::AllocateMode) -> ();
        extent_map(
            ino: Ino,
            offset: u64,
            len: u64,
            each: &mut dyn FnMut(vfs::MappedExtent) -> ControlFlow<()>
        ) -> ();
        readdir(
            dir: Ino,
            from: vfs::Cookie,
            each: &mut dyn FnMut(vfs::DirEntry<'_>) -> ControlFlow<()>
        ) -> (), listings;
        get_xattr(ino: Ino, name: &[u8]) -> Vec<u8>;
        set_xattr(ino: Ino, name: &[u8], value: &[u8]) -> ();
        remove_xattr(ino: Ino, name: &[u8]) -> ();
        list_xattrs(ino: Ino, each: &mut dyn FnMut(&[u8])) -> ();
        fsync(ino: Ino) -> (), file_syncs;
        sync() -> (), syncs;
    }

    fn root(&self) -> Ino {
        self.model.root()
    }

    fn write(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        time: Option<Timestamp>,
    ) -> vfs::Result<()> {
        if add(&self.calls.writes, 1) == self.stop_at_write {
            self.stop.store(true, Ordering::Relaxed);
        }
        self.model.write(ino, offset, data, time)
    }

    fn truncate(&self, ino: Ino, size: u64, time: Option<Timestamp>) -> vfs::Result<()> {
        add(&self.calls.truncates, 1);
        add(&self.calls.truncated_to, size);
        self.model.truncate(ino, size, time)
    }
}
