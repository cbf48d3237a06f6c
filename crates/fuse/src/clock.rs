//! The time of changes.

use rustix::time::{ClockId, clock_gettime};
use vfs::Timestamp;

/// Now, by the clock that the kernel takes its own file times from: it moves with the timer's tick and
/// costs next to nothing. Times that the kernel sets (cached writes) and times set here then never run
/// backwards.
pub(crate) fn now() -> Timestamp {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    Timestamp { sec: now.tv_sec, nsec: now.tv_nsec as u32 }
}
