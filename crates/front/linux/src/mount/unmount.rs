//! A mount and its end.
//!
//! A path does not identify a mount: others may unmount it, and another file system may be mounted
//! at the same place or over it. So a mount is identified by its device number and mount ID. Both
//! are read without a request to the file system, which may no longer answer.
//!
//! When the kernel unmounts FUSE for good, it first aborts the connection, and data not written
//! back by then is lost. Closing a file writes it back. This module writes back mapped and open
//! files before it unmounts.

use std::ffi::{CStr, CString};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, open, statx, syncfs};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::path::Arg;

use super::child::Children;
use super::fusermount;
use crate::complain::complain;

/// `STATX_MNT_ID_UNIQUE` (Linux 6.8): a mount ID that is never reused. Older kernels reuse mount
/// IDs.
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;

/// Number of bits of a minor device number in the kernel.
const MINOR_BITS: u32 = 20;

/// Identity of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: (u32, u32),
    mount_id: u64,
}

/// Location of a mount.
enum MountVisibility {
    /// At its mount point, and on top.
    There,
    /// Below another mount, or moved elsewhere.
    Hidden,
    /// Unmounted.
    Gone,
}

/// A mount made by this process.
#[derive(Debug)]
pub(crate) struct OwnMount {
    /// Absolute path without symbolic links.
    mountpoint: PathBuf,
    identity: Identity,
    /// True if it is a mount of a block device.
    is_of_device: bool,
    /// True if requests are being answered.
    served: AtomicBool,
    /// True if this process has unmounted it. Another mount may soon have the same numbers.
    taken_away: AtomicBool,
    children: Children,
}

impl OwnMount {
    /// Identifies the mount that was just made at `mountpoint`.
    pub(super) fn new(mountpoint: PathBuf, is_of_device: bool) -> io::Result<Self> {
        let made = Children::new().and_then(|it| Ok((it, identify(&mountpoint)?)));
        let (children, identity) = made.inspect_err(|_| {
            let _ = unmount(&mountpoint, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)
                .or_else(|_| fusermount::unmount(&mountpoint, true));
        })?;
        let (served, taken_away) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { mountpoint, identity, is_of_device, served, taken_away, children })
    }

    /// Records that requests are being answered.
    pub(crate) fn begin_session(&self) {
        self.served.store(true, Ordering::Release);
    }

    /// Records the end of the session: requests get no reply, and threads that wait for a child return.
    pub(crate) fn end_session(&self) {
        self.served.store(false, Ordering::Release);
        self.children.end_session();
    }

    /// Runs a system call that waits for the server in a child process. Returns `ENOTCONN` if the
    /// session ends first.
    ///
    /// # Errors
    /// If no child can be started.
    pub(super) fn in_child(
        &self,
        work: impl Fn() -> Result<(), Errno>,
    ) -> io::Result<Result<(), Errno>> {
        self.children.run(work)
    }

    /// Writes back and unmounts. A busy mount is detached and ends when it is no longer in use.
    pub(super) fn unmount(&self) -> io::Result<()> {
        match self.place()? {
            MountVisibility::There => {}
            MountVisibility::Gone => return Ok(()),
            MountVisibility::Hidden => {
                return Err(
                    self.about("another file system is mounted over it, or the mount was moved")
                );
            }
        }
        let synced = if self.served.load(Ordering::Acquire) {
            // Without a child, umount(2) would write back in this process.
            self.sync_in_child().map_err(|error| self.about(&no_child(&error)))?
        } else {
            Ok(())
        };
        self.take_away()?;
        synced.map_err(|error| self.about(&format!("some changes could not be written: {error}")))
    }

    /// Unmounts a mount that is no longer served. Errors are only printed.
    pub(crate) fn abandon(&self) {
        if matches!(self.place(), Ok(MountVisibility::There))
            && let Err(error) = self.take_away()
        {
            complain(&error);
        }
        self.taken_away.store(true, Ordering::Release);
    }

    /// Aborts the connection, which ends every thread that waits for requests. Pending requests
    /// fail.
    pub(crate) fn abort(&self) {
        let (major, minor) = self.identity.device;
        // The kernel's encoding of a device number. Mounts without a device have major number 0.
        let number = major << MINOR_BITS | minor;
        // The mounting user may do this if the control file system is mounted. Root may always
        // force it.
        let control = format!("/sys/fs/fuse/connections/{number}/abort");
        let aborted = OpenOptions::new()
            .write(true)
            .open(control)
            .and_then(|mut control| control.write_all(b"1"));
        if aborted.is_err() && matches!(self.place(), Ok(MountVisibility::There)) {
            let flags = UnmountFlags::FORCE | UnmountFlags::NOFOLLOW;
            if unmount(&self.mountpoint, flags).is_err() {
                // With neither privilege, detach the mount and wait until it is no longer in use.
                let _ = self.take_away();
            }
        }
    }

    /// Writes back the kernel's cache if the mount is still at its mount point.
    pub(crate) fn write_back(&self) -> io::Result<()> {
        match self.place()? {
            MountVisibility::There => self.sync(),
            _ => Err(Errno::XDEV.into()),
        }
    }

    fn about(&self, what: &str) -> io::Error {
        io::Error::other(format!("cannot unmount {}: {what}", self.mountpoint.display()))
    }

    fn place(&self) -> io::Result<MountVisibility> {
        if self.taken_away.load(Ordering::Acquire) {
            return Ok(MountVisibility::Gone);
        }
        match identify(&self.mountpoint) {
            Ok(found) if found == self.identity => Ok(MountVisibility::There),
            _ if self.is_mounted_anywhere()? => Ok(MountVisibility::Hidden),
            _ => Ok(MountVisibility::Gone),
        }
    }

    /// Returns whether the mount namespace of this process contains a mount of the same device.
    fn is_mounted_anywhere(&self) -> io::Result<bool> {
        let mounts = fs::read("/proc/self/mountinfo")?;
        Ok(mounts.split(|&byte| byte == b'\n').any(|line| is_of(line, self.identity.device)))
    }

    /// Returns the name of the mount's directory in `/sys/class/bdi`, which contains its write-back
    /// settings.
    pub(super) fn bdi_name(&self) -> String {
        let (major, minor) = self.identity.device;
        let suffix = if self.is_of_device { "-fuseblk" } else { "" };
        format!("{major}:{minor}{suffix}")
    }

    /// Returns the mount point as a C string for system calls.
    pub(super) fn c_mountpoint(&self) -> io::Result<CString> {
        Ok(CString::new(self.mountpoint.as_os_str().as_bytes())?)
    }

    /// Returns whether an open directory is the root of this mount.
    pub(super) fn is_root(&self, directory: impl AsFd) -> Result<bool, Errno> {
        Ok(identify_at(directory, c"", AtFlags::EMPTY_PATH)? == self.identity)
    }

    /// Writes back the kernel's cache.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.sync_in_child()?
    }

    /// Same as [`Self::sync`], but the outer error means that no child could be started.
    fn sync_in_child(&self) -> io::Result<io::Result<()>> {
        let root = self.c_mountpoint()?;
        Ok(match self.in_child(|| sync(&root))? {
            // The connection has ended.
            Ok(()) | Err(Errno::NOTCONN | Errno::CONNABORTED) => Ok(()),
            Err(error) => Err(error.into()),
        })
    }

    fn take_away(&self) -> io::Result<()> {
        let path = &self.mountpoint;
        let mut taken = unmount(path, UnmountFlags::NOFOLLOW);
        if taken == Err(Errno::BUSY) {
            taken = unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH);
        }
        match taken {
            // Another process may have unmounted it first.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(Errno::PERM) => self.have_taken_away()?,
            Err(error) => return Err(self.about(&error.to_string())),
        }
        self.taken_away.store(true, Ordering::Release);
        Ok(())
    }

    fn have_taken_away(&self) -> io::Result<()> {
        let taken = fusermount::unmount(&self.mountpoint, false)
            .or_else(|_| fusermount::unmount(&self.mountpoint, true));
        match taken {
            Err(error) if matches!(self.place(), Ok(MountVisibility::There)) => {
                Err(self.about(&error.to_string()))
            }
            _ => Ok(()),
        }
    }
}

