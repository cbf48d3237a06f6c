//! Mounts that nobody else sees, and that cannot be left behind.
//!
//! A thread takes a mount namespace of its own, in which `mount` mounts the image through a loop device
//! that detaches itself with the last unmount. The thread opens the root and ends, and its namespace
//! with it. From then on the open directory alone keeps the mount: there is no mount point and no line in
//! any list of mounts. Whatever ends the process closes the directory, and the kernel unmounts.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use ::workload::{Error, Result};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_change};

/// Tries while other processes take the loop devices that `mount` finds, and the time between them.
const LOOP_TRIES: u32 = 50;
const LOOP_PAUSE: Duration = Duration::from_millis(100);
/// How often is looked whether the mount is gone, and the time between.
const GONE_TRIES: u32 = 200;
const GONE_PAUSE: Duration = Duration::from_millis(10);

/// A mounted image. Dropped, it is unmounted.
#[derive(Debug)]
pub(super) struct Mounted {
    root: Option<OwnedFd>,
    /// The file that tells what the loop device is on, and the name that it tells.
    backing: (PathBuf, Vec<u8>),
    /// The directory of the loop device in `/sys`.
    sys: PathBuf,
}

impl Mounted {
    /// Mounts an image. The directory `over` is where the thread sees it, and is not changed for others.
    ///
    /// # Errors
    /// `Unsupported`, with what `mount` said, if this machine cannot mount it.
    pub(super) fn new(
        image: &impl AsFd,
        fs_type: &str,
        options: &str,
        over: &Path,
    ) -> Result<Self> {
        let image = path_of(image);
        // A relative path could lead to what is below the new mount.
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

    /// A path of the root that works for as long as this lives, in other processes too.
    pub(super) fn path(&self) -> PathBuf {
        self.root.as_ref().map_or_else(PathBuf::new, path_of)
    }

    /// How far the log of an XFS has come, in bytes, if it is one of so many.
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
            numbers.ok_or_else(|| io::Error::other(format!("{head:?} is no place in a log")))?;
        Ok(cycle * log_bytes + block * 512)
    }

    /// Writes everything and unmounts. Returns when the image is complete and nobody's any more.
    ///
    /// # Errors
    /// `EBUSY` if something in it is still open, and stays so.
    pub(super) fn unmount(mut self) -> Result<()> {
        let synced = self.root.as_ref().map_or(Ok(()), rustix::fs::syncfs);
        let closed = self.close();
        synced.map_err(|e| Error::host("syncfs", e))?;
        closed.map_err(|e| Error::host("unmount", e))
    }

    /// Closes the root, which unmounts, and waits for the loop device to let go.
    fn close(&mut self) -> io::Result<()> {
        if self.root.take().is_none() {
            return Ok(());
        }
        // What holds it a moment longer may be a child of this process on its way to another program.
        for _ in 0..GONE_TRIES {
            if !self.is_attached() {
                return Ok(());
            }
            thread::sleep(GONE_PAUSE);
        }
        Err(Errno::BUSY.into())
    }

    /// Whether the loop device is still on the image. Without one, or with another, it is not.
    fn is_attached(&self) -> bool {
        backing_name(&self.backing.0).is_ok_and(|name| name == self.backing.1)
    }
}

/// The last part of the path of the file that a loop device is on. A path that was opened in a namespace
/// that is gone is shown without what was above the mount that it is in.
fn backing_name(backing: &Path) -> io::Result<Vec<u8>> {
    let path = fs::read(backing)?;
    Ok(path.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec())
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // What still holds it can only be open files, and the kernel unmounts when they are closed.
        let _ = self.close();
    }
}

/// A path of something open in this process.
fn path_of(open: &impl AsFd) -> PathBuf {
    let number = open.as_fd().as_raw_fd();
    PathBuf::from(format!("/proc/{}/fd/{number}", std::process::id()))
}

/// Mounts in a new namespace of this thread and opens the root.
fn mount_apart(image: &Path, fs_type: &str, options: &str, over: &Path) -> Result<OwnedFd> {
    let refused = |e: io::Error| Error::Unsupported(format!("a mount namespace: {e}"));
    unshare(CloneFlags::CLONE_NEWNS).map_err(|e| refused(e.into()))?;
    // Else the mount would show wherever this namespace was copied from.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(|e| refused(e.into()))?;
    let below = open_directory(over)?;
    run_mount(image, fs_type, options, over)?;
    let root = open_directory(over)?;
    let device = |open| fstat(open).map(|stat| stat.st_dev).map_err(|e| Error::host("stat", e));
    if device(&root)? == device(&below)? {
        let problem = "is no directory that anything can be mounted over";
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
        // A list of mounts in a file would not learn of the unmount.
        command.arg("--no-mtab").args(["-t", fs_type, "-o", options]).arg(image).arg(over);
        command.env("LC_ALL", "C").stdin(Stdio::null());
        // Ctrl-C ends the run, but not in the middle of this.
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
        // Others may have taken the loop device that `mount` just found.
        if !said.contains("loop device") {
            break;
        }
        thread::sleep(LOOP_PAUSE);
    }
    Err(Error::Unsupported(said))
}
