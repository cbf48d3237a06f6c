//! `tune2fs`, `e2label` and `debugfs`.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use super::{contents, done, home, run};

/// A line of `dumpe2fs -h`.
fn shown(dir: &std::path::Path, name: &str) -> String {
    let text = done(dir, "tune2fs -l image");
    let line = text.lines().find(|line| line.starts_with(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("no {name} in {text}"))
        .split_once(':')
        .unwrap()
        .1
        .trim()
        .to_owned()
}

#[test]
fn what_tune2fs_sets_is_there_for_everybody() {
    let home = home();
    let dir = home.path();
    done(dir, "mkfs.ext4 -q -d tree image 64M");
    for (options, name, value) in [
        ("-L label", "Filesystem volume name", "label"),
        ("-M /srv", "Last mounted on", "/srv"),
        ("-c 20", "Maximum mount count", "20"),
        ("-c 0", "Maximum mount count", "-1"),
        ("-C 7", "Mount count", "7"),
        ("-i 2w", "Check interval", "1209600 (2 weeks)"),
        ("-T 20200913122640", "Last checked", "Sun Sep 13 12:26:40 2020"),
        ("-e remount-ro", "Errors behavior", "Remount read-only"),
        ("-m 2.5", "Reserved block count", "1638"),
        ("-r 100", "Reserved block count", "100"),
        ("-u 5", "Reserved blocks uid", "5 (user unknown)"),
        ("-g 6", "Reserved blocks gid", "6 (group unknown)"),
        (
            "-o journal_data_writeback,^acl",
            "Default mount options",
            "journal_data_writeback user_xattr",
        ),
        (
            "-U 0a28e812-3747-40bc-8194-e08e509097d0",
            "Filesystem UUID",
            "0a28e812-3747-40bc-8194-e08e509097d0",
        ),
        ("-E stride=4,stripe_width=8", "Filesystem state", "clean"),
    ] {
        done(dir, &format!("tune2fs {options} image"));
        assert_eq!(shown(dir, name), value, "{options}");
    }
    done(dir, "tune2fs -O large_dir,ea_inode image");
    assert!(shown(dir, "Filesystem features").contains("large_dir"));
    done(dir, "e2label image other");
    assert_eq!(done(dir, "e2label image").trim(), "other");
    assert_eq!(contents(dir, "image", "/etc/hostname"), "box\n");
    oracle::require!(Tool("e2fsck"), Tool("dumpe2fs"));
    oracle::e2fsck(dir.join("image"));
    let mut theirs = oracle::command("dumpe2fs");
    let theirs = theirs.current_dir(dir).env("TZ", "UTC").args(["-h", "image"]).output().unwrap();
    let theirs = String::from_utf8(theirs.stdout).unwrap();
    for line in done(dir, "dumpe2fs -h image").lines().filter(|line| !line.is_empty()) {
        // Names of users are the machine's.
        let is_there = theirs.lines().any(|known| known.trim_end() == line.trim_end());
        assert!(is_there || line.starts_with("Reserved blocks"), "{line:?} is not in {theirs}");
    }
}

/// What only the superblock has is the same by both programs, the copies too.
#[test]
fn hints_of_mke2fs_are_those_of_its_namesake() {
    oracle::require!(Version("mke2fs", 1, 47), Tool("dumpe2fs"), Tool("e2fsck"));
    let home = home();
    let dir = home.path();
    let hints = "-e remount-ro -E stride=4,stripe_width=8,test_fs";
    done(dir, &format!("mke2fs -q -t ext4 -F {hints} image 600M"));
    let mut mke2fs = oracle::command("mke2fs");
    let mke2fs = mke2fs.current_dir(dir).args(["-q", "-t", "ext4", "-F"]);
    let made = mke2fs.args(hints.split_whitespace()).args(["theirs", "600M"]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let header = |options: &[&str], image: &str| {
        let mut command = oracle::command("dumpe2fs");
        let output = command.current_dir(dir).arg("-h").args(options).arg(image).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let wanted = ["Errors behavior", "RAID stride", "RAID stripe width", "Filesystem flags"];
        let is_wanted = |line: &&str| wanted.iter().any(|name| line.starts_with(name));
        text.lines().filter(is_wanted).map(str::to_owned).collect::<Vec<_>>()
    };
    let expected = header(&[], "theirs");
    assert_eq!(expected.len(), 4, "{expected:?}");
    assert_eq!(header(&[], "image"), expected);
    let copy = ["-o", "superblock=32768", "-o", "blocksize=4096"];
    assert_eq!(header(&copy, "image"), expected);
    let ours = done(dir, "dumpe2fs -h image");
    assert!(expected.iter().all(|line| ours.contains(line.trim_end())), "{ours}");
    oracle::e2fsck(dir.join("image"));
    let ended = run(dir, "mke2fs -q -E android_sparse,stride=4 sparse 32M");
    assert!(ended.status == 1 && ended.messages.contains("android_sparse"), "{ended:?}");
}

#[test]
fn what_tune2fs_cannot_do_changes_nothing() {
    let home = home();
    let dir = home.path();
    done(dir, "mke2fs -q -t ext4 -O ^metadata_csum_seed image 64M");
    let before = fs::read(dir.join("image")).unwrap();
    for line in [
        "tune2fs",
        "tune2fs -L x nothing",
        "tune2fs -O ^extent image",
        "tune2fs -O ^has_journal image",
        "tune2fs -O quota image",
        "tune2fs -O sparkles image",
        "tune2fs -U random image",
        "tune2fs -j image",
        "tune2fs -J size=4 image",
        "tune2fs -I 512 image",
        "tune2fs -Q usrquota image",
        "tune2fs -m 60 image",
        "tune2fs -r 1000000000 image",
        "tune2fs -e never image",
        "tune2fs -i 1y image",
        "tune2fs -T yesterday image",
        "tune2fs -o sparkles image",
        "tune2fs -E sparkles image",
        "tune2fs -E clear_mmp image",
        "tune2fs -z undo image",
        // One of several that fails keeps the others from being written.
        "tune2fs -L label -O ^extent image",
    ] {
        let ended = run(dir, line);
        assert_eq!(ended.status, 1, "{line}: {ended:?}");
        assert!(!ended.messages.is_empty(), "{line}");
        assert!(fs::read(dir.join("image")).unwrap() == before, "{line}");
    }
}

/// Carries out requests, one a line.
fn debugfs(dir: &std::path::Path, requests: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
    command.current_dir(dir).args(["as", "debugfs", "-w", "-f", "-", "image"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(requests.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn requests_change_an_image() {
    let home = home();
    let dir = home.path();
    done(dir, "mkfs.ext4 -q -d tree image 64M");
    fs::write(dir.join("new file"), "new\n").unwrap();
    let (status, out, messages) = debugfs(
        dir,
        "# a comment\nmkdir /dev\nmknod /dev/null c 1 3\nmknod /dev/pipe p\ncd etc\nwrite \"new file\" new\n\
         sif new mode 0100600\nsif /etc/new uid 12\nsif new mtime @1600000000\nsymlink there new\n\
         ln new other\nea_set new user.name value\nea_list new\nrm hostname\nrmdir empty\n\
         set_super_value mkfs_time 20200913122640\nssv journal_uuid null\n\
         cat new\nls -p /dev\nquit\nrm new\n",
    );
    assert_eq!((status, &*messages), (0, ""), "{out}");
    assert!(out.contains("user.name (5) = \"value\"\n"), "{out}");
    assert!(out.contains("new\n") && out.contains("/020644/0/0/null/0/"), "{out}");
    let image = diskwright::fs::Image::open(dir.join("image")).unwrap();
    let new = image.metadata("/etc/there").unwrap();
    assert_eq!(
        (new.mode(), new.uid(), new.nlink(), new.mtime().sec),
        (0o100_600, 12, 2, 1_600_000_000)
    );
    assert!(!image.exists("/etc/hostname").unwrap() && !image.exists("/etc/empty").unwrap());
    drop(image);
    assert_eq!(shown(dir, "Filesystem created"), "Sun Sep 13 12:26:40 2020");
    done(dir, "debugfs -R quit image");
    oracle::require!(Tool("e2fsck"), Tool("debugfs"));
    oracle::e2fsck(dir.join("image"));
    assert!(oracle::debugfs(&dir.join("image"), "cat /etc/new").starts_with("new\n"));
}

#[test]
fn requests_that_fail_are_told_by_the_status() {
    let home = home();
    let dir = home.path();
    done(dir, "mkfs.ext4 -q -d tree image 64M");
    let read_only = |request: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
        command.current_dir(dir).args(["as", "debugfs", "-R", request, "image"]);
        command.output().unwrap()
    };
    for request in [
        "cat nothing",
        "mkdir /x",
        "cat <13>",
        "sparkle",
        "ls -z",
        "cat",
        "dump etc/hostname",
        "cd link",
    ] {
        let output = read_only(request);
        assert_eq!(output.status.code(), Some(1), "{request}: {output:?}");
        assert!(!output.stderr.is_empty(), "{request}");
    }
    assert_eq!(read_only("cat /etc/hostname").stdout, b"box\n");
    assert!(read_only("rdump etc out").status.success());
    assert!(read_only("rdump etc / out").status.success());
    assert_eq!(fs::read(dir.join("out/etc/file-7")).unwrap(), b"7");
    assert_eq!(fs::read_link(dir.join("out/link")).unwrap().to_str(), Some("etc/hostname"));
    // What is behind a request that fails is carried out.
    let (status, _, messages) =
        debugfs(dir, "rm nothing\nmkdir /made\nssv hash_seed null\nssv errors 70000\n");
    assert_eq!(status, 1, "{messages}");
    assert_eq!(messages.lines().count(), 3, "{messages}");
    assert!(diskwright::fs::Image::open(dir.join("image")).unwrap().exists("/made").unwrap());
}

#[test]
fn the_current_time_is_what_genimage_says() {
    let home = home();
    let dir = home.path();
    done(dir, "mkfs.ext4 -q image 16M");
    fs::write(
        dir.join("requests"),
        "set_current_time 20260102030405\nset_super_value mkfs_time 20260102030405\nset_super_value mtime 00000000\n",
    )
    .unwrap();
    done(dir, "debugfs -w -f requests image");
    let shown = done(dir, "dumpe2fs -h image");
    for line in
        ["Last mount time:          n/a", "Last write time:          Fri Jan  2 03:04:05 2026"]
    {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    oracle::require!(Tool("e2fsck"));
    oracle::e2fsck(dir.join("image"));
}
