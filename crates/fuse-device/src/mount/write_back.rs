//! How far programs that write to a mount may run ahead of who stores what they write.
//!
//! Linux keeps what programs write to FUSE in its cache and asks nobody whether there is room for it. What it
//! has is a limit of how much may wait ([`WriteBack::limit`]; `/sys/class/bdi`, sysfs-class-bdi of its ABI
//! documents), and a flag of the whole mount, that of `mount -o remount,sync`, by which each write waits until
//! what it wrote is stored, and fails if that fails ([`WriteBack::set_write_through`]). Both are root's.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{FsPickFlags, fsconfig_reconfigure, fsconfig_set_flag, fspick};

use super::unmount::{Mount, from_child};
use crate::Errno;
use crate::device::Device;

/// Steers what the kernel does with what programs write.
#[derive(Debug)]
pub struct WriteBack {
    mount: Arc<Mount>,
    device: Device,
    /// What [`Self::limit`] found: `max_ratio_fine` and `strict_limit`.
    found: Mutex<Option<[String; 2]>>,
}

impl WriteBack {
    pub(crate) fn new(mount: Arc<Mount>, device: Device) -> Self {
        Self { mount, device, found: Mutex::default() }
    }

    /// Most bytes that wait in the cache as long as nobody sets another limit. `u64::MAX` if the kernel has
    /// none for this mount.
    ///
    /// # Errors
    /// If the kernel does not tell (Linux 6.2 does).
    pub fn own_limit(&self) -> io::Result<u64> {
        if self.read("strict_limit")? != "1" {
            return Ok(u64::MAX);
        }
        self.read("max_bytes")?.parse().map_err(io::Error::other)
    }

    /// Lets at most about so many bytes wait in the cache; `None` for as many as before the first call.
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

    /// Has every write of every program wait until what it wrote is stored, or not. Not to be called by a
    /// [`Handler`](crate::Handler): before this returns, the kernel writes back what it has.
    ///
    /// # Errors
    /// If this process may not do that, or the mount is not where it was mounted any more.
    pub fn set_write_through(&self, on: bool) -> io::Result<()> {
        let root = self.mount.c_mountpoint()?;
        Ok(from_child(|| self.reconfigure(&root, if on { c"sync" } else { c"async" }))?)
    }

    /// Sets a flag of the file system with this root. It makes system calls only.
    fn reconfigure(&self, root: &CStr, flag: &CStr) -> Result<(), Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = openat(CWD, root, flags, Mode::empty())?;
        if !self.mount.is_root(&root)? {
            return Err(Errno::NOENT);
        }
        let flags = FsPickFlags::FSPICK_EMPTY_PATH | FsPickFlags::FSPICK_CLOEXEC;
        let context = fspick(&root, c"", flags)?;
        // It is of the file system from here on: what keeps the mount busy goes first.
        drop(root);
        fsconfig_set_flag(&context, flag)?;
        fsconfig_reconfigure(&context)
    }

    /// Has the kernel write back what waits now. Not to be called by a [`Handler`](crate::Handler).
    ///
    /// # Errors
    /// If something could not be stored.
    pub fn flush(&self) -> io::Result<()> {
        self.mount.sync()
    }

    /// Has the kernel ask for a node's attributes before the next write to it; reading goes on with those
    /// that it has.
    ///
    /// # Errors
    /// If the mount is gone. A node that the kernel does not know is none.
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
