//! Mounting and unmounting.
//!
//! A process with sufficient privileges mounts directly ([`direct`]). Others run `fusermount3`,
//! which is installed set-user-ID for that purpose ([`fusermount`]). The kernel always checks
//! permissions (`default_permissions`); a [`Handler`](crate::Handler) checks none.

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
pub(crate) use unmount::OwnMount;
pub use write_back::WriteBack;

/// Maximum size of a write or a read in bytes: the default limit of the kernel.
pub(crate) const MAX_WRITE: u32 = 1 << 20;

/// Options of a mount.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// Device name in `mount` and `/proc/mounts`.
    pub fs_name: OsString,
    /// File system type after `fuse.` in `mount` and `/proc/mounts`.
    pub subtype: String,
    /// Block size of a mount of the block device `fs_name` (type `fuseblk`; needs root). The kernel
    /// opens the device exclusively, so no other program may have it open exclusively. In return
    /// syncfs(2) reaches the handler, umount(2) waits for it, and FIBMAP works.
    pub block_size: Option<u32>,
    /// Mount read-only.
    pub read_only: bool,
    /// Users other than the mounting one may access the mount (needs root, or `user_allow_other` in
    /// `/etc/fuse.conf`).
    pub allow_other: bool,
    /// Set-user-ID bits and capabilities take effect (needs root).
    pub suid: bool,
    /// Device files work (needs root).
    pub dev: bool,
    /// Programs cannot be executed.
    pub noexec: bool,
    /// Symbolic links are not followed (needs root).
    pub nosymfollow: bool,
    /// Every write is synchronous.
    pub sync: bool,
    /// Every directory change is synchronous.
    pub dirsync: bool,
}

impl MountOptions {
    /// Returns the options for the kernel's FUSE code, which both ways of mounting use.
    fn fuse_options(&self) -> String {
        let others = if self.allow_other { ",allow_other" } else { "" };
        format!("default_permissions,max_read={MAX_WRITE}{others}")
    }
}

/// Unmounts a session's mount, from any thread.
#[derive(Clone, Debug)]
pub struct Unmounter {
    mount: Arc<OwnMount>,
}

impl Unmounter {
    pub(crate) fn new(mount: Arc<OwnMount>) -> Self {
        Self { mount }
    }

    /// Writes back the kernel's cache and unmounts. A busy mount is detached from its mount point
    /// at once and ends when it is no longer in use. A [`Handler`](crate::Handler) must not call
    /// this, because it would wait for itself.
    ///
    /// # Errors
    /// If unmounting or write-back fails. If the mount is already gone, the call succeeds.
    pub fn unmount(&self) -> io::Result<()> {
        self.mount.unmount()
    }
}

/// Reason why mounting failed.
enum MountFailure {
    /// This process lacks the privilege, but `fusermount3` may have it.
    NotPermitted,
    /// Any other error.
    Other(io::Error),
}

/// Mounts, and returns the device with the requests.
pub(crate) fn mount(mountpoint: &Path, options: &MountOptions) -> io::Result<(Device, OwnMount)> {
    let mountpoint = check_mountpoint(mountpoint).map_err(|error| about(mountpoint, error))?;
    let fd = match direct::mount(&mountpoint, options) {
        Err(MountFailure::NotPermitted) if options.block_size.is_some() => {
            Err(io::ErrorKind::PermissionDenied.into())
        }
        Err(MountFailure::NotPermitted) => fusermount::mount(&mountpoint, options),
        Err(MountFailure::Other(error)) => Err(error),
        Ok(fd) => Ok(fd),
    };
    let fd = fd.map_err(|error| about(&mountpoint, error))?;
    Ok((Device::new(fd), OwnMount::new(mountpoint, options.block_size.is_some())?))
}

fn about(mountpoint: &Path, error: io::Error) -> io::Error {
    let text = format!("cannot mount on {}: {error}", mountpoint.display());
    io::Error::new(error.kind(), text)
}

/// Checks a mount point, with more precise errors than mount(2). Returns its path without symbolic
/// links.
fn check_mountpoint(mountpoint: &Path) -> io::Result<PathBuf> {
    let found = fs::metadata(mountpoint).map_err(explain_mountpoint)?;
    if !found.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "it is not a directory"));
    }
    fs::canonicalize(mountpoint).map_err(explain_mountpoint)
}

fn explain_mountpoint(error: io::Error) -> io::Error {
    let text = match error.kind() {
        io::ErrorKind::NotFound => "no such directory; create it first",
        io::ErrorKind::PermissionDenied => "permission denied",
        io::ErrorKind::NotConnected => {
            "it has a stale FUSE mount whose server has ended; unmount it first (umount, or \
             fusermount3 -u)"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), text)
}
