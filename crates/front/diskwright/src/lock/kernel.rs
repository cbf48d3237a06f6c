//! Use of files and devices by the kernel: mounts, loop devices, swap space, and devices on top of others.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Refused;
use crate::Result;
use crate::host::{self, DeviceMount, FileId};

/// Maximum time for the kernel to release a device after umount(8) and losetup(8) have ended.
const RELEASE_GRACE: Duration = Duration::from_secs(2);

/// Interval between checks of such a device.
const RELEASE_POLL: Duration = Duration::from_millis(10);

/// Repeats `look` until the device is released. Returns its last error after the grace period.
pub(super) fn wait_for_release<T, E>(
    mut look: impl FnMut() -> Result<T, E>,
    is_released_soon: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let begun = Instant::now();
    loop {
        match look() {
            Err(e) if begun.elapsed() < RELEASE_GRACE && is_released_soon(&e) => {
                std::thread::sleep(RELEASE_POLL);
            }
            result => return result,
        }
    }
}

/// Loop device through which the kernel writes a file. Such a device ignores locks.
#[derive(Clone, Debug)]
struct LoopFile {
    backing: FileId,
    /// Device name in `/dev`.
    name: String,
    /// True if the device detaches itself when closed, as after `losetup -d` and for `mount -o loop`.
    is_autoclear: bool,
    /// Major and minor number, as in `7:0`.
    number: String,
}

/// Files that are attached to loop devices for writing.
#[derive(Debug, Default)]
pub(crate) struct LoopFiles(Vec<LoopFile>);

impl LoopFiles {
    /// Reads the current state.
    pub(crate) fn attached() -> Self {
        let Ok(devices) = std::fs::read_dir("/sys/block") else { return Self::default() };
        let attached = devices.flatten().filter_map(|device| {
            let about = |what: &str| std::fs::read_to_string(device.path().join(what)).ok();
            let backing = PathBuf::from(about("loop/backing_file")?.trim_end_matches('\n'));
            let backing = host::id_at(&backing).ok()?;
            let is_set = |what| about(what).is_some_and(|text| text.trim() == "1");
            let is_autoclear = is_set("loop/autoclear");
            let number = about("dev").unwrap_or_default().trim().to_owned();
            let name = device.file_name().display().to_string();
            (!is_set("ro")).then_some(LoopFile { backing, name, is_autoclear, number })
        });
        Self(attached.collect())
    }

    fn find(&self, file: FileId) -> Option<&LoopFile> {
        self.0.iter().find(|attached| attached.backing == file)
    }

    /// Rejects an attached file, unless the kernel detaches it soon.
    pub(crate) fn refuse(&self, file: FileId) -> Result<(), Refused> {
        if self.find(file).is_none() {
            return Ok(());
        }
        // A device may have been detached while its state was read.
        let look = || Self::attached().find(file).map_or(Ok(()), |attached| Err(attached.clone()));
        let attached = wait_for_release(look, |attached: &LoopFile| {
            attached.is_autoclear && !is_mounted(&attached.number)
        });
        attached.map_err(|attached| {
            let device = format!("/dev/{}", attached.name);
            let who = format!("the kernel, through {}", crate::text::escaped(device.as_bytes()));
            let advice = "unmount it and detach the device with losetup -d first";
            Refused::in_use(Some(file), &who, advice)
        })
    }
}

/// Returns whether this process sees a mount of the device with this number.
fn is_mounted(number: &str) -> bool {
    host::device_mounts().iter().any(|mount| mount.number == number)
}

/// Maximum number of devices on top of each other, such as a volume in an encrypted array.
const LEVELS_MAX: u32 = 16;

/// Treatment of the partitions of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only lists of Linux exclude them"))]
pub(crate) enum Partitions {
    Included,
    Excluded,
}

/// Returns the directories over which a device, its partitions, or devices on top of them are mounted. The number is in
/// the kernel's notation.
pub(crate) fn mount_points(
    number: &str,
    mounts: &[DeviceMount],
    partitions: Partitions,
) -> Vec<PathBuf> {
    let mut numbers = Vec::new();
    add_dependent(number, LEVELS_MAX, partitions, &mut numbers);
    let of_device = mounts.iter().filter(|mount| numbers.contains(&mount.number));
    of_device.map(|mount| mount.point.clone()).collect()
}

