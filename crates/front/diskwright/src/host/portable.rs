//! Host functions for Windows and other hosts, based on the standard library.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use vfs::{Attributes, DeviceNumber, FileType, Ino, Protection, Timestamp};

/// Converts bytes to a path.
///
/// # Errors
/// If they are not UTF-8, because paths are text here.
#[cfg(not(unix))]
pub(crate) fn path(bytes: &[u8]) -> io::Result<&Path> {
    let problem = "its name is not UTF-8, which this host requires";
    let text = std::str::from_utf8(bytes);
    text.map(Path::new).map_err(|_| io::Error::new(io::ErrorKind::InvalidFilename, problem))
}

/// Converts bytes to a path.
///
/// # Errors
/// Never, because all bytes are valid paths here.
#[cfg(unix)]
pub(crate) fn path(bytes: &[u8]) -> io::Result<&Path> {
    use std::os::unix::ffi::OsStrExt;
    Ok(Path::new(std::ffi::OsStr::from_bytes(bytes)))
}

/// Converts a symbolic link target of the host for an image, with slashes as separators.
pub(crate) fn target_bytes(target: PathBuf) -> Vec<u8> {
    let mut bytes = target.into_os_string().into_encoded_bytes();
    if cfg!(windows) {
        bytes.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
    }
    bytes
}

/// Converts host metadata. Unknown values get defaults: owned by root, readable by all.
pub(crate) fn attributes(found: &Metadata) -> Attributes {
    let kind = found.file_type();
    let (file_type, permissions) = match () {
        () if kind.is_dir() => (FileType::Directory, 0o755),
        () if kind.is_symlink() => (FileType::Symlink, 0o777),
        () if found.permissions().readonly() => (FileType::Regular, 0o444),
        () => (FileType::Regular, 0o644),
    };
    let mtime = timestamp(found.modified());
    let known = known(found, permissions);
    Attributes {
        ino: Ino(known.ino),
        generation: 0,
        file_type,
        permissions: known.permissions,
        links: known.links,
        uid: known.uid,
        gid: known.gid,
        size: found.len(),
        blocks_512: found.len().div_ceil(512),
        device: DeviceNumber { major: 0, minor: 0 },
        atime: timestamp(found.accessed()),
        mtime,
        ctime: mtime,
        crtime: found.created().ok().map(|time| timestamp(Ok(time))),
        protection: Protection::default(),
        is_noatime: false,
    }
}

/// Metadata that not every host provides.
struct Known {
    ino: u64,
    links: u32,
    permissions: u16,
    uid: u32,
    gid: u32,
}

#[cfg(unix)]
#[expect(clippy::unnecessary_cast, reason = "some Unix hosts have narrower inode numbers")]
fn known(found: &Metadata, _: u16) -> Known {
    use std::os::unix::fs::MetadataExt;
    Known {
        ino: found.ino() as u64,
        links: u32::try_from(found.nlink()).unwrap_or(u32::MAX),
        permissions: (found.mode() & 0o7777) as u16,
        uid: found.uid(),
        gid: found.gid(),
    }
}

#[cfg(not(unix))]
fn known(_: &Metadata, permissions: u16) -> Known {
    Known { ino: 0, links: 1, permissions, uid: 0, gid: 0 }
}

/// Converts a host time, or returns 1970 if there is none.
fn timestamp(time: io::Result<SystemTime>) -> Timestamp {
    let Ok(time) = time else { return Timestamp { sec: 0, nsec: 0 } };
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Timestamp { sec: since.as_secs() as i64, nsec: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            let is_part = before.subsec_nanos() > 0;
            let nsec = if is_part { 1_000_000_000 - before.subsec_nanos() } else { 0 };
            Timestamp { sec: -(before.as_secs() as i64) - i64::from(is_part), nsec }
        }
    }
}

/// Returns a constant, because devices are unknown.
pub(crate) fn device_of(_: &Metadata) -> u64 {
    0
}

