//! Records of NFS mounts.
//!
//! The table of mounts contains the address of the server, not the image. So the server keeps a file with the name of the
//! image, locks it, and removes it at its end. A file without a lock belongs to a server that was killed.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::entry::{MountEntry, MountWay};
use super::state;

/// Start of the sources of the mounts.
const SOURCE: &str = "127.0.0.1:/";

/// Maximum length of the name of an image, in bytes.
const NAME_BYTES_MAX: u64 = 64 << 10;

/// Names the image in the entry of an NFS mount of this program. Other entries do not change.
pub(super) fn name_image(mut entry: MountEntry) -> MountEntry {
    let source = entry.source.to_str().filter(|source| source.starts_with(SOURCE));
    if entry.fs_type == "nfs"
        && let Some((image, way)) = source.and_then(recorded)
    {
        (entry.source, entry.way) = (image, Some(way));
    }
    entry
}

/// Reads the record of a mount.
fn recorded(source: &str) -> Option<(PathBuf, MountWay)> {
    let own = rustix::process::geteuid().as_raw();
    // Only root can read the records of all users.
    let mut users = if own == 0 { state::users() } else { vec![own] };
    // Records of root first, because other users could write one for the same mount.
    users.sort_unstable();
    users.into_iter().find_map(|user| {
        let file = state::open(user, &file_name(source), false)?;
        let is_served = file.try_lock_shared().is_err();
        let mut name = Vec::new();
        file.take(NAME_BYTES_MAX).read_to_end(&mut name).ok()?;
        Some((OsString::from_vec(name).into(), MountWay::Nfs { user, is_served }))
    })
}

/// Returns the name of the record of a mount.
pub(super) fn file_name(source: &str) -> String {
    format!("{:016x}.nfs", state::hash(source.as_bytes()))
}
