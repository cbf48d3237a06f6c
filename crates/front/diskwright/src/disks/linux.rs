//! Disks of Linux, from `/sys/block` and the table of mounts.

use std::fs;
use std::path::{Path, PathBuf};

use super::host_disk::{HostDisk, HostPartition};
use crate::host::{self, DeviceMount};
use crate::lock::kernel::{self, Partitions};
use crate::{Error, Result};

/// Directory with an entry for each disk.
const DISKS: &str = "/sys/block";

/// Unit of the sizes there in bytes.
const UNIT_BYTES: u64 = 512;

/// Drivers of devices that are derived from files or memory: their names before the number.
const DERIVED: [&str; 3] = ["loop", "ram", "zram"];

/// Returns the disks, sorted by name.
pub(crate) fn disks() -> Result<Vec<HostDisk>> {
    let entries = fs::read_dir(DISKS).map_err(|e| Error::host("read", Path::new(DISKS), e))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort_by_key(|path| by_number(path));
    let mounts = host::device_mounts();
    Ok(paths.iter().map(|path| disk(path, &mounts)).collect())
}

fn disk(directory: &Path, mounts: &[DeviceMount]) -> HostDisk {
    let name = name_of(directory);
    let driver = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut partitions: Vec<_> = entries
        .map(|entry| entry.path())
        .filter_map(|path| Some((number(&path, "partition")?, path)))
        .collect();
    partitions.sort();
    let model = text(directory, "device/model").filter(|model| !model.is_empty());
    HostDisk {
        path: device_file(&name),
        size_bytes: size_bytes(directory),
        // The kernel's page cache serves requests of any length.
        sector_bytes: 0,
        model: model.or_else(|| text(directory, "loop/backing_file")),
        is_read_only: number(directory, "ro") == Some(1),
        is_derived: DERIVED.contains(&driver),
        is_system: false,
        mounted_at: mounted_at(directory, mounts),
        partitions: partitions.iter().map(|(_, path)| partition(path, mounts)).collect(),
    }
}

fn partition(directory: &Path, mounts: &[DeviceMount]) -> HostPartition {
    HostPartition {
        path: Some(device_file(&name_of(directory))),
        offset: number(directory, "start").map(|start| start.saturating_mul(UNIT_BYTES)),
        size_bytes: size_bytes(directory),
        mounted_at: mounted_at(directory, mounts),
    }
}

/// Returns the key that sorts `sda2` before `sda10`.
fn by_number(path: &Path) -> (String, u64) {
    let name = name_of(path);
    let driver = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (driver.to_owned(), name[driver.len()..].parse().unwrap_or(0))
}

fn name_of(directory: &Path) -> String {
    directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the path in `/dev`. The kernel replaces slashes in names of directories.
fn device_file(name: &str) -> PathBuf {
    Path::new("/dev").join(name.replace('!', "/"))
}

fn text(directory: &Path, name: &str) -> Option<String> {
    Some(fs::read_to_string(directory.join(name)).ok()?.trim().to_owned())
}

fn number(directory: &Path, name: &str) -> Option<u64> {
    text(directory, name)?.parse().ok()
}

fn size_bytes(directory: &Path) -> u64 {
    number(directory, "size").unwrap_or(0).saturating_mul(UNIT_BYTES)
}

/// Returns the mount points of a device and of the devices on top of it, without those of its partitions.
fn mounted_at(directory: &Path, mounts: &[DeviceMount]) -> Vec<String> {
    let Some(number) = text(directory, "dev") else { return Vec::new() };
    let points = kernel::mount_points(&number, mounts, Partitions::Excluded);
    points.iter().map(|point| point.to_string_lossy().into_owned()).collect()
}
