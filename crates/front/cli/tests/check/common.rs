//! Images with known damage, and the program's output for them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Build options for each format.
pub(crate) const FORMATS: [&str; 2] = ["--fs ext4 --size 64M", "--fs xfs --small --size 64M"];
/// Block size in bytes.
const BLOCK_BYTES: u64 = 4096;
/// Offset of the user ID in an inode: four bytes in XFS, two in ext4. Only the checksum depends on
/// it.
const XFS_UID: u64 = 8;
const EXT4_UID: u64 = 2;

pub(crate) fn command(dir: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
    command.current_dir(dir).args(line.split_whitespace());
    command.env_remove("SOURCE_DATE_EPOCH").env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// Exit status, output and messages.
pub(crate) struct Said {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) messages: String,
}

pub(crate) fn said(output: Output) -> Said {
    let messages = String::from_utf8(output.stderr).unwrap();
    assert!(!messages.contains("panicked"), "{messages}");
    let out = String::from_utf8(output.stdout).unwrap();
    Said { status: output.status.code().unwrap(), out, messages }
}

pub(crate) fn run(dir: &Path, line: &str) -> Said {
    said(command(dir, line).output().unwrap())
}

/// Runs a command line that must end with this status. Returns its standard output.
#[track_caller]
pub(crate) fn ends(dir: &Path, line: &str, status: i32) -> String {
    let Said { status: found, out, messages } = run(dir, line);
    assert_eq!(found, status, "{line}: {out}{messages}");
    assert!(status >= 3 || messages.is_empty(), "{line}: {messages}");
    out
}

/// Runs a command line that must end with this status. Returns the JSON objects in its output.
#[track_caller]
pub(crate) fn objects(dir: &Path, line: &str, status: i32) -> Vec<Value> {
    ends(dir, line, status).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs a command line that must end with this status. Returns the only JSON object in its output.
#[track_caller]
pub(crate) fn object(dir: &Path, line: &str, status: i32) -> Value {
    let [object] = objects(dir, line, status).try_into().unwrap();
    object
}

/// Creates a directory with an image `a.img` that contains `/dir/file`.
pub(crate) fn image(options: &str) -> TempDir {
    let home = testkit::scratch();
    let source = home.path().join("source/dir");
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join("file"), "contents").unwrap();
    build(home.path(), "a.img", options);
    home
}

/// Builds an image of the directory `source`.
pub(crate) fn build(dir: &Path, name: &str, options: &str) {
    let Said { status, messages, .. } = run(dir, &format!("build source {name} {options}"));
    assert_eq!(status, 0, "{messages}");
}

/// Creates a sound image `a.img`, and `bad.img` with a flipped bit in the inode of `/dir/file`.
pub(crate) fn sound_and_damaged(options: &str) -> TempDir {
    let home = image(options);
    let dir = home.path();
    fs::copy(dir.join("a.img"), dir.join("bad.img")).unwrap();
    damage_inode(&dir.join("bad.img"), inode_offset(dir, "bad.img", "/dir/file"));
    home
}

/// Returns the offset of the inode at a path.
pub(crate) fn inode_offset(dir: &Path, name: &str, path: &str) -> u64 {
    let dump = ends(dir, &format!("dump {name} inode {path} --json"), 0);
    let dump: Value = serde_json::from_str(&dump).unwrap();
    let number = |key: &str| dump[key].as_u64().unwrap();
    number("block") * BLOCK_BYTES + number("offset")
}

/// Changes a bit of an inode that affects only the checksum.
pub(crate) fn damage_inode(image: &Path, inode_offset: u64) {
    let is_xfs = read(image, 0, 4) == b"XFSB";
    let at = inode_offset + if is_xfs { XFS_UID } else { EXT4_UID };
    let byte = read(image, at, 1)[0];
    write(image, at, &[byte ^ 1]);
}

fn read(image: &Path, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    File::open(image).unwrap().read_exact_at(&mut bytes, at).unwrap();
    bytes
}

pub(crate) fn write(image: &Path, at: u64, bytes: &[u8]) {
    File::options().write(true).open(image).unwrap().write_all_at(bytes, at).unwrap();
}

/// Returns a list in an object.
#[track_caller]
pub(crate) fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// Returns the number of findings in a report or summary.
#[track_caller]
pub(crate) fn count(report: &Value) -> u64 {
    let counts = report["counts"].as_object().unwrap();
    let all = counts.values().map(|count| count.as_u64().unwrap()).sum();
    let of_kinds = list(report, "kinds").iter().map(|kind| kind["count"].as_u64().unwrap());
    assert_eq!(all, of_kinds.sum::<u64>(), "{report}");
    all
}
