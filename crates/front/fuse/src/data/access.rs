//! Access times, according to the rules of mount(8).

use vfs::{Attributes, ChangePurpose, Ino, SetAttributes, Timestamp};

use crate::{AccessTimes, Adapter, clock};

/// Age in seconds after which an access time is always updated.
const DAY_SECS: i64 = 24 * 60 * 60;

impl Adapter<'_> {
    /// Updates the access time after a read. Errors are ignored, because the read has succeeded.
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
        // The error is only recorded, for example that the image is damaged.
        let _ = self.result(renewed);
    }
}

/// Returns whether `relatime` updates the access time: it is not later than the last change, or a day old.
fn is_stale(attributes: &Attributes, now: Timestamp) -> bool {
    let atime = attributes.atime;
    atime <= attributes.mtime
        || atime <= attributes.ctime
        || now.sec.saturating_sub(atime.sec) >= DAY_SECS
}
