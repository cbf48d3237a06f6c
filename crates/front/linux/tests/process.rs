//! Mounts served by another process: one that is killed, and one that lacks the privilege to mount.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, io, thread};

use linux::Session;
use tempfile::TempDir;
use testkit::wait_until;

use crate::common::transport::SwitchedOn;
use crate::common::{
    Memory, Transport, mount_options, mounts_at, mounts_in, over_both, session_options,
};

over_both!(
    a_killed_process_leaves_a_mount_that_can_be_unmounted,
    users_mount_by_fusermount,
    what_is_used_is_detached_by_fusermount,
);

/// Variable with the mount point, for the test that runs as a separate program.
const PLACE: &str = "FUSE_DEVICE_TEST_PLACE";
/// Variable that makes it serve over io_uring.
const IO_URING: &str = "FUSE_DEVICE_TEST_IO_URING";
/// User and group ID without privileges.
const NOBODY: u32 = 65534;

/// Not a test: the program that the other tests start. Unmounts when its standard input ends.
#[test]
fn serves_for_another_process() {
    let Some(place) = env::var_os(PLACE) else { return };
    let uid = rustix::process::getuid().as_raw();
    let session = Session::mount(Path::new(&place), &mount_options()).unwrap();
    let unmounter = session.unmounter();
    thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        unmounter.unmount().unwrap();
    });
    let over = match env::var_os(IO_URING) {
        Some(_) => Transport::IoUring,
        None => Transport::Device,
    };
    let ready = || writeln!(io::stdout(), "\nready").unwrap();
    session.serve(&Memory::new(uid), &session_options(over, 2), ready).unwrap();
}

/// Resources for a session in another process: its program, and a mount point of an unprivileged user.
struct Ground {
    folder: TempDir,
    over: Transport,
    _io_uring: Option<SwitchedOn>,
}

impl Ground {
    fn new(over: Transport) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ground = Self { folder, over, _io_uring: over.switch_on().0 };
        // Make it executable for all users.
        fs::set_permissions(ground.folder.path(), Permissions::from_mode(0o755)).unwrap();
        // Copy it by another process. If this process wrote it, a child started by a concurrent
        // test could inherit the open descriptor, and execution would fail.
        let exe = env::current_exe().unwrap();
        assert!(Command::new("cp").arg(exe).arg(ground.program()).status().unwrap().success());
        fs::create_dir(ground.place()).unwrap();
        chown(ground.place(), Some(NOBODY), Some(NOBODY)).unwrap();
        ground
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("program")
    }

    fn place(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    fn root(&self) -> Command {
        let mut command = Command::new(self.program());
        self.prepare(&mut command);
        command
    }

    /// Returns a command that runs as an unprivileged user, in a mount namespace in which every user may open the
    /// device. That is the usual configuration, but not on all machines.
    fn nobody(&self) -> Command {
        let mut command = testkit::command("unshare");
        let script = "set -e; mkdir $1/dev; mount -t tmpfs device $1/dev; \
            mknod -m 666 $1/dev/fuse c 10 229; mount --bind $1/dev/fuse /dev/fuse; cd /; shift; \
            run=$(command -v setpriv); \
            PATH=${SEARCH:-$PATH}; export PATH; exec $run --reuid 65534 --regid 65534 --clear-groups -- \"$@\"";
        command.args(["-m", "sh", "-c", script, "sh"]).arg(self.folder.path()).arg(self.program());
        self.prepare(&mut command);
        command
    }

    fn prepare(&self, command: &mut Command) {
        command.args(["process::serves_for_another_process", "--exact", "--nocapture"]);
        command.env(PLACE, self.place()).stdin(Stdio::piped()).stdout(Stdio::piped());
        if self.over == Transport::IoUring {
            command.env(IO_URING, "1");
        }
    }
}

/// A process that serves a mount.
struct Served {
    child: Child,
}

