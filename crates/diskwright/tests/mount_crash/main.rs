//! Crashes of mounts of ext4: what was said to be durable is there afterwards, and the image is sound. The
//! server is killed, or the power of the disk beneath it goes. Of the kernel's mounts, which these proofs are
//! held against, the driver is stopped where it is.
//!
//! XFS is not here: it is changed only while it is fresh, when nothing is durable yet.

mod files;
#[path = "../place/mod.rs"]
mod place;
mod sqlite;

use oracle::Format;
use place::{Driver, Place, Wanted};

/// What happens to the mount, and so what a proof runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crash {
    /// The server is killed. What it has written stays.
    Killed,
    /// The disk forgets what was not flushed.
    PowerLost,
}

impl Crash {
    fn wanted(self) -> Wanted {
        let wanted = Wanted { bytes: 256 << 20, ..Wanted::new(Format::Ext) };
        Wanted { volatile: self == Self::PowerLost, ..wanted }
    }
}

/// Mounts after a crash: by our driver, or in between by the kernel, which replays what we have written.
fn mount_after_crash(place: &mut Place, by_kernel: bool) {
    place.clear_away();
    if by_kernel && place.driver() == Driver::Own {
        oracle::populate_with_kernel(place.image(), "ext4", |_| {});
        place::judge(place.image());
    }
    place.mount_with("");
}
