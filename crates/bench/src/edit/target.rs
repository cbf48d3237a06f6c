//! What is changed: an image opened by this project, or mounted by the kernel.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use blockdev::FileDevice;
use ext4::{Ext4, OpenOptions, OrphanPolicy};
use oracle::{KernelMount, Mke2fs, MountOptions};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use vfs::{FileSystem, Ino, NewInode};

/// Size of the images, in bytes: sparse, with a journal of 64 MiB or more.
const IMAGE_BYTES: u64 = 8 << 30;
/// Inodes of the images.
const INODES: u32 = 1 << 21;

/// Who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contestant {
    Ours(OrphanPolicy),
    Kernel,
    /// The kernel on an image without an orphan file.
    KernelWithList,
}

impl Contestant {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours(OrphanPolicy::WhenNeeded) => "diskwright",
            Self::Ours(OrphanPolicy::Always) => "diskwright, orphan file",
            Self::Ours(OrphanPolicy::ListOnly) => "diskwright, orphan list",
            Self::Ours(OrphanPolicy::Off) => "diskwright, no orphans",
            Self::Kernel => "kernel ext4",
            Self::KernelWithList => "kernel, orphan list",
        }
    }
}

/// An image made by mke2fs, removed when dropped.
pub(crate) struct Image {
    path: PathBuf,
}

impl Image {
    pub(crate) fn make(path: PathBuf, contestant: Contestant) -> Result<Self, String> {
        let options = Mke2fs::new("ext4").inode_count(INODES);
        let lists = contestant == Contestant::KernelWithList;
        let options = options.features(if lists { "^orphan_file" } else { "orphan_file" });
        let options = options.extended("lazy_itable_init=0,lazy_journal_init=0,nodiscard");
        options.create(&path, IMAGE_BYTES);
        Ok(Self { path })
    }

    pub(crate) fn open(&self, contestant: Contestant) -> Result<Box<dyn Target>, String> {
        Ok(match contestant {
            Contestant::Ours(policy) => Box::new(Ours::open(&self.path, policy)?),
            Contestant::Kernel | Contestant::KernelWithList => Box::new(Kernel::open(&self.path)?),
        })
    }

