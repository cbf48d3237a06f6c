//! What becomes of the owners and times of a source's entries.

use source::{Metadata, Time};
use vfs::Timestamp;

use super::Owner;

/// How entries are changed on their way in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Policy {
    /// The owner of everything, instead of the source's.
    pub(super) owner: Option<Owner>,
    /// No time is later than this (`SOURCE_DATE_EPOCH`).
    pub(super) latest: Option<i64>,
    /// Time of what the source does not mention.
    pub(super) time: Timestamp,
    /// Take modification times for all times: when a file of the host was read, or when it came to
    /// be there, is not part of what it is.
    pub(super) mtime_only: bool,
    /// Keep times of last access all the same.
    pub(super) access_times: bool,
    /// Leave the contents of files out.
    pub(super) is_trial: bool,
    /// Makes holes of blocks of zeros.
    pub(super) is_sparse: bool,
}

impl Policy {
    /// Who owns an entry in the image.
    pub(super) fn owner_of(&self, metadata: &Metadata) -> Owner {
        self.owner.unwrap_or(Owner { uid: metadata.uid, gid: metadata.gid })
    }

    /// A time of the source as it is in the image.
    pub(super) fn clamped(&self, time: Time) -> Timestamp {
        let time = Timestamp { sec: time.sec, nsec: time.nsec };
        match self.latest {
            Some(latest) => time.min(Timestamp { sec: latest, nsec: 0 }),
            None => time,
        }
    }
}
