//! `diskwright serve --webdav`, with curl, GNU tar and a browser.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use testkit::require;

use crate::program::diskwright;

/// A server, and the address that it printed.
struct Served {
    server: Child,
    url: String,
}

impl Served {
    /// Serves the image `a.img` in a folder.
    fn start(folder: &Path, options: &[&str]) -> Self {
        Self::start_by_sudo(folder, options, "")
    }

    /// Serves the image as if a user had started the server with sudo(8).
    fn start_by_sudo(folder: &Path, options: &[&str], user: &str) -> Self {
        let mut command = diskwright();
        command.current_dir(folder).args(["serve", "a.img"]).args(options).env("SUDO_UID", user);
        let pipes = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = pipes.spawn().unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let url = lines.next().expect("the server prints its address").unwrap();
        Self { server, url }
    }

    /// Returns the address of a path.
    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url.trim_end_matches('/'))
    }

    /// Ends the server. Returns its status, and what it said.
    fn end(&mut self, signal: Signal) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.server), signal).unwrap();
        let mut said = String::new();
        self.server.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.server.wait().unwrap().code(), said)
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
    fs::create_dir_all(folder.join("source/etc/links")).unwrap();
    fs::write(folder.join("source/etc/motd"), "Welcome.\n").unwrap();
    fs::write(folder.join("source/etc/links/one"), vec![b'1'; 3_000_000]).unwrap();
    fs::hard_link(folder.join("source/etc/links/one"), folder.join("source/etc/links/two"))
        .unwrap();
    std::os::unix::fs::symlink("../motd", folder.join("source/etc/links/motd")).unwrap();
    let mut build = diskwright();
    build.current_dir(folder).args(["build", "source", "a.img", "--size", "400M", "--fs", format]);
    assert!(build.output().unwrap().status.success());
}

fn curl(arguments: &[&str]) -> Vec<u8> {
    run(testkit::command("curl").args(["--silent", "--show-error", "--fail"]).args(arguments))
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output.stdout
}

/// Returns the status of a request.
fn status(arguments: &[&str]) -> String {
    let mut curl = testkit::command("curl");
    let arguments = curl
        .args(["--silent", "--output", "/dev/null", "--write-out", "%{http_code}"])
        .args(arguments);
    String::from_utf8(arguments.output().unwrap().stdout).unwrap()
}

