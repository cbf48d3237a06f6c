//! Marks, which exclude publishers and sweeps from each other.
//!
//! Each puts its mark first and then lists all marks. The store must list an object as soon as it was put, so at least
//! one of two sees the other. A publisher withdraws its mark while it waits; a sweep keeps it. The owner renews its
//! mark by putting another one and then checking that the previous one still exists. An old mark belongs to a dead
//! process. A newcomer removes it and lists again; if its owner was only slow, it finds its mark missing and stops. A
//! mark's age is the difference between the store's timestamps of both marks; local clocks are never used.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};

use crate::publish::error::Error;
use crate::publish::layout::{MARKS, Prefix};
use crate::publish::request::{put, remove, retried};

/// Time limits for waiting for other publishers and sweeps.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Age at which a mark counts as stale. Must be much longer than any request.
    pub stale: Duration,
    /// Interval after which a mark is renewed.
    pub renew: Duration,
    /// Maximum total time to wait.
    pub wait: Duration,
    /// Interval between two checks while waiting.
    pub poll: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { stale: seconds(3600), renew: seconds(300), wait: seconds(600), poll: seconds(2) }
    }
}

/// The kind of work that a mark announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Publish,
    Sweep,
}

impl Work {
    const fn word(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Sweep => "sweep",
        }
    }

    fn of(path: &Path) -> Option<Self> {
        let name = path.filename()?;
        let is = |work: &Self| name.strip_prefix(work.word()).is_some_and(|id| id.starts_with('-'));
        [Self::Publish, Self::Sweep].into_iter().find(is)
    }

    const fn who(self) -> &'static str {
        match self {
            Self::Publish => "another publication is in progress",
            Self::Sweep => "a gc is in progress",
        }
    }
}

/// An owned mark: its work may proceed.
pub(crate) struct Mark<'a> {
    prefix: &'a Prefix,
    work: Work,
    id: u64,
    turn: u32,
    renewed: Instant,
    patience: Patience,
    /// The store's time when the mark was last put, in milliseconds.
    pub(crate) now_ms: i64,
}

/// Conflicting marks of others.
enum Others {
    None,
    Stale(Vec<Path>),
    Live(Path, Work),
}

impl<'a> Mark<'a> {
    /// Puts a mark and waits until no conflicting work is in progress.
    ///
    /// # Errors
    /// [`Error::Busy`] if the others do not finish in time; errors of the store.
    pub(crate) async fn enter(
        prefix: &'a Prefix,
        work: Work,
        patience: Patience,
    ) -> Result<Self, Error> {
        let start = Instant::now();
        let mut mark = Self::put_first(prefix, work, patience).await?;
        loop {
            match mark.make_way().await {
                Ok(None) => return Ok(mark),
                Ok(Some((path, other))) => {
                    let is_late = start.elapsed() >= patience.wait;
                    if is_late || (work, other) == (Work::Sweep, Work::Sweep) {
                        mark.leave().await;
                        return Err(Error::Busy { object: path.to_string(), who: other.who() });
                    }
                    mark = mark.waited().await?;
                }
                Err(error) => {
                    mark.leave().await;
                    return Err(error);
                }
            }
        }
    }

    /// Removes stale marks. Returns a live conflicting mark, if there is one.
    async fn make_way(&mut self) -> Result<Option<(Path, Work)>, Error> {
        loop {
            match self.others().await? {
                Others::None => return Ok(None),
                Others::Live(path, work) => return Ok(Some((path, work))),
                Others::Stale(paths) => {
                    for path in paths {
                        remove(&*self.prefix.store, &path).await?;
                    }
                }
            }
        }
    }

    async fn put_first(prefix: &'a Prefix, work: Work, patience: Patience) -> Result<Self, Error> {
        // Random keys make the id unique within a process and across processes.
        let id = RandomState::new().hash_one(std::process::id());
        let mark = Self { prefix, work, id, turn: 0, renewed: Instant::now(), patience, now_ms: 0 };
        put(&*prefix.store, &mark.path(0), Bytes::new()).await?;
        Ok(mark)
    }

    /// Waits for others. A publisher removes its mark during the wait. A sweep keeps it, so that no new publisher
    /// enters.
    async fn waited(mut self) -> Result<Self, Error> {
        let (prefix, work, patience) = (self.prefix, self.work, self.patience);
        if work == Work::Publish {
            self.leave().await;
            tokio::time::sleep(patience.poll).await;
            return Self::put_first(prefix, work, patience).await;
        }
        tokio::time::sleep(patience.poll).await;
        self.renew().await?;
        Ok(self)
    }

    fn path(&self, turn: u32) -> Path {
        let name = format!("{}-{:016x}-{turn}", self.work.word(), self.id);
        self.prefix.folder(MARKS).join(name)
    }

    /// Lists all marks. Updates `now_ms`, and fails if the own mark is missing.
    async fn list(&mut self) -> Result<Vec<ObjectMeta>, Error> {
        let folder = self.prefix.folder(MARKS);
        let store = &self.prefix.store;
        let marks: Vec<ObjectMeta> = retried(|| store.list(Some(&folder)).try_collect())
            .await
            .map_err(Error::store("list", &folder))?;
        let own = self.path(self.turn);
        match marks.iter().find(|mark| mark.location == own) {
            Some(mark) => self.now_ms = mark.last_modified.timestamp_millis(),
            None => return Err(Error::Lapsed { object: own.to_string() }),
        }
        Ok(marks)
    }

    async fn others(&mut self) -> Result<Others, Error> {
        let marks = self.list().await?;
        let stale_ms = self.patience.stale.as_millis() as i64;
        let (own_start, mut stale) =
            (format!("{}-{:016x}-", self.work.word(), self.id), Vec::new());
        for mark in marks {
            let is_own = mark.location.filename().is_some_and(|name| name.starts_with(&own_start));
            let Some(other) = Work::of(&mark.location).filter(|_| !is_own) else { continue };
            if (self.work, other) == (Work::Publish, Work::Publish) {
                continue;
            }
            if self.now_ms.saturating_sub(mark.last_modified.timestamp_millis()) <= stale_ms {
                return Ok(Others::Live(mark.location, other));
            }
            stale.push(mark.location);
        }
        Ok(if stale.is_empty() { Others::None } else { Others::Stale(stale) })
    }

    /// Renews the mark if the renewal interval has passed.
    pub(crate) async fn renew_if_due(&mut self) -> Result<(), Error> {
        if self.renewed.elapsed() < self.patience.renew { Ok(()) } else { self.renew().await }
    }

    /// Renews the mark. On success, no other process had removed it as stale before.
    ///
    /// # Errors
    /// [`Error::Lapsed`] if another process removed it.
    pub(crate) async fn renew(&mut self) -> Result<(), Error> {
        let (start, before) = (Instant::now(), self.path(self.turn));
        self.turn += 1;
        put(&*self.prefix.store, &self.path(self.turn), Bytes::new()).await?;
        let marks = self.list().await?;
        if !marks.iter().any(|mark| mark.location == before) {
            remove(&*self.prefix.store, &self.path(self.turn)).await?;
            return Err(Error::Lapsed { object: before.to_string() });
        }
        remove(&*self.prefix.store, &before).await?;
        self.renewed = start;
        Ok(())
    }

    /// Removes the mark. A failure is ignored: the mark becomes stale in time, and the finished work stays valid.
    pub(crate) async fn leave(self) {
        let _ = remove(&*self.prefix.store, &self.path(self.turn)).await;
    }
}
