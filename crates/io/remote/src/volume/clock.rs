//! The clock of a volume's database.

use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use slatedb_common::clock::{SystemClock, SystemClockTicker};
use tokio::time::Instant;

use crate::place::runtime;
use crate::volume::VolumeError;

/// Latest time that a database may have: the year 9999.
const TIME_MAX: i64 = 253_402_300_799_000;

/// The clock of this machine, or a later one. SlateDB rejects writes and tables that have an earlier time than the last
/// ones, so a writer whose clock is a year ahead would exclude all others for a year.
#[derive(Debug)]
pub(crate) struct VolumeClock {
    start: Instant,
    time_at_start: DateTime<Utc>,
    /// Difference to the clock of the machine, in milliseconds.
    ahead: AtomicI64,
}

impl VolumeClock {
    pub(crate) fn new() -> Self {
        // A simulated runtime has a separate clock.
        let handle = runtime::handle();
        let _entered = handle.enter();
        Self {
            start: Instant::now(),
            time_at_start: runtime::system_time().into(),
            ahead: AtomicI64::new(0),
        }
    }

    /// Advances the clock to a time in milliseconds since 1970. Returns true if the clock was behind.
    ///
    /// # Errors
    /// If the time is after the year 9999.
    pub(crate) fn advance_to(&self, time: i64) -> Result<bool, VolumeError> {
        if time > TIME_MAX {
            let what = format!("the time of its last write is {time} ms, {TIME_MAX} at most");
            return Err(VolumeError::Damaged(what));
        }
        let behind = time.saturating_sub(self.now().timestamp_millis());
        if behind <= 0 {
            return Ok(false);
        }
        tracing::warn!("the last write of the volume is {} s in the future", behind / 1000);
        self.ahead.fetch_add(behind, Ordering::Relaxed);
        Ok(true)
    }
}

impl SystemClock for VolumeClock {
    fn now(&self) -> DateTime<Utc> {
        let ahead = Duration::from_millis(self.ahead.load(Ordering::Relaxed).unsigned_abs());
        self.time_at_start + self.start.elapsed() + ahead
    }

    fn sleep<'a>(&'a self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn ticker<'a>(&'a self, duration: Duration) -> SystemClockTicker<'a> {
        SystemClockTicker::new(self, duration)
    }
}
