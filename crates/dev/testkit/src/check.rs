//! Verdicts of `e2fsck` and `xfs_repair`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::{ours, tool};

/// Asserts that `e2fsck -fn` reports nothing about an image.
///
/// # Panics
/// If the checker reports, asks or warns about anything, with its full output.
#[track_caller]
pub fn e2fsck(image: impl AsRef<Path>) {
    let image = image.as_ref();
    if let Err(output) = e2fsck_verdict(image) {
        panic!("e2fsck does not accept {}:\n{output}", image.display());
    }
}

/// Runs `e2fsck -fn`. Succeeds if the image is clean. With the feature `ext4`, an accepted image is also checked by
/// Diskwright's own check.
///
/// Exit status 0 is not sufficient, because some remarks (an extent tree that could be narrower, a skipped journal) do
/// not change it. Only the lines of a silent run are accepted.
///
/// # Errors
/// The checker's exit status and output.
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

/// Returns whether a line is part of every run: banner, pass headings, summary.
fn is_expected(line: &str) -> bool {
    let is_summary = line.contains(" files (") && line.ends_with(" blocks");
    line.is_empty() || line.starts_with("e2fsck 1.") || line.starts_with("Pass ") || is_summary
}

/// Asserts that `xfs_repair -n` reports nothing about an image.
///
/// # Panics
/// If the checker reports, asks or warns about anything, with its full output.
#[track_caller]
pub fn xfs_repair(image: impl AsRef<Path>) {
    let image = image.as_ref();
    if let Err(output) = xfs_repair_verdict(image) {
        panic!("xfs_repair does not accept {}:\n{output}", image.display());
    }
}

/// Runs `xfs_repair -n`. Succeeds if the image is clean. With the feature `xfs`, an accepted image is also checked by
/// Diskwright's own check.
///
/// As with `e2fsck`, only the lines of a silent run are accepted: several remarks do not change the exit status.
///
/// # Errors
/// The checker's exit status and output.
pub fn xfs_repair_verdict(image: &Path) -> Result<(), String> {
    xfs_repair_alone(image).and_then(|()| ours::xfs(image))
}

/// Like [`xfs_repair_verdict`], without our own check.
///
/// # Errors
/// As [`xfs_repair_verdict`].
pub fn xfs_repair_alone(image: &Path) -> Result<(), String> {
    let mut command = tool::command("xfs_repair");
    // Without its hundred threads for read-ahead and parallel groups: test images are small, and starting the threads
    // takes longer than the work.
    command.args(["-n", "-f", "-P", "-o", "phase2_threads=1"]);
    if xfs_groups(image) == Some(1) {
        // With a single group there is no second superblock to compare.
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

/// Returns the number of allocation groups: `sb_agcount`, at byte 88 of the superblock.
fn xfs_groups(image: &Path) -> Option<u32> {
    let mut start = [0; 92];
    File::open(image).ok()?.read_exact(&mut start).ok()?;
    start.last_chunk().map(|field| u32::from_be_bytes(*field))
}

/// Returns whether a line is part of every run: phases, steps, and the remark that the image is in a file.
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
    // With many groups it prints progress: "- 12:00:00: scanning ... - 37 of 37 allocation groups done".
    let is_progress = line.starts_with("- ") && line.contains(" of ") && line.ends_with(" done");
    line.starts_with("Phase ")
        || line.starts_with("- agno = ")
        || is_progress
        || EXPECTED.contains(&line)
}

/// Asserts that the checker of an image's format reports nothing.
///
/// # Panics
/// As [`e2fsck`] and [`xfs_repair`], and if the image has neither format.
#[track_caller]
pub fn judge(image: impl AsRef<Path>) {
    match Format::of(image.as_ref()) {
        Format::Ext => e2fsck(image),
        Format::Xfs => xfs_repair(image),
    }
}

/// Returns the verdict of the checker of an image's format.
///
/// # Errors
/// As [`e2fsck_verdict`] and [`xfs_repair_verdict`].
///
/// # Panics
/// If the image has neither format.
pub fn verdict(image: &Path) -> Result<(), String> {
    match Format::of(image) {
        Format::Ext => e2fsck_verdict(image),
        Format::Xfs => xfs_repair_verdict(image),
    }
}

/// The format of an image, according to its magic number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// ext2, ext3 or ext4.
    Ext,
    /// XFS.
    Xfs,
}

impl Format {
    /// Detects the format of an image.
    ///
    /// # Panics
    /// If it cannot be read or has neither format.
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

    /// Returns the kernel's name of the file system.
    pub fn kernel_name(self) -> &'static str {
        match self {
            Self::Ext => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// Returns the checker program.
    pub fn checker(self) -> &'static str {
        match self {
            Self::Ext => "e2fsck",
            Self::Xfs => "xfs_repair",
        }
    }
}
