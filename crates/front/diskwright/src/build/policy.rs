//! Owners and times of entries in the image.

use import::{Metadata, Time};
use vfs::Timestamp;

use super::Owner;

/// Changes applied to entries.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Policy {
    /// Owner of all files, overriding the source.
    pub(super) owner: Option<Owner>,
    /// Upper limit of all times (`SOURCE_DATE_EPOCH`).
    pub(super) latest: Option<i64>,
    /// Time of files without one in the source.
    pub(super) time: Timestamp,
    /// Set all times to the modification time. Access and change times of host files are not part of their contents.
    pub(super) mtime_only: bool,
    /// Keep access times, even with `mtime_only`.
    pub(super) access_times: bool,
    /// Omit file contents.
    pub(super) is_trial: bool,
    /// Convert blocks of zeros to holes.
    pub(super) is_sparse: bool,
}

impl Policy {
    /// Returns the owner of an entry in the image.
    pub(super) fn owner_of(&self, metadata: &Metadata) -> Owner {
        self.owner.unwrap_or(Owner { uid: metadata.uid, gid: metadata.gid })
    }

    /// Returns a source time limited to `latest`.
    pub(super) fn clamped(&self, time: Time) -> Timestamp {
        let time = Timestamp { sec: time.sec, nsec: time.nsec };
        match self.latest {
            Some(latest) => time.min(Timestamp { sec: latest, nsec: 0 }),
            None => time,
        }
    }
}
