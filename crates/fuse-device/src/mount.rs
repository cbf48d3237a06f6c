//! Mounting and unmounting.
//!
//! A process that may mount does so itself ([`direct`]); others ask `fusermount3`, which is installed
//! set-user-id for that ([`fusermount`]). Permissions are always checked by the kernel
//! (`default_permissions`): a [`Handler`](crate::Handler) does what it is asked.

mod child;
mod direct;
mod fusermount;
mod unmount;
mod write_back;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::device::Device;
use crate::handshake::MAX_WRITE;
pub(crate) use unmount::Mount;
pub use write_back::WriteBack;

/// How the kernel mounts.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// What `mount` and `/proc/mounts` show as the device.
    pub fs_name: OsString,
    /// What they show as the type, after `fuse.`.
    pub subtype: String,
    /// The block size of a mount whose device is the block device `fs_name` (the type `fuseblk`; needs root). The kernel
    /// claims the device: no other program may have it open exclusively. In return syncfs(2) reaches the handler,
    /// umount(2) waits for it, and FIBMAP works.
    pub block_size: Option<u32>,
    /// Nothing can be changed.
    pub read_only: bool,
    /// Other users than the one who mounts may use it (needs root, or `user_allow_other` in
    /// `/etc/fuse.conf`).
    pub allow_other: bool,
    /// Set-user-id bits and capabilities count (needs root).
    pub suid: bool,
    /// Devices work (needs root).
    pub dev: bool,
    /// Programs can not be run.
    pub noexec: bool,
    /// Symbolic links are not followed (needs root).
    pub nosymfollow: bool,
    /// Every write waits until it is durable.
    pub sync: bool,
    /// Every change of a directory waits until it is durable.
    pub dirsync: bool,
}

impl MountOptions {
    /// What the kernel's FUSE itself is told, whichever way it is mounted.
    fn fuse_options(&self) -> String {
        let others = if self.allow_other { ",allow_other" } else { "" };
        format!("default_permissions,max_read={MAX_WRITE}{others}")
    }
}

/// Unmounts a session's mount, from any thread.
#[derive(Clone, Debug)]
pub struct Unmounter {
    mount: Arc<Mount>,
}

impl Unmounter {
    pub(crate) fn new(mount: Arc<Mount>) -> Self {
        Self { mount }
    }

    /// Writes back what the kernel caches and unmounts. While programs use the mount, it goes from
    /// where it is mounted at once, and for good when the session ends. Not to be called by a
    /// [`Handler`](crate::Handler): that would wait for itself.
    ///
    /// # Errors
    /// If it cannot be unmounted, or something could not be written back. That it is not mounted any
    /// more is none.
    pub fn unmount(&self) -> io::Result<()> {
        self.mount.unmount()
    }
}

/// Why mounting failed.
enum Failure {
    /// This process may not, but `fusermount3` may.
    NotPermitted,
    /// For good.
    Other(io::Error),
}

/// Mounts, and returns the device that requests come from.
pub(crate) fn mount(mountpoint: &Path, options: &MountOptions) -> io::Result<(Device, Mount)> {
    let mountpoint = check_mountpoint(mountpoint).map_err(|error| about(mountpoint, error))?;
    let fd = match direct::mount(&mountpoint, options) {
        Err(Failure::NotPermitted) if options.block_size.is_some() => {
            Err(io::ErrorKind::PermissionDenied.into())
        }
        Err(Failure::NotPermitted) => fusermount::mount(&mountpoint, options),
        Err(Failure::Other(error)) => Err(error),
        Ok(fd) => Ok(fd),
    };
    let fd = fd.map_err(|error| about(&mountpoint, error))?;
    Ok((Device::new(fd), Mount::new(mountpoint, options.block_size.is_some())?))
}

fn about(mountpoint: &Path, error: io::Error) -> io::Error {
    let text = format!("cannot mount on {}: {error}", mountpoint.display());
    io::Error::new(error.kind(), text)
}

/// Says what is wrong with a mountpoint better than mount(2) can. Returns it without symbolic links.
fn check_mountpoint(mountpoint: &Path) -> io::Result<PathBuf> {
    let found = fs::metadata(mountpoint).map_err(explain_mountpoint)?;
    if !found.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "it is not a directory"));
    }
    fs::canonicalize(mountpoint).map_err(explain_mountpoint)
}

fn explain_mountpoint(error: io::Error) -> io::Error {
    let text = match error.kind() {
        io::ErrorKind::NotFound => "there is no such directory; make it first",
        io::ErrorKind::PermissionDenied => "it cannot be reached: permission denied",
        io::ErrorKind::NotConnected => {
            "a FUSE mount is there whose program has ended; unmount it first (umount, or fusermount3 -u)"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), text)
}
