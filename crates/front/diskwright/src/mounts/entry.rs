//! Entries of the table of mounts.

use std::path::PathBuf;

/// Types of this program's FUSE mounts in the table: image files, and block devices mounted by root.
const FS_TYPES: [&str; 2] = ["fuse.diskwright", "fuseblk.diskwright"];

/// Transport between the kernel and this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountWay {
    /// FUSE.
    Fuse,
    /// NFS.
    Nfs {
        /// User of the server.
        user: u32,
        /// True while the server runs.
        is_served: bool,
    },
}

/// Entry of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Mount source: a device or another name. For NFS mounts of this program, the image.
    pub source: PathBuf,
    /// Directory over which it is mounted.
    pub point: PathBuf,
    /// Name of its file system.
    pub fs_type: String,
    /// Options, separated by commas.
    pub options: String,
    /// Transport of a mount of this program.
    pub way: Option<MountWay>,
}

impl MountEntry {
    /// Returns whether it is a mount of this program.
    pub fn is_ours(&self) -> bool {
        self.way.is_some()
    }

    /// Returns whether it is read-only.
    pub fn is_read_only(&self) -> bool {
        self.options.split(',').any(|word| word == "ro")
    }

    /// Names the transport of a FUSE mount of this program.
    pub(super) fn of_fuse(mut self) -> Self {
        self.way = FS_TYPES.contains(&self.fs_type.as_str()).then_some(MountWay::Fuse);
        self
    }

    /// Returns the user who mounted it, or root if unknown.
    #[cfg(feature = "mount")]
    pub(crate) fn user(&self) -> u32 {
        if let Some(MountWay::Nfs { user, .. }) = self.way {
            return user;
        }
        let user = |word: &str| word.strip_prefix("user_id=")?.parse().ok();
        self.options.split(',').find_map(user).unwrap_or(0)
    }
}
