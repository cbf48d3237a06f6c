//! Disks of macOS, from diskutil(8).

use std::path::{Path, PathBuf};
use std::process::Command;

use plist::Value;
use serde::Deserialize;

use super::host_disk::{HostDisk, HostPartition};
use crate::{Error, Result};

/// The program.
const DISKUTIL: &str = "/usr/sbin/diskutil";

/// Sector size of disks that report none, in bytes.
const SECTOR_BYTES: u32 = 512;

/// Returns the disks in the order of diskutil(8).
#[cfg_attr(not(target_os = "macos"), allow(dead_code, reason = "tests use the parsers"))]
pub(crate) fn disks() -> Result<Vec<HostDisk>> {
    parse(&run(&["list", "-plist"])?, |name| run(&["info", "-plist", name]))
}

/// Returns the name of the disk or partition at a path, such as `disk4s2` for `/dev/rdisk4s2`.
pub(super) fn disk_name(path: &Path) -> Option<PathBuf> {
    let name = path.to_str()?.strip_prefix("/dev/")?;
    let name = name.strip_prefix('r').unwrap_or(name);
    let number = name.strip_prefix("disk")?;
    number.starts_with(|c: char| c.is_ascii_digit()).then(|| Path::new("/dev").join(name))
}

fn run(arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(DISKUTIL).args(arguments).output();
    let output = output.map_err(|e| Error::host("run", Path::new(DISKUTIL), e))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(unexpected(&format!("{}: {said}", output.status)))
}

/// Creates the error for output that is not that of diskutil(8).
fn unexpected(problem: &str) -> Error {
    Error::host("understand", Path::new(DISKUTIL), std::io::Error::other(problem.to_owned()))
}

/// Output of `diskutil list -plist`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct List {
    all_disks_and_partitions: Vec<Value>,
}

/// Entry for a disk there.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    device_identifier: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    partitions: Vec<Value>,
    #[serde(default, rename = "APFSPhysicalStores")]
    stores: Vec<Store>,
}

/// Entry for a partition.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PartitionEntry {
    device_identifier: String,
    #[serde(default)]
    size: u64,
}

/// Partition that contains the volumes of a disk that macOS derives from it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Store {
    device_identifier: String,
}

/// Output of `diskutil info -plist`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Info {
    device_block_size: Option<u32>,
    media_name: Option<String>,
    writable_media: Option<bool>,
}

/// Reads the list of disks. `info` returns the description of a disk.
fn parse(list: &[u8], info: impl Fn(&str) -> Result<Vec<u8>>) -> Result<Vec<HostDisk>> {
    let not_known = |e: plist::Error| unexpected(&e.to_string());
    let List { all_disks_and_partitions } = plist::from_bytes(list).map_err(not_known)?;
    let mut disks = Vec::new();
    let mut stores = Vec::new();
    for value in all_disks_and_partitions {
        let entry: Entry = plist::from_value(&value).map_err(not_known)?;
        let about = info(&entry.device_identifier)?;
        let about: Info = plist::from_bytes(&about).map_err(not_known)?;
        let partitions = entry.partitions.iter().map(|value| partition(value).map_err(not_known));
        let partitions = partitions.collect::<Result<Vec<_>>>()?;
        let points = if partitions.is_empty() { mount_points(&value) } else { Vec::new() };
        for store in &entry.stores {
            stores.push((device_file(&store.device_identifier), points.clone()));
        }
        disks.push(HostDisk {
            path: device_file(&entry.device_identifier),
            size_bytes: entry.size,
            sector_bytes: about.device_block_size.unwrap_or(SECTOR_BYTES),
            model: about.media_name.filter(|name| !name.is_empty()),
            is_read_only: about.writable_media == Some(false),
            is_derived: !entry.stores.is_empty(),
            is_system: points.iter().any(|point| is_system(point)),
            mounted_at: points,
            partitions,
        });
    }
    add_stores(&mut disks, stores);
    Ok(disks)
}

fn partition(value: &Value) -> Result<HostPartition, plist::Error> {
    let entry: PartitionEntry = plist::from_value(value)?;
    Ok(HostPartition {
        path: Some(device_file(&entry.device_identifier)),
        offset: None,
        size_bytes: entry.size,
        mounted_at: mount_points(value),
    })
}

