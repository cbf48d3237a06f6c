//! Locks of mounts whose image is no file of this host: a volume, or what a server exports. Who unmounts one learns by
//! it when the process that served it is done.
//!
//! A lock is a file in a directory of the user's, named by a hash of what the mount is called. Several mounts of one
//! thing share it, and it stays: only locks on it come and go. Where there can be none, nobody waits.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::fs::OFlags;
use rustix::process::geteuid;

/// Held while a mount is served.
pub(super) struct Served {
    _locked: File,
}

impl Served {
    /// Says that a mount of this name is served here.
    pub(super) fn begin(name: &OsStr) -> Option<Self> {
        let user = geteuid().as_raw();
        let dir = dir(user);
        // One that is there is judged next.
        let _ = DirBuilder::new().mode(0o700).create(&dir);
        let file = open(user, name, true)?;
        file.try_lock_shared().ok().map(|()| Self { _locked: file })
    }
}

/// The lock of a mount that this user serves or has served.
pub(super) fn lock_of(user: u32, name: &OsStr) -> Option<File> {
    open(user, name, false)
}

fn open(user: u32, name: &OsStr, create: bool) -> Option<File> {
    let dir = dir(user);
    let found = fs::symlink_metadata(&dir).ok()?;
    // Where others can write they could put anything.
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

/// The same in all builds (FNV-1a).
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_serves_is_waited_for() {
        let name = OsStr::new("s3://bucket/of the test of served mounts");
        let user = geteuid().as_raw();
        let served = [Served::begin(name).unwrap(), Served::begin(name).unwrap()];
        assert!(lock_of(user, name).unwrap().try_lock().is_err());
        drop(served);
        assert!(lock_of(user, name).unwrap().try_lock().is_ok());
        assert!(lock_of(user, OsStr::new("s3://bucket/never served")).is_none());
    }
}