/// Returns none, because extended attributes are not supported.
pub(crate) fn xattrs(_: &Path, _skips_denied: bool) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    Ok(Vec::new())
}

/// Returns the offset itself, because holes are unknown.
pub(crate) fn next_data_start(_: &File, at: u64) -> Option<u64> {
    Some(at)
}

/// Returns the rest of the file, because holes are unknown.
pub(crate) fn next_data(_: &File, at: u64, size: u64) -> Option<(u64, u64)> {
    (at < size).then_some((at, size))
}

/// Returns the name of this host, if the environment contains it.
pub(crate) fn node_name() -> Option<String> {
    let variable = if cfg!(windows) { "COMPUTERNAME" } else { "HOSTNAME" };
    std::env::var(variable).ok()
}

/// Opens an image.
pub(crate) fn open_image(
    path: &Path,
    how: &mut OpenOptions,
    _is_device: bool,
    _is_exclusive: bool,
) -> io::Result<File> {
    how.open(path)
}

/// Returns false, because read-only devices cannot be detected.
pub(crate) fn is_protected_device(_: &Metadata) -> bool {
    false
}

/// Fails, because this host has no byte locks of open files.
pub(crate) fn lock_bytes(_: &File, _: Range<u64>, _: bool) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Fails, because this host has no byte locks of open files.
pub(crate) fn are_bytes_locked(_: &File, _: Range<u64>) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns `None`, because only Linux reports the holders of a device.
pub(crate) fn device_number(_: &Path) -> Option<String> {
    None
}

/// Returns none, because only Linux reports mounts by number.
pub(crate) fn device_mounts() -> Vec<super::DeviceMount> {
    Vec::new()
}

/// Restricts access to a new file to the user, if the host has such permissions.
pub(crate) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// Makes the names in a directory durable. Windows does this itself and cannot open directories for it.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    if cfg!(windows) { Ok(()) } else { File::open(directory)?.sync_all() }
}

/// Returns `None`, because the free space is unknown.
pub(crate) fn free_bytes(_: &File) -> io::Result<Option<u64>> {
    Ok(None)
}

/// Fails, because caches cannot be dropped here.
pub(crate) fn drop_cache(_: &File) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "file caches can be dropped only on Linux"))
}

/// Unix file types, which never occur on other hosts.
#[cfg(not(unix))]
pub(crate) trait FileTypeExt {
    fn is_block_device(&self) -> bool {
        false
    }
    fn is_char_device(&self) -> bool {
        false
    }
    fn is_fifo(&self) -> bool {
        false
    }
    fn is_socket(&self) -> bool {
        false
    }
}

#[cfg(not(unix))]
impl FileTypeExt for std::fs::FileType {}

/// Returns the identity of an open file: the serial number of its volume and its file index.
#[cfg(windows)]
pub(crate) fn id_of(file: &File) -> io::Result<super::FileId> {
    let known = winapi_util::file::information(file)?;
    Ok(super::FileId { dev: known.volume_serial_number(), ino: known.file_index() })
}

/// Fails, because this host has no file identities.
#[cfg(not(any(unix, windows)))]
pub(crate) fn id_of(_: &File) -> io::Result<super::FileId> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Opens a file or directory to read its metadata.
#[cfg(not(any(unix, windows)))]
pub(crate) fn open_to_ask(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).open(path)
}

/// Opens a file or directory to read its metadata.
#[cfg(windows)]
pub(crate) fn open_to_ask(path: &Path) -> io::Result<File> {
    use std::os::windows::fs::OpenOptionsExt;

    /// `FILE_FLAG_BACKUP_SEMANTICS`, which is required to open directories.
    const DIRECTORIES_TOO: u32 = 0x0200_0000;
    OpenOptions::new().access_mode(0).custom_flags(DIRECTORIES_TOO).open(path)
}
