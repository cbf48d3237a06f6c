//! Host functions for Linux.

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::{OFlags, SeekFrom, lgetxattr, llistxattr};
use rustix::io::Errno;
use vfs::{Attributes, DeviceNumber, FileType, Ino, Protection, Timestamp};

/// Buffer size in bytes that is sufficient for most lists and values of extended attributes.
const XATTR_BYTES_USUAL: usize = 512;

/// Maximum size in bytes of lists and values on Linux (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const XATTR_BYTES_MAX: usize = 64 << 10;

/// Converts bytes to a path.
///
/// # Errors
/// Never, because all bytes are valid paths here.
pub(crate) fn path(bytes: &[u8]) -> io::Result<&Path> {
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// Returns the name of this host.
pub(crate) fn node_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim_end().to_owned()).filter(|name| !name.is_empty())
}

/// Converts a symbolic link target of the host for an image.
pub(crate) fn target_bytes(target: PathBuf) -> Vec<u8> {
    target.into_os_string().into_vec()
}

/// Converts host metadata.
pub(crate) fn attributes(found: &Metadata) -> Attributes {
    let kind = found.file_type();
    let file_type = match () {
        () if kind.is_dir() => FileType::Directory,
        () if kind.is_symlink() => FileType::Symlink,
        () if kind.is_char_device() => FileType::CharDevice,
        () if kind.is_block_device() => FileType::BlockDevice,
        () if kind.is_fifo() => FileType::Fifo,
        () if kind.is_socket() => FileType::Socket,
        () => FileType::Regular,
    };
    let time = |sec, nsec: i64| Timestamp { sec, nsec: nsec as u32 };
    let device = found.rdev();
    Attributes {
        ino: Ino(found.ino()),
        generation: 0,
        file_type,
        permissions: (found.mode() & 0o7777) as u16,
        links: u32::try_from(found.nlink()).unwrap_or(u32::MAX),
        uid: found.uid(),
        gid: found.gid(),
        size: found.len(),
        blocks_512: found.blocks(),
        device: DeviceNumber { major: rustix::fs::major(device), minor: rustix::fs::minor(device) },
        atime: time(found.atime(), found.atime_nsec()),
        mtime: time(found.mtime(), found.mtime_nsec()),
        ctime: time(found.ctime(), found.ctime_nsec()),
        crtime: None,
        protection: Protection::default(),
        is_noatime: false,
    }
}

/// Returns the device of a file.
pub(crate) fn device_of(found: &Metadata) -> u64 {
    found.dev()
}

/// Returns the extended attributes of a file by name, without following a link. With `skips_denied`, those that this
/// user cannot read are omitted; otherwise they are an error.
pub(crate) fn xattrs(path: &Path, skips_denied: bool) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let names = match sized(|buf| llistxattr(path, buf)) {
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        names => names?,
    };
    let mut xattrs = Vec::new();
    for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        match sized(|buf| lgetxattr(path, name, buf)) {
            Ok(value) => xattrs.push((name.to_vec(), value)),
            // Removed meanwhile.
            Err(Errno::NODATA) => {}
            Err(Errno::PERM) if skips_denied => {}
            Err(error) => return Err(error.into()),
        }
    }
    xattrs.sort();
    Ok(xattrs)
}

/// Reads a list or value, with a small buffer first because most are short.
fn sized(mut call: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    for bytes in [XATTR_BYTES_USUAL, XATTR_BYTES_MAX] {
        let mut value = vec![0; bytes];
        match call(&mut value) {
            Err(Errno::RANGE) => {}
            read => {
                value.truncate(read?);
                return Ok(value);
            }
        }
    }
    Err(Errno::RANGE)
}

/// Returns the start of the next data at or after an offset, or `None` if only holes follow.
pub(crate) fn next_data_start(file: &File, at: u64) -> Option<u64> {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => Some(start),
        Err(Errno::NXIO) => None,
        // Some file systems do not report holes.
        Err(_) => Some(at),
    }
}

