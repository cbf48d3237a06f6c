//! Limits on dirty data in the kernel's cache of a mount.
//!
//! Linux caches data written to FUSE without checking for free space. Two settings bound this, both
//! for root only:
//! - a limit on dirty data ([`WriteBack::limit`]; `/sys/class/bdi`, see sysfs-class-bdi in the
//!   kernel's ABI documents);
//! - the `sync` flag of the whole mount, as set by `mount -o remount,sync`. Each write then waits
//!   until its data is stored, and reports failures ([`WriteBack::set_write_through`]).

use std::ffi::CStr;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{FsPickFlags, fsconfig_reconfigure, fsconfig_set_flag, fspick};

use super::unmount::OwnMount;
use crate::Errno;
use crate::device::Device;

/// Controls the kernel's write-back for a mount.
#[derive(Debug)]
pub struct WriteBack {
    // Dropped first: the end of the mount may wait for its children.
    device: Device,
    mount: Arc<OwnMount>,
    /// Settings before the first [`Self::limit`]: `max_ratio_fine` and `strict_limit`.
    found: Mutex<Option<[String; 2]>>,
}

impl WriteBack {
    pub(crate) fn new(mount: Arc<OwnMount>, device: Device) -> Self {
        Self { mount, device, found: Mutex::default() }
    }

    /// Returns the kernel's default limit on dirty data in bytes, or `u64::MAX` if this mount has
    /// none.
    ///
    /// # Errors
    /// If the kernel does not report it (before Linux 6.2).
    pub fn own_limit(&self) -> io::Result<u64> {
        if self.read("strict_limit")? != "1" {
            return Ok(u64::MAX);
        }
        self.read("max_bytes")?.parse().map_err(io::Error::other)
    }

    /// Limits dirty data to about `bytes`. `None` restores the setting from before the first call.
    ///
    /// # Errors
    /// If the kernel has no such limit, or this process may not set it.
    pub fn limit(&self, bytes: Option<u64>) -> io::Result<()> {
        let mut found = self.found.lock();
        match bytes {
            Some(bytes) => {
                if found.is_none() {
                    *found = Some([self.read("max_ratio_fine")?, self.read("strict_limit")?]);
                }
                self.write("max_bytes", &bytes.to_string())?;
                self.write("strict_limit", "1")
            }
            None => {
                let Some([ratio, strict]) = found.as_ref() else { return Ok(()) };
                self.write("max_ratio_fine", ratio)?;
                self.write("strict_limit", strict)
            }
        }
    }

    /// Switches synchronous writes for all programs on or off. A [`Handler`](crate::Handler) must
    /// not call this, because the kernel writes back its cache before the call returns.
    ///
    /// # Errors
    /// If this process lacks the privilege, or the mount is no longer at its mount point.
    pub fn set_write_through(&self, on: bool) -> io::Result<()> {
        let root = self.mount.c_mountpoint()?;
        let flag = if on { c"sync" } else { c"async" };
        Ok(self.mount.in_child(|| self.reconfigure(&root, flag))??)
    }

    /// Sets a flag of the file system with this root. Makes only system calls.
    fn reconfigure(&self, root: &CStr, flag: &CStr) -> Result<(), Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = openat(CWD, root, flags, Mode::empty())?;
        if !self.mount.is_root(&root)? {
            return Err(Errno::NOENT);
        }
        let flags = FsPickFlags::FSPICK_EMPTY_PATH | FsPickFlags::FSPICK_CLOEXEC;
        let context = fspick(&root, c"", flags)?;
        // The context now holds the file system. Close the root, which keeps the mount busy.
        drop(root);
        fsconfig_set_flag(&context, flag)?;
        fsconfig_reconfigure(&context)
    }

    /// Writes back all dirty data. A [`Handler`](crate::Handler) must not call this.
    ///
    /// # Errors
    /// If data could not be stored.
    pub fn flush(&self) -> io::Result<()> {
        self.mount.sync()
    }

    /// Makes the kernel request a node's attributes before the next write to it. Reads continue to
    /// use the cached attributes.
    ///
    /// # Errors
    /// If the mount is gone. A node that the kernel does not know causes no error.
    pub fn forget_attributes(&self, nodeid: u64) -> Result<(), Errno> {
        match self.device.invalidate_attributes(nodeid) {
            Err(Errno::NOENT) => Ok(()),
            result => result,
        }
    }

    fn read(&self, name: &str) -> io::Result<String> {
        Ok(fs::read_to_string(self.path(name))?.trim().to_owned())
    }

    fn write(&self, name: &str, value: &str) -> io::Result<()> {
        fs::write(self.path(name), value)
    }

    fn path(&self, name: &str) -> PathBuf {
        format!("/sys/class/bdi/{}/{name}", self.mount.bdi_name()).into()
    }
}
