//! `diskwright serve`: the view of a client, exclusion of other users, and exit statuses.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use testkit::require;

use crate::mount::{diskwright, wait_until};

/// A server, and the directory with its image `a.img` and its socket `s`.
struct Served {
    server: Child,
    folder: tempfile::TempDir,
}

fn image(folder: &Path) {
    fs::create_dir(folder.join("source")).unwrap();
    fs::write(folder.join("source/motd"), "Welcome.\n").unwrap();
    let mut build = diskwright();
    build.current_dir(folder).args(["build", "source", "a.img", "--size", "16M"]);
    assert!(build.output().unwrap().status.success());
}

fn serve(options: &[&str]) -> Served {
    let folder = tempfile::tempdir().unwrap();
    image(folder.path());
    let mut command = diskwright();
    command.current_dir(folder.path()).args(["serve", "a.img", "--nbd", "unix:s"]).args(options);
    let server = command.stderr(Stdio::piped()).spawn().unwrap();
    let socket = folder.path().join("s");
    wait_until("the server's socket", || UnixStream::connect(&socket).is_ok());
    Served { server, folder }
}

impl Served {
    fn url(&self) -> String {
        format!("nbd+unix:///?socket={}", self.folder.path().join("s").display())
    }

    /// Runs a command on the image. Returns its status and messages.
    fn command(&self, line: &str) -> (Option<i32>, String) {
        let mut command = diskwright();
        let output =
            command.current_dir(self.folder.path()).args(line.split(' ')).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// Ends the server with a signal. Returns its exit status.
    fn end(&mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.server), signal).unwrap();
        self.server.wait().unwrap().code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The server has ended, unless the test failed.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn a_client_writes_to_an_exclusively_locked_image() {
    require!(Tool("qemu-io"), Tool("e2fsck"));
    let mut served = serve(&[]);
    let mut qemu = testkit::command("qemu-io");
    // Beyond the used space: the last block is free.
    qemu.args(["-f", "raw", "-t", "none", "-c", "write -P 9 16773120 4096", "-c", "flush"]);
    let output = qemu.arg(served.url()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let (status, said) = served.command("mkdir a.img /new");
    assert_eq!(status, Some(4), "{said}");
    assert!(said.contains("in use"), "{said}");
    assert_eq!(served.end(Signal::TERM), Some(0));
    assert!(!served.folder.path().join("s").exists());
    let bytes = fs::read(served.folder.path().join("a.img")).unwrap();
    assert!(bytes[16_773_120..].iter().all(|&byte| byte == 9));
    testkit::e2fsck(served.folder.path().join("a.img"));
    assert_eq!(served.command("mkdir a.img /new").0, Some(0));
}

#[test]
fn a_read_only_server_permits_readers_and_no_writers() {
    require!(Tool("qemu-io"));
    let mut served = serve(&["--read-only"]);
    assert_eq!(served.command("ls a.img").0, Some(0));
    assert_eq!(served.command("mkdir a.img /new").0, Some(4));
    let mut qemu = testkit::command("qemu-io");
    qemu.args(["-f", "raw", "-c", "write 0 512"]).arg(served.url());
    let output = qemu.output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(served.end(Signal::INT), Some(0));
}

#[test]
fn images_that_cannot_be_served_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    image(folder.path());
    let run = |words: &[&str]| {
        let output = diskwright().current_dir(folder.path()).args(words).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, said) = run(&["serve", "a.img", "--nbd", "nowhere"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("unix:PATH"), "{said}");
    assert_eq!(run(&["serve", "none.img", "--nbd", "unix:s"]).0, Some(4));
    let (status, said) = run(&["serve", "a.img", "--nbd", "unix:no/such/folder"]);
    assert_eq!(status, Some(4), "{said}");
    assert!(said.contains("cannot listen at unix:no/such/folder"), "{said}");
}
