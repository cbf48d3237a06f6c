//! Images on the disks of macOS and Windows.
//!
//! These disks report no length, and accept whole sectors only. Nothing is written to a mounted file system or to the
//! disk of the running system.

use std::fs::{File, TryLockError};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use disk::BlockDevice;
use vfs::hint::Advice;

use super::host_disk::{HostDisk, with_advice};
use crate::lock::{ANOTHER, WRITER_ADVICE};
use crate::{Error, Result};

/// Opens a disk or a partition. Returns `None` for the path of anything else. With `unlocked`, other programs may write to
/// it.
///
/// # Errors
/// If it does not exist or cannot be opened. For writing, also if it is mounted, read-only or in use.
#[cfg(any(target_os = "macos", windows))]
pub(crate) fn open(
    path: &Path,
    is_written: bool,
    unlocked: bool,
) -> Result<Option<Arc<dyn BlockDevice>>> {
    let Some(name) = super::host::disk_name(path) else { return Ok(None) };
    // macOS has a faster path to the same disk (/dev/rdisk4). Windows has one path.
    let path = if cfg!(windows) { name.as_path() } else { path };
    open_of(&super::host::disks()?, &name, path, (is_written, unlocked)).map(Some)
}

/// Opens the disk or partition `name` of `disks` by its path.
fn open_of(
    disks: &[HostDisk],
    name: &Path,
    path: &Path,
    (is_written, unlocked): (bool, bool),
) -> Result<Arc<dyn BlockDevice>> {
    let failed =
        |e: io::Error| Error::host("open", path, io::Error::new(e.kind(), with_advice(&e)));
    let part = Part::find(disks, name).ok_or_else(|| failed(not_listed()))?;
    if is_written {
        part.refuse(path)?;
    }
    let file = File::options().read(true).write(is_written).open(path).map_err(failed)?;
    let locked = if is_written { file.try_lock() } else { file.try_lock_shared() };
    // If the system cannot lock disks, the result is another error, which is ignored.
    if !unlocked && matches!(locked, Err(TryLockError::WouldBlock)) {
        return Err(in_use(path, ANOTHER.to_owned(), WRITER_ADVICE));
    }
    let inner = part.disk.device(file, part.size_bytes).map_err(failed)?;
    let mounted = part.mounted_ranges();
    if !is_written || mounted.is_empty() {
        return Ok(inner);
    }
    Ok(Arc::new(ProtectedDevice { inner, mounted }))
}

fn not_listed() -> io::Error {
    let problem = "the system lists no such disk; diskwright devices lists the disks";
    io::Error::new(io::ErrorKind::NotFound, problem)
}

fn in_use(path: &Path, who: String, advice: Advice) -> Error {
    Error::InUse { image: path.to_owned(), who, advice }
}

/// A disk, or one of its partitions.
struct Part<'d> {
    disk: &'d HostDisk,
    size_bytes: u64,
    /// Mount points of the part.
    mounted_at: Vec<&'d str>,
    is_whole: bool,
}

impl<'d> Part<'d> {
    fn find(disks: &'d [HostDisk], name: &Path) -> Option<Self> {
        disks
            .iter()
            .find_map(|disk| Self::of_disk(disk, name).or_else(|| Self::of_partition(disk, name)))
    }

    fn of_disk(disk: &'d HostDisk, name: &Path) -> Option<Self> {
        // Partitions without a path are protected one by one.
        let partitions = disk.partitions.iter().filter(|part| part.path.is_some());
        let points = partitions.flat_map(|part| &part.mounted_at).chain(&disk.mounted_at);
        (disk.path == name).then(|| Self {
            disk,
            size_bytes: disk.size_bytes,
            mounted_at: points.map(String::as_str).collect(),
            is_whole: true,
        })
    }

    fn of_partition(disk: &'d HostDisk, name: &Path) -> Option<Self> {
        let part = disk.partitions.iter().find(|part| part.path.as_deref() == Some(name))?;
        let mounted_at = part.mounted_at.iter().map(String::as_str).collect();
        Some(Self { disk, size_bytes: part.size_bytes, mounted_at, is_whole: false })
    }

    /// Rejects changes of a part that the system uses.
    fn refuse(&self, path: &Path) -> Result<()> {
        let points = match self.mounted_at.join(", ") {
            points if points.is_empty() => points,
            points => format!(", mounted at {}", crate::text::escaped(points.as_bytes())),
        };
        if self.disk.is_system && (self.is_whole || !points.is_empty()) {
            let advice = Advice::text("it contains the running system; choose another disk");
            return Err(in_use(path, format!("the system{points}"), advice));
        }
        if !points.is_empty() {
            return Err(in_use(path, format!("the system{points}"), UNMOUNT));
        }
        if self.disk.is_read_only {
            let problem = "the disk is read-only; remove its write protection to change the image";
            let error = io::Error::new(io::ErrorKind::ReadOnlyFilesystem, problem);
            return Err(Error::host("open", path, error));
        }
        Ok(())
    }

    /// Returns the mounted partitions of a disk that has no other paths for them.
    fn mounted_ranges(&self) -> Vec<(Range<u64>, String)> {
        let partitions = self.disk.partitions.iter().filter(|_| self.is_whole);
        let mounted = partitions.filter_map(|part| {
            let start = part.offset.filter(|_| part.path.is_none())?;
            let point = part.mounted_at.first()?;
            Some((start..start.saturating_add(part.size_bytes), point.clone()))
        });
        mounted.collect()
    }
}

