//! Judges of crashed images: e2fsck and the kernel.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use disk::BlockDevice;
use ext4::{Ext4, OpenOptions};
use testkit::crash::{CheckRecovered, Desk, KernelRecovers, same_tree};
use testkit::crash::{CrashCase, Judge};
use vfs::FileSystem;

/// Maximum lag of the coarse clock that e2fsck reads: one tick.
const CLOCK_LAG: Duration = Duration::from_millis(20);

/// Returns the verdict of `e2fsck -fn` on an image. At the start of a second, e2fsck may still read the previous one
/// and report a superblock from the future.
pub fn verdict(image: &Path) -> Result<(), String> {
    match testkit::e2fsck_verdict(image) {
        Err(text) if text.contains("write time is in the future") => {
            thread::sleep(CLOCK_LAG);
            testkit::e2fsck_verdict(image)
        }
        verdict => verdict,
    }
}

/// Opens an image that another program recovered.
fn open_to_read(device: Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn FileSystem>> {
    Ok(Box::new(Ext4::open(device, &OpenOptions::default())?))
}

/// Checks that `e2fsck -fn` accepts our recovery.
pub fn check_recovered(one_in: u64) -> CheckRecovered {
    CheckRecovered::new("e2fsck", verdict, one_in)
}

/// Checks that the kernel recovers the same state.
pub fn kernel_recovers(one_in: u64) -> KernelRecovers {
    KernelRecovers::new(verdict, open_to_read, one_in)
}

/// Lets e2fsck recover the crashed image. It must find nothing else to repair and yield the same tree.
pub struct CheckRecovers {
    desk: Desk,
    one_in: u64,
}

impl CheckRecovers {
    pub fn new(one_in: u64) -> Self {
        Self { desk: Desk::default(), one_in }
    }
}

impl Judge for CheckRecovers {
    fn name(&self) -> &str {
        "recovery by e2fsck"
    }

    fn one_in(&self) -> u64 {
        self.one_in
    }

    fn judge(&self, case: &CrashCase<'_>) -> Result<(), String> {
        let sheet = self.desk.put(case.crashed)?;
        repair(&sheet.0)?;
        verdict(&sheet.0)?;
        same_tree(&sheet.0, case.tree, open_to_read)
    }
}

/// Runs `e2fsck -fy`, which may only repair what a crash explains.
pub fn repair(image: &Path) -> Result<(), String> {
    let output = testkit::command("e2fsck")
        .arg("-fy")
        .arg(image)
        .output()
        .map_err(|error| format!("e2fsck: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let miscounts = has_clusters(image) && text.contains("Clearing orphaned inode");
    let mut unexplained = unexplained(&text).filter(|line| !(miscounts && is_usage(line)));
    // 1 means repaired, which includes a replay of the journal.
    let is_fine = matches!(output.status.code(), Some(0 | 1)) && unexplained.next().is_none();
    // Its messages about quotas are in the error output.
    let errors = String::from_utf8_lossy(&output.stderr);
    if is_fine { Ok(()) } else { Err(format!("e2fsck -fy, {}:\n{text}{errors}", output.status)) }
}

/// Returns whether an image has clusters of several blocks (`RO_COMPAT_BIGALLOC`, 0x200 at offset 0x64 of the
/// superblock).
fn has_clusters(image: &Path) -> bool {
    let mut features = [0; 4];
    let file = File::open(image).expect("an image");
    file.read_exact_at(&mut features, 1024 + 0x64).expect("a superblock");
    u32::from_le_bytes(features) & 0x200 != 0
}

/// Returns whether a line reports updated usage. For each cluster of an orphan, e2fsck 1.47 subtracts only one block
/// from the owner's usage, also in images made by mke2fs, and corrects that later.
fn is_usage(line: &str) -> bool {
    line.starts_with("Update quota info for quota type ") && line.ends_with("? yes")
}

/// Returns the lines that a crash does not explain.
fn unexplained(text: &str) -> impl Iterator<Item = &str> {
    // e2fsck 1.47 also asks this after a crash of the kernel.
    let is_orphan_file = |line: &str| {
        line == "Feature orphan_present is set but orphan file is clean."
            || (line.starts_with("Orphan file (inode ") && line.ends_with(" is not clean."))
    };
    let loses_attributes = clears_special_file(text);
    let is_lost_block = move |line: &str| {
        let lost = line.strip_prefix("Block bitmap differences: ");
        loses_attributes
            && (lost.is_some_and(|blocks| !blocks.contains('+'))
                || line.starts_with("Free blocks count wrong"))
    };
    let mut before = "";
    text.lines().filter(move |line| {
        let is_answer = (*line == "Clear? yes" && is_orphan_file(before))
            || (*line == "Fix? yes" && is_lost_block(before));
        before = line;
        !is_answer && !is_orphan_file(line) && !is_lost_block(line) && !is_recovery(line)
    })
}

/// Returns whether there was a device, pipe or socket among the orphans. e2fsck 1.47 clears such an inode, but finds
/// its attribute block only when it compares the bitmaps.
fn clears_special_file(text: &str) -> bool {
    let mode_of = |line: &str| {
        let digits = line.split("mode=0").nth(1)?.split(',').next()?;
        u16::from_str_radix(digits, 8).ok()
    };
    let orphans = text.lines().filter(|line| line.starts_with("Clearing orphaned inode"));
    orphans.filter_map(mode_of).any(|mode| {
        let file_type = vfs::FileType::from_mode(mode);
        !matches!(
            file_type,
            None | Some(vfs::FileType::Regular | vfs::FileType::Directory | vfs::FileType::Symlink)
        )
    })
}

/// Returns whether a line reports recovery or is part of every run.
fn is_recovery(line: &str) -> bool {
    let is_summary = line.contains(" files (") && line.ends_with(" blocks");
    let is_orphan = line.starts_with("Clearing orphaned inode")
        || line.starts_with("Truncating orphaned inode")
        || line.contains("truncating inode");
    is_summary
        || is_orphan
        || line.is_empty()
        || line.starts_with("Pass ")
        || line.ends_with(": recovering journal")
        || line.contains("***** FILE SYSTEM WAS MODIFIED *****")
        || line.contains("Setting free blocks count to")
        || line.contains("Setting free inodes count to")
}
