//! What e2fsck and the kernel say about a crashed image.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use blockdev::BlockDevice;
use ext4::{Ext4, OpenOptions};
use oracle::crash::{CheckRecovered, Desk, KernelRecovers, same_tree};
use vfs::FileSystem;
use workload::crash::{Case, Judge};

/// Longest time by which the clock that e2fsck reads lags behind ours: a tick.
const CLOCK_LAG: Duration = Duration::from_millis(20);

/// What `e2fsck -fn` says of an image. Right after a second begins, e2fsck may still read the one
/// before, and find the superblock written in the future.
pub fn verdict(image: &Path) -> Result<(), String> {
    match oracle::e2fsck_verdict(image) {
        Err(text) if text.contains("write time is in the future") => {
            thread::sleep(CLOCK_LAG);
            oracle::e2fsck_verdict(image)
        }
        verdict => verdict,
    }
}

/// Opens what others recovered.
fn open_to_read(device: Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn FileSystem>> {
    Ok(Box::new(Ext4::open(device, &OpenOptions::default())?))
}

/// `e2fsck -fn` has nothing to say about what we recovered.
pub fn check_recovered(one_in: u64) -> CheckRecovered {
    CheckRecovered::new("e2fsck", verdict, one_in)
}

/// The kernel recovers the same.
pub fn kernel_recovers(one_in: u64) -> KernelRecovers {
    KernelRecovers::new(verdict, open_to_read, one_in)
}

/// e2fsck recovers the crashed image itself, finds nothing else to repair, and shows the same tree.
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

    fn judge(&self, case: &Case<'_>) -> Result<(), String> {
        let sheet = self.desk.put(case.crashed)?;
        repair(&sheet.0)?;
        verdict(&sheet.0)?;
        same_tree(&sheet.0, case.tree, open_to_read)
    }
}

/// Runs `e2fsck -fy`, which may do nothing but what a crash explains.
pub fn repair(image: &Path) -> Result<(), String> {
    let output = oracle::command("e2fsck")
        .arg("-fy")
        .arg(image)
        .output()
        .map_err(|error| format!("e2fsck: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let miscounts = has_clusters(image) && text.contains("Clearing orphaned inode");
    let mut unexplained = unexplained(&text).filter(|line| !(miscounts && is_usage(line)));
    // 1 means repaired: replaying the journal counts.
    let is_fine = matches!(output.status.code(), Some(0 | 1)) && unexplained.next().is_none();
    // What it thinks of quotas is among its errors.
    let errors = String::from_utf8_lossy(&output.stderr);
    if is_fine { Ok(()) } else { Err(format!("e2fsck -fy, {}:\n{text}{errors}", output.status)) }
}

/// Whether an image has clusters of blocks (`RO_COMPAT_BIGALLOC`, 0x200 at byte 0x64 of the superblock).
fn has_clusters(image: &Path) -> bool {
    let mut features = [0; 4];
    let file = File::open(image).expect("an image");
    file.read_exact_at(&mut features, 1024 + 0x64).expect("a superblock");
    u32::from_le_bytes(features) & 0x200 != 0
}

/// Whether a line tells of usage that is brought up to date. For each cluster of an orphan, e2fsck 1.47 takes only
/// one block off the usage of its owner, in images of mke2fs, too, and finds that out later.
fn is_usage(line: &str) -> bool {
    line.starts_with("Update quota info for quota type ") && line.ends_with("? yes")
}

/// The lines that a crash does not explain.
fn unexplained(text: &str) -> impl Iterator<Item = &str> {
    // e2fsck 1.47 asks this of what a kernel left in a crash, too.
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

/// Whether a device, pipe or socket was among the orphans: e2fsck 1.47 clears the inode, but finds
/// the block of its attributes only when it compares the bitmaps.
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

/// Whether a line tells of recovery, or is part of every run.
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
