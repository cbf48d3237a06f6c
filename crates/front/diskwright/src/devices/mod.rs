//! Disks and partitions of this host, for programs that let a user choose one.
//!
//! ```
//! for device in diskwright::devices::list(Default::default())? {
//!     println!("{} {:?}", device.path.display(), device.format);
//! }
//! # Ok::<(), diskwright::Error>(())
//! ```
//!
//! The system describes its disks (`disks`). The contents are recognized by [`crate::partition`].

mod contents;
mod output;

use std::path::PathBuf;
use std::sync::Arc;

use disk::{BlockDevice, WindowDevice};
use serde::Serialize;

pub use output::{write_json, write_table};

use crate::disks::{self, HostDisk, HostPartition};
use crate::{Result, partition};

/// Options of [`list`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListOptions {
    /// Include devices without contents, loop devices, RAM disks, and disks that the system derives from others.
    pub all: bool,
}

setters!(ListOptions { all: bool = all });

/// A disk or a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Device {
    /// Path for commands and for [`crate::Image::open`].
    pub path: PathBuf,
    /// Number of the partition, if the path is that of the whole disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// Size in bytes.
    pub size: u64,
    /// Name of the format: a file system, a volume, or a partition table (`gpt`, `dos`).
    pub format: Option<String>,
    /// Label of the file system.
    pub label: Option<String>,
    /// UUID of the file system, the volume or the partition table.
    pub uuid: Option<String>,
    /// Directories over which it is mounted.
    pub mounted_at: Vec<String>,
    /// True if the system permits no writes.
    pub read_only: bool,
    /// Model of a disk.
    pub model: Option<String>,
    /// Reason why the contents are unknown.
    pub problem: Option<String>,
}

/// Lists the disks of this host, each followed by its partitions.
///
/// # Errors
/// If the system does not describe its disks. A device that cannot be read has a [`Device::problem`] instead.
pub fn list(options: ListOptions) -> Result<Vec<Device>> {
    let disks = disks::all()?.into_iter().filter(|disk| options.all || disk.is_usual());
    Ok(disks.flat_map(|disk| devices_of(&disk)).collect())
}

/// Returns a disk and its partitions.
fn devices_of(disk: &HostDisk) -> Vec<Device> {
    let whole = Device {
        path: disk.path.clone(),
        size: disk.size_bytes,
        mounted_at: disk.mounted_at.clone(),
        read_only: disk.is_read_only,
        model: disk.model.clone(),
        ..Device::default()
    };
    if disk.size_bytes == 0 {
        return vec![whole];
    }
    match disk.open(&disk.path, disk.size_bytes) {
        Ok(device) => {
            let inside = partitions_of(disk, &device);
            let mut devices = vec![contents::add(whole, &device)];
            devices.extend(inside);
            devices
        }
        Err(error) => {
            let mut devices = vec![Device { problem: Some(disks::not_opened(&error)), ..whole }];
            devices.extend(disk.partitions.iter().filter_map(|part| of_partition(disk, part)));
            devices
        }
    }
}

/// Returns the partitions of a disk: those with separate paths, or those of its table.
fn partitions_of(disk: &HostDisk, device: &Arc<dyn BlockDevice>) -> Vec<Device> {
    let known: Vec<_> =
        disk.partitions.iter().filter_map(|part| of_partition(disk, part)).collect();
    if !known.is_empty() {
        return known;
    }
    let Ok(Some(partitions)) = partition::read(&**device) else { return known };
    let in_table = partitions.iter().map(|partition| {
        let mounted = disk.partitions.iter().find(|part| part.offset == Some(partition.offset));
        let found = Device {
            path: disk.path.clone(),
            partition: Some(partition.number),
            size: partition.len,
            mounted_at: mounted.map(|part| part.mounted_at.clone()).unwrap_or_default(),
            read_only: disk.is_read_only,
            ..Device::default()
        };
        match WindowDevice::new(Arc::clone(device), partition.offset, partition.len) {
            Ok(window) => contents::add(found, &(Arc::new(window) as Arc<dyn BlockDevice>)),
            Err(error) => Device { problem: Some(error.to_string()), ..found },
        }
    });
    in_table.collect()
}

/// Returns a partition, if it has a separate path.
fn of_partition(disk: &HostDisk, part: &HostPartition) -> Option<Device> {
    let found = Device {
        path: part.path.clone()?,
        size: part.size_bytes,
        mounted_at: part.mounted_at.clone(),
        read_only: disk.is_read_only,
        ..Device::default()
    };
    Some(match disk.open(&found.path, found.size) {
        Ok(device) => contents::add(found, &device),
        Err(error) => Device { problem: Some(disks::not_opened(&error)), ..found },
    })
}
