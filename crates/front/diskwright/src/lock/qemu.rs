//! Image locks of QEMU, so that QEMU programs and this one exclude each other.
//!
//! A program takes shared locks of single bytes of the image file. One range has a byte for each permission that the
//! program uses, a second range one for each permission that it denies to others. Then it checks whether another open
//! file denies a permission in use, or uses a denied one. Bytes were observed in `/proc/locks` (QEMU 7.2); QEMU's
//! manual describes the locks ("Disk image file locking") and `--force-share`, which denies nothing.

use std::fs::{File, TryLockError};
use std::io;
use std::ops::Range;

use crate::host;

/// First byte of the used permissions.
const USED: u64 = 100;
/// First byte of the denied permissions.
const DENIED: u64 = 200;
/// All bytes that may be locked.
const ALL: Range<u64> = 100..300;

/// Permissions by their bit.
const READ: u64 = 0;
const WRITE: u64 = 1;
const RESIZE: u64 = 3;

/// Permissions denied to other programs while an image is open.
const DENIES: [u64; 2] = [WRITE, RESIZE];

/// Access to an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageAccess {
    Read,
    Write,
}

impl ImageAccess {
    /// Returns the permissions that `qemu-img` uses for a qcow2 image in this mode.
    fn uses(self) -> &'static [u64] {
        match self {
            Self::Read => &[READ],
            Self::Write => &[READ, WRITE, RESIZE],
        }
    }
}

/// Locks an image like QEMU. The locks last as long as the open file.
///
/// # Errors
/// `WouldBlock` if another program's use excludes this one.
pub(crate) fn try_lock(file: &File, access: ImageAccess) -> Result<(), TryLockError> {
    match is_shared(file, access) {
        Ok(true) => Ok(()),
        Ok(false) => {
            host::lock_bytes(file, ALL, false).map_err(TryLockError::Error)?;
            Err(TryLockError::WouldBlock)
        }
        // The whole-file lock remains as protection.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(TryLockError::WouldBlock),
        Err(error) => Err(TryLockError::Error(error)),
    }
}

/// Acquires the locks, then checks for conflicting ones. The order matters: of two concurrent programs, at least one
/// detects the other.
fn is_shared(file: &File, access: ImageAccess) -> io::Result<bool> {
    let byte = |first: u64, bit: &u64| first + bit..first + bit + 1;
    let ours = access.uses().iter().map(|bit| byte(USED, bit));
    for bytes in ours.chain(DENIES.iter().map(|bit| byte(DENIED, bit))) {
        host::lock_bytes(file, bytes, true)?;
    }
    let theirs = access.uses().iter().map(|bit| byte(DENIED, bit));
    for bytes in theirs.chain(DENIES.iter().map(|bit| byte(USED, bit))) {
        if host::are_bytes_locked(file, bytes)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Checks that no QEMU program has a file open that is to be replaced.
///
/// # Errors
/// `WouldBlock` if one has.
pub(crate) fn try_claim(file: &File) -> Result<(), TryLockError> {
    match host::are_bytes_locked(file, ALL) {
        Ok(true) => Err(TryLockError::WouldBlock),
        Ok(false) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
        Err(error) => Err(TryLockError::Error(error)),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn twice() -> (tempfile::NamedTempFile, File) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let again = File::options().read(true).write(true).open(file.path()).unwrap();
        (file, again)
    }

    #[test]
    fn readers_share_an_image_and_a_writer_has_it_alone() {
        use ImageAccess::{Read, Write};
        for (first, second, is_shared) in
            [(Read, Read, true), (Read, Write, false), (Write, Read, false), (Write, Write, false)]
        {
            let (file, again) = twice();
            try_lock(file.as_file(), first).unwrap();
            assert_eq!(try_lock(&again, second).is_ok(), is_shared, "{first:?} and {second:?}");
            assert!(try_claim(&again).is_err());
            drop(file);
            try_lock(&again, second).unwrap();
        }
    }

    #[test]
    fn a_refused_program_leaves_no_lock() {
        let (file, again) = twice();
        try_lock(file.as_file(), ImageAccess::Read).unwrap();
        assert!(try_lock(&again, ImageAccess::Write).is_err());
        let third = File::open(file.path()).unwrap();
        try_lock(&third, ImageAccess::Read).unwrap();
    }
}
