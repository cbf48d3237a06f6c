//! The time of changes.

use rustix::time::{ClockId, clock_gettime};
use vfs::Timestamp;

/// Returns the current time from the clock that the kernel uses for its own file times. It advances with the timer tick
/// and is cheap to read. Times set by the kernel (cached writes) and times set here are monotonic together.
pub(crate) fn now() -> Timestamp {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    Timestamp { sec: now.tv_sec, nsec: now.tv_nsec as u32 }
}
