//! Unmounting on Linux.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, syncfs};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use vfs::hint::Setting;

use crate::mounts::{MountEntry, MountWay};
use crate::{Error, Result};

/// Interval between attempts while a mount is busy.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Duration of retries while a mount is busy. A starting process briefly has copies of its parent's open files, even of
/// those that the parent has closed since.
const BUSY_RETRY_TIMEOUT: Duration = Duration::from_millis(300);

/// Helper programs for unprivileged unmounts, newest first.
const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];

/// State of the server of a mount, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerState {
    Answers,
    Dead,
}

/// Syncs the kernel's cache and the server, so that errors can still be reported.
pub(super) fn sync(point: &Path, was_changed: bool) -> io::Result<ServerState> {
    let root = File::options()
        .read(true)
        .custom_flags((OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed())
        .open(point);
    let root = match root {
        Ok(root) => root,
        Err(error) if is_dead(&error) => return Ok(ServerState::Dead),
        // The mount denies access to other users. Its owner's data is written when files are closed.
        Err(_) => return Ok(ServerState::Answers),
    };
    let written = syncfs(&root).map_err(io::Error::from);
    // The kernel does not forward syncfs to the server, but it forwards fsync.
    let durable = if was_changed { root.sync_all() } else { Ok(()) };
    match written.and(durable) {
        Ok(()) => Ok(ServerState::Answers),
        Err(error) if is_dead(&error) => Ok(ServerState::Dead),
        Err(error) => Err(error),
    }
}

fn is_dead(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Unmounts.
pub(super) fn take_away(mount: &MountEntry, lazy: bool) -> Result<()> {
    let point = &*mount.point;
    let mut flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    if matches!(mount.way, Some(MountWay::Nfs { is_served: false, .. })) {
        // Requests to a server that was killed fail at once.
        flags |= UnmountFlags::FORCE;
    }
    let attempt = || rustix::mount::unmount(point, flags | UnmountFlags::NOFOLLOW);
    let (begun, mut outcome) = (Instant::now(), attempt());
    while outcome == Err(Errno::BUSY) && begun.elapsed() < BUSY_RETRY_TIMEOUT {
        thread::sleep(POLL_INTERVAL);
        outcome = attempt();
    }
    let error = match outcome {
        Ok(()) => return Ok(()),
        Err(Errno::PERM) if mount.way != Some(MountWay::Fuse) => {
            let problem = "a mount by NFS requires root to unmount it";
            io::Error::new(io::ErrorKind::PermissionDenied, problem)
        }
        Err(Errno::PERM) => match ask_helper(point, lazy) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        },
        Err(Errno::BUSY) => io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!(
                "programs use it or have it as working directory; end them, or use {}",
                Setting::LAZY
            ),
        ),
        Err(error) => error.into(),
    };
    Err(Error::host("unmount", point, error))
}

/// Unmounts through the helper program.
fn ask_helper(point: &Path, lazy: bool) -> io::Result<()> {
    for helper in HELPERS {
        let mut command = Command::new(helper);
        command.arg(if lazy { "-uz" } else { "-u" }).arg("--").arg(point);
        match command.stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                return Err(io::Error::other(said.trim().to_owned()));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let missing = "it requires root or fusermount3, which is not installed (package fuse3)";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, missing))
}