fn no_child(error: &io::Error) -> String {
    format!("no process can be started to write back: {error}; end other processes, or run umount")
}

/// Writes back the file system with this root. Succeeds if the root cannot be opened, so that it
/// can be unmounted.
fn sync(root: &CStr) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match open(root, flags, Mode::empty()) {
        Ok(root) => syncfs(root),
        Err(_) => Ok(()),
    }
}

/// Returns the identity of the mount that contains a path.
fn identify(path: &PathBuf) -> io::Result<Identity> {
    Ok(identify_at(CWD, path, AtFlags::empty())?)
}

fn identify_at(directory: impl AsFd, path: impl Arg, flags: AtFlags) -> Result<Identity, Errno> {
    let flags =
        flags | AtFlags::STATX_DONT_SYNC | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let mask = StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE) | StatxFlags::MNT_ID;
    let found = statx(directory, path, flags, mask)?;
    let device = (found.stx_dev_major, found.stx_dev_minor);
    Ok(Identity { device, mount_id: found.stx_mnt_id })
}

/// Returns whether a line of proc_pid_mountinfo(5) describes a FUSE file system on this device. The
/// third field is the device; the type follows a lone `-`.
fn is_of(line: &[u8], (major, minor): (u32, u32)) -> bool {
    let mut fields = line.split(|&byte| byte == b' ');
    let device = format!("{major}:{minor}");
    fields.nth(2) == Some(device.as_bytes())
        && fields.find(|field| field == b"-").is_some()
        && fields.next().is_some_and(|fs_type| fs_type.starts_with(b"fuse"))
}

#[cfg(test)]
mod tests {
    use super::is_of;

    #[test]
    fn mounts_are_distinguished_by_device_and_type() {
        let line = b"84 29 0:51 / /mnt/a\\040- rw,noatime shared:3 - fuse.ext4 a\\,b rw,user_id=0";
        assert!(is_of(line, (0, 51)));
        assert!(!is_of(line, (0, 5)) && !is_of(line, (84, 29)));
        assert!(!is_of(b"84 29 0:51 / /mnt rw,noatime - tmpfs other rw", (0, 51)));
        assert!(!is_of(b"", (0, 51)) && !is_of(b"84 29 0:51", (0, 51)));
    }
}