#[test]
fn files_are_served_by_webdav() {
    require!(Tool("curl"), Tool("tar"), Tool("diff"), Tool("e2fsck"), Tool("xfs_repair"));
    for (format, signal) in [("ext4", Signal::INT), ("xfs", Signal::TERM)] {
        let folder = tempfile::tempdir().unwrap();
        image(folder.path(), format);
        let mut served = Served::start(folder.path(), &["--webdav"]);
        let parts: Vec<_> = served.url.split('/').collect();
        let secret = parts[3];
        assert!(parts[2].starts_with("127.0.0.1:") && parts[4].is_empty(), "{}", served.url);
        assert!(secret.len() == 32 && secret.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_eq!(curl(&[&served.at("/etc/motd")]), b"Welcome.\n");
        assert_eq!(curl(&[&served.at("/etc/links/motd")]), b"Welcome.\n", "the target of a link");
        fs::write(folder.path().join("new"), "New.\n".repeat(100_000)).unwrap();
        let source = folder.path().join("new");
        curl(&["--upload-file", source.to_str().unwrap(), &served.at("/etc/new")]);
        let page = String::from_utf8(curl(&[&served.at("/etc/")])).unwrap();
        assert!(page.contains("href=\"./links/\"") && page.contains("488.3 KiB"), "{page}");

        // The archive is that of `extract`.
        let (archive, out) = (folder.path().join("etc.tar"), folder.path().join("out"));
        fs::create_dir(&out).unwrap();
        fs::write(&archive, curl(&[&served.at("/etc/?tar")])).unwrap();
        run(testkit::command("tar").arg("-C").arg(&out).arg("-xf").arg(&archive));
        fs::copy(&source, folder.path().join("source/etc/new")).unwrap();
        run(testkit::command("diff").arg("-r").arg(folder.path().join("source/etc")).arg(&out));

        assert_eq!(served.end(signal).0, Some(0));
        testkit::judge(folder.path().join("a.img"));
        let mut cat = diskwright();
        let read = run(cat.current_dir(folder.path()).args(["cat", "a.img", "/etc/new"]));
        assert!(read == "New.\n".repeat(100_000).as_bytes());
    }
}

#[test]
fn options_of_webdav_have_their_effect() {
    require!(Tool("curl"));
    let folder = tempfile::tempdir().unwrap();
    image(folder.path(), "ext4");
    fs::write(folder.path().join("password"), "correct horse\nsecond line\n").unwrap();
    let before = fs::read(folder.path().join("a.img")).unwrap();
    let options = ["--webdav", "127.0.0.1:0", "--read-only", "--password-file", "password"];
    let more = ["--symlinks", "hide", "--reject-macos-files", "--host-name", "nas.example"];
    let mut served = Served::start(folder.path(), &[&options[..], &more].concat());
    assert_eq!(served.url.matches('/').count(), 3, "no secret: {}", served.url);
    let user = ["--user", "me:correct horse"];
    assert_eq!(curl(&[&user[..], &[&served.at("/etc/motd")]].concat()), b"Welcome.\n");
    assert_eq!(status(&[&served.at("/etc/motd")]), "401");
    assert_eq!(status(&["--user", "me:second line", &served.at("/etc/motd")]), "401");
    let with = |arguments: &[&str]| status(&[&user[..], arguments].concat());
    assert_eq!(with(&[&served.at("/etc/links/motd")]), "404");
    assert_eq!(with(&["--upload-file", "/dev/null", &served.at("/etc/new")]), "403");
    assert_eq!(with(&["--header", "Host: nas.example", &served.at("/etc/motd")]), "200");
    assert_eq!(with(&["--header", "Host: evil.example", &served.at("/etc/motd")]), "403");
    assert_eq!(served.end(Signal::INT).0, Some(0));
    assert!(fs::read(folder.path().join("a.img")).unwrap() == before);

    let mut served =
        Served::start(folder.path(), &["--webdav", "0.0.0.0", "--allow-remote", "--async"]);
    let (status, said) = served.end(Signal::TERM);
    assert!(status == Some(0) && said.contains("HTTP does not encrypt"), "{said}");
}

#[test]
fn invalid_options_of_webdav_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    image(folder.path(), "ext4");
    fs::write(folder.path().join("empty"), "\n").unwrap();
    let refused = |line: &str| {
        let output = diskwright().current_dir(folder.path()).args(line.split(' ')).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused("serve a.img --webdav 0.0.0.0:0");
    assert!(said.contains("--allow-remote"), "{said}");
    let said = refused("serve a.img --webdav --password-file empty");
    assert!(said.contains("first line is empty"), "{said}");
    refused("serve a.img --webdav --password-file missing");
    refused("serve a.img --webdav nowhere");
    refused("serve a.img --webdav --nfs");
    refused("serve a.img --webdav --symlinks sometimes");
    for option in ["--export a", "--check-permissions", "--queues 2"] {
        refused(&format!("serve a.img --webdav 127.0.0.1:0 {option}"));
    }
    for option in
        ["--password-file empty", "--host-name a", "--symlinks hide", "--reject-macos-files"]
    {
        refused(&format!("serve a.img --nbd unix:no/such/folder {option}"));
        refused(&format!("serve a.img --nfs 192.0.2.1 {option}"));
    }
}

#[test]
fn a_browser_shows_the_page() {
    require!(Tool("chromium"));
    let folder = tempfile::tempdir().unwrap();
    image(folder.path(), "ext4");
    let mut served = Served::start(folder.path(), &["--webdav"]);
    let profile = tempfile::tempdir().unwrap();
    let mut chromium = testkit::command("chromium");
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]);
    chromium.arg(format!("--user-data-dir={}", profile.path().display())).arg(served.at("/etc/"));
    let page = String::from_utf8(run(&mut chromium)).unwrap();
    assert!(page.contains(">motd</a>") && page.contains(">links/</a>"), "{page}");
    assert_eq!(served.end(Signal::INT).0, Some(0));
}

#[test]
fn programs_of_other_users_are_refused() {
    require!(Root, Tool("curl"), Tool("setpriv"));
    let folder = tempfile::tempdir().unwrap();
    image(folder.path(), "ext4");
    let as_nobody = |url: String| {
        let mut command = testkit::command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(testkit::program("curl").unwrap()).args(["--silent", "--fail"]);
        command.arg(url).output().unwrap()
    };
    let mut served = Served::start(folder.path(), &["--webdav"]);
    let refused = as_nobody(served.at("/etc/motd"));
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{refused:?}");
    assert_eq!(curl(&[&served.at("/etc/motd")]), b"Welcome.\n");
    let (status, said) = served.end(Signal::INT);
    assert_eq!(status, Some(0));
    assert!(said.contains("it belongs to user 65534") && said.contains("--all-users"), "{said}");
    for (options, user) in [(&["--webdav", "--all-users"][..], ""), (&["--webdav"], "65534")] {
        let mut served = Served::start_by_sudo(folder.path(), options, user);
        assert_eq!(as_nobody(served.at("/etc/motd")).stdout, b"Welcome.\n");
        assert_eq!(served.end(Signal::INT).0, Some(0));
    }
}
