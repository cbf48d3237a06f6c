//! The mounts that this process sees, and the loop devices of files.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A mount, with the number of its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedDevice {
    /// The directory that it is mounted on.
    pub point: PathBuf,
    /// Its device, as it was named to mount(2).
    pub source: PathBuf,
    /// Name of the format.
    pub format: String,
    /// Major and minor number of its device.
    device: (u32, u32),
}

impl MountedDevice {
    /// Returns the mount that a path names: its mount point, or its device. Returns `None` if it is not mounted.
    ///
    /// # Errors
    /// If the path or the table of mounts cannot be read.
    pub fn named(path: &Path) -> io::Result<Option<Self>> {
        let metadata = fs::metadata(path)?;
        if metadata.is_dir() {
            return Self::at(path);
        }
        if !metadata.file_type().is_block_device() {
            return Ok(None);
        }
        let device = numbers(metadata.rdev());
        let (mut others, mut found) = (None, None);
        for (is_root, mount) in table()?.into_iter().filter(|(_, mount)| mount.device == device) {
            // Mounts of a directory below the root are the second choice.
            *(if is_root { &mut found } else { &mut others }) = Some(mount);
        }
        Ok(found.or(others))
    }

    /// Returns the mount of the image in a regular file, which a loop device holds.
    ///
    /// # Errors
    /// If the file or the table of mounts cannot be read.
    pub fn of_image(path: &Path) -> io::Result<Option<Self>> {
        let metadata = fs::metadata(path)?;
        if !metadata.is_file() {
            return Ok(None);
        }
        for device in Loop::of(path)? {
            if let Some(mount) = Self::named(&device.path)? {
                return Ok(Some(mount));
            }
        }
        Ok(None)
    }

    /// Returns the mount whose mount point is this directory. Of several, the last one hides the others.
    fn at(directory: &Path) -> io::Result<Option<Self>> {
        let directory = fs::canonicalize(directory)?;
        let mut mounts = table()?.into_iter().map(|(_, mount)| mount);
        Ok(mounts.rfind(|mount| mount.point == directory))
    }

    /// Size of its device in bytes.
    ///
    /// # Errors
    /// If the kernel does not tell it.
    pub fn device_bytes(&self) -> io::Result<u64> {
        let (major, minor) = self.device;
        let text = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/size"))?;
        let sectors: u64 = text.trim().parse().map_err(io::Error::other)?;
        Ok(sectors.saturating_mul(512))
    }

    /// Opens the root directory of the mount.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(&self) -> io::Result<fs::File> {
        fs::File::open(&self.point)
    }
}

/// A loop device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Its place in `/dev`.
    pub path: PathBuf,
}

impl Loop {
    /// Returns the loop devices that hold a file.
    ///
    /// # Errors
    /// If the file cannot be read. A kernel without loop devices is none.
    pub(crate) fn of(path: &Path) -> io::Result<Vec<Self>> {
        let file = fs::metadata(path)?;
        let Ok(devices) = fs::read_dir("/sys/block") else { return Ok(Vec::new()) };
        let holds = |device: &fs::DirEntry| {
            let text = fs::read(device.path().join("loop/backing_file")).ok()?;
            let backing = OsString::from_vec(text.strip_suffix(b"\n").unwrap_or(&text).to_vec());
            let backing = fs::metadata(backing).ok()?;
            let is_same = (backing.dev(), backing.ino()) == (file.dev(), file.ino());
            is_same.then(|| Self { path: Path::new("/dev").join(device.file_name()) })
        };
        Ok(devices.flatten().filter_map(|device| holds(&device)).collect())
    }
}

/// Reads the table of mounts, in the order in which they were made, each with whether it shows the root directory.
fn table() -> io::Result<Vec<(bool, MountedDevice)>> {
    let text = fs::read("/proc/self/mountinfo")?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// Parses a line of `/proc/self/mountinfo`. Also returns whether the mount shows the root directory of the file system.
fn parse(line: &[u8]) -> Option<(bool, MountedDevice)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let numbers = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = numbers.split_once(':')?;
    let is_root = fields.next()? == b"/";
    let point = path(fields.next()?);
    // Options of the mount, then optional fields up to a hyphen.
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let format = String::from_utf8_lossy(rest.next()?).into_owned();
    let source = path(rest.next()?);
    let device = (major.parse().ok()?, minor.parse().ok()?);
    Some((is_root, MountedDevice { point, source, format, device }))
}

/// Decodes `\040` and its like.
fn path(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| first == b'\\');
        let code =
            digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(bytes).into()
}

/// Splits a device's number.
fn numbers(device: u64) -> (u32, u32) {
    (rustix::fs::major(device), rustix::fs::minor(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_table_are_parsed() {
        let line = br"36 35 98:0 / /mnt\0402 rw,noatime master:1 shared:2 - ext4 /dev/loop0 rw,errors=continue";
        let (is_root, mount) = parse(line).unwrap();
        assert!(is_root);
        assert_eq!(mount.point, Path::new("/mnt 2"));
        assert_eq!((mount.format.as_str(), mount.device), ("ext4", (98, 0)));
        assert_eq!(mount.source, Path::new("/dev/loop0"));
        let (is_root, mount) = parse(b"36 35 7:1 /etc /mnt rw - xfs /dev/loop1 rw").unwrap();
        assert!(!is_root && mount.device == (7, 1));
        for wrong in [&b""[..], b"36 35", b"36 35 x / /mnt rw - xfs a rw", b"36 35 7:1 / /mnt rw"] {
            assert_eq!(parse(wrong), None);
        }
    }
}