    /// Has e2fsck judge the image.
    pub(crate) fn check(&self) -> Result<(), String> {
        oracle::e2fsck(&self.path);
        Ok(())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The operations that are compared. Directories are numbered in the order they were added.
pub(crate) trait Target: Sync {
    fn add_directory(&self, name: &str) -> Result<(), String>;
    fn create(&self, directory: usize, name: &str) -> Result<(), String>;
    fn unlink(&self, directory: usize, name: &str) -> Result<(), String>;
    /// Makes an empty file in the root and keeps it open. Files are numbered like directories.
    fn add_file(&self, name: &str) -> Result<(), String>;
    fn write(&self, file: usize, contents: &[u8]) -> Result<(), String>;
    fn truncate(&self, file: usize, size: u64) -> Result<(), String>;
    fn sync(&self) -> Result<(), String>;
    fn close(self: Box<Self>) -> Result<(), String>;
}

struct Ours {
    fs: Ext4,
    opened: RwLock<Vec<Ino>>,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Ours {
    fn open(path: &Path, orphans: OrphanPolicy) -> Result<Self, String> {
        let file = File::options().read(true).write(true).open(path).map_err(text)?;
        let device = Arc::new(FileDevice::new(file).map_err(text)?);
        let fs = Ext4::open_writable(device, &OpenOptions { orphans, ..OpenOptions::default() })
            .map_err(text)?;
        Ok(Self { fs, opened: RwLock::default() })
    }

    fn directory(&self, number: usize) -> Ino {
        self.opened.read().expect("nobody panics")[number]
    }
}

const NEW: NewInode =
    NewInode { permissions: 0o644, uid: 0, gid: 0, time: TIME, parent_time: Some(TIME) };
const TIME: vfs::Timestamp = vfs::Timestamp { sec: 1_700_000_000, nsec: 123_456_789 };

impl Target for Ours {
    fn add_directory(&self, name: &str) -> Result<(), String> {
        let made = self.fs.mkdir(self.fs.root(), name.as_bytes(), &NEW).map_err(text)?;
        self.opened.write().expect("nobody panics").push(made);
        Ok(())
    }

    fn create(&self, directory: usize, name: &str) -> Result<(), String> {
        let made = self.fs.create(self.directory(directory), name.as_bytes(), &NEW);
        made.map(|_| ()).map_err(text)
    }

    fn unlink(&self, directory: usize, name: &str) -> Result<(), String> {
        let directory = self.directory(directory);
        self.fs.unlink(directory, name.as_bytes(), Some(TIME)).map_err(text)
    }

    fn add_file(&self, name: &str) -> Result<(), String> {
        let made = self.fs.create(self.fs.root(), name.as_bytes(), &NEW).map_err(text)?;
        self.fs.open(made).map_err(text)?;
        self.opened.write().expect("nobody panics").push(made);
        Ok(())
    }

    fn write(&self, file: usize, contents: &[u8]) -> Result<(), String> {
        self.fs.write(self.directory(file), 0, contents).map_err(text)
    }

    fn truncate(&self, file: usize, size: u64) -> Result<(), String> {
        self.fs.truncate(self.directory(file), size).map_err(text)
    }

    fn sync(&self) -> Result<(), String> {
        self.fs.sync().map_err(text)
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        self.fs.close().map_err(text)
    }
}

struct Kernel {
    opened: RwLock<Vec<OwnedFd>>,
    mount: KernelMount,
}

impl Kernel {
    fn open(path: &Path) -> Result<Self, String> {
        let mount = KernelMount::new(path, &MountOptions::read_write("ext4"));
        Ok(Self { opened: RwLock::default(), mount })
    }
}

impl Target for Kernel {
    fn add_directory(&self, name: &str) -> Result<(), String> {
        let path = self.mount.path().join(name);
        std::fs::create_dir(&path).map_err(text)?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY;
        let opened = rustix::fs::open(&path, flags, Mode::empty()).map_err(text)?;
        self.opened.write().expect("nobody panics").push(opened);
        Ok(())
    }

    // mknod makes a file without opening it, which is what our `create` does, and is the kernel's
    // fastest way.
    fn create(&self, directory: usize, name: &str) -> Result<(), String> {
        let directories = self.opened.read().expect("nobody panics");
        let (file_type, mode) = (FileType::RegularFile, Mode::from_raw_mode(0o644));
        rustix::fs::mknodat(&directories[directory], name, file_type, mode, 0).map_err(text)
    }

    fn unlink(&self, directory: usize, name: &str) -> Result<(), String> {
        let directories = self.opened.read().expect("nobody panics");
        rustix::fs::unlinkat(&directories[directory], name, AtFlags::empty()).map_err(text)
    }

    fn add_file(&self, name: &str) -> Result<(), String> {
        let flags = OFlags::CREATE | OFlags::RDWR;
        let path = self.mount.path().join(name);
        let opened = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)).map_err(text)?;
        self.opened.write().expect("nobody panics").push(opened);
        Ok(())
    }

    fn write(&self, file: usize, contents: &[u8]) -> Result<(), String> {
        let files = self.opened.read().expect("nobody panics");
        let written = rustix::io::pwrite(&files[file], contents, 0).map_err(text)?;
        if written == contents.len() { Ok(()) } else { Err("a short write".to_owned()) }
    }

    fn truncate(&self, file: usize, size: u64) -> Result<(), String> {
        let files = self.opened.read().expect("nobody panics");
        rustix::fs::ftruncate(&files[file], size).map_err(text)
    }

    fn sync(&self) -> Result<(), String> {
        let directories = self.opened.read().expect("nobody panics");
        match directories.first() {
            Some(directory) => rustix::fs::syncfs(directory).map_err(text),
            None => Ok(()),
        }
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        let Self { opened, mount } = *self;
        drop(opened);
        mount.unmount();
        Ok(())
    }
}
