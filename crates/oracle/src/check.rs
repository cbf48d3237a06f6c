//! The verdict of `e2fsck` or `xfs_repair` on an image.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::{ours, tool};

/// Asserts that `e2fsck -fn` finds nothing to say about an image.
///
/// # Panics
/// With the checker's full output if it reports, asks or warns about anything.
#[track_caller]
pub fn e2fsck(image: impl AsRef<Path>) {
    let image = image.as_ref();
    if let Err(output) = e2fsck_verdict(image) {
        panic!("e2fsck does not accept {}:\n{output}", image.display());
    }
}

/// Runs `e2fsck -fn`: nothing if the image is clean, else all the checker printed. What it accepts is shown to
/// Diskwright's own check, too, with the feature `ext4`.
///
/// Exit status 0 alone is not enough, because some remarks (an extent tree that could be
/// narrower, a skipped journal) leave it at 0. Only the lines of a silent run are accepted.
///
/// # Errors
/// The checker's output, preceded by how it ended.
pub fn e2fsck_verdict(image: &Path) -> Result<(), String> {
    let finished = tool::finish(tool::command("e2fsck").arg("-fn").arg(image));
    let clean = finished.code == Some(0) && finished.text.lines().all(is_expected);
    if clean {
        return ours::ext4(image);
    }
    let remarks = finished.text.lines().filter(|line| !is_expected(line)).collect::<Vec<_>>();
    let remarks = remarks.join("\n");
    Err(format!("exit status {:?}, remarks:\n{remarks}\nall:\n{}", finished.code, finished.text))
}

/// Whether a line is part of every run: banner, pass headings, summary.
fn is_expected(line: &str) -> bool {
    let is_summary = line.contains(" files (") && line.ends_with(" blocks");
    line.is_empty() || line.starts_with("e2fsck 1.") || line.starts_with("Pass ") || is_summary
}

/// Asserts that `xfs_repair -n` finds nothing to say about an image.
///
/// # Panics
/// With the checker's full output if it reports, asks or warns about anything.
#[track_caller]
pub fn xfs_repair(image: impl AsRef<Path>) {
    let image = image.as_ref();
    if let Err(output) = xfs_repair_verdict(image) {
        panic!("xfs_repair does not accept {}:\n{output}", image.display());
    }
}

/// Runs `xfs_repair -n`: nothing if the image is clean, else all the checker printed. What it accepts is shown to
/// Diskwright's own check, too, with the feature `xfs`.
///
/// As with `e2fsck`, only the lines of a silent run are accepted: several of its remarks leave the exit
/// status at 0.
///
/// # Errors
/// The checker's output, preceded by how it ended.
pub fn xfs_repair_verdict(image: &Path) -> Result<(), String> {
    xfs_repair_alone(image).and_then(|()| ours::xfs(image))
}

/// As [`xfs_repair_verdict`], without our own check.
///
/// # Errors
/// As [`xfs_repair_verdict`].
pub fn xfs_repair_alone(image: &Path) -> Result<(), String> {
    let mut command = tool::command("xfs_repair");
    // Without the hundred threads that it would start to read ahead and to look at many groups at once:
    // images of tests are small, and starting the threads takes longer than the work.
    command.args(["-n", "-f", "-P", "-o", "phase2_threads=1"]);
    if xfs_groups(image) == Some(1) {
        // With a single group there is no second superblock to compare with.
        command.args(["-o", "force_geometry"]);
    }
    let finished = tool::finish(command.arg(image));
    let remarks: Vec<&str> =
        finished.text.lines().filter(|line| !is_expected_of_xfs(line)).collect();
    if finished.code == Some(0) && remarks.is_empty() {
        return Ok(());
    }
    let remarks = remarks.join("\n");
    Err(format!("exit status {:?}, remarks:\n{remarks}\nall:\n{}", finished.code, finished.text))
}

/// The number of allocation groups: `sb_agcount`, at byte 88 of the superblock.
fn xfs_groups(image: &Path) -> Option<u32> {
    let mut start = [0; 92];
    File::open(image).ok()?.read_exact(&mut start).ok()?;
    start.last_chunk().map(|field| u32::from_be_bytes(*field))
}

/// Whether a line is part of every run: phases, steps, and that the image lies on a file system without
/// a geometry of its own.
fn is_expected_of_xfs(line: &str) -> bool {
    const EXPECTED: [&str; 20] = [
        "",
        "Cannot get host filesystem geometry.",
        "Repair may fail if there is a sector size mismatch between",
        "the image and the host filesystem.",
        "- zero log...",
        "- scan filesystem freespace and inode maps...",
        "- found root inode chunk",
        "- scan (but don't clear) agi unlinked lists...",
        "- process known inodes and perform inode discovery...",
        "- process newly discovered inodes...",
        "- setting up duplicate extent list...",
        "- check for inodes claiming duplicate blocks...",
        "- traversing filesystem ...",
        "- traversal finished ...",
        "- moving disconnected inodes to lost+found ...",
        "No modify flag set, skipping phase 5",
        "No modify flag set, skipping filesystem flush and exiting.",
        "- reporting progress in intervals of 15 minutes",
        "- generate realtime summary info and bitmap...",
        "- process and check directory parent pointers...",
    ];
    let line = line.trim();
    // With many groups it tells how far it is: "- 12:00:00: scanning ... - 37 of 37 allocation groups
    // done".
    let is_progress = line.starts_with("- ") && line.contains(" of ") && line.ends_with(" done");
    line.starts_with("Phase ")
        || line.starts_with("- agno = ")
        || is_progress
        || EXPECTED.contains(&line)
}

/// Asserts that the checker of an image's format has nothing to say about it.
///
/// # Panics
/// As [`e2fsck`] and [`xfs_repair`]; also if the image is of neither format.
#[track_caller]
pub fn judge(image: impl AsRef<Path>) {
    match Format::of(image.as_ref()) {
        Format::Ext => e2fsck(image),
        Format::Xfs => xfs_repair(image),
    }
}

/// The verdict of the checker of an image's format.
///
/// # Errors
/// As [`e2fsck_verdict`] and [`xfs_repair_verdict`].
///
/// # Panics
/// If the image is of neither format.
pub fn verdict(image: &Path) -> Result<(), String> {
    match Format::of(image) {
        Format::Ext => e2fsck_verdict(image),
        Format::Xfs => xfs_repair_verdict(image),
    }
}

/// The format of an image, by its magic number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// ext2, ext3 or ext4.
    Ext,
    /// XFS.
    Xfs,
}

impl Format {
    /// Looks at an image.
    ///
    /// # Panics
    /// If it cannot be read or is of neither format.
    #[track_caller]
    pub fn of(image: &Path) -> Self {
        let mut start = Vec::new();
        let read = File::open(image).and_then(|file| file.take(2048).read_to_end(&mut start));
        read.unwrap_or_else(|error| panic!("{}: {error}", image.display()));
        match () {
            () if start.starts_with(b"XFSB") => Self::Xfs,
            () if start.get(1080..1082) == Some(&[0x53, 0xef]) => Self::Ext,
            () => panic!("{} is neither ext nor XFS", image.display()),
        }
    }

    /// What the kernel mounts it as.
    pub fn kernel_name(self) -> &'static str {
        match self {
            Self::Ext => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// The program that judges it.
    pub fn checker(self) -> &'static str {
        match self {
            Self::Ext => "e2fsck",
            Self::Xfs => "xfs_repair",
        }
    }
}
