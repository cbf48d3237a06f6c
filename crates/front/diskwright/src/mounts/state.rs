//! Files of the servers of mounts, in a directory of their user.
//!
//! Programs look for them to learn about mounts. Where the directory is not possible, they learn nothing, and everything
//! else works.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::fs::OFlags;

/// Start of the names of the directories. The user ID follows.
const DIRECTORY: &str = "diskwright-";

/// Creates the directory of a user if it is missing.
#[cfg(feature = "mount")]
pub(crate) fn create_directory(user: u32) {
    use std::os::unix::fs::DirBuilderExt;
    // An existing directory is checked before its files are opened.
    let _ = fs::DirBuilder::new().mode(0o700).create(directory(user));
}

/// Returns the path of a file in the directory of a user, unless other users can change the directory.
pub(crate) fn path(user: u32, name: &str) -> Option<PathBuf> {
    let dir = directory(user);
    let found = fs::symlink_metadata(&dir).ok()?;
    let is_own = found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0;
    is_own.then(|| dir.join(name))
}

/// Opens a file in the directory of a user.
pub(crate) fn open(user: u32, name: &str, create: bool) -> Option<File> {
    let mut options = File::options();
    options.read(true).write(create).create(create).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options.open(path(user, name)?).ok()
}

/// Returns the users who have a directory.
pub(crate) fn users() -> Vec<u32> {
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let user = |name: &str| name.strip_prefix(DIRECTORY)?.parse().ok();
    entries.filter_map(|entry| user(entry.file_name().to_str()?)).collect()
}

fn directory(user: u32) -> PathBuf {
    std::env::temp_dir().join(format!("{DIRECTORY}{user}"))
}

/// FNV-1a, which is stable across builds.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
