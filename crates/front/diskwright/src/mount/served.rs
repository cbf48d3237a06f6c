//! Locks for mounts of images that are not local files: volumes and network exports. They show an unmounting program
//! when the serving process has finished.
//!
//! A lock is a file in a directory of the user, named by a hash of the mount source. Several mounts of one source share
//! the file, which is never removed. If lock files are not possible, the unmounting program does not wait.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::fs::OFlags;
use rustix::process::geteuid;

/// Lock held while a mount is served.
pub(super) struct ServingLock {
    _locked: File,
}

impl ServingLock {
    /// Acquires the lock of a served mount with this source name.
    pub(super) fn begin(name: &OsStr) -> Option<Self> {
        let user = geteuid().as_raw();
        let dir = dir(user);
        // An existing directory is checked below.
        let _ = DirBuilder::new().mode(0o700).create(&dir);
        let file = open(user, name, true)?;
        file.try_lock_shared().ok().map(|()| Self { _locked: file })
    }
}

/// Returns the lock file of a mount of this user.
pub(super) fn lock_of(user: u32, name: &OsStr) -> Option<File> {
    open(user, name, false)
}

fn open(user: u32, name: &OsStr, create: bool) -> Option<File> {
    let dir = dir(user);
    let found = fs::symlink_metadata(&dir).ok()?;
    // Other users could place arbitrary files in a directory writable by them.
    if !found.is_dir() || found.uid() != user || found.mode() & 0o022 != 0 {
        return None;
    }
    let mut options = File::options();
    options.read(true).write(create).create(create).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options.open(dir.join(format!("{:016x}.lock", hash(name.as_encoded_bytes())))).ok()
}

fn dir(user: u32) -> PathBuf {
    std::env::temp_dir().join(format!("diskwright-{user}"))
}

/// FNV-1a, which is stable across builds.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
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
