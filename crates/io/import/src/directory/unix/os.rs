//! Differences between Linux and other Unix hosts.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;

/// Flags to open a directory for searching only, if the host supports it.
#[cfg(target_os = "linux")]
pub(super) const SEARCH: OFlags = OFlags::PATH;
/// Flags to open a directory for searching only, if the host supports it.
#[cfg(not(target_os = "linux"))]
pub(super) const SEARCH: OFlags = OFlags::RDONLY;

/// The error for a missing extended attribute.
#[cfg(target_os = "linux")]
pub(super) const NO_XATTR: Errno = Errno::NODATA;
/// The error for a missing extended attribute.
#[cfg(not(target_os = "linux"))]
pub(super) const NO_XATTR: Errno = Errno::NOATTR;

/// Maximum length of a path in one system call, in bytes including the final NUL (`PATH_MAX`).
pub(super) const PATH_LEN_MAX: usize = if cfg!(target_os = "linux") { 4096 } else { 1024 };

/// Returns the device number of a file.
#[cfg(target_os = "linux")]
pub(super) fn device(stat: &Stat) -> u64 {
    stat.st_dev
}

/// Returns the device number of a file.
#[cfg(not(target_os = "linux"))]
pub(super) fn device(stat: &Stat) -> u64 {
    stat.st_dev as u64
}

/// Calls the callback with each name in an open directory, and its type if it is known. `buffer` is scratch space; its
/// capacity is the read size.
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

/// Calls the callback with each name in an open directory, and its type if it is known.
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

/// Returns whether a file in `dir` with a reported size of 0 is really empty, because its file system, which has no
/// block device, reports true sizes.
#[cfg(target_os = "linux")]
pub(super) fn has_true_sizes(dir: &impl AsFd, name: &std::ffi::CStr) -> bool {
    use rustix::fs::{Mode, fstatfs, openat};

    /// Such file systems by `f_type` of statfs(2): tmpfs, ramfs, overlayfs, btrfs, NFS, SMB, Ceph, ZFS.
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
    // Examines the file instead of the directory, because a file can be a mount point.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let stats = openat(dir, name, flags, Mode::empty()).and_then(fstatfs);
    stats.is_ok_and(|stats| TRUE_TYPES.contains(&(stats.f_type as u64)))
}

/// Returns whether a file with a reported size of 0 is really empty; only Linux has others.
#[cfg(not(target_os = "linux"))]
pub(super) fn has_true_sizes(_: &impl AsFd, _: &std::ffi::CStr) -> bool {
    true
}

/// Returns a short path of an open directory, if the host has one.
#[cfg(target_os = "linux")]
pub(super) fn short_name(fd: BorrowedFd<'_>) -> Option<String> {
    use std::os::fd::AsRawFd;
    Some(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Returns a short path of an open directory, if the host has one.
#[cfg(not(target_os = "linux"))]
pub(super) fn short_name(_: BorrowedFd<'_>) -> Option<String> {
    None
}

/// Converts the host's name of an extended attribute to Linux's.
#[cfg(target_os = "linux")]
pub(super) fn linux_xattr(name: &[u8]) -> Option<Vec<u8>> {
    Some(name.to_vec())
}

/// Converts the host's name of an extended attribute to Linux's. The host has no name classes: all are `user.`
/// attributes, except those reserved by its own system.
#[cfg(not(target_os = "linux"))]
pub(super) fn linux_xattr(name: &[u8]) -> Option<Vec<u8>> {
    const OF_LINUX: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system."];
    match () {
        () if OF_LINUX.iter().any(|class| name.starts_with(class)) => Some(name.to_vec()),
        () if name.starts_with(b"com.apple.") => None,
        () => Some([b"user.", name].concat()),
    }
}