/// Returns start and end of the next data at or after an offset within the file, or `None` if only holes follow.
pub(crate) fn next_data(file: &File, at: u64, size: u64) -> Option<(u64, u64)> {
    let start = next_data_start(file, at)?;
    let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size).min(size);
    (start < end).then_some((start, end))
}

/// Opens a file that was a regular file or block device when checked. If a pipe has replaced it, does not wait for its
/// other end. With `is_exclusive`, the kernel refuses devices that are mounted or part of another device.
pub(crate) fn open_image(
    path: &Path,
    how: &mut OpenOptions,
    is_device: bool,
    is_exclusive: bool,
) -> io::Result<File> {
    let flags = match (is_device, is_exclusive) {
        (false, _) => OFlags::NONBLOCK,
        (true, true) => OFlags::EXCL,
        (true, false) => OFlags::empty(),
    };
    how.custom_flags((flags | OFlags::NOCTTY).bits().cast_signed()).open(path)
}

/// Returns whether this is a read-only block device. Some of them can still be opened for writing.
pub(crate) fn is_protected_device(metadata: &Metadata) -> bool {
    if !metadata.file_type().is_block_device() {
        return false;
    }
    let says = std::fs::read_to_string(format!("/sys/dev/block/{}/ro", number(metadata)));
    says.is_ok_and(|says| says.trim() == "1")
}

/// Returns the number of a block device in the kernel's notation, such as `7:0`.
pub(crate) fn device_number(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    metadata.file_type().is_block_device().then(|| number(&metadata))
}

fn number(device: &Metadata) -> String {
    let (major, minor) = (rustix::fs::major(device.rdev()), rustix::fs::minor(device.rdev()));
    format!("{major}:{minor}")
}

/// Restricts access to a new file to the user.
pub(crate) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Returns the free space in bytes of an open file's file system, if known.
///
/// # Errors
/// If the call fails.
pub(crate) fn free_bytes(file: &File) -> io::Result<Option<u64>> {
    let space = rustix::fs::fstatvfs(file)?;
    Ok(Some(space.f_bavail.saturating_mul(space.f_frsize)))
}

/// Drops the kernel's page cache of a file.
pub(crate) fn drop_cache(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?)
}

/// Acquires or releases a shared lock of bytes. The lock belongs to the open file, like that of flock(2).
///
/// # Errors
/// `WouldBlock` if another open file has an exclusive lock, `Unsupported` if the file system does not support such
/// locks.
pub(crate) fn lock_bytes(file: &File, bytes: Range<u64>, is_locked: bool) -> io::Result<()> {
    let kind = if is_locked { libc::F_RDLCK } else { libc::F_UNLCK };
    let lock = byte_lock(kind, bytes);
    fcntl(file, FcntlArg::F_OFD_SETLK(&lock)).map(drop).map_err(byte_lock_error)
}

/// Returns whether another open file has a lock of one of the bytes.
///
/// # Errors
/// `Unsupported` if the file system does not support such locks.
pub(crate) fn are_bytes_locked(file: &File, bytes: Range<u64>) -> io::Result<bool> {
    let mut lock = byte_lock(libc::F_WRLCK, bytes);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock)).map_err(byte_lock_error)?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

/// Creates a lock structure. Its field types differ between hosts; the values are small constants and offsets.
fn byte_lock(kind: i32, bytes: Range<u64>) -> libc::flock {
    libc::flock {
        l_type: kind as _,
        l_whence: libc::SEEK_SET as _,
        l_start: bytes.start as _,
        l_len: (bytes.end - bytes.start) as _,
        // The kernel requires 0 for locks of open files.
        l_pid: 0,
    }
}

fn byte_lock_error(error: nix::Error) -> io::Error {
    use nix::Error as E;
    match error {
        E::EAGAIN | E::EACCES => io::ErrorKind::WouldBlock.into(),
        E::EINVAL | E::ENOLCK | E::EOPNOTSUPP | E::ENOSYS | E::EBADF => {
            io::ErrorKind::Unsupported.into()
        }
        other => other.into(),
    }
}
