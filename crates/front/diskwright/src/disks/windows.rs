//! Disks of Windows, from PowerShell.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Deserializer};

use super::host_disk::{HostDisk, HostPartition};
use crate::{Error, Result};

/// Prints the disks, their partitions and their volumes as JSON.
const SCRIPT: &str = include_str!("disks.ps1");

/// Sector size of disks that report none, in bytes.
const SECTOR_BYTES: u32 = 512;

/// Returns the disks by number.
#[cfg_attr(not(windows), allow(dead_code, reason = "tests use the parsers"))]
pub(crate) fn disks() -> Result<Vec<HostDisk>> {
    let program = powershell();
    let output =
        Command::new(&program).args(["-NoProfile", "-NonInteractive", "-Command", SCRIPT]).output();
    let output = output.map_err(|e| Error::host("run", &program, e))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(unexpected(&format!("{}: {said}", output.status)));
    }
    parse(&output.stdout)
}

/// Returns the path of PowerShell, which is part of Windows.
fn powershell() -> PathBuf {
    let root = std::env::var_os("SystemRoot").unwrap_or_else(|| r"C:\Windows".into());
    Path::new(&root).join(r"System32\WindowsPowerShell\v1.0\powershell.exe")
}

/// Returns the usual spelling of the path of a disk, such as `\\.\PhysicalDrive2`.
pub(super) fn disk_name(path: &Path) -> Option<PathBuf> {
    let text = path.to_str()?.replace('/', r"\").to_ascii_lowercase();
    let name = text.strip_prefix(r"\\.\").or_else(|| text.strip_prefix(r"\\?\"))?;
    Some(device_file(name.strip_prefix("physicaldrive")?.parse().ok()?))
}

fn device_file(number: u32) -> PathBuf {
    format!(r"\\.\PhysicalDrive{number}").into()
}

/// Creates the error for output that is not that of the script.
fn unexpected(problem: &str) -> Error {
    Error::host(
        "understand",
        Path::new("powershell.exe"),
        std::io::Error::other(problem.to_owned()),
    )
}

/// A disk, from `Get-Disk`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Disk {
    number: u32,
    friendly_name: Option<String>,
    size: Option<u64>,
    logical_sector_size: Option<u32>,
    is_boot: Option<bool>,
    is_system: Option<bool>,
    is_read_only: Option<bool>,
    #[serde(default, deserialize_with = "list")]
    partitions: Vec<Partition>,
}

/// A partition, from `Get-Partition` and `Get-Volume`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Partition {
    offset: u64,
    size: u64,
    #[serde(default, deserialize_with = "list")]
    access_paths: Vec<String>,
    /// Name of the file system that Windows has mounted.
    file_system: Option<String>,
}

/// PowerShell writes a list of one element as this element in some versions, and an empty one as null.
#[derive(Deserialize)]
#[serde(untagged)]
enum List<T> {
    Several(Vec<T>),
    One(T),
    None,
}

fn list<'d, T: Deserialize<'d>, D: Deserializer<'d>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(match List::deserialize(from)? {
        List::Several(values) => values,
        List::One(value) => vec![value],
        List::None => Vec::new(),
    })
}

/// Disks, however many there are.
#[derive(Deserialize)]
struct Disks(#[serde(deserialize_with = "list")] Vec<Disk>);

/// Reads the output of the script.
fn parse(json: &[u8]) -> Result<Vec<HostDisk>> {
    // Some versions write a byte order mark first.
    let json = json.strip_prefix(b"\xef\xbb\xbf").unwrap_or(json);
    let Disks(mut disks) = serde_json::from_slice(json).map_err(|e| unexpected(&e.to_string()))?;
    disks.sort_by_key(|disk| disk.number);
    let disks = disks.into_iter().map(|disk| HostDisk {
        path: device_file(disk.number),
        size_bytes: disk.size.unwrap_or(0),
        sector_bytes: disk.logical_sector_size.filter(|&bytes| bytes > 0).unwrap_or(SECTOR_BYTES),
        model: disk
            .friendly_name
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty()),
        is_read_only: disk.is_read_only == Some(true),
        is_derived: false,
        is_system: disk.is_boot == Some(true) || disk.is_system == Some(true),
        mounted_at: Vec::new(),
        partitions: disk.partitions.into_iter().map(partition).collect(),
    });
    Ok(disks.collect())
}

fn partition(found: Partition) -> HostPartition {
    let is_mounted = !matches!(found.file_system.as_deref(), None | Some("" | "RAW" | "Unknown"));
    let (volumes, mut points): (Vec<_>, Vec<_>) =
        found.access_paths.into_iter().partition(|path| path.starts_with(r"\\?\"));
    if points.is_empty() {
        points = volumes;
    }
    HostPartition {
        path: None,
        offset: Some(found.offset),
        size_bytes: found.size,
        // Volumes with contents that Windows does not know have letters, but no file system.
        mounted_at: if is_mounted { points } else { Vec::new() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISKS: &[u8] = include_bytes!("samples/disks.json");

    #[test]
    fn disks_have_their_partitions_and_mount_points() {
        let disks = parse(DISKS).unwrap();
        let paths: Vec<_> = disks.iter().map(|disk| disk.path.to_str().unwrap()).collect();
        assert_eq!(paths, [r"\\.\PhysicalDrive0", r"\\.\PhysicalDrive1", r"\\.\PhysicalDrive2"]);
        assert!(disks[0].is_system && !disks[2].is_system);
        let (reader, card) = (&disks[1], &disks[2]);
        assert!(!reader.is_usual(), "a reader without a card");
        assert_eq!((card.size_bytes, card.sector_bytes), (31_914_983_424, 512));
        assert_eq!(card.model.as_deref(), Some("Generic STORAGE DEVICE"));
        let parts: Vec<_> =
            card.partitions.iter().map(|part| (part.offset.unwrap(), &*part.mounted_at)).collect();
        // Linux's partition has a letter, but Windows has not mounted it.
        let boot = [r"E:\".to_owned()];
        assert_eq!(parts, [(4_194_304, &boot[..]), (541_065_216, &[])]);
        // Without a letter, the volume has the only name.
        assert!(disks[0].partitions[0].mounted_at[0].starts_with(r"\\?\Volume{"));
    }

    #[test]
    fn lists_of_one_element_may_lack_their_brackets() {
        let json = br#"{"Number":3,"Size":1048576,"Partitions":{"Offset":512,"Size":1024,
            "AccessPaths":"F:\\","FileSystem":"NTFS"}}"#;
        let disks = parse(json).unwrap();
        assert_eq!(disks[0].partitions[0].mounted_at, [r"F:\"]);
        assert_eq!(disks[0].sector_bytes, SECTOR_BYTES);
        assert_eq!(parse(b"null").unwrap(), []);
        assert!(parse(b"").is_err() && parse(b"[{}]").is_err() && parse(b"Get-Disk :").is_err());
    }

    #[test]
    fn all_spellings_of_a_disk_are_known_and_no_others() {
        for path in [r"\\.\PhysicalDrive2", r"\\.\PHYSICALDRIVE2", "//./PhysicalDrive2"] {
            assert_eq!(disk_name(Path::new(path)), Some(device_file(2)), "{path}");
        }
        for other in
            [r"\\.\C:", r"PhysicalDrive2", r"\\.\PhysicalDrive", r"\\server\PhysicalDrive2"]
        {
            assert_eq!(disk_name(Path::new(other)), None, "{other}");
        }
    }
}
