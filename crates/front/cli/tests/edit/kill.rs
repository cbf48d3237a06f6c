//! Programs killed at any moment: each file has its old or new contents, and the image is sound.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use testkit::{Format, Mke2fs, MkfsXfs, judge, require};

use crate::edit::common::paths;

use crate::program::{diskwright, ok};

/// Number of kills for each command on each format.
fn kills() -> u32 {
    testkit::effort(3, 5, 100)
}

/// Number of files in the tree.
const FILES: usize = 1500;

fn tree(dir: &Path, name: &str, byte: u8) {
    for file in 0..FILES {
        let part = dir.join(name).join((file % 7).to_string());
        fs::create_dir_all(&part).unwrap();
        fs::write(part.join(format!("file {file}")), vec![byte; file * 7]).unwrap();
    }
}

/// Starts a command on new copies of an image and kills it at moments throughout its run. Then
/// recovers the image, and runs the format's checker and `check`.
fn kill_often(dir: &Path, line: &str, check: impl Fn(&Path)) {
    let (fresh, image) = (dir.join("fresh.img"), dir.join("a.img"));
    let start = || {
        testkit::copy_image(&fresh, &image);
        let mut command = diskwright();
        command.current_dir(dir).args(line.split_whitespace());
        command.stderr(std::process::Stdio::null()).spawn().unwrap()
    };
    assert!(start().wait().unwrap().success(), "{line}");
    // The first run also loads the program into memory.
    let mut again = start();
    let clock = Instant::now();
    assert!(again.wait().unwrap().success(), "{line}");
    let whole = clock.elapsed();
    judge(&image);
    check(dir);
    let mut random = fastrand::Rng::with_seed(7);
    let (mut early, mut late) = (0, 0);
    for round in 0..kills() {
        let mut child = start();
        // Start and end take most of the time: the work is in the middle.
        let share = (f64::from(round) + random.f64()) / f64::from(kills());
        std::thread::sleep(whole.mul_f64(share).min(Duration::from_secs(20)));
        child.kill().unwrap();
        let has_ended = child.wait().unwrap().success();
        late += u32::from(has_ended);
        // Readers must see the same without recovery as after it.
        let before = paths(dir, "a.img");
        let said = ok(dir, "recover --json a.img");
        let report: serde_json::Value = serde_json::from_str(&said).unwrap();
        early += u32::from(report["transactions"] == 0 && !has_ended);
        assert_eq!(before, paths(dir, "a.img"), "{line}: replayed in memory and on disk");
        judge(&image);
        check(dir);
    }
    let line = &line[..line.len().min(40)];
    println!("{line}: {} kills, {early} before the first commit, {late} after the end", kills());
    assert!(late < kills(), "{line}: no kill came in time");
}

/// Copies the files of a directory out of the image. Returns contents by name.
fn contents(dir: &Path, path: &str) -> Vec<(String, Vec<u8>)> {
    let out = dir.join("out");
    let _ = fs::remove_dir_all(&out);
    if !paths(dir, "a.img").iter().any(|found| found == path) {
        return Vec::new();
    }
    ok(dir, &format!("cp -r a.img:{path} out"));
    let mut files = Vec::new();
    for part in fs::read_dir(&out).unwrap() {
        for file in fs::read_dir(part.unwrap().path()).unwrap() {
            let file = file.unwrap();
            files.push((file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()));
        }
    }
    files
}

/// Asserts that every file is complete: of full length, and filled with one of these bytes.
fn assert_whole(files: &[(String, Vec<u8>)], bytes: &[u8]) {
    for (name, contents) in files.iter().filter(|(name, _)| !name.starts_with(".diskwright-")) {
        let number: usize = name.strip_prefix("file ").unwrap().parse().unwrap();
        assert_eq!(contents.len(), number * 7, "{name}");
        let first = contents.first().copied().unwrap_or(bytes[0]);
        assert!(bytes.contains(&first) && contents.iter().all(|&b| b == first), "{name}");
    }
}