impl Served {
    /// Starts the process and waits until it is ready.
    fn new(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while line != "ready\n" {
            line.clear();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "it ended before it was ready");
        }
        // The process prints more at its end.
        thread::spawn(move || io::copy(&mut output, &mut io::sink()));
        Self { child }
    }

    /// Returns a path as the process sees it.
    fn sees(&self, path: &Path) -> PathBuf {
        Path::new("/proc")
            .join(self.child.id().to_string())
            .join("root")
            .join(&path.to_str().unwrap()[1..])
    }

    /// Returns the mounts at a path in the process's mount namespace.
    fn mounts_at(&self, path: &Path) -> Vec<String> {
        mounts_in(&format!("/proc/{}/mounts", self.child.id()), path)
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn ask_to_unmount(&mut self) {
        drop(self.child.stdin.take());
    }

    fn assert_ends_well(&mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the final error of a mount whose process has ended. Over io_uring the kernel releases
/// the device slightly later; until then requests fail with other errors.
fn error_at_last(over: Transport, place: &Path) -> ErrorKind {
    let error = || fs::read_dir(place).unwrap_err().kind();
    if over == Transport::IoUring {
        wait_until("the kernel to let go of the device", || error() == ErrorKind::NotConnected);
    }
    error()
}

fn a_killed_process_leaves_a_mount_that_can_be_unmounted(over: Transport) {
    testkit::require!(Root, Fuse, Tool("umount"));
    let ground = Ground::new(over);
    let place = &ground.place();
    let mut served = Served::new(ground.root());
    fs::write(place.join("file"), "contents").unwrap();
    served.kill();
    assert_eq!(error_at_last(over, place), ErrorKind::NotConnected);
    let error = Session::mount(place, &mount_options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected);
    assert!(error.to_string().contains("unmount it first"), "{error}");
    testkit::umount_when_free(place);
    assert_eq!(mounts_at(place), [""; 0]);
    drop(Session::mount(place, &mount_options()).unwrap());
}

/// Returns a shell command that runs as an unprivileged user.
fn as_nobody(line: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", line]).uid(NOBODY).gid(NOBODY).current_dir("/");
    command
}

fn users_mount_by_fusermount(over: Transport) {
    testkit::require!(Root, Fuse, Tool("fusermount3"), Tool("unshare"), Tool("setpriv"));
    let ground = Ground::new(over);
    let mut served = Served::new(ground.nobody());
    let mounts = served.mounts_at(&ground.place());
    assert_eq!(mounts.len(), 1);
    let fields: Vec<_> = mounts[0].split(' ').collect();
    assert_eq!((fields[0], fields[2]), ("a,\\040b", "fuse.memory"));
    for option in ["nosuid", "nodev", "noatime", "user_id=65534", "default_permissions"] {
        assert!(fields[3].split(',').any(|found| found == option), "{option} in {}", fields[3]);
    }
    let place = served.sees(&ground.place());
    let line = format!("echo text >{0}/file && cat {0}/file", place.display());
    let output = as_nobody(&line).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "text\n", "{output:?}");
    // Other users have no access, not even root.
    assert_eq!(fs::read_dir(&place).unwrap_err().kind(), ErrorKind::PermissionDenied);
    served.ask_to_unmount();
    served.assert_ends_well();
}

fn what_is_used_is_detached_by_fusermount(over: Transport) {
    testkit::require!(Root, Fuse, Tool("fusermount3"), Tool("unshare"), Tool("setpriv"));
    let ground = Ground::new(over);
    let mut served = Served::new(ground.nobody());
    let file = served.sees(&ground.place()).join("file");
    let mut user = as_nobody(&format!("exec >{} && echo opened >&2 && cat", file.display()));
    let mut user = user.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(user.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "opened\n");
    served.ask_to_unmount();
    wait_until("the mount to go", || served.mounts_at(&ground.place()).is_empty());
    assert!(served.child.try_wait().unwrap().is_none(), "it is served while it is used");
    user.stdin.take().unwrap().write_all(b"late").unwrap();
    assert!(user.wait().unwrap().success());
    served.assert_ends_well();
}

#[test]
fn errors_contain_the_message_of_fusermount() {
    testkit::require!(Root, Fuse, Tool("fusermount3"), Tool("unshare"), Tool("setpriv"));
    let ground = Ground::new(Transport::Device);
    chown(ground.place(), Some(0), Some(0)).unwrap();
    let output = ground.nobody().stderr(Stdio::piped()).output().unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("cannot mount on"), "{text}");
    assert!(text.contains("fusermount3: user has no write access to mountpoint"), "{text}");
}

#[test]
fn without_fusermount_the_error_says_what_to_install() {
    testkit::require!(Root, Fuse, Tool("unshare"), Tool("setpriv"));
    let ground = Ground::new(Transport::Device);
    let bin = ground.folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let mut command = ground.nobody();
    command.env("SEARCH", &bin);
    let output = command.stderr(Stdio::piped()).output().unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("install the package fuse3, or run as root"), "{text}");
}
