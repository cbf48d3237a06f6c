//! A file system with one deliberate fault.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use testkit::model::Model;
use vfs::{FileSystem, Ino, NewInode};

/// The fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A new file is not listed.
    Unlisted,
    /// A file gets another name.
    Renamed,
    /// A name is not removed.
    Kept,
    /// A directory is not removed.
    DirectoryKept,
}

/// A model with a fault at the 100th file, or at all directories.
pub struct Tampered {
    model: Model,
    wrong: Wrong,
    files: AtomicU64,
    victim: AtomicU64,
}

impl Tampered {
    pub fn new(wrong: Wrong) -> Self {
        Self { model: Model::new(), wrong, files: AtomicU64::new(0), victim: AtomicU64::new(0) }
    }

    fn is_victim(&self, ino: Ino) -> bool {
        self.victim.load(Ordering::Relaxed) == ino.0
    }
}

/// Forwards methods to the model.
macro_rules! pass_on {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $type),*) -> vfs::Result<$result> {
            self.model.$name($($argument),*)
        })*
    };
}

impl FileSystem for Tampered {
    pass_on! {
        statfs() -> vfs::StatFs;
        lookup(dir: Ino, name: &[u8]) -> Ino;
        attributes(ino: Ino) -> vfs::Attributes;
        set_attributes(ino: Ino, change: &vfs::SetAttributes) -> ();
        mkdir(dir: Ino, name: &[u8], new: &NewInode) -> Ino;
        mknod(dir: Ino, name: &[u8], file: vfs::SpecialFile, new: &NewInode) -> Ino;
        symlink(dir: Ino, name: &[u8], target: &[u8], new: &NewInode) -> Ino;
        readlink(ino: Ino) -> Vec<u8>;
        create_unlinked(dir: Ino, new: &NewInode) -> Ino;
        link(ino: Ino, dir: Ino, name: &[u8], time: Option<vfs::Timestamp>) -> ();
        link_over(ino: Ino, dir: Ino, name: &[u8], time: Option<vfs::Timestamp>) -> ();
        rename(
            from: (Ino, &[u8]),
            to: (Ino, &[u8]),
            mode: vfs::RenameMode,
            time: Option<vfs::Timestamp>
        ) -> ();
        rename_with_whiteout(
            from: (Ino, &[u8]),
            to: (Ino, &[u8]),
            mode: vfs::RenameMode,
            whiteout: &NewInode,
            time: Option<vfs::Timestamp>
        ) -> ();
        open(ino: Ino) -> ();
        close(ino: Ino) -> ();
        read(ino: Ino, offset: u64, buf: &mut [u8]) -> usize;
        write(ino: Ino, offset: u64, data: &[u8], time: Option<vfs::Timestamp>) -> ();
        allocate(ino: Ino, offset: u64, len: u64, mode: vfs::AllocateMode) -> ();
        truncate(ino: Ino, size: u64, time: Option<vfs::Timestamp>) -> ();
        extent_map(
            ino: Ino,
            offset: u64,
            len: u64,
            each: &mut dyn FnMut(vfs::MappedExtent) -> ControlFlow<()>
        ) -> ();
        get_xattr(ino: Ino, name: &[u8]) -> Vec<u8>;
        set_xattr(ino: Ino, name: &[u8], value: &[u8]) -> ();
        remove_xattr(ino: Ino, name: &[u8]) -> ();
        list_xattrs(ino: Ino, each: &mut dyn FnMut(&[u8])) -> ();
        fsync(ino: Ino) -> ();
        sync() -> ();
    }

    fn root(&self) -> Ino {
        self.model.root()
    }

    fn create(&self, dir: Ino, name: &[u8], new: &NewInode) -> vfs::Result<Ino> {
        if self.files.fetch_add(1, Ordering::Relaxed) != 100 {
            return self.model.create(dir, name, new);
        }
        let name = if self.wrong == Wrong::Renamed { b"other" } else { name };
        let ino = self.model.create(dir, name, new)?;
        self.victim.store(ino.0, Ordering::Relaxed);
        Ok(ino)
    }

    fn unlink(&self, dir: Ino, name: &[u8], time: Option<vfs::Timestamp>) -> vfs::Result<()> {
        if self.wrong == Wrong::Kept && self.is_victim(self.lookup(dir, name)?) {
            return Ok(());
        }
        self.model.unlink(dir, name, time)
    }

    fn rmdir(&self, dir: Ino, name: &[u8], time: Option<vfs::Timestamp>) -> vfs::Result<()> {
        if self.wrong == Wrong::DirectoryKept {
            return Ok(());
        }
        self.model.rmdir(dir, name, time)
    }

    fn readdir(
        &self,
        dir: Ino,
        from: vfs::Cookie,
        each: &mut dyn FnMut(vfs::DirEntry<'_>) -> ControlFlow<()>,
    ) -> vfs::Result<()> {
        self.model.readdir(dir, from, &mut |entry| {
            if self.wrong == Wrong::Unlisted && self.is_victim(entry.ino) {
                return ControlFlow::Continue(());
            }
            each(entry)
        })
    }
}
