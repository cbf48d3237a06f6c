//! Directories for images and trees of tests.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{XattrFlags, lsetxattr, statvfs};
use tempfile::{Builder, TempDir};

/// Minimum free space of a memory-backed directory. Containers often have only a few megabytes.
const FREE_BYTES_MIN: u64 = 2 << 30;

/// Creates a directory for images and trees. It is in memory if there is enough space and support for extended
/// attributes, which kernels before 6.6 lack there. Otherwise it is in the directory for temporary files, or under
/// `target`.
///
/// The directory is removed with its contents when it is dropped.
///
/// # Panics
/// If no directory can be created.
pub fn scratch() -> TempDir {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    let place = PLACE.get_or_init(|| {
        let memory = Some(PathBuf::from("/dev/shm")).filter(|place| has_room(place));
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target");
        let mut places = memory.into_iter().chain([std::env::temp_dir(), target]);
        places.find(|place| has_attributes(place)).unwrap_or_else(std::env::temp_dir)
    });
    new_in(place).unwrap_or_else(|error| panic!("no scratch directory: {error}"))
}

fn new_in(place: &Path) -> std::io::Result<TempDir> {
    Builder::new().prefix("diskwright-test-").tempdir_in(place)
}

fn has_room(place: &Path) -> bool {
    statvfs(place).is_ok_and(|of| of.f_bavail.saturating_mul(of.f_frsize) >= FREE_BYTES_MIN)
}

/// Checks whether files can be created in a directory and can have user attributes.
fn has_attributes(place: &Path) -> bool {
    let none = XattrFlags::empty();
    new_in(place).is_ok_and(|probe| lsetxattr(probe.path(), "user.probe", b"1", none).is_ok())
}
