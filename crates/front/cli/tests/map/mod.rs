//! `diskwright map`: outputs and exit statuses.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::disk;

const FORMATS: [&str; 2] = ["--fs ext4 --size 64M", "--fs xfs --small --size 64M"];

fn run(dir: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
    command.current_dir(dir).args(line.split_whitespace()).env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(!messages.contains("panicked"), "{line}: {messages}");
    output
}

/// Runs a command line. Returns exit status, output and messages.
fn said(dir: &Path, line: &str) -> (i32, String, String) {
    let output = run(dir, line);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Creates a directory with an image of a small tree.
fn image(options: &str) -> TempDir {
    let home = testkit::scratch();
    let tree = home.path().join("tree");
    fs::create_dir_all(tree.join("dir")).unwrap();
    fs::write(tree.join("dir/file"), vec![1; 1 << 20]).unwrap();
    let (status, _, messages) = said(home.path(), &format!("build tree image.img {options}"));
    assert_eq!(status, 0, "{messages}");
    home
}

#[test]
fn the_ending_of_the_file_says_what_is_written() {
    for options in FORMATS {
        let home = image(options);
        let dir = home.path();
        for (name, start) in [
            ("a.svg", "<svg xmlns="),
            ("a.html", "<!DOCTYPE html>"),
            ("a.json", "{\"image\":\"image.img\""),
            ("a.txt", "image.img: "),
        ] {
            let (status, out, messages) = said(dir, &format!("map image.img -o {name}"));
            assert_eq!((status, &out[..], &messages[..]), (0, "", ""), "{name}");
            let text = fs::read_to_string(dir.join(name)).unwrap();
            assert!(text.starts_with(start), "{name}: {}", &text[..80]);
        }
        let (status, text, _) = said(dir, "map image.img");
        assert_eq!((status, &text), (0, &fs::read_to_string(dir.join("a.txt")).unwrap()));
        let (_, svg, _) = said(dir, "map image.img --format svg -o -");
        assert_eq!(svg, fs::read_to_string(dir.join("a.svg")).unwrap());
        let (_, hilbert, _) = said(dir, "map image.img --format svg --curve hilbert --cells 100");
        assert!(hilbert.contains("Hilbert"));
    }
}

#[test]
fn free_blocks_are_as_many_as_info_says() {
    for options in FORMATS {
        let home = image(options);
        let json =
            |line: &str| -> Value { serde_json::from_str(&said(home.path(), line).1).unwrap() };
        let map = json("map image.img --format json --cells 10");
        let info = json("info --json image.img");
        assert_eq!(map["free"]["blocks"], info["blocks_free"]);
        assert_eq!(map["blocks"], info["blocks"]);
        assert_eq!(map["format"], info["format"]);
        assert!(map["cells"].as_array().unwrap().len() <= 10);
    }
}

#[test]
fn an_image_in_a_partition_is_mapped_alone() {
    let home = image(FORMATS[0]);
    let dir = home.path();
    disk::with_partition(&dir.join("disk.img"), &fs::read(dir.join("image.img")).unwrap());
    let kinds = |line: &str| -> Value {
        let map: Value = serde_json::from_str(&said(dir, line).1).unwrap();
        map["kinds"].clone()
    };
    let alone = kinds("map image.img --format json");
    assert_eq!(kinds("map disk.img --partition 1 --format json"), alone);
    assert_eq!(kinds("map disk.img --offset 1M --format json"), alone);
}

#[test]
fn invalid_options_are_refused_and_no_file_is_replaced() {
    let home = image(FORMATS[0]);
    let dir = home.path();
    for line in
        ["map image.img -o a.png", "map image.img --cells 0", "map image.img --cells 65537", "map"]
    {
        let (status, out, messages) = said(dir, line);
        assert_eq!((status, &out[..]), (2, ""), "{line}");
        assert!(!messages.is_empty());
    }
    assert!(said(dir, "map image.img -o a.png").2.contains(".svg"));
    fs::write(dir.join("a.svg"), "mine").unwrap();
    let (status, _, messages) = said(dir, "map image.img -o a.svg");
    assert!(status != 0 && messages.contains("a.svg"), "{status} {messages}");
    assert_eq!(fs::read(dir.join("a.svg")).unwrap(), b"mine");
    assert_eq!(said(dir, "map image.img -o a.svg --force").0, 0);
    assert!(fs::read_to_string(dir.join("a.svg")).unwrap().starts_with("<svg"));
    fs::write(dir.join("zeros"), vec![0; 1 << 20]).unwrap();
    assert_eq!(said(dir, "map zeros -o b.svg").0, 3);
    assert!(!dir.join("b.svg").exists());
}

#[test]
fn readable_parts_of_a_damaged_image_are_shown() {
    let home = image(FORMATS[0]);
    let dir = home.path();
    // The inode table of group 0, from the first user inode on: `file` and `dir` are lost.
    let group: Value = serde_json::from_str(&said(dir, "dump image.img group 0 --json").1).unwrap();
    let table = group["inode_table"].as_u64().unwrap();
    let disk = File::options().write(true).open(dir.join("image.img")).unwrap();
    disk.write_all_at(&[0xa5; 2048], table * 4096 + 10 * 256).unwrap();
    let (status, out, messages) = said(dir, "map image.img");
    assert_eq!(status, 3, "{messages}");
    assert!(out.contains("in use, unknown purpose"), "{out}");
    assert!(out.contains("inode 1"), "{out}");
}

/// Returns the blocks of a mapfile: position, size and status.
fn mapfile(text: &str) -> Vec<(u64, u64, char)> {
    let number = |word: &str| u64::from_str_radix(word.strip_prefix("0x").unwrap(), 16).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    let words = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.map(|words| (number(words[0]), number(words[1]), words[2].parse().unwrap())).collect()
}

#[test]
fn ddrescue_copies_the_blocks_in_use() {
    testkit::require!(Tool("ddrescue"), Tool("e2fsck"), Tool("xfs_repair"));
    for options in FORMATS {
        let home = image(options);
        let dir = home.path();
        let image = dir.join("image.img");
        // Free blocks have other contents, which are not copied.
        let (status, out, messages) = said(dir, "map image.img --used --format ddrescue -o used");
        assert_eq!((status, &out[..], &messages[..]), (0, "", ""));
        let blocks = mapfile(&fs::read_to_string(dir.join("used")).unwrap());
        let file = File::options().write(true).open(&image).unwrap();
        for &(start, len, _) in blocks.iter().filter(|block| block.2 == '?') {
            file.write_all_at(&vec![0xa5; len as usize], start).unwrap();
        }
        let mut ddrescue = testkit::command("ddrescue");
        ddrescue.current_dir(dir).args(["-q", "-m", "used", "image.img", "copy.img", "log"]);
        assert!(ddrescue.status().unwrap().success());
        let copy = File::options().write(true).open(dir.join("copy.img")).unwrap();
        copy.set_len(64 << 20).unwrap();
        testkit::judge(dir.join("copy.img"));
        let (status, contents, _) = said(dir, "cat copy.img /dir/file");
        assert!(status == 0 && contents == "\u{1}".repeat(1 << 20));
        // Free space is not copied, and metadata is less.
        let sum = |blocks: &[(u64, u64, char)]| -> u64 {
            blocks.iter().filter(|block| block.2 == '+').map(|block| block.1).sum()
        };
        assert!(sum(&blocks) < 40 << 20, "{}", sum(&blocks));
        assert_eq!(blocks.iter().map(|block| block.1).sum::<u64>(), 64 << 20);
        let (status, text, _) = said(dir, "map image.img --format ddrescue --metadata");
        assert_eq!(status, 0);
        assert_eq!(sum(&blocks) - sum(&mapfile(&text)), 1 << 20);
    }
}

#[test]
fn a_mapfile_describes_the_whole_disk() {
    let home = image("--fs ext4 --size 64M");
    let dir = home.path();
    let whole = said(dir, "map image.img --format ddrescue").1;
    let bytes = fs::read(dir.join("image.img")).unwrap();
    fs::write(dir.join("disk.img"), [&[0; 1 << 20], &bytes[..], &[0; 4096]].concat()).unwrap();
    let (status, text, _) = said(dir, "map disk.img --offset 1M --format ddrescue");
    assert_eq!(status, 0);
    let used = |text: &str, offset: u64| -> Vec<(u64, u64)> {
        let used = mapfile(text).into_iter().filter(|block| block.2 == '+');
        used.map(|(start, len, _)| (start - offset, len)).collect()
    };
    assert_eq!(used(&text, 1 << 20), used(&whole, 0));
    let total: u64 = mapfile(&text).iter().map(|block| block.1).sum();
    assert_eq!(total, 65 << 20 | 4096);
    for line in ["map image.img --metadata", "map image.img --used --metadata --format ddrescue"] {
        assert_eq!(said(dir, line).0, 2, "{line}");
    }
}

/// A copy without one block of a file, one of a directory, and one of the superblock.
#[test]
fn areas_that_were_not_rescued_are_errors_and_no_zeros() {
    for options in FORMATS {
        let home = image(options);
        let dir = home.path();
        fs::write(dir.join("tree/other"), "sound\n").unwrap();
        assert_eq!(said(dir, &format!("build tree image.img --force {options}")).0, 0);
        let bytes = fs::read(dir.join("image.img")).unwrap();
        // The contents of a file, and zeros in the copy.
        let start = bytes.windows(8192).position(|part| part.iter().all(|&byte| byte == 1));
        let start = (start.unwrap() as u64).next_multiple_of(4096) + 8192;
        let mut copy = bytes.clone();
        copy[start as usize..][..4096].fill(0);
        fs::write(dir.join("copy.img"), copy).unwrap();
        let rest = (64 << 20) - start - 4096;
        let map = format!("0 ?\n0 {start} +\n{start} 4096 -\n{} {rest} +\n", start + 4096);
        fs::write(dir.join("map"), map).unwrap();
        let (status, out, messages) = said(dir, "cat copy.img --mapfile map /dir/file");
        assert_eq!(status, 4, "{messages}");
        assert!(messages.contains("was not rescued"), "{messages}");
        assert!(!out.contains('\0'));
        let (status, out, messages) = said(dir, "cat copy.img --mapfile map /other");
        assert_eq!((status, &out[..], &messages[..]), (0, "sound\n", ""));
        let (status, out, _) = said(dir, "check copy.img --mapfile map");
        assert!(status == 1 && out.contains("/dir/file: 4096 of 1048576 bytes lost: "), "{out}");
        // Without the file system's head nothing can be read.
        fs::write(dir.join("map"), "0 ?\n0 8192 -\n8192 67100672 +\n").unwrap();
        let (status, _, messages) = said(dir, "ls copy.img --mapfile map /");
        assert_eq!(status, 4, "{messages}");
        assert!(messages.contains("byte 0 was not rescued"), "{messages}");
        // A copy with gaps is not written.
        let (status, _, messages) = said(dir, "serve copy.img --mapfile map --nbd unix:s");
        assert_eq!(status, 2, "{messages}");
        assert!(messages.contains("can only be read"), "{messages}");
    }
    let home = image(FORMATS[0]);
    fs::write(home.path().join("map"), "0 ?\n0 1M +\n").unwrap();
    let (status, _, messages) = said(home.path(), "ls image.img --mapfile map /");
    assert_eq!(status, 2);
    assert!(messages.contains("map: line 2 of the mapfile: expected position"), "{messages}");
    assert_eq!(said(home.path(), "ls image.img --mapfile none /").0, 4);
}
