//! What Linux and other Unix hosts do differently.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;

/// Opens a directory to go through it only, if the host has that.
#[cfg(target_os = "linux")]
pub(super) const SEARCH: OFlags = OFlags::PATH;
/// Opens a directory to go through it only, if the host has that.
#[cfg(not(target_os = "linux"))]
pub(super) const SEARCH: OFlags = OFlags::RDONLY;

/// The error of asking for an extended attribute that a file does not have.
#[cfg(target_os = "linux")]
pub(super) const NO_XATTR: Errno = Errno::NODATA;
/// The error of asking for an extended attribute that a file does not have.
#[cfg(not(target_os = "linux"))]
pub(super) const NO_XATTR: Errno = Errno::NOATTR;

/// Longest path given to one system call, in bytes with its final NUL (`PATH_MAX`).
pub(super) const PATH_LEN_MAX: usize = if cfg!(target_os = "linux") { 4096 } else { 1024 };

/// The number of the device that a file is on.
#[cfg(target_os = "linux")]
pub(super) fn device(stat: &Stat) -> u64 {
    stat.st_dev
}

/// The number of the device that a file is on.
#[cfg(not(target_os = "linux"))]
pub(super) fn device(stat: &Stat) -> u64 {
    stat.st_dev as u64
}

/// Hands on each name in an open directory, and its type as far as that is known. `buffer` is scratch space; its
/// capacity is what is read at a time.
#[cfg(target_os = "linux")]
pub(super) fn list(
    fd: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    mut each: impl FnMut(&[u8], FileType),
) -> Result<(), Errno> {
    buffer.clear();
    let mut dir = rustix::fs::RawDir::new(fd, buffer.spare_capacity_mut());
    while let Some(dirent) = dir.next() {
        let dirent = dirent?;
        each(dirent.file_name().to_bytes(), dirent.file_type());
    }
    Ok(())
}

/// Hands on each name in an open directory, and its type as far as that is known.
#[cfg(not(target_os = "linux"))]
pub(super) fn list(
    fd: BorrowedFd<'_>,
    _: &mut Vec<u8>,
    mut each: impl FnMut(&[u8], FileType),
) -> Result<(), Errno> {
    for dirent in rustix::fs::Dir::read_from(fd)? {
        let dirent = dirent?;
        each(dirent.file_name().to_bytes(), dirent.file_type());
    }
    Ok(())
}

/// Whether a file in `dir` that says that it is empty is so, because its file system, which has no device of its own,
/// tells true sizes.
#[cfg(target_os = "linux")]
pub(super) fn has_true_sizes(dir: &impl AsFd, name: &std::ffi::CStr) -> bool {
    use rustix::fs::{Mode, fstatfs, openat};

    /// Such file systems (`f_type` of statfs(2)): tmpfs, ramfs, overlayfs, btrfs, NFS, SMB, Ceph, ZFS.
    const TRUE_TYPES: [u64; 9] = [
        0x0102_1994,
        0x8584_58f6,
        0x794c_7630,
        0x9123_683e,
        0x6969,
        0xfe53_4d42,
        0xff53_4d42,
        0x00c3_6400,
        0x2fc1_2fc1,
    ];
    // Not of the directory: a file can be mounted on a file.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let stats = openat(dir, name, flags, Mode::empty()).and_then(fstatfs);
    stats.is_ok_and(|stats| TRUE_TYPES.contains(&(stats.f_type as u64)))
}

/// Whether a file that says that it is empty is so: only Linux has others.
#[cfg(not(target_os = "linux"))]
pub(super) fn has_true_sizes(_: &impl AsFd, _: &std::ffi::CStr) -> bool {
    true
}

/// A short name of an open directory, where the host has such.
#[cfg(target_os = "linux")]
pub(super) fn short_name(fd: BorrowedFd<'_>) -> Option<String> {
    use std::os::fd::AsRawFd;
    Some(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// A short name of an open directory, where the host has such.
#[cfg(not(target_os = "linux"))]
pub(super) fn short_name(_: BorrowedFd<'_>) -> Option<String> {
    None
}

/// The name on Linux of an extended attribute of the host.
#[cfg(target_os = "linux")]
pub(super) fn linux_xattr(name: &[u8]) -> Option<Vec<u8>> {
    Some(name.to_vec())
}

/// The name on Linux of an extended attribute of the host, whose names have no classes: all are the user's, but for
/// those that its own system keeps for itself.
#[cfg(not(target_os = "linux"))]
pub(super) fn linux_xattr(name: &[u8]) -> Option<Vec<u8>> {
    const OF_LINUX: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system."];
    match () {
        () if OF_LINUX.iter().any(|class| name.starts_with(class)) => Some(name.to_vec()),
        () if name.starts_with(b"com.apple.") => None,
        () => Some([b"user.", name].concat()),
    }
}
