//! Output of `diff`.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::edit::common::run;

use crate::layers::common::{FORMATS, build, make};
use crate::program::{diskwright, fails, ok};

/// Runs `diff`, which must find differences. Returns its output.
#[track_caller]
fn differences(dir: &Path, line: &str) -> String {
    let output = run(dir, &line.split_whitespace().collect::<Vec<_>>());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{line}: {said}");
    assert_eq!(said, "", "{line}");
    String::from_utf8(output.stdout).unwrap()
}

fn set_time(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let file = fs::File::open(path).unwrap();
    file.set_modified(time).unwrap();
}

/// Creates a tree and a changed copy.
fn two_trees(dir: &Path) {
    let names = [
        "dir/gone/x",
        "dir/gone/y",
        "dir/kept",
        "grown",
        "mode",
        "other",
        "same",
        "touched",
        "type/x",
    ];
    for (number, root) in ["a", "b"].into_iter().enumerate() {
        make(&dir.join(root), &names);
        symlink(["here", "there"][number], dir.join(root).join("link")).unwrap();
    }
    let b = dir.join("b");
    fs::remove_dir_all(b.join("dir/gone")).unwrap();
    fs::remove_dir_all(b.join("type")).unwrap();
    make(&b, &["type", "new/file"]);
    fs::write(b.join("grown"), "grown more").unwrap();
    fs::write(b.join("other"), "OTHER").unwrap();
    fs::set_permissions(b.join("mode"), fs::Permissions::from_mode(0o600)).unwrap();
    for root in ["a", "b"] {
        let walk = names.iter().chain(&["dir", "", "new/file", "new"]);
        for path in walk.map(|name| dir.join(root).join(name)).filter(|path| path.exists()) {
            set_time(&path, 1_000_000);
        }
    }
    for root in ["a", "b"] {
        let touch = testkit::command("touch")
            .args(["-h", "-d", "@5"])
            .arg(dir.join(root).join("link"))
            .status();
        assert!(touch.unwrap().success());
    }
    set_time(&b.join("touched"), 2_000_000);
    set_time(&b.join("type"), 1_000_000);
}

const EXPECTED: &str = "\
D /dir/gone
M /grown: size 5 → 10
M /link: target here → there
M /mode: mode 0644 → 0600
A /new
A /new/file
M /other: contents
M /touched: mtime 1970-01-12T13:46:40.000000000Z → 1970-01-24T03:33:20.000000000Z
M /type: type directory → file
";

#[test]
fn every_kind_of_difference_is_one_line() {
    let home = testkit::scratch();
    let dir = home.path();
    two_trees(dir);
    assert_eq!(differences(dir, "diff a b"), EXPECTED);
    for format in FORMATS {
        build(dir, "a", "a.img", &format!("{format} --force"));
        build(dir, "b", "b.img", &format!("{format} --force"));
        for sides in ["a b.img", "a.img b", "a.img b.img"] {
            assert_eq!(differences(dir, &format!("diff {sides}")), EXPECTED, "{format}");
        }
    }
    let some = differences(dir, "diff a b.img --ignore times,mode");
    assert!(!some.contains("mtime") && !some.contains("mode 0"), "{some}");
    assert_eq!(some.lines().count(), EXPECTED.lines().count() - 2);
}

#[test]
fn json_has_the_same_differences() {
    let home = testkit::scratch();
    let dir = home.path();
    two_trees(dir);
    let lines = differences(dir, "diff a b --jsonl");
    let objects: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), EXPECTED.lines().count());
    let whole: serde_json::Value =
        serde_json::from_str(&differences(dir, "diff a b --json")).unwrap();
    assert_eq!(whole["changes"].as_array().unwrap(), &objects);
    assert_eq!((&whole["added"], &whole["removed"]), (&2.into(), &1.into()));
    assert_eq!(whole["modified"], 6);
    let mode = objects.iter().find(|object| object["path"] == "/mode").unwrap();
    let expected = serde_json::json!({
        "change": "modified", "path": "/mode", "type": "file",
        "differences": [{ "what": "mode", "from": "0644", "to": "0600" }],
    });
    assert_eq!(mode, &expected);
    // Without a difference the output is an object, too.
    let same: serde_json::Value = serde_json::from_str(&ok(dir, "diff a a --json")).unwrap();
    assert_eq!(same["changes"], serde_json::json!([]));
}

#[test]
fn names_of_one_file_are_compared_as_sets() {
    let home = testkit::scratch();
    let dir = home.path();
    for root in ["a", "b"] {
        make(&dir.join(root), &["one", "x"]);
        fs::hard_link(dir.join(root).join("one"), dir.join(root).join("two")).unwrap();
        fs::hard_link(dir.join(root).join("one"), dir.join(root).join("three")).unwrap();
    }
    let ignore = "--ignore times";
    assert_eq!(ok(dir, &format!("diff a b {ignore}")), "");
    // The first name is removed: the others are still linked.
    fs::remove_file(dir.join("b/one")).unwrap();
    assert_eq!(differences(dir, &format!("diff a b {ignore}")), "D /one\n");
    // One of them is a separate file now.
    fs::remove_file(dir.join("b/two")).unwrap();
    fs::copy(dir.join("b/three"), dir.join("b/two")).unwrap();
    assert_eq!(differences(dir, &format!("diff a b {ignore}")), "D /one\nM /two: links\n");
    assert_eq!(differences(dir, &format!("diff b a {ignore}")), "A /one\nM /two: links\n");
    assert_eq!(differences(dir, "diff a b --ignore times,links"), "D /one\n");
}