const UNMOUNT: Advice = Advice::text(if cfg!(windows) {
    "remove its drive letter first, with mountvol X: /P"
} else {
    "unmount it first with diskutil unmountDisk"
});

/// Disk whose mounted partitions cannot be changed.
struct ProtectedDevice {
    inner: Arc<dyn BlockDevice>,
    /// Bytes of each mounted partition, and its mount point.
    mounted: Vec<(Range<u64>, String)>,
}

impl ProtectedDevice {
    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset.saturating_add(len);
        let is_hit = |range: &Range<u64>| offset < range.end && range.start < end;
        let Some((_, point)) = self.mounted.iter().find(|(range, _)| is_hit(range)) else {
            return Ok(());
        };
        let point = crate::text::escaped(point.as_bytes());
        let problem = format!(
            "bytes {offset}+{len} are in a partition that is mounted at {point}: {UNMOUNT}"
        );
        Err(io::Error::new(io::ErrorKind::ResourceBusy, problem))
    }
}

impl BlockDevice for ProtectedDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len() as u64)?;
        self.inner.write_at(offset, data)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len)?;
        self.inner.zero_range(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len)?;
        self.inner.discard(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::host_disk::HostPartition;
    use super::*;

    const PART_BYTES: u64 = 1 << 20;

    /// Returns a disk in a file, with two partitions. The first is mounted at `point`.
    fn disk(path: &Path, part_paths: [Option<PathBuf>; 2], point: &str) -> HostDisk {
        let [first, second] = part_paths;
        let part = |path, offset, mounted_at| HostPartition {
            path,
            offset: Some(offset),
            size_bytes: PART_BYTES,
            mounted_at,
        };
        let mounted = if point.is_empty() { vec![] } else { vec![point.to_owned()] };
        HostDisk {
            path: path.to_owned(),
            size_bytes: 3 * PART_BYTES,
            sector_bytes: 4096,
            is_system: point == "/",
            partitions: vec![
                part(first, PART_BYTES, mounted),
                part(second, 2 * PART_BYTES, Vec::new()),
            ],
            ..HostDisk::default()
        }
    }

    fn file(dir: &Path, name: &str) -> PathBuf {
        let path = dir.join(name);
        File::create(&path).unwrap().set_len(3 * PART_BYTES).unwrap();
        path
    }

    fn open(disk: &HostDisk, path: &Path, is_written: bool) -> Result<Arc<dyn BlockDevice>> {
        open_of(std::slice::from_ref(disk), path, path, (is_written, false))
    }

    #[test]
    fn requests_of_any_length_reach_a_disk_of_the_listed_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(dir.path(), "disk");
        let disk = disk(&path, [None, None], "");
        let device = open(&disk, &path, true).unwrap();
        assert_eq!(device.len(), 3 * PART_BYTES);
        device.write_at(5000, b"bytes").unwrap();
        assert!(device.write_at(3 * PART_BYTES, b"x").is_err());
        let other = open(&disk, &path, false);
        assert!(matches!(other, Err(Error::InUse { .. })), "it is locked");
        drop(device);
        let mut found = [0; 5];
        let device = open(&disk, &path, false).unwrap();
        device.read_at(5000, &mut found).unwrap();
        assert_eq!(&found, b"bytes");
        let missing = open(&disk, &dir.path().join("none"), false);
        assert!(missing.err().unwrap().to_string().contains("diskwright devices"));
    }

    #[test]
    fn mounted_partitions_and_their_disks_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let [whole, first, second] = ["disk", "s1", "s2"].map(|name| file(dir.path(), name));
        let paths = [Some(first.clone()), Some(second.clone())];
        let disk_at = |point: &str| disk(&whole, paths.clone(), point);
        let card = disk_at("/Volumes/boot");
        for path in [&whole, &first] {
            let refused = open(&card, path, true).err().unwrap().to_string();
            assert!(refused.contains("mounted at /Volumes/boot: unmount it first"), "{refused}");
            assert!(open(&card, path, false).is_ok());
        }
        // Other partitions of the disk can be changed.
        assert_eq!(open(&card, &second, true).unwrap().len(), PART_BYTES);
        let refused = open(&disk_at("/"), &whole, true).err().unwrap().to_string();
        assert!(refused.contains("contains the running system"), "{refused}");
        let protected = HostDisk { is_read_only: true, ..disk_at("") };
        let refused = open(&protected, &second, true).err().unwrap().to_string();
        assert!(refused.contains("read-only"), "{refused}");
    }

    #[test]
    fn mounted_partitions_without_a_path_are_protected() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(dir.path(), "disk");
        let disk = disk(&path, [None, None], "E:\\");
        let device = open(&disk, &path, true).unwrap();
        let past = 2 * PART_BYTES;
        device.write_at(past, &[1; 5000]).unwrap();
        device.zero_range(0, PART_BYTES).unwrap();
        for (offset, len) in [(PART_BYTES, 1), (past - 1, 2), (0, 3 * PART_BYTES as usize)] {
            let refused = device.write_at(offset, &vec![2; len]).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
            assert!(refused.to_string().contains(r"mounted at E:\"), "{refused}");
            assert!(device.zero_range(offset, len as u64).is_err());
            assert!(device.discard(offset, len as u64).is_err());
        }
    }
}
