//! Encrypted directories without their key can be listed and removed.

use std::fs;
use std::path::Path;

use testkit::{judge, require};

use crate::mount::Mounted;
use crate::program::{fails, ok};

/// An image with encrypted directories, made by a kernel.
const ENCRYPTED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../formats/ext4/tests/golden/encrypted.img.gz");

fn unpack(dir: &Path) {
    let output = testkit::command("gzip").args(["-dc", ENCRYPTED]).output().unwrap();
    assert!(output.status.success());
    fs::write(dir.join("e.img"), output.stdout).unwrap();
}

#[test]
fn encrypted_directories_are_listed() {
    let scratch = testkit::scratch();
    let dir = scratch.path();
    unpack(dir);
    let long = ok(dir, "ls -l e.img /enc");
    assert_eq!(long.lines().count(), 10);
    let links: Vec<_> = long.lines().filter(|line| line.starts_with('l')).collect();
    assert_eq!(links.len(), 2);
    assert!(links.iter().all(|line| line.ends_with(" -> (encrypted)")), "{long}");
    let json = ok(dir, "ls --json -R e.img /");
    assert!(json.lines().count() > 210);
    let links: Vec<serde_json::Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &serde_json::Value| line["type"] == "symlink")
        .collect();
    assert_eq!(links.len(), 2);
    assert!(links.iter().all(|line| line["target_encrypted"] == true && line["target"].is_null()));
    assert!(ok(dir, "find --json e.img").lines().count() > 210);
}

#[test]
fn encrypted_directories_are_removed_and_moved() {
    require!(Tool("e2fsck"));
    let scratch = testkit::scratch();
    let dir = scratch.path();
    unpack(dir);
    let said = fails(dir, "convert e.img --fs xfs x.img --size 400M", 3);
    assert!(said.contains("remove it from the image"), "{said}");
    let names = ok(dir, "ls e.img /enc");
    let name = names.lines().next().unwrap();
    assert!(fails(dir, &format!("mv e.img /enc/{name} /out"), 3).contains("encrypted"));
    ok(dir, "mv e.img /enc /moved");
    for name in names.lines() {
        ok(dir, &format!("rm -r e.img /moved/{name}"));
    }
    judge(dir.join("e.img"));
    ok(dir, "rmdir e.img /moved");
    judge(dir.join("e.img"));
    ok(dir, "convert e.img --fs xfs x.img --size 400M");
    assert_eq!(ok(dir, "cat x.img /plain"), "plain");
}

#[test]
fn a_mount_removes_encrypted_directories() {
    require!(Fuse, Tool("e2fsck"));
    let scratch = testkit::scratch();
    let dir = scratch.path();
    unpack(dir);
    let mounted = Mounted::new(&dir.join("e.img"));
    assert_eq!(fs::read_dir(mounted.join("enc")).unwrap().count(), 10);
    fs::remove_dir_all(mounted.join("enc")).unwrap();
    assert!(!mounted.join("enc").exists());
    assert_eq!(mounted.unmount(), "");
    judge(dir.join("e.img"));
}
