//! Locks for mounts of images that are not local files: volumes and network exports. They show an unmounting program
//! when the serving process has finished.
//!
//! A lock is a file in a directory of the user, named by a hash of the mount source. Several mounts of one source share
//! the file, which is never removed. If lock files are not possible, the unmounting program does not wait.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;

use rustix::process::geteuid;

use super::opening;
use crate::Image;
use crate::mounts::state;

/// Lock held while a mount is served.
pub(super) struct ServingLock {
    _locked: File,
}

impl ServingLock {
    /// Acquires the lock for a mount of an image that is not a local file, if there is something to write at its end.
    pub(super) fn of(image: &Image, name: &OsStr) -> Option<Self> {
        let is_written = image.is_writable() || image.mounting.write_record.is_some();
        let is_far = is_written && opening::is_place(image.path());
        if is_far && !Path::new(name).is_absolute() { Self::begin(name) } else { None }
    }

    /// Acquires the lock of a served mount with this source name.
    fn begin(name: &OsStr) -> Option<Self> {
        let user = geteuid().as_raw();
        state::create_directory(user);
        let file = open(user, name, true)?;
        file.try_lock_shared().ok().map(|()| Self { _locked: file })
    }
}

/// Returns the lock file of a mount of this user.
pub(super) fn lock_of(user: u32, name: &OsStr) -> Option<File> {
    open(user, name, false)
}

fn open(user: u32, name: &OsStr, create: bool) -> Option<File> {
    let name = format!("{:016x}.lock", state::hash(name.as_encoded_bytes()));
    state::open(user, &name, create)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_holds_its_lock_until_it_ends() {
        let name = OsStr::new("s3://bucket/of the test of served mounts");
        let user = geteuid().as_raw();
        let served = [ServingLock::begin(name).unwrap(), ServingLock::begin(name).unwrap()];
        assert!(lock_of(user, name).unwrap().try_lock().is_err());
        drop(served);
        assert!(lock_of(user, name).unwrap().try_lock().is_ok());
        assert!(lock_of(user, OsStr::new("s3://bucket/never served")).is_none());
    }
}
