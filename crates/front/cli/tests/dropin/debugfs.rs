//! `debugfs`: requests used by scripts, with their messages and statuses.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use super::tune::shown;
use super::{done, home};

/// Runs requests, one per line.
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
         ln new other\nsif new links_count 2\nea_set new user.name value\nea_list new\nrm hostname\nrmdir empty\n\
         set_super_value mkfs_time 20200913122640\nssv journal_uuid null\n\
         cat new\nls -p /dev\nquit\nrm new\n",
    );
    assert_eq!((status, &*messages), (0, ""), "{out}");
    assert!(out.contains("debugfs: mkdir /dev\n") && out.contains("Allocated inode: "), "{out}");
    assert!(out.contains("user.name (5) = \"value\"\n"), "{out}");
    assert!(out.contains("new\n") && out.contains("/020000/0/0/null/0/"), "{out}");
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
    testkit::require!(Tool("e2fsck"), Tool("debugfs"));
    testkit::e2fsck(dir.join("image"));
    assert!(testkit::debugfs(&dir.join("image"), "cat /etc/new").starts_with("new\n"));
}

#[test]
fn requests_that_fail_print_the_original_phrase_and_end_with_0() {
    let home = home();
    let dir = home.path();
    done(dir, "mkfs.ext4 -q -d tree image 64M");
    let with = |options: &[&str], request: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
        command.current_dir(dir).args(["as", "debugfs"]).args(options);
        command.args(["-R", request, "image"]).output().unwrap()
    };
    let read_only = |request: &str| with(&[], request);
    for (options, request, phrase) in [
        (&[][..], "cat nothing", "File not found by ext2_lookup"),
        (&[], "mkdir /x", "Filesystem opened read/only"),
        (&[], "cat <999>", "File not found by ext2_lookup"),
        (&[], "cat", "cat"),
        (&[], "ls -z", "invalid option -- 'z'"),
        (&[], "dump etc/hostname", "dump"),
        (&[], "cd link", "Ext2 inode is not a directory"),
        (&["-w"], "mkdir etc", "mkdir: Ext2 directory already exists"),
        (&["-w"], "rm etc", "rm: file is a directory"),
        (&["-w"], "rm nothing", "rm: File not found by ext2_lookup"),
        (&["-w"], "rmdir etc", "rmdir: directory not empty"),
        (&["-w"], "write requests etc/hostname", "write: "),
    ] {
        let output = with(options, request);
        assert_eq!(output.status.code(), Some(0), "{request}: {output:?}");
        let messages = String::from_utf8(output.stderr).unwrap();
        assert!(messages.contains(phrase), "{request}: {messages}");
        let strict = [&["--strict"], options].concat();
        assert_eq!(with(&strict, request).status.code(), Some(1), "{request}");
    }
    let unknown = read_only("sparkle");
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
    assert!(String::from_utf8(unknown.stderr).unwrap().contains("Command not found sparkle"));
    assert_eq!(read_only("cat /etc/hostname").stdout, b"box\n");
    assert!(read_only("rdump etc out").status.success());
    assert!(read_only("rdump etc / out").status.success());
    assert_eq!(fs::read(dir.join("out/etc/file-7")).unwrap(), b"7");
    assert_eq!(fs::read_link(dir.join("out/link")).unwrap().to_str(), Some("etc/hostname"));
    // Requests after a failed one are executed.
    let (status, _, messages) =
        debugfs(dir, "rm nothing\nmkdir /made\nssv inode_size 128\nssv errors 70000\n");
    assert_eq!(status, 0, "{messages}");
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
    testkit::require!(Tool("e2fsck"));
    testkit::e2fsck(dir.join("image"));
}

/// Scripts of imagecraft and of OpenEmbedded's wic create existing directories and remove missing
/// files.
#[test]
fn idioms_of_builders_end_with_0() {
    let home = home();
    let dir = home.path();
    done(dir, "mkfs.ext4 -q -d tree image 64M");
    fs::write(dir.join("f"), "new\n").unwrap();
    let requests = "mkdir /etc\nmkdir /etc/new\nrm /etc/new/f\nwrite f /etc/new/f\n\
                    set_current_time 0x65000000\nset_super_value wtime 0x65000000\n";
    let (status, _, messages) = debugfs(dir, requests);
    assert_eq!(status, 0, "{messages}");
    assert!(messages.contains("Ext2 directory already exists"), "{messages}");
    let image = diskwright::fs::Image::open(dir.join("image")).unwrap();
    assert_eq!(image.read_to_string("/etc/new/f").unwrap(), "new\n");
    let inode = image.metadata("/etc/new/f").unwrap().ino().0;
    drop(image);
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
    command.current_dir(dir).args(["as", "debugfs", "-R", &format!("cat <{inode}>"), "image"]);
    assert_eq!(command.output().unwrap().stdout, b"new\n");
    testkit::require!(Tool("e2fsck"));
    testkit::e2fsck(dir.join("image"));
}

#[test]
fn names_that_are_not_ascii_are_escaped_as_by_the_original() {
    testkit::require!(Tool("debugfs"));
    let home = home();
    let dir = home.path();
    fs::write(dir.join("tree/a\nb"), "").unwrap();
    fs::write(dir.join("tree/\u{fc} c"), "").unwrap();
    done(dir, "mkfs.ext4 -q -d tree image 64M");
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
    command.current_dir(dir).args(["as", "debugfs", "-R", "ls -l /", "image"]);
    let ours = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let mut theirs = testkit::command("debugfs");
    let theirs = theirs.current_dir(dir).args(["-R", "ls -l /", "image"]).output().unwrap();
    let theirs = String::from_utf8(theirs.stdout).unwrap();
    let sorted = |text: &str| {
        let mut lines = text.lines().map(str::to_owned).collect::<Vec<_>>();
        lines.sort_unstable();
        lines
    };
    assert_eq!(sorted(&ours), sorted(&theirs));
}
