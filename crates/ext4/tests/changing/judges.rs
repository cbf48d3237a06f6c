//! What e2fsck and the kernel say about a crashed image.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use blockdev::{FileDevice, MemoryDevice};
use ext4::{Ext4, OpenOptions};
use oracle::{Ignore, KernelMount, MountOptions, differences};
use tempfile::TempDir;
use workload::crash::{Case, Judge};
use workload::tree::{Rules, Tree};

use super::write_image;

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

/// Where a judge puts images.
struct Desk {
    folder: TempDir,
    next: AtomicU64,
}

impl Desk {
    fn new() -> Self {
        Self { folder: oracle::scratch(), next: AtomicU64::new(0) }
    }

    fn put(&self, device: &MemoryDevice) -> Result<Sheet, String> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let sheet = Sheet(self.folder.path().join(number.to_string()));
        write_image(device, &sheet.0).map_err(|error| format!("writing an image: {error}"))?;
        Ok(sheet)
    }
}

/// An image on a desk; gone when it is dropped.
struct Sheet(PathBuf);

impl Drop for Sheet {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// `e2fsck -fn` has nothing to say about what we recovered.
pub struct CheckRecovered {
    desk: Desk,
    one_in: u64,
}

impl CheckRecovered {
    pub fn new(one_in: u64) -> Self {
        Self { desk: Desk::new(), one_in }
    }
}

impl Judge for CheckRecovered {
    fn name(&self) -> &str {
        "e2fsck after our recovery"
    }

    fn one_in(&self) -> u64 {
        self.one_in
    }

    fn judge(&self, case: &Case<'_>) -> Result<(), String> {
        verdict(&self.desk.put(case.recovered)?.0)
    }
}

/// e2fsck recovers the crashed image itself, finds nothing else to repair, and shows the same tree.
pub struct CheckRecovers {
    desk: Desk,
    one_in: u64,
}

impl CheckRecovers {
    pub fn new(one_in: u64) -> Self {
        Self { desk: Desk::new(), one_in }
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
        same_tree(&sheet.0, case.tree)
    }
}

/// Runs `e2fsck -fy`, which may do nothing but what a crash explains.
fn repair(image: &Path) -> Result<(), String> {
    let output = Command::new("e2fsck")
        .arg("-fy")
        .arg(image)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("e2fsck: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    // 1 means repaired: replaying the journal counts.
    let is_fine =
        matches!(output.status.code(), Some(0 | 1)) && unexplained(&text).next().is_none();
    if is_fine { Ok(()) } else { Err(format!("e2fsck -fy, {}:\n{text}", output.status)) }
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

fn same_tree(image: &Path, expected: &Tree) -> Result<(), String> {
    let file = std::fs::File::open(image).map_err(|error| error.to_string())?;
    let device = FileDevice::new(file).map_err(|error| error.to_string())?;
    let fs = Ext4::open(Arc::new(device), &OpenOptions::default());
    let fs = fs.map_err(|error| format!("opening what it recovered: {error}"))?;
    let list = expected.differences(&Tree::of(&fs)?, Rules::default());
    if list.is_empty() { Ok(()) } else { Err(format!("another tree:\n{}", list.join("\n"))) }
}

/// The kernel recovers the crashed image, shows the same tree as we do, and leaves nothing to repair.
pub struct KernelRecovers {
    desk: Desk,
    one_in: u64,
}

impl KernelRecovers {
    pub fn new(one_in: u64) -> Self {
        Self { desk: Desk::new(), one_in }
    }
}

impl Judge for KernelRecovers {
    fn name(&self) -> &str {
        "recovery by the kernel"
    }

    fn one_in(&self) -> u64 {
        self.one_in
    }

    fn judge(&self, case: &Case<'_>) -> Result<(), String> {
        let crashed = self.desk.put(case.crashed)?;
        let recovered = self.desk.put(case.recovered)?;
        let theirs = {
            let options = MountOptions { extra: "noatime", ..MountOptions::read_write("ext4") };
            let mount = KernelMount::attempt(&crashed.0, &options)?;
            let tree = oracle::Tree::of(mount.path());
            mount.unmount();
            tree
        };
        let ours = {
            let mount = KernelMount::attempt(&recovered.0, &MountOptions::read_only("ext4"))?;
            oracle::Tree::of(mount.path())
        };
        let ignore = Ignore { ctime: false, ..Ignore::default() };
        let list = differences(&ours, &theirs, &ignore);
        if !list.is_empty() {
            return Err(format!("another tree:\n{}", list.join("\n")));
        }
        verdict(&crashed.0)?;
        same_tree(&crashed.0, case.tree)
    }
}
