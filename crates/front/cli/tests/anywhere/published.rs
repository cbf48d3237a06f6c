//! Clones of published images, which are published again.

use std::fs;
use std::path::Path;
use std::process::Output;

use testkit::{WebServer, require, scratch};

use super::clones::bases;
use crate::program::diskwright;

/// Runs a command line for which `s3:` leads to a server.
fn run(dir: &Path, server: &WebServer, line: &str) -> Output {
    diskwright()
        .current_dir(dir)
        .env_remove("DISKWRIGHT_CACHE")
        .envs(server.s3_environment())
        .args(line.split_whitespace())
        .output()
        .unwrap()
}

#[track_caller]
fn ok(dir: &Path, server: &WebServer, line: &str) -> String {
    let output = run(dir, server, line);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {} {said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the number of objects sent since the last call.
fn sent(server: &WebServer) -> usize {
    server.take_requests().iter().filter(|request| request.method == "PUT").count()
}

#[test]
fn a_published_clone_sends_only_its_changes() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    let dir = scratch();
    let dir = dir.path();
    let server = WebServer::new();
    for base in bases(dir) {
        let name = base.trim_end_matches(".img");
        ok(dir, &server, &format!("publish {base} s3://images/fleet"));
        // 6 MiB of random bytes, in chunks of 128 KiB.
        assert!(sent(&server) > 48, "{base}");
        ok(dir, &server, &format!("clone s3://images/fleet/names/{name} {name}.clone"));
        fs::write(dir.join("name"), "web\n").unwrap();
        ok(dir, &server, &format!("cp name {name}.clone:/etc/hostname"));
        assert_eq!(sent(&server), 0, "{base}: reading sends nothing");
        ok(dir, &server, &format!("publish {name}.clone s3://images/fleet --name {name}-web"));
        let changes = sent(&server);
        assert!(changes < 16, "{base}: {changes} objects");
        let new = format!("s3://images/fleet/names/{name}-web");
        assert_eq!(ok(dir, &server, &format!("cat {new} /etc/hostname")), "web\n");
        let old = format!("s3://images/fleet/names/{name}");
        assert_eq!(ok(dir, &server, &format!("cat {old} /etc/hostname")), "image\n");
        ok(dir, &server, &format!("check {new}"));
        ok(dir, &server, &format!("convert {new} judged-{base}"));
        testkit::judge(dir.join(format!("judged-{base}")));
    }
}