/// Adds a device, its partitions, and the devices on top of them, by number.
fn add_dependent(number: &str, levels: u32, partitions: Partitions, numbers: &mut Vec<String>) {
    if levels == 0 || numbers.iter().any(|known| known == number) {
        return;
    }
    numbers.push(number.to_owned());
    let directory = PathBuf::from(format!("/sys/dev/block/{number}"));
    let mut dependent = entries(&directory.join("holders"));
    if partitions == Partitions::Included {
        let is_partition = |path: &PathBuf| path.join("partition").exists();
        dependent.extend(entries(&directory).into_iter().filter(is_partition));
    }
    for device in dependent {
        if let Ok(number) = std::fs::read_to_string(device.join("dev")) {
            add_dependent(number.trim(), levels - 1, Partitions::Included, numbers);
        }
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Returns text that names mount points, at most three.
pub(crate) fn points_text(points: &[PathBuf]) -> String {
    let shown: Vec<_> = points.iter().take(3).map(|point| crate::text::shown(point)).collect();
    let more = points.len() - shown.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("mounted at {}{more}", shown.join(", "))
}

/// Returns the user of a busy block device, and advice.
pub(super) fn user_of_device(path: &Path) -> (String, &'static str) {
    const UNKNOWN: &str = "unmount it first";
    let Some(number) = host::device_number(path) else { return ("the kernel".into(), UNKNOWN) };
    let points = mount_points(&number, &host::device_mounts(), Partitions::Included);
    if points.iter().any(|point| point == Path::new("/")) {
        let who = format!("the kernel, {}", points_text(&points));
        return (
            who,
            "it contains the running system; choose another device, or start another system",
        );
    }
    if !points.is_empty() {
        let who = format!("the kernel, {}", points_text(&points));
        return (who, "unmount it first with umount");
    }
    if is_swap(path) {
        return ("the kernel, as swap space".into(), "disable it first with swapoff");
    }
    match holder(&number) {
        Some(device) => {
            let who = format!("the kernel, as part of {}", crate::text::shown(&device));
            (
                who,
                "close or stop that device first, with cryptsetup close, vgchange -an or mdadm --stop",
            )
        }
        None => ("the kernel".into(), UNKNOWN),
    }
}

/// Returns a device on top of the one with this number.
fn holder(number: &str) -> Option<PathBuf> {
    let mut holders = std::fs::read_dir(format!("/sys/dev/block/{number}/holders")).ok()?;
    Some(Path::new("/dev").join(holders.next()?.ok()?.file_name()))
}

/// Returns whether the kernel uses a device as swap space.
fn is_swap(path: &Path) -> bool {
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    swaps.lines().any(|line| line.split(' ').next().map(Path::new) == Some(path))
}

/// Rejects a block device or file that the kernel may change: a device that is mounted for changes, or a file that is
/// attached to a loop device.
///
/// # Errors
/// If it is in use.
pub(crate) fn refuse_changing(path: &Path) -> Result<()> {
    if let Ok(id) = host::id_at(path) {
        LoopFiles::attached().refuse(id).map_err(|refused| refused.at("open", path))?;
    }
    let Some(number) = host::device_number(path) else { return Ok(()) };
    let mounts = host::device_mounts().into_iter();
    let changing: Vec<_> = mounts
        .filter(|mount| mount.number == number && mount.is_changing())
        .map(|mount| mount.point)
        .collect();
    if changing.is_empty() {
        return Ok(());
    }
    let who = format!("the kernel, {}", points_text(&changing));
    let advice = "unmount it first, or copy a snapshot";
    Err(Refused::in_use(host::id_at(path).ok(), &who, advice).at("open", path))
}

/// Returns whether a busy block device is neither mounted nor part of another device. A file system holds its device
/// slightly longer than its mount.
pub(super) fn is_released_soon(path: &Path) -> bool {
    let Some(number) = host::device_number(path) else { return false };
    let is_mounted =
        !mount_points(&number, &host::device_mounts(), Partitions::Included).is_empty();
    !is_mounted && holder(&number).is_none() && !is_swap(path)
}
