//! Mounts of images by the program, for tests: started, waited for, and taken away whatever happens.
//!
//! A test file takes this in with `#[path]`, and uses what it needs of it.
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

use oracle::HANG_AFTER;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) use oracle::wait_until;

/// How long a mount may last unless [`Mounting::limit`] says otherwise. Its server is killed then, so
/// that whatever waits for it fails instead of hanging.
const LIMIT: Duration = Duration::from_secs(1800);

/// The program with an environment of its own.
pub(crate) fn diskwright() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
    command.env_remove("SOURCE_DATE_EPOCH").env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// Waits for the end of a process.
#[track_caller]
pub(crate) fn wait_for(what: &str, child: &mut Child) -> ExitStatus {
    wait_until(what, || child.try_wait().unwrap().is_some());
    child.wait().unwrap()
}

/// Whether something is mounted at a path. Asks nobody who may not answer.
pub(crate) fn is_mounted(point: &Path) -> bool {
    let point = point.to_str().expect("scratch directories have plain names");
    // As this thread sees it: a test may have mounts for itself.
    let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(point))
}

/// A new directory to mount at, which is removed when dropped, but never with what is in it.
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

/// Unmounts whatever is mounted at a path, though it is in use or its server is dead.
pub(crate) fn take_away(point: &Path) {
    while is_mounted(point) {
        if unmount(point, UnmountFlags::DETACH).is_err() {
            let helper = oracle::program("fusermount3");
            let ended = helper.map(|path| Command::new(path).arg("-uz").arg(point).status());
            if !ended.is_some_and(|ended| ended.is_ok_and(|status| status.success())) {
                return;
            }
        }
    }
}

/// Runs `diskwright unmount` until nobody uses the mount: a process that another test is just starting has
/// copies of what was open here, for as long as the machine takes to start it.
pub(crate) fn unmount_when_free(point: &Path) -> Output {
    let mut unmount = diskwright();
    unmount.args(["unmount", "--timeout", &HANG_AFTER.as_secs().to_string()]).arg(point);
    let mut last = None;
    wait_until("nobody to use the mount", || {
        let output = unmount.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let is_busy = said.contains("programs use it") || said.contains("busy");
        last = Some(output);
        !is_busy
    });
    last.expect("it was run")
}

/// A mount that is about to be made: `Mounting::new(image).options("ro").start()`.
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

    /// A mount that another program serves, at the place that it is given.
    pub(crate) fn served_by(image: &Path, command: impl FnOnce(&Path) -> Command) -> Self {
        let point = Point::new();
        let command = command(point.path());
        Self { command, image: image.to_owned(), point, limit: LIMIT }
    }

    /// `-o OPTIONS`.
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

    /// How long it may last.
    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Mounts, and returns when the mount can be used.
    ///
    /// # Panics
    /// With what the program said, if it ends instead.
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
            // The first answer shows that it is served.
            is_mounted(mounted.path())
                && fs::metadata(mounted.path()).is_ok_and(|root| root.dev() != outside)
        });
        mounted
    }
}

/// A mount served by the program in the foreground. Dropped, the server is killed and the mount goes.
pub(crate) struct Mounted {
    server: Child,
    said: File,
    image: PathBuf,
    _watchdog: Watchdog,
    point: Point,
}

impl Mounted {
    /// Mounts an image that can be changed, without options.
    #[track_caller]
    pub(crate) fn new(image: &Path) -> Self {
        Mounting::new(image).start()
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> &Path {
        self.point.path()
    }

    /// A path in it.
    pub(crate) fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.path().join(path)
    }

    pub(crate) fn image(&self) -> &Path {
        &self.image
    }

    /// What the server has said so far.
    pub(crate) fn said(&mut self) -> String {
        let mut text = String::new();
        // The place in the file is shared with the server, which writes at the end.
        let mut said = File::open(format!("/proc/self/fd/{}", fd(&self.said))).unwrap();
        said.rewind().unwrap();
        said.read_to_string(&mut text).unwrap();
        text
    }

    /// Unmounts by `diskwright unmount`, which waits for the server to let go of the image.
    /// Returns what the server said.
    ///
    /// # Panics
    /// If that fails, or the server ends with another status than 0.
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

    /// Waits for the server to end by itself; its status and what it said.
    #[track_caller]
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let status = wait_for("the end of the server", &mut self.server);
        (status, self.said())
    }

    /// Kills the server, as a crash would, and takes the dead mount away. The image is left as it is.
    pub(crate) fn kill(mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
        take_away(self.path());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // The server ends first: what is left of the mount then cannot hang.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn fd(file: &File) -> i32 {
    use std::os::fd::AsRawFd;
    file.as_raw_fd()
}

/// Kills a server that lives too long, unless dropped before.
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
