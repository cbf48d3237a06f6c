//! The clock of a volume's database.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::try_join;
use slatedb::{Db, VersionedCompactions, WalReader};
use slatedb_common::clock::{SystemClock, SystemClockTicker};
use tokio::time::Instant;

use crate::place::runtime;
use crate::volume::{Location, VolumeError, database};

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
        // The instant must be that of the runtime, which can have a clock of its own.
        let handle = runtime::handle();
        let _entered = handle.enter();
        Self {
            start: Instant::now(),
            time_at_start: runtime::system_time().into(),
            ahead: AtomicI64::new(0),
        }
    }

    /// Advances the clock to the newest time in a database that was just opened. Returns true if the clock was behind.
    /// Then the database must be opened again, because its tasks may have used earlier times.
    ///
    /// # Errors
    /// If the log or the list of compactions is inaccessible or damaged.
    pub(crate) async fn follow(&self, at: &Location, db: &Db) -> Result<bool, VolumeError> {
        let newest = newest_time(at, db).await?;
        if newest > TIME_MAX {
            let what = format!("the time of its last write is {newest} ms, {TIME_MAX} at most");
            return Err(VolumeError::Damaged(what));
        }
        let behind = newest.saturating_sub(self.now().timestamp_millis());
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

/// Returns the newest time in the database, in milliseconds since 1970.
async fn newest_time(at: &Location, db: &Db) -> Result<i64, VolumeError> {
    let (logged, compaction) = try_join!(last_logged(at, db), last_compaction(at))?;
    let manifest = db.manifest();
    let tables = manifest.all_sst_views().map(|view| view.sst.id.value().timestamp_ms()).max();
    let compacted = manifest.last_compacted_l0_sst_view_id().map(|id| id.timestamp_ms());
    let ids = [tables, compacted, compaction].into_iter().flatten().max().unwrap_or(0);
    let ids = i64::try_from(ids).unwrap_or(i64::MAX);
    Ok(ids.max(manifest.last_l0_clock_tick()).max(logged))
}

/// Returns the time of the last write in the log that is not in a table.
async fn last_logged(at: &Location, db: &Db) -> Result<i64, VolumeError> {
    let log = WalReader::new(database::path(at), Arc::clone(&at.store));
    let files = log.list(db.manifest().replay_after_wal_id() + 1..).await?;
    let mut last = i64::MIN;
    // Each opening adds an empty object.
    for file in files.iter().rev() {
        let mut rows = file.iterator().await?;
        while let Some(row) = rows.next().await? {
            last = last.max(row.create_ts.unwrap_or(last));
        }
        if last > i64::MIN {
            break;
        }
    }
    Ok(last)
}

/// Returns the time of the last compaction in the database's list.
async fn last_compaction(at: &Location) -> Result<Option<u64>, VolumeError> {
    let compactions = database::admin(at).read_compactions(None).await?;
    let times = |it: &VersionedCompactions| {
        it.recent_compactions().map(|job| job.id().timestamp_ms()).max()
    };
    Ok(compactions.as_ref().and_then(times))
}
