//! `diskwright serve --nfs`, with the programs of libnfs.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use testkit::require;

use crate::program::diskwright;

/// A server, and the address that it printed.
struct Served {
    server: Child,
    url: String,
    commands: Vec<String>,
}

impl Served {
    /// Serves the image `a.img` in a folder.
    fn start(folder: &Path, options: &[&str]) -> Self {
        let mut command = diskwright();
        command.current_dir(folder).args(["serve", "a.img"]).args(options);
        let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let mut line = || lines.next().expect("the server prints its addresses").unwrap();
        let (url, commands) = (line(), vec![line(), line()]);
        Self { server, url, commands }
    }

    /// Returns the address of a path in the export.
    fn at(&self, path: &str) -> String {
        self.url.replace('?', &format!("{path}?"))
    }

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

fn image(folder: &Path, format: &str) {
    fs::create_dir_all(folder.join("source/etc")).unwrap();
    fs::write(folder.join("source/etc/motd"), "Welcome.\n").unwrap();
    let mut build = diskwright();
    build.current_dir(folder).args(["build", "source", "a.img", "--size", "400M", "--fs", format]);
    assert!(build.output().unwrap().status.success());
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output.stdout
}

#[test]
fn files_are_served_by_nfs() {
    require!(Tool("nfs-cat"), Tool("nfs-cp"), Tool("nfs-ls"), Tool("e2fsck"), Tool("xfs_repair"));
    for (format, signal) in [("ext4", Signal::INT), ("xfs", Signal::TERM)] {
        let folder = tempfile::tempdir().unwrap();
        image(folder.path(), format);
        let mut served = Served::start(folder.path(), &["--nfs"]);
        let secret = served.url.split(['/', '?']).nth(3).unwrap();
        assert!(secret.len() == 32 && secret.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let [linux, macos] = &served.commands[..] else { panic!("two commands") };
        assert!(linux.contains("mount -t nfs -o vers=3") && linux.contains(secret), "{linux}");
        assert!(macos.contains("mount_nfs -o vers=3") && macos.contains(secret), "{macos}");
        let read = run(testkit::command("nfs-cat").arg(served.at("/etc/motd")));
        assert_eq!(read, b"Welcome.\n");
        fs::write(folder.path().join("new"), "New.\n".repeat(100_000)).unwrap();
        let source = folder.path().join("new");
        run(testkit::command("nfs-cp").arg(source).arg(served.at("/etc/new")));
        let listed = run(testkit::command("nfs-ls").arg(served.at("/etc")));
        assert!(String::from_utf8_lossy(&listed).contains("500000 new"), "{listed:?}");
        // Other programs must not use the image during this time.
        let mut mkdir = diskwright();
        let output = mkdir.current_dir(folder.path()).args(["mkdir", "a.img", "/x"]).output();
        assert_eq!(output.unwrap().status.code(), Some(4));

        assert_eq!(served.end(signal), Some(0));
        testkit::judge(folder.path().join("a.img"));
        let mut cat = diskwright();
        let read = run(cat.current_dir(folder.path()).args(["cat", "a.img", "/etc/new"]));
        assert!(read == "New.\n".repeat(100_000).as_bytes());
    }
}

#[test]
fn a_read_only_export_is_not_written() {
    require!(Tool("nfs-cat"), Tool("nfs-cp"));
    let folder = tempfile::tempdir().unwrap();
    image(folder.path(), "ext4");
    let before = fs::read(folder.path().join("a.img")).unwrap();
    let options = ["--nfs", "127.0.0.1", "--export", "root/fs", "--read-only"];
    let mut served = Served::start(folder.path(), &options);
    assert!(served.url.starts_with("nfs://127.0.0.1/root/fs?nfsport="), "{}", served.url);
    let read = run(testkit::command("nfs-cat").arg(served.at("/etc/motd")));
    assert_eq!(read, b"Welcome.\n");
    let source = folder.path().join("source/etc/motd");
    let copied = testkit::command("nfs-cp").arg(source).arg(served.at("/etc/new")).output();
    assert!(!copied.unwrap().status.success());
    assert_eq!(served.end(Signal::INT), Some(0));
    assert!(fs::read(folder.path().join("a.img")).unwrap() == before);
}

#[test]
fn invalid_exports_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    image(folder.path(), "ext4");
    let refused = |line: &str| {
        let output = diskwright().current_dir(folder.path()).args(line.split(' ')).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused("serve a.img --nfs 0.0.0.0:0");
    assert!(said.contains("--allow-remote"), "{said}");
    let said = refused("serve a.img --nfs nowhere");
    assert!(said.contains("127.0.0.1:2049"), "{said}");
    refused("serve a.img --nfs --export a//b");
    refused("serve a.img --nfs --nbd unix:no/such/folder");
    // A server that accepts an option cannot listen there, so the test ends.
    refused("serve a.img --nfs --map-user --check-permissions");
    refused("serve a.img --webdav --map-user");
    let options = ["--allow-remote", "--all-users", "--map-user", "--check-permissions", "--async"];
    for option in options.into_iter().chain(["--export a"]) {
        refused(&format!("serve a.img --nbd unix:no/such/folder {option}"));
        refused(&format!("serve a.img --vhost-user no/such/folder {option}"));
    }
}

/// Returns a program that runs as another user.
fn as_nobody(program: &str) -> Command {
    let mut command = testkit::command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(testkit::program(program).unwrap());
    command
}

#[test]
fn programs_of_other_users_are_refused() {
    require!(Root, Tool("nfs-cat"), Tool("setpriv"));
    let folder = tempfile::tempdir().unwrap();
    image(folder.path(), "ext4");
    let motd = "/etc/motd";
    let mut served = Served::start(folder.path(), &["--nfs"]);
    let refused = as_nobody("nfs-cat").arg(served.at(motd)).output().unwrap();
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{refused:?}");
    assert_eq!(run(testkit::command("nfs-cat").arg(served.at(motd))), b"Welcome.\n");
    assert_eq!(served.end(Signal::INT), Some(0));
    for options in [&["--nfs", "--all-users"][..], &["--nfs", "--allow-remote"]] {
        let mut served = Served::start(folder.path(), options);
        assert_eq!(run(as_nobody("nfs-cat").arg(served.at(motd))), b"Welcome.\n", "{options:?}");
        assert_eq!(served.end(Signal::INT), Some(0));
    }
}
