//! Images created by other programs: mke2fs, debugfs and the kernel.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

use crate::mount::{KernelMount, MountOptions};
use crate::tool;

/// A builder of a `mke2fs` command.
///
/// Without options it uses the defaults of the installed `mke2fs.conf` for `ext4`.
#[derive(Clone, Debug)]
pub struct Mke2fs {
    fs_type: &'static str,
    arguments: Vec<OsString>,
}

impl Mke2fs {
    /// A file system of type `ext2`, `ext3` or `ext4`.
    pub fn new(fs_type: &'static str) -> Self {
        Mke2fs { fs_type, arguments: Vec::new() }
    }

    /// Block size in bytes.
    pub fn block_size(self, bytes: u32) -> Self {
        self.arguments(["-b", &bytes.to_string()])
    }

    /// Inode size in bytes.
    pub fn inode_size(self, bytes: u32) -> Self {
        self.arguments(["-I", &bytes.to_string()])
    }

    /// Number of inodes.
    pub fn inode_count(self, count: u32) -> Self {
        self.arguments(["-N", &count.to_string()])
    }

    /// Features to add, or with `^` to remove, separated by commas.
    pub fn features(self, features: &str) -> Self {
        self.arguments(["-O", features])
    }

    /// Extended options (`-E`), separated by commas.
    pub fn extended(self, options: &str) -> Self {
        self.arguments(["-E", options])
    }

    /// Copies a directory into the image.
    pub fn populate(mut self, source: &Path) -> Self {
        self.arguments.extend([OsString::from("-d"), source.into()]);
        self
    }

    /// Any other options.
    pub fn arguments<S: Into<OsString>>(mut self, more: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(more.into_iter().map(Into::into));
        self
    }

    /// Creates a sparse image of `size` bytes, replacing the file.
    ///
    /// # Panics
    /// If `mke2fs` fails, with its output.
    #[track_caller]
    pub fn create(&self, image: &Path, size: u64) {
        File::create(image)
            .and_then(|file| file.set_len(size))
            .unwrap_or_else(|error| panic!("{}: {error}", image.display()));
        let fixed = ["-q", "-F", "-t", self.fs_type].map(OsString::from);
        tool::run("mke2fs", fixed.iter().chain(&self.arguments).chain([&image.into()]));
    }
}

/// Runs a `debugfs` request on an image opened read-only, and returns its output.
///
/// # Panics
/// If `debugfs` cannot be run. Failed requests print their error: `debugfs` itself reports success.
pub fn debugfs(image: &Path, request: &str) -> String {
    tool::run("debugfs", [OsString::from("-R"), request.into(), image.into()])
}

/// Runs a `debugfs` request that may change or damage the image.
///
/// # Panics
/// As [`debugfs`].
pub fn debugfs_write(image: &Path, request: &str) -> String {
    tool::run("debugfs", [OsString::from("-w"), "-R".into(), request.into(), image.into()])
}

/// Mounts an image read-write, lets `fill` work in it, and unmounts it.
///
/// # Panics
/// If the kernel refuses the image, `fill` panics, or the mount is still busy afterwards.
#[track_caller]
pub fn populate_with_kernel(image: &Path, fs_type: &str, fill: impl FnOnce(&Path)) {
    let mount = KernelMount::new(image, &MountOptions::read_write(fs_type));
    fill(mount.path());
    mount.unmount();
}