#[test]
fn a_layer_follows_the_specification() {
    let home = testkit::scratch();
    let dir = home.path();
    make(&dir.join("a"), &["all/x", "all/y", "some/x", "some/y", "one", "deep/er/kept"]);
    make(&dir.join("b"), &["all/", "some/y", "one", "deep/er/kept", "deep/er/new"]);
    for root in ["a", "b"] {
        fs::hard_link(dir.join(root).join("one"), dir.join(root).join("two")).unwrap();
    }
    fs::hard_link(dir.join("b/one"), dir.join("b/three")).unwrap();
    ok(dir, "diff a b -o layer.tar --ignore times");
    let list =
        testkit::command("tar").args(["-tf", "layer.tar"]).current_dir(dir).output().unwrap();
    let expected = "\
all/\nall/.wh..wh..opq\ndeep/\ndeep/er/\ndeep/er/new\none\nsome/\nsome/.wh.x\nthree\ntwo\n";
    assert_eq!(String::from_utf8(list.stdout).unwrap(), expected);
}

#[test]
fn files_that_a_layer_cannot_contain_are_reported_and_omitted() {
    let home = testkit::scratch();
    let dir = home.path();
    make(&dir.join("a"), &["x"]);
    make(&dir.join("b"), &["x", ".wh.evil", "y"]);
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("b/socket")).unwrap();
    let output = run(dir, &["diff", "a", "b", "-o", "layer.tar", "--ignore", "times"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("/.wh.evil: ") && said.contains("/socket: "), "{said}");
    assert!(said.contains("2 items"), "{said}");
    let list =
        testkit::command("tar").args(["-tf", "layer.tar"]).current_dir(dir).output().unwrap();
    assert_eq!(list.stdout, b"y\n");
}

#[test]
fn flags_are_reported_and_omitted_from_layers() {
    let home = testkit::scratch();
    let dir = home.path();
    make(&dir.join("a"), &["x"]);
    for format in FORMATS {
        build(dir, "a", "a.img", &format!("{format} --force"));
        build(dir, "a", "b.img", &format!("{format} --force"));
        ok(dir, "chattr b.img +d /x");
        assert_eq!(differences(dir, "diff a.img b.img"), "M /x: flags +nodump\n");
        assert_eq!(ok(dir, "diff a.img b.img --ignore flags"), "");
        let output = run(dir, &["diff", "a.img", "b.img", "-o", "layer.tar", "--force"]);
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn invalid_requests_are_refused() {
    let home = testkit::scratch();
    let dir = home.path();
    make(&dir.join("a"), &["x"]);
    fs::write(dir.join("there.tar"), "kept").unwrap();
    fails(dir, "diff a nothing", 4);
    fails(dir, "diff a there.tar", 3);
    fails(dir, "diff a a -o - --json", 2);
    fails(dir, "diff a a --ignore colour", 2);
    let said = fails(dir, "diff a a -o there.tar", 4);
    assert!(said.contains("there.tar"), "{said}");
    assert_eq!(fs::read(dir.join("there.tar")).unwrap(), b"kept");
    fails(dir, "diff a a -o missing/layer.tar", 4);
    // The output cannot be written.
    make(&dir.join("b"), &["y"]);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let status = diskwright().args(["diff", "a", "b"]).current_dir(dir).stdout(full).status();
    assert_eq!(status.unwrap().code(), Some(4));
}

/// Creates a disk with two partitions in an MBR.
fn disk(path: &Path, partitions: [&Path; 2]) {
    let mut table = vec![0_u8; 512];
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    let mut disk = Vec::new();
    for (number, partition) in partitions.into_iter().enumerate() {
        let bytes = fs::read(partition).unwrap();
        let start = (1 + number as u32) << 18;
        let entry = &mut table[446 + 16 * number..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&(bytes.len() as u32 / 512).to_le_bytes());
        disk.push((u64::from(start) * 512, bytes));
    }
    let file = fs::File::create(path).unwrap();
    file.write_all_at(&table, 0).unwrap();
    for (offset, bytes) in disk {
        file.write_all_at(&bytes, offset).unwrap();
    }
}

#[test]
fn partitions_of_disks_are_sides() {
    let home = testkit::scratch();
    let dir = home.path();
    make(&dir.join("a"), &["x"]);
    make(&dir.join("b"), &["x", "y"]);
    build(dir, "a", "a.img", FORMATS[0]);
    build(dir, "b", "b.img", FORMATS[1]);
    disk(&dir.join("disk.img"), [&dir.join("a.img"), &dir.join("b.img")]);
    assert_eq!(differences(dir, "diff disk.img:1 disk.img:2 --ignore times"), "A /y\n");
    assert_eq!(ok(dir, "diff disk.img:2 b.img"), "");
    assert_eq!(ok(dir, "diff disk.img disk.img --partition 2"), "");
    let said = fails(dir, "diff disk.img:3 b.img", 1);
    assert!(said.contains('3'), "{said}");
    // A layer can be applied to a partition like to an image.
    ok(dir, "diff disk.img:1 disk.img:2 -o layer.tar");
    ok(dir, "apply layer.tar disk.img --partition 1");
    assert_eq!(ok(dir, "diff disk.img:1 disk.img:2"), "");
}
