//! Access times, by the rules of mount(8).

use vfs::{Attributes, ChangePurpose, Ino, SetAttributes, Timestamp};

use crate::{AccessTimes, Adapter, clock};

/// From this age on, in seconds, an access time is renewed in any case.
const DAY_SECS: i64 = 24 * 60 * 60;

impl Adapter<'_> {
    /// An inode was read. Its access time may change; reading does not fail because it cannot.
    pub(crate) fn accessed(&self, ino: Ino) {
        let when = self.options.access_times;
        if when == AccessTimes::Never || self.check_writable().is_err() {
            return;
        }
        let now = clock::now();
        let renewed = self.fs.attributes(ino).and_then(|attributes| {
            let is_due = match when {
                AccessTimes::Never => false,
                AccessTimes::Relative => is_stale(&attributes, now),
                AccessTimes::Always => attributes.atime != now,
            };
            if is_due && !attributes.is_noatime {
                let (atime, purpose) = (Some(now), ChangePurpose::Consequence);
                let time = SetAttributes { atime, purpose, ..SetAttributes::default() };
                self.fs.set_attributes(ino, &time)?;
                self.note_change();
            }
            Ok(())
        });
        // Only noted: that the image is damaged, for one.
        let _ = self.result(renewed);
    }
}

/// Whether `relatime` renews the access time: nobody could tell by it that the inode was read since its
/// last change, or it is a day old.
fn is_stale(attributes: &Attributes, now: Timestamp) -> bool {
    let atime = attributes.atime;
    atime <= attributes.mtime
        || atime <= attributes.ctime
        || now.sec.saturating_sub(atime.sec) >= DAY_SECS
}
