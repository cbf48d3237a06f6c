//! Mounts of images by the program, for tests. A mount is started, waited for, and removed in every
//! case.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use testkit::HANG_AFTER;

use crate::program::diskwright;

pub(crate) use testkit::wait_until;

/// Maximum lifetime of a mount unless [`Mounting::limit`] sets another. Then its server is killed,
/// so that waiting programs fail instead of hanging.
const LIMIT: Duration = Duration::from_secs(1800);

/// Waits for a process to end.
#[track_caller]
pub(crate) fn wait_for(what: &str, child: &mut Child) -> ExitStatus {
    wait_until(what, || child.try_wait().unwrap().is_some());
    child.wait().unwrap()
}

/// Returns whether a path is a mount point. Sends no request to the file system, which may not
/// answer.
pub(crate) fn is_mounted(point: &Path) -> bool {
    let point = point.to_str().expect("scratch directories have plain names");
    // In this thread's view: a test may have a private mount namespace.
    let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(point))
}

/// A new directory for a mount. On drop it is removed only if it is empty.
pub(crate) struct Point(PathBuf);

impl Point {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("diskwright-fuse-").tempdir().unwrap();
        Self(fs::canonicalize(dir.keep()).unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        take_away(&self.0);
        let _ = fs::remove_dir(&self.0);
    }
}

/// Unmounts everything mounted at a path, even if it is in use or its server is dead.
pub(crate) fn take_away(point: &Path) {
    while is_mounted(point) {
        if unmount(point, UnmountFlags::DETACH).is_err() {
            let helper = testkit::program("fusermount3");
            let ended = helper.map(|path| Command::new(path).arg("-uz").arg(point).status());
            if !ended.is_some_and(|ended| ended.is_ok_and(|status| status.success())) {
                return;
            }
        }
    }
}

/// Runs `diskwright unmount` until the mount is free. A process that a concurrent test is starting
/// briefly inherits this process's open files.
pub(crate) fn unmount_when_free(point: &Path) -> Output {
    let mut unmount = diskwright();
    unmount.args(["unmount", "--timeout", &HANG_AFTER.as_secs().to_string()]).arg(point);
    let mut last = None;
    let mut lost = Vec::new();
    wait_until("nobody to use the mount", || {
        let output = unmount.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let is_busy = said.contains("programs use it") || said.contains("busy");
        if is_busy && said.contains("cannot write back") {
            lost.extend_from_slice(&output.stderr);
        }
        last = Some(output);
        !is_busy
    });
    let mut last = last.expect("it was run");
    last.stderr.splice(..0, lost);
    last
}

/// Builder for a mount: `Mounting::new(image).options("ro").start()`.
pub(crate) struct Mounting {
    command: Command,
    image: PathBuf,
    point: Point,
    limit: Duration,
}

impl Mounting {
    pub(crate) fn new(image: &Path) -> Self {
        Self::served_by(image, |point| {
            let mut command = diskwright();
            command.arg("mount").arg(image).arg(point).arg("--foreground");
            command
        })
    }

    /// Prepares a mount served by another program, at the given mount point.
    pub(crate) fn served_by(image: &Path, command: impl FnOnce(&Path) -> Command) -> Self {
        let point = Point::new();
        let command = command(point.path());
        Self { command, image: image.to_owned(), point, limit: LIMIT }
    }

    /// Adds `-o OPTIONS`.
    pub(crate) fn options(self, options: &str) -> Self {
        self.arguments(["-o", options])
    }

    pub(crate) fn arguments<S: AsRef<OsStr>>(
        mut self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets the maximum lifetime.
    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Mounts, and returns when the mount is ready.
    ///
    /// # Panics
    /// If the program ends instead, with its messages.
    #[track_caller]
    pub(crate) fn start(self) -> Mounted {
        let Self { mut command, image, point, limit } = self;
        let said = tempfile::tempfile().unwrap();
        let outside = fs::metadata(point.path()).unwrap().dev();
        let server = command.stdout(Stdio::null()).stderr(said.try_clone().unwrap()).spawn();
        let server = server.unwrap();
        let watchdog = Watchdog::new(&server, limit);
        let mut mounted = Mounted { server, said, image, _watchdog: watchdog, point };
        wait_until("the mount to answer", || {
            if let Some(status) = mounted.server.try_wait().unwrap() {
                panic!("{command:?} ended with {status}: {}", mounted.said());
            }
            // The first answer shows that the mount is served.
            is_mounted(mounted.path())
                && fs::metadata(mounted.path()).is_ok_and(|root| root.dev() != outside)
        });
        mounted
    }
}

/// A mount served by the program in the foreground. On drop the server is killed and the mount
/// removed.
pub(crate) struct Mounted {
    server: Child,
    said: File,
    image: PathBuf,
    _watchdog: Watchdog,
    point: Point,
}

impl Mounted {
    /// Mounts an image read-write, without options.
    #[track_caller]
    pub(crate) fn new(image: &Path) -> Self {
        Mounting::new(image).start()
    }

    /// Returns the mount point.
    pub(crate) fn path(&self) -> &Path {
        self.point.path()
    }

    /// Returns a path in the mount.
    pub(crate) fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.path().join(path)
    }

    pub(crate) fn image(&self) -> &Path {
        &self.image
    }

    /// Returns the server's messages so far.
    pub(crate) fn said(&mut self) -> String {
        let mut text = String::new();
        // The file offset is shared with the server, which writes at the end.
        let mut said = File::open(format!("/proc/self/fd/{}", fd(&self.said))).unwrap();
        said.rewind().unwrap();
        said.read_to_string(&mut text).unwrap();
        text
    }

    /// Unmounts by `diskwright unmount`, which waits for the server to release the image. Returns
    /// the server's messages.
    ///
    /// # Panics
    /// If unmounting fails, or the server ends with a status other than 0.
    #[track_caller]
    pub(crate) fn unmount(mut self) -> String {
        let output = unmount_when_free(self.path());
        assert!(output.status.success(), "{output:?}; the server: {}", self.said());
        let status = wait_for("the end of the server", &mut self.server);
        let said = self.said();
        assert!(status.success(), "the server ended with {status}: {said}");
        assert!(!is_mounted(self.path()));
        said
    }

    /// Sends a signal to the server.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.server), signal).unwrap();
    }

    /// Waits for the server to end. Returns its status and messages.
    #[track_caller]
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let status = wait_for("the end of the server", &mut self.server);
        (status, self.said())
    }

    /// Kills the server, like a crash, and removes the dead mount. The image is not changed.
    pub(crate) fn kill(mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
        take_away(self.path());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Kill the server first: operations on the dead mount cannot hang.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn fd(file: &File) -> i32 {
    use std::os::fd::AsRawFd;
    file.as_raw_fd()
}

/// Kills a server that exceeds its lifetime, unless dropped before.
struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    fn new(server: &Child, limit: Duration) -> Self {
        let pid = Pid::from_child(server);
        let (alive, watched) = mpsc::channel();
        thread::spawn(move || {
            if watched.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("a mount lasted longer than {limit:?}: its server is killed");
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        Self { _alive: alive }
    }
}