/// Runs a test for each format, in a separate directory.
fn on_each_format(test: impl Fn(&Path, Format)) {
    for format in [Format::Ext, Format::Xfs] {
        println!("{format:?}");
        let dir = testkit::scratch();
        test(dir.path(), format);
    }
}

fn fresh_image(dir: &Path, format: Format) {
    let image = dir.join("fresh.img");
    match format {
        Format::Ext => {
            // With the smallest possible journal, long commands commit several times.
            let small_journal = Mke2fs::new("ext4").block_size(1024).arguments(["-J", "size=1"]);
            small_journal.create(&image, 64 << 20);
        }
        Format::Xfs => MkfsXfs::default().options("-b size=1024").create(&image, 64 << 20),
    }
}

fn fill(dir: &Path, line: &str) {
    ok(dir, line);
}

#[test]
fn cp_leaves_old_or_new_files() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("mkfs.xfs"), Tool("xfs_repair"));
    on_each_format(cp_is_killed);
}

fn cp_is_killed(dir: &Path, format: Format) {
    tree(dir, "old", 1);
    tree(dir, "new", 2);
    fresh_image(dir, format);
    kill_often(dir, "cp -r new a.img:/tree", |dir| assert_whole(&contents(dir, "/tree"), &[2]));
    fill(dir, "cp -r old fresh.img:/tree");
    fs::rename(dir.join("new"), dir.join("tree")).unwrap();
    kill_often(dir, "cp -r tree a.img:/", |dir| {
        let files = contents(dir, "/tree");
        assert_eq!(files.iter().filter(|(name, _)| name.starts_with("file ")).count(), FILES);
        assert_whole(&files, &[1, 2]);
    });
}

#[test]
fn rm_leaves_whole_files() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("mkfs.xfs"), Tool("xfs_repair"));
    on_each_format(rm_is_killed);
}

fn rm_is_killed(dir: &Path, format: Format) {
    tree(dir, "tree", 1);
    fresh_image(dir, format);
    fill(dir, "cp -r tree fresh.img:/tree");
    kill_often(dir, "rm -r a.img /tree", |dir| assert_whole(&contents(dir, "/tree"), &[1]));
}

#[test]
fn mv_leaves_every_file_under_one_name() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("mkfs.xfs"), Tool("xfs_repair"));
    on_each_format(mv_is_killed);
}

fn mv_is_killed(dir: &Path, format: Format) {
    fresh_image(dir, format);
    let names: Vec<String> = (0..FILES).map(|file| format!("/from/{file}")).collect();
    fill(dir, "mkdir fresh.img /from /to");
    fill(dir, &format!("truncate -s 10000 fresh.img {}", names.join(" ")));
    kill_often(dir, &format!("mv a.img {} /to", names.join(" ")), |dir| {
        let found = paths(dir, "a.img");
        let files = found
            .iter()
            .filter_map(|path| path.strip_prefix("/from/").or_else(|| path.strip_prefix("/to/")));
        let (count, different) = (files.clone().count(), files.collect::<BTreeSet<_>>().len());
        assert_eq!((count, different), (FILES, FILES));
    });
}

#[test]
fn truncate_leaves_one_size_or_the_other() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("mkfs.xfs"), Tool("xfs_repair"));
    on_each_format(truncate_is_killed);
}

fn truncate_is_killed(dir: &Path, format: Format) {
    fresh_image(dir, format);
    let size = |file: usize| 10_000 + file * 7;
    fs::create_dir(dir.join("d")).unwrap();
    for file in 0..FILES {
        fs::write(dir.join(format!("d/{file}")), vec![9; size(file)]).unwrap();
    }
    fill(dir, "cp -r d fresh.img:/");
    let names: Vec<String> = (0..FILES).map(|file| format!("/d/{file}")).collect();
    kill_often(dir, &format!("truncate -s 1 a.img {}", names.join(" ")), |dir| {
        let listed = ok(dir, "find a.img /d --type f --json");
        assert_eq!(listed.lines().count(), FILES);
        for line in listed.lines() {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            let file = record["name"].as_str().unwrap().parse().unwrap();
            assert!(record["size"] == 1 || record["size"] == size(file), "{line}");
        }
    });
}
