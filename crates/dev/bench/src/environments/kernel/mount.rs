//! Private mounts that disappear with the process.
//!
//! A thread creates its own mount namespace, in which `mount` mounts the image through a loop device that detaches
//! itself on the last unmount. The thread opens the root directory and ends, and with it the namespace. From then on
//! only the open directory keeps the mount alive: it has no mount point and is in no mount table. When the process
//! ends, the directory is closed and the kernel unmounts.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::{Error, Result};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_change};

/// Number of attempts while other processes take the loop devices found by `mount`, and the pause between them.
const LOOP_TRIES: u32 = 50;
const LOOP_PAUSE: Duration = Duration::from_millis(100);
/// Number of checks whether the mount has ended, and the pause between them.
const GONE_TRIES: u32 = 200;
const GONE_PAUSE: Duration = Duration::from_millis(10);

/// Mounted image, unmounted on drop.
#[derive(Debug)]
pub(super) struct KernelMount {
    root: Option<OwnedFd>,
    /// Sysfs file with the loop device's backing file, and the expected name.
    backing: (PathBuf, Vec<u8>),
    /// Sysfs directory of the loop device.
    sys: PathBuf,
}

impl KernelMount {
    /// Mounts an image over the directory `over`, visible only in the thread's namespace.
    ///
    /// # Errors
    /// `Unsupported`, with the output of `mount`, if this machine cannot mount it.
    pub(super) fn new(
        image: &impl AsFd,
        fs_type: &str,
        options: &str,
        over: &Path,
    ) -> Result<Self> {
        let image = path_of(image);
        // A relative path could be resolved below the new mount.
        let over = fs::canonicalize(over)
            .map_err(|e| Error::host(format!("open {}", over.display()), e))?;
        let root = thread::scope(|scope| {
            let mount = || mount_apart(&image, fs_type, options, &over);
            let apart = thread::Builder::new().spawn_scoped(scope, mount);
            let apart = apart.map_err(|e| Error::host("start a thread", e))?;
            apart.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        let device = fstat(&root).map_err(|e| Error::host("stat", e))?.st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let sys = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let backing = sys.join("loop/backing_file");
        let name = backing_name(&backing)
            .map_err(|e| Error::Unsupported(format!("{}: {e}", backing.display())))?;
        Ok(Self { root: Some(root), backing: (backing, name), sys })
    }

    /// Returns a path of the root that is valid during the lifetime of this mount, also in other processes.
    pub(super) fn path(&self) -> PathBuf {
        self.root.as_ref().map_or_else(PathBuf::new, path_of)
    }

    /// Returns the head position of an XFS log of this size, in bytes.
    pub(super) fn xfs_log_head(&self, log_bytes: u64) -> io::Result<u64> {
        let device = fs::canonicalize(&self.sys)?;
        let name = device.file_name().unwrap_or_default();
        let head = Path::new("/sys/fs/xfs").join(name).join("log/log_head_lsn");
        let head = fs::read_to_string(head)?;
        let numbers = head.trim().split_once(':');
        let numbers = numbers.and_then(|(cycle, block)| {
            Some((cycle.parse::<u64>().ok()?, block.parse::<u64>().ok()?))
        });
        let (cycle, block) =
            numbers.ok_or_else(|| io::Error::other(format!("{head:?} is not a log position")))?;
        Ok(cycle * log_bytes + block * 512)
    }

    /// Syncs and unmounts. Returns when the image is complete and released.
    ///
    /// # Errors
    /// `EBUSY` if a file in it stays open.
    pub(super) fn unmount(mut self) -> Result<()> {
        let synced = self.root.as_ref().map_or(Ok(()), rustix::fs::syncfs);
        let closed = self.close();
        synced.map_err(|e| Error::host("syncfs", e))?;
        closed.map_err(|e| Error::host("unmount", e))
    }

    /// Closes the root, which unmounts, and waits for the loop device to detach.
    fn close(&mut self) -> io::Result<()> {
        if self.root.take().is_none() {
            return Ok(());
        }
        // A starting child process may hold a copy of the descriptor briefly.
        for _ in 0..GONE_TRIES {
            if !self.is_attached() {
                return Ok(());
            }
            thread::sleep(GONE_PAUSE);
        }
        Err(Errno::BUSY.into())
    }

    /// Returns whether the loop device still uses the image.
    fn is_attached(&self) -> bool {
        backing_name(&self.backing.0).is_ok_and(|name| name == self.backing.1)
    }
}

/// Returns the last component of a loop device's backing file. A path opened in a namespace that has ended is shown
/// relative to its mount.
fn backing_name(backing: &Path) -> io::Result<Vec<u8>> {
    let path = fs::read(backing)?;
    Ok(path.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec())
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        // If it is still in use, the kernel unmounts when the last file is closed.
        let _ = self.close();
    }
}

/// Returns a path of an open file of this process.
fn path_of(open: &impl AsFd) -> PathBuf {
    let number = open.as_fd().as_raw_fd();
    PathBuf::from(format!("/proc/{}/fd/{number}", std::process::id()))
}

/// Mounts in a new namespace of this thread and opens the root.
fn mount_apart(image: &Path, fs_type: &str, options: &str, over: &Path) -> Result<OwnedFd> {
    let refused = |e: io::Error| Error::Unsupported(format!("a mount namespace: {e}"));
    unshare(CloneFlags::CLONE_NEWNS).map_err(|e| refused(e.into()))?;
    // Otherwise the mount would propagate to the original namespace.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(|e| refused(e.into()))?;
    let below = open_directory(over)?;
    run_mount(image, fs_type, options, over)?;
    let root = open_directory(over)?;
    let device = |open| fstat(open).map(|stat| stat.st_dev).map_err(|e| Error::host("stat", e));
    if device(&root)? == device(&below)? {
        let problem = "is not a directory that can be mounted over";
        return Err(Error::Unsupported(format!("{} {problem}", over.display())));
    }
    Ok(root)
}

fn open_directory(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty())
        .map_err(|e| Error::host(format!("open {}", path.display()), e))
}

fn run_mount(image: &Path, fs_type: &str, options: &str, over: &Path) -> Result<()> {
    let mut said = String::new();
    for _ in 0..LOOP_TRIES {
        let mut command = Command::new("mount");
        // A mount table in a file would not be updated on the unmount.
        command.arg("--no-mtab").args(["-t", fs_type, "-o", options]).arg(image).arg(over);
        command.env("LC_ALL", "C").stdin(Stdio::null());
        // Keeps Ctrl-C, which cancels the run, from interrupting `mount`.
        command.process_group(0);
        let output =
            command.output().map_err(|e| Error::Unsupported(format!("the program mount: {e}")))?;
        if output.status.success() {
            return Ok(());
        }
        said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
        if said.is_empty() {
            said = format!("mount: {}", output.status);
        }
        // Another process may have taken the loop device found by `mount`.
        if !said.contains("loop device") {
            break;
        }
        thread::sleep(LOOP_PAUSE);
    }
    Err(Error::Unsupported(said))
}