/// Adds the mount points of volumes to the partitions that store them.
fn add_stores(disks: &mut [HostDisk], stores: Vec<(PathBuf, Vec<String>)>) {
    for (store, points) in stores {
        let has_system = points.iter().any(|point| is_system(point));
        for disk in &mut *disks {
            let partitions = &mut disk.partitions;
            let found = partitions.iter_mut().find(|part| part.path.as_deref() == Some(&*store));
            let mounted_at = match found {
                Some(partition) => &mut partition.mounted_at,
                None if disk.path == store => &mut disk.mounted_at,
                None => continue,
            };
            mounted_at.extend(points.iter().cloned());
            disk.is_system |= has_system;
        }
    }
}

fn is_system(point: &str) -> bool {
    point == "/" || point.starts_with("/System/")
}

fn device_file(identifier: &str) -> PathBuf {
    Path::new("/dev").join(identifier)
}

/// Returns all mount points in an entry, also those of its volumes and their snapshots.
fn mount_points(value: &Value) -> Vec<String> {
    match value {
        Value::Dictionary(fields) => fields
            .iter()
            .flat_map(|(key, value)| match value.as_string() {
                Some(point) if key == "MountPoint" || key == "SnapshotMountPoint" => {
                    Some(point.to_owned()).filter(|point| !point.is_empty()).into_iter().collect()
                }
                _ => mount_points(value),
            })
            .collect(),
        Value::Array(values) => values.iter().flat_map(mount_points).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &[u8] = include_bytes!("samples/diskutil-list.plist");
    const INFO: &[u8] = include_bytes!("samples/diskutil-info.plist");

    fn sample() -> Vec<HostDisk> {
        parse(LIST, |_| Ok(INFO.to_vec())).unwrap()
    }

    #[test]
    fn disks_have_their_partitions_and_mount_points() {
        let disks = sample();
        let paths: Vec<_> = disks.iter().map(|disk| disk.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["/dev/disk0", "/dev/disk3", "/dev/disk4", "/dev/disk5"]);
        let card = &disks[2];
        assert_eq!((card.size_bytes, card.sector_bytes), (31_914_983_424, 512));
        assert_eq!(card.model.as_deref(), Some("Built In SDXC Reader"));
        assert!(card.is_usual() && !card.is_system && !card.is_read_only);
        let partitions: Vec<_> = card
            .partitions
            .iter()
            .map(|part| (part.path.as_deref().unwrap().to_str().unwrap(), &*part.mounted_at))
            .collect();
        let boot = ["/Volumes/bootfs".to_owned()];
        assert_eq!(partitions, [("/dev/disk4s1", &boot[..]), ("/dev/disk4s2", &[])]);
        assert_eq!(card.partitions[1].size_bytes, 31_376_539_648);
        // A disk without a partition table may be mounted as a whole.
        assert_eq!(disks[3].mounted_at, ["/Volumes/STICK"]);
    }

    #[test]
    fn volumes_count_as_mounts_of_the_partition_that_stores_them() {
        let disks = sample();
        assert!(disks[0].is_system && disks[0].is_usual());
        let stored = &disks[0].partitions[1].mounted_at;
        assert!(stored.iter().any(|point| point == "/"), "{stored:?}");
        assert!(stored.iter().any(|point| point == "/System/Volumes/Data"), "{stored:?}");
        assert!(disks[0].partitions[0].mounted_at.is_empty());
        assert!(disks[1].is_derived && disks[1].is_system);
    }

    #[test]
    fn both_names_of_a_disk_are_known_and_no_others() {
        for (path, name) in [("/dev/disk4", "disk4"), ("/dev/rdisk4s2", "disk4s2")] {
            assert_eq!(disk_name(Path::new(path)), Some(device_file(name)));
        }
        for other in ["disk4", "/dev/diskette", "/dev/disk", "/tmp/disk4", "/dev/sda1"] {
            assert_eq!(disk_name(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn other_output_is_an_error() {
        for list in [&b""[..], b"<plist><dict/></plist>", b"<plist><string>x</string></plist>"] {
            assert!(parse(list, |_| Ok(INFO.to_vec())).is_err());
        }
        assert!(parse(LIST, |_| Ok(b"Could not find disk".to_vec())).is_err());
    }
}
