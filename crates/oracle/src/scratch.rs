//! Where the images and trees of tests live.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{XattrFlags, lsetxattr, statvfs};
use tempfile::{Builder, TempDir};

/// Room that a place in memory has to have: containers often give it a few megabytes.
const FREE_BYTES_MIN: u64 = 2 << 30;

/// A new directory for images and trees, in memory where the machine offers that with enough room and
/// extended attributes (which kernels before 6.6 do not have there), else where temporary files are, or
/// under `target`.
///
/// It is removed with everything in it when dropped.
///
/// # Panics
/// If no directory can be made.
pub fn scratch() -> TempDir {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    let place = PLACE.get_or_init(|| {
        let memory = Some(PathBuf::from("/dev/shm")).filter(|place| has_room(place));
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
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

/// Whether files can be made in a place, and have extended attributes of users.
fn has_attributes(place: &Path) -> bool {
    let none = XattrFlags::empty();
    new_in(place).is_ok_and(|probe| lsetxattr(probe.path(), "user.probe", b"1", none).is_ok())
}
