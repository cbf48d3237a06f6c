//! Directories nested deeper than the longest path.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use diskwright::Image;
use testkit::{judge, require, scratch};
use vfs::{Ino, NewInode};

use super::common::{own_image, run};

use crate::program::{diskwright, ok};

/// Nesting depth: more than a recursive function has room for on its stack.
const DEPTH: usize = 10_000;
/// Smaller depth that still exceeds the longest path.
const LESS_DEEP: usize = 3_000;

const NEW: NewInode = NewInode {
    permissions: 0o755,
    uid: 0,
    gid: 0,
    time: vfs::Timestamp { sec: 1_000, nsec: 0 },
    parent_time: None,
};

/// Creates an image with `/top/d/d/d/…/deepest` and, on the way, files with two names far from each
/// other.
fn deep_image(dir: &Path, options: &str, deep: usize) -> Ino {
    own_image(dir, "small.img", "");
    ok(dir, &format!("build empty a.img --size 400M {options}"));
    let image = dir.join("a.img");
    let open = Image::open_writable(&image).unwrap();
    let fs = open.file_system().unwrap();
    let top = fs.mkdir(fs.root(), b"top", &NEW).unwrap();
    let mut at = top;
    for depth in 0..deep {
        if depth % 2000 == 1000 {
            let file = fs.create(at, b"twice", &NEW).unwrap();
            fs.write(file, 0, b"contents", None).unwrap();
            fs.link(file, top, format!("link-{depth}").as_bytes(), None).unwrap();
        }
        at = fs.mkdir(at, b"d", &NEW).unwrap();
    }
    let deepest = fs.create(at, b"deepest", &NEW).unwrap();
    drop(fs);
    open.close().unwrap();
    deepest
}

/// Runs a command whose output size is quadratic in the depth. Returns the size in bytes.
fn output_len(dir: &Path, line: &str) -> u64 {
    let mut child = diskwright()
        .current_dir(dir)
        .args(line.split_whitespace())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let len = std::io::copy(child.stdout.as_mut().unwrap(), &mut std::io::sink()).unwrap();
    assert!(child.wait().unwrap().success(), "{line}");
    len
}

#[test]
fn no_tree_is_too_deep_for_any_command() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    // The commands depend little on the format, and take time quadratic in the depth.
    let other = testkit::effort(LESS_DEEP, LESS_DEEP, DEPTH);
    for (options, depth) in [("--inodes 50000", DEPTH), ("--fs xfs", other)] {
        println!("{options}");
        let dir = scratch();
        let deepest = deep_image(dir.path(), options, depth);
        judge(dir.path().join("a.img"));
        every_command(dir.path(), deepest, depth);
        judge(dir.path().join("a.img"));
        // The standard library removes directories recursively.
        let removed = Command::new("rm").arg("-rf").arg(dir.path().join("out")).status().unwrap();
        assert!(removed.success());
    }
}

fn every_command(dir: &Path, deepest: Ino, depth: usize) {
    let path_len = (depth * 2 + "/top/deepest".len()) as u64;
    let all_paths = (depth * depth) as u64;
    let with_two_names = depth / 2000;
    let found = ok(dir, "find a.img --name deepest");
    assert_eq!(found.trim_end().len() as u64, path_len);
    let said = run(dir, &["paths", "a.img", &deepest.0.to_string()]);
    assert!(said.status.success() && said.stdout == found.as_bytes(), "{}", said.status);
    assert!(output_len(dir, "ls -R a.img") > all_paths);
    assert!(output_len(dir, "ls -lR a.img /top") > all_paths);
    ok(dir, "chmod -R a.img 750 /top");
    ok(dir, "chown -R a.img 7:8 /top");
    ok(dir, "extract a.img out --path /top");
    assert_eq!(fs::read(dir.join("out/link-1000")).unwrap(), b"contents");
    ok(dir, "cp -r out a.img:/from-host");
    ok(dir, "cp -r a.img:/top a.img:/from-image");
    for copy in ["top", "from-host", "from-image"] {
        let files = ok(dir, &format!("find a.img /{copy} --type f --name *[!d]"));
        assert_eq!(files.lines().count(), 2 * with_two_names + 1, "{copy}");
        let directory = ok(dir, &format!("ls a.img /{copy}"));
        assert_eq!(directory.lines().count(), with_two_names + 1, "{copy}: {directory}");
    }
    // A tar archive contains each path in full.
    assert!(output_len(dir, "extract a.img - --path /from-image") > all_paths);
    for copy in ["top", "from-host", "from-image"] {
        ok(dir, &format!("rm -r a.img /{copy}"));
    }
    assert_eq!(ok(dir, "find a.img --name d"), "");
}
