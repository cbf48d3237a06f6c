//! Running the program and checking the images it creates.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::{Format, Ignore, KernelMount, MountOptions, NodeKind, Sample, Tree, assert_same};

use crate::program::diskwright;

/// A time for `SOURCE_DATE_EPOCH` that lies between the times of a sample tree.
pub(crate) const EPOCH: i64 = 1_500_000_000;

/// Returns `diskwright build` with options separated by spaces.
pub(crate) fn build_command(source: &Path, image: &Path, options: &str) -> Command {
    let mut command = diskwright();
    command.arg("build").args(options.split_whitespace()).arg(source).arg(image);
    command
}

/// Like [`build_command`], with a fixed time, so that each build produces the same bytes.
pub(crate) fn same_every_time(source: &Path, image: &Path, options: &str) -> Command {
    let mut command = build_command(source, image, options);
    command.env("SOURCE_DATE_EPOCH", EPOCH.to_string());
    command
}

/// Runs a command that must succeed.
#[track_caller]
pub(crate) fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    output
}

/// Builds an image, which must succeed.
#[track_caller]
pub(crate) fn build(source: &Path, image: &Path, options: &str) {
    succeed(&mut build_command(source, image, options));
}

/// Runs a build that must fail with this exit status and leave no files. Returns its messages.
#[track_caller]
pub(crate) fn fail(command: &mut Command, status: i32) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(status), "{command:?}: {}", said(&output));
    let text = said(&output);
    // The second prefix is that of errors in the arguments.
    let is_reason = |line: &str| line.starts_with("diskwright: ") || line.starts_with("error: ");
    let output = String::from_utf8_lossy(&output.stderr);
    assert!(output.lines().any(is_reason), "no reason given: {text:?}");
    assert!(!text.contains("panicked"), "{text}");
    text
}

fn said(output: &Output) -> String {
    format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr))
}

/// Mounts an image read-only.
#[track_caller]
pub(crate) fn mount(image: &Path) -> KernelMount {
    KernelMount::new(image, &MountOptions::read_only(Format::of(image).kernel_name()))
}

/// Asserts that the checker of its format finds nothing and the kernel shows the expected tree.
#[track_caller]
pub(crate) fn judge(image: &Path, expected: &Tree) {
    judge_but(image, expected, &Ignore::default());
}

/// Like [`judge`], except for ignored properties.
#[track_caller]
pub(crate) fn judge_but(image: &Path, expected: &Tree, ignore: &Ignore) {
    testkit::judge(image);
    let mut ignore = ignore.clone();
    // The kernel lists the ACLs of XFS a second time, in their stored form.
    ignore.xattr_prefixes.push(b"trusted.SGI_ACL_");
    assert_same(expected, &Tree::of(mount(image).path()), &ignore);
}

/// Options that select a format, each put before the options of a case that all formats share.
pub(crate) const FORMATS: [&str; 2] = ["--fs ext4", "--fs xfs"];

/// Requirements for checking images of every format.
#[macro_export]
macro_rules! require_all_formats {
    ($($more:tt)*) => {
        testkit::require!(
            Tool("e2fsck"), Mount("ext4"), Tool("xfs_repair"), Mount("xfs"), $($more)*
        )
    };
}

/// Returns a small sample that every format supports.
pub(crate) fn common_sample() -> Sample {
    let (block_size, xattr_bytes_max) = (1024, 512);
    Sample { wide_names: 400, depth: 12, block_size, xattr_bytes_max, ..Sample::for_xfs() }
}

/// Returns a small sample with all kinds of entries, for cases that are repeated often.
pub(crate) fn small_sample(block_size: u32) -> Sample {
    Sample { wide_names: 400, depth: 12, ..Sample::for_block_size(block_size) }
}

/// Returns a small sample that XFS supports.
pub(crate) fn small_xfs_sample() -> Sample {
    Sample { wide_names: 400, depth: 12, ..Sample::for_xfs() }
}

/// Returns a sample that needs neither nanoseconds nor more than 31 bits of seconds.
pub(crate) fn narrow_sample(block_size: u32) -> Sample {
    Sample { wide_times: false, ..small_sample(block_size) }
}

/// Creates a directory with a sample tree. Returns its path and snapshot.
pub(crate) fn sample_in(directory: &Path, sample: &Sample) -> (PathBuf, Tree) {
    let source = directory.join("source");
    std::fs::create_dir(&source).unwrap();
    testkit::sample_tree(&source, sample);
    let tree = Tree::of(&source);
    (source, tree)
}

/// Packs a directory with GNU tar, with all metadata that tar supports.
pub(crate) fn tar(source: &Path, archive: &Path, more: &[&str]) {
    succeed(
        testkit::command("tar")
            .args(["--create", "--format=posix", "--sort=name", "--sparse", "--acls"])
            .args(["--xattrs", "--xattrs-include=*"])
            .args(more)
            .arg("--file")
            .arg(archive)
            .arg("--directory")
            .arg(source)
            .arg("."),
    );
}

/// Returns the part of a tree that a tar archive contains: no sockets.
pub(crate) fn without_sockets(tree: &Tree) -> Tree {
    let keep = |(path, node): (&Vec<u8>, &testkit::Node)| {
        (node.kind != NodeKind::Socket).then(|| (path.clone(), node.clone()))
    };
    Tree { nodes: tree.nodes.iter().filter_map(keep).collect::<BTreeMap<_, _>>() }
}

/// Returns the part of a tree that GNU tar stores: no sockets, and no further names of fifos.
pub(crate) fn as_in_gnu_tar(tree: &Tree) -> Tree {
    let mut tree = without_sockets(tree);
    for node in tree.nodes.values_mut().filter(|node| node.kind == NodeKind::Fifo) {
        (node.nlink, node.link_leader) = (1, None);
    }
    tree
}

/// Returns the names in a directory.
pub(crate) fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
