//! Mounts of images with the kernel's own driver.
//!
//! A mount is removed when its guard is dropped, also when a test panics: the loop device detaches itself at the last
//! unmount, and a busy mount is detached lazily. Leftovers of a killed test process are removed by the next process
//! that mounts.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};

use crate::need::{Need, missing};
use crate::skip::skip;
use crate::tool;
use crate::wait::HANG_AFTER;

const MOUNT_POINT_PREFIX: &str = "diskwright-mount-";

/// Parameters of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions<'a> {
    /// The kernel's name of the file system, for instance `ext4`.
    pub fs_type: &'a str,
    /// Mount read-only.
    pub read_only: bool,
    /// Do not replay the journal or log.
    pub no_recovery: bool,
    /// Offset of the file system in the image in bytes.
    pub offset: u64,
    /// Further options of `mount -o`; may be empty.
    pub extra: &'a str,
}

impl<'a> MountOptions<'a> {
    /// Read-only, with recovery, from the image's first byte.
    pub fn read_only(fs_type: &'a str) -> Self {
        MountOptions { fs_type, read_only: true, no_recovery: false, offset: 0, extra: "" }
    }

    /// Read-write, with recovery, from the image's first byte.
    pub fn read_write(fs_type: &'a str) -> Self {
        MountOptions { read_only: false, ..Self::read_only(fs_type) }
    }

    fn to_text(&self) -> String {
        let mut text = String::from(if self.read_only { "loop,ro" } else { "loop,rw" });
        if self.no_recovery {
            text.push_str(",norecovery");
        }
        if self.offset != 0 {
            text.push_str(&format!(",offset={}", self.offset));
        }
        if self.fs_type == "xfs" {
            // Copies of an image may be mounted at the same time.
            text.push_str(",nouuid");
        }
        if !self.extra.is_empty() {
            text.push(',');
            text.push_str(self.extra);
        }
        text
    }
}

/// An image mounted by the kernel; unmounted when dropped.
#[derive(Debug)]
pub struct KernelMount {
    mount_point: PathBuf,
    mounted: bool,
}

/// Returns the last messages of the kernel about the loop device that the output of `mount` names.
fn kernel_messages(output: &str) -> String {
    let Some((_, rest)) = output.split_once("/dev/loop") else { return String::new() };
    let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let device = format!("(loop{number})");
    let log = tool::finish(&mut tool::command("dmesg")).text;
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(&device)).collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}

impl KernelMount {
    /// Mounts an image.
    ///
    /// # Panics
    /// If the kernel refuses the image, with the output of `mount`. [`Self::attempt`] returns it instead.
    #[track_caller]
    pub fn new(image: impl AsRef<Path>, options: &MountOptions<'_>) -> Self {
        let image = image.as_ref();
        Self::attempt(image, options)
            .unwrap_or_else(|output| panic!("cannot mount {}: {output}", image.display()))
    }

    /// Mounts an image that the kernel may refuse.
    ///
    /// # Errors
    /// The output of `mount`, and the last messages of the kernel about the device.
    pub fn attempt(image: &Path, options: &MountOptions<'_>) -> Result<Self, String> {
        static SWEEP: Once = Once::new();
        SWEEP.call_once(remove_leftovers);
        let mount_point = new_mount_point();
        let mut mount = KernelMount { mount_point, mounted: false };
        let mut output = String::new();
        // Other tests may hold all loop devices, or take the one that `mount` has just found.
        for _ in 0..50 {
            let finished = tool::finish(
                tool::command("mount")
                    .args(["-t", options.fs_type, "-o", &options.to_text()])
                    .arg(image)
                    .arg(&mount.mount_point),
            );
            if finished.code == Some(0) {
                mount.mounted = true;
                return Ok(mount);
            }
            output = finished.text;
            if !output.contains("loop device") {
                break;
            }
            sleep(Duration::from_millis(100));
        }
        // No driver, no permission or no loop devices: this is unrelated to the image.
        let fs_types = ["ext2", "ext3", "ext4", "xfs"].into_iter();
        let known = fs_types.filter(|&name| name == options.fs_type).map(Need::Mount).next();
        match known.and_then(missing) {
            Some(reason) => skip(&reason),
            None => Err(format!("{output}{}", kernel_messages(&output))),
        }
    }

    /// Returns the root of the mounted file system.
    pub fn path(&self) -> &Path {
        &self.mount_point
    }

    /// Unmounts; the image is complete on return.
    ///
    /// # Panics
    /// If the mount is still busy after minutes.
    pub fn unmount(mut self) {
        let result = self.try_unmount(HANG_AFTER);
        result.unwrap_or_else(|error| panic!("{}: {error}", self.mount_point.display()));
    }

    fn try_unmount(&mut self, patience: Duration) -> rustix::io::Result<()> {
        let result = unmount_within(&self.mount_point, patience);
        self.mounted = result.is_err();
        result
    }
}

/// Unmounts a file system that a test mounted by itself.
///
/// # Panics
/// If nothing is mounted there, or it is still busy after minutes.
pub fn unmount_from(place: &Path) {
    let result = unmount_within(place, HANG_AFTER);
    result.unwrap_or_else(|error| panic!("{}: {error}", place.display()));
}

/// Retries for this long. A killed process may hold the mount a little longer, and a process that another test is
/// starting may have inherited open files.
fn unmount_within(place: &Path, patience: Duration) -> rustix::io::Result<()> {
    let start = Instant::now();
    loop {
        let result = unmount(place, UnmountFlags::NOFOLLOW);
        if result != Err(rustix::io::Errno::BUSY) || start.elapsed() > patience {
            return result;
        }
        sleep(Duration::from_millis(20));
    }
}

/// Time to wait for a mount after a test failed while using it.
const UNMOUNT_WAIT_AFTER_FAILURE: Duration = Duration::from_secs(1);

impl Drop for KernelMount {
    fn drop(&mut self) {
        if self.mounted
            && let Err(error) = self.try_unmount(UNMOUNT_WAIT_AFTER_FAILURE)
        {
            eprintln!("{}: {error}; detaching it lazily", self.mount_point.display());
            let _ = unmount(&self.mount_point, UnmountFlags::DETACH);
        }
        let _ = fs::remove_dir(&self.mount_point);
    }
}

/// Creates a directory whose name contains the process ID of its owner.
fn new_mount_point() -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{MOUNT_POINT_PREFIX}{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    // A process with the same ID may have died here before.
    let _ = unmount(&path, UnmountFlags::DETACH);
    let _ = fs::remove_dir(&path);
    fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    path
}

/// Detaches the mounts of test processes that no longer run.
fn remove_leftovers() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix(MOUNT_POINT_PREFIX))
            .and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        let Some(owner) = owner else { continue };
        if !Path::new("/proc").join(owner.to_string()).exists() {
            let _ = unmount(entry.path(), UnmountFlags::DETACH);
            let _ = fs::remove_dir(entry.path());
        }
    }
}
