//! A mount while it lasts, and its end.
//!
//! A path alone does not say what is mounted there: it may be unmounted by others, and something else be
//! mounted at the same place or over it. So a mount is known by its device number and the number of its
//! mount, both asked for without a request to the file system, which may not answer any more.
//!
//! When the kernel unmounts FUSE for good, it gives up its connection first, and what it has not written
//! back by then is lost. Files are written back when they are closed; what is mapped or still open is
//! written back here, before the mount goes.

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

use super::{child, fusermount};
use crate::complain::complain;

/// `STATX_MNT_ID_UNIQUE` (Linux 6.8): the number of a mount, and no number is used again. Older kernels
/// give numbers that are.
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;

/// Bits of a device's minor number in the kernel.
const MINOR_BITS: u32 = 20;

/// What tells a mount from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: (u32, u32),
    mount_id: u64,
}

/// Where a mount is now.
enum Place {
    /// Where it was mounted, and on top.
    There,
    /// Beneath another one, or elsewhere.
    Hidden,
    /// Nowhere.
    Gone,
}

/// A mount that this process made.
#[derive(Debug)]
pub(crate) struct Mount {
    /// Absolute, without symbolic links.
    mountpoint: PathBuf,
    identity: Identity,
    /// Its device is a block device.
    is_of_device: bool,
    /// Whether requests are answered.
    served: AtomicBool,
    /// Whether it is over for this process. Its numbers may soon be another's.
    taken_away: AtomicBool,
}

impl Mount {
    /// The mount that was just made there.
    pub(super) fn new(mountpoint: PathBuf, is_of_device: bool) -> io::Result<Self> {
        let identity = identify(&mountpoint).inspect_err(|_| {
            let _ = unmount(&mountpoint, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)
                .or_else(|_| fusermount::unmount(&mountpoint, true));
        })?;
        let (served, taken_away) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { mountpoint, identity, is_of_device, served, taken_away })
    }

    pub(crate) fn set_served(&self, served: bool) {
        self.served.store(served, Ordering::Release);
    }

    /// Writes back and unmounts, at the latest when it is not used any more.
    pub(super) fn unmount(&self) -> io::Result<()> {
        match self.place()? {
            Place::There => {}
            Place::Gone => return Ok(()),
            Place::Hidden => {
                return Err(self.about("another file system is mounted over it, or it was moved"));
            }
        }
        let synced = if self.served.load(Ordering::Acquire) { self.sync() } else { Ok(()) };
        self.take_away()?;
        synced.map_err(|error| self.about(&format!("not all could be written back: {error}")))
    }

    /// Takes away a mount that nobody serves any more, as far as possible.
    pub(crate) fn abandon(&self) {
        if matches!(self.place(), Ok(Place::There))
            && let Err(error) = self.take_away()
        {
            complain(&error);
        }
        self.taken_away.store(true, Ordering::Release);
    }

    /// Ends the connection, so that every thread that waits for requests learns that it is over. Requests
    /// under way fail.
    pub(crate) fn abort(&self) {
        let (major, minor) = self.identity.device;
        // The kernel's own form of a device number; the major number of mounts without a device is 0.
        let number = major << MINOR_BITS | minor;
        // Who mounted may do this, if the control file system is mounted; root may force it in any case.
        let control = format!("/sys/fs/fuse/connections/{number}/abort");
        let aborted = OpenOptions::new()
            .write(true)
            .open(control)
            .and_then(|mut control| control.write_all(b"1"));
        if aborted.is_err() && matches!(self.place(), Ok(Place::There)) {
            let flags = UnmountFlags::FORCE | UnmountFlags::NOFOLLOW;
            if unmount(&self.mountpoint, flags).is_err() {
                // Without the right to do either, wait until it is not used any more.
                let _ = self.take_away();
            }
        }
    }

    /// Has the kernel write back what it caches, as long as it is mounted where it was.
    pub(crate) fn write_back(&self) -> io::Result<()> {
        match self.place()? {
            Place::There => self.sync(),
            _ => Err(Errno::XDEV.into()),
        }
    }

    fn about(&self, what: &str) -> io::Error {
        io::Error::other(format!("cannot unmount {}: {what}", self.mountpoint.display()))
    }

    fn place(&self) -> io::Result<Place> {
        if self.taken_away.load(Ordering::Acquire) {
            return Ok(Place::Gone);
        }
        match identify(&self.mountpoint) {
            Ok(found) if found == self.identity => Ok(Place::There),
            _ if self.is_mounted_anywhere()? => Ok(Place::Hidden),
            _ => Ok(Place::Gone),
        }
    }

    /// Whether anything in this process's view is mounted from the same device.
    fn is_mounted_anywhere(&self) -> io::Result<bool> {
        let mounts = fs::read("/proc/self/mountinfo")?;
        Ok(mounts.split(|&byte| byte == b'\n').any(|line| is_of(line, self.identity.device)))
    }

    /// The name of its write-back settings in `/sys/class/bdi`.
    pub(super) fn bdi_name(&self) -> String {
        let (major, minor) = self.identity.device;
        let suffix = if self.is_of_device { "-fuseblk" } else { "" };
        format!("{major}:{minor}{suffix}")
    }

    /// Its mount point for system calls.
    pub(super) fn c_mountpoint(&self) -> io::Result<CString> {
        Ok(CString::new(self.mountpoint.as_os_str().as_bytes())?)
    }

    /// Whether an open directory is its root.
    pub(super) fn is_root(&self, directory: impl AsFd) -> Result<bool, Errno> {
        Ok(identify_at(directory, c"", AtFlags::EMPTY_PATH)? == self.identity)
    }

    /// Has the kernel write back what it caches.
    pub(super) fn sync(&self) -> io::Result<()> {
        let root = self.c_mountpoint()?;
        match from_child(|| sync(&root)) {
            // It ended meanwhile.
            Ok(()) | Err(Errno::NOTCONN | Errno::CONNABORTED) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn take_away(&self) -> io::Result<()> {
        let path = &self.mountpoint;
        let mut taken = unmount(path, UnmountFlags::NOFOLLOW);
        if taken == Err(Errno::BUSY) {
            taken = unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH);
        }
        match taken {
            // Or others were faster.
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
            Err(error) if matches!(self.place(), Ok(Place::There)) => {
                Err(self.about(&error.to_string()))
            }
            _ => Ok(()),
        }
    }
}

/// Runs a request that waits for the server in a child process, or in this one if that fails.
pub(super) fn from_child(work: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    child::run(&work).unwrap_or_else(|_| work())
}

/// Writes back the file system with this root. Succeeds if the root cannot be opened, so that it can be unmounted.
fn sync(root: &CStr) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match open(root, flags, Mode::empty()) {
        Ok(root) => syncfs(root),
        Err(_) => Ok(()),
    }
}

/// What is mounted at a path, or what the path belongs to.
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

/// Whether a line of proc_pid_mountinfo(5) is about a FUSE file system on this device: fields are mount,
/// parent, device, and so on, and the type comes after a lone `-`.
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
    fn mounts_are_told_by_device_and_type() {
        let line = b"84 29 0:51 / /mnt/a\\040- rw,noatime shared:3 - fuse.ext4 a\\,b rw,user_id=0";
        assert!(is_of(line, (0, 51)));
        assert!(!is_of(line, (0, 5)) && !is_of(line, (84, 29)));
        assert!(!is_of(b"84 29 0:51 / /mnt rw,noatime - tmpfs other rw", (0, 51)));
        assert!(!is_of(b"", (0, 51)) && !is_of(b"84 29 0:51", (0, 51)));
    }
}
