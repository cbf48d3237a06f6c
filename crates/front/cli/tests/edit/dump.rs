//! Output of `dump` for sound and damaged images.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;
use testkit::{Mke2fs, require};

use crate::edit::common::{own_image, run};

use crate::program::ok;

fn json(dir: &Path, line: &str) -> Value {
    serde_json::from_str(&ok(dir, &format!("dump --json a.img {line}"))).unwrap()
}

#[test]
fn structures_are_shown() {
    require!(Tool("mke2fs"));
    let dir = testkit::scratch();
    let dir = dir.path();
    fs::create_dir_all(dir.join("tree/d")).unwrap();
    for file in 0..400 {
        fs::write(dir.join(format!("tree/d/a rather long name {file}")), "x").unwrap();
    }
    std::os::unix::fs::symlink("target", dir.join("tree/link")).unwrap();
    let mke2fs = Mke2fs::new("ext4").block_size(1024);
    mke2fs.populate(&dir.join("tree")).create(&dir.join("a.img"), 32 << 20);
    ok(dir, "setfattr -n user.a -v 0x01ff a.img /d");
    let superblock = json(dir, "superblock");
    assert_eq!(superblock["magic"], "0xef53");
    assert_eq!(superblock["log_block_size"], 0);
    assert_eq!(superblock["checksum_state"], "right");
    assert_eq!(superblock["problems"], Value::Array(Vec::new()));
    let group = json(dir, "group 0");
    assert_eq!((&group["first_block"], &group["checksum"]), (&1.into(), &"right".into()));
    let inode = json(dir, "inode /d");
    assert_eq!((&inode["type"], &inode["checksum_state"]), (&"directory".into(), &"right".into()));
    assert_eq!(inode["xattrs"][0]["value"], "0x01ff");
    assert_eq!(json(dir, "inode /link")["target"], "target");
    let number = inode["inode"].as_u64().unwrap();
    assert_eq!(json(dir, &format!("inode {number}")), inode);
    let directory = json(dir, "directory /d");
    let blocks = directory["blocks"].as_array().unwrap();
    let names = blocks.iter().filter_map(|block| block["entries"].as_array());
    let names: usize = names.map(Vec::len).sum();
    assert!(names == 400 || names == 402, "{names}: with and without . and ..");
    let block = json(dir, &format!("block {}", group["inode_table"]));
    assert_eq!((&block["role"], &block["in_use"]), (&"inode table".into(), &true.into()));
    assert_eq!(json(dir, "journal")["h_magic"], "0xc03b3998");
    let text = ok(dir, "dump a.img directory /d");
    assert!(text.contains("name=a rather long name 7\n"), "{text}");
}

#[test]
fn numbers_that_do_not_exist_are_named() {
    let dir = testkit::scratch();
    own_image(dir.path(), "a.img", "--no-journal");
    for (line, status) in [
        ("group 1000", 1),
        ("inode 0", 1),
        ("inode 99999999999", 1),
        ("inode /nothing", 1),
        ("block 18446744073709551615", 1),
        ("directory 7", 1),
        ("journal", 3),
    ] {
        let line: Vec<&str> = ["dump", "a.img"].into_iter().chain(line.split(' ')).collect();
        let output = run(dir.path(), &line);
        assert_eq!(output.status.code(), Some(status), "{line:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{line:?}");
    }
}

#[test]
fn damage_is_shown_and_named() {
    let dir = testkit::scratch();
    let dir = dir.path();
    let image = own_image(dir, "a.img", "");
    ok(dir, "mkdir a.img /d");
    let inode = json(dir, "inode /d");
    let at = inode["block"].as_u64().unwrap() * 4096 + inode["offset"].as_u64().unwrap();
    let file = File::options().read(true).write(true).open(&image).unwrap();
    // The owner.
    file.write_all_at(&[9], at + 2).unwrap();
    let shown = run(dir, &["dump", "--json", "a.img", "inode", &inode["inode"].to_string()]);
    assert_eq!(shown.status.code(), Some(3));
    let damaged: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!((&damaged["uid"], &damaged["checksum_state"]), (&9.into(), &"wrong".into()));
    assert!(damaged["problems"][0].as_str().unwrap().contains("wrong checksum"));
    file.write_all_at(&[0], at + 2).unwrap();
    // The group's count of free blocks, then the superblock's label.
    let mut byte = [0];
    file.read_exact_at(&mut byte, 4096 + 12).unwrap();
    file.write_all_at(&[!byte[0]], 4096 + 12).unwrap();
    file.write_all_at(b"damaged", 1024 + 120).unwrap();
    let shown = run(dir, &["dump", "a.img", "superblock"]);
    assert_eq!(shown.status.code(), Some(3));
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(text.contains("damaged") && text.contains("0xef53"), "{text}");
    assert!(String::from_utf8_lossy(&shown.stderr).contains("wrong checksum"));
}
