//! Marks, by which those who publish and those who sweep keep out of each other's way.
//!
//! Both put a mark first and list all marks then. In a store that lists what was put before, at least one of two sees the
//! other: who publishes gives way, who sweeps waits. Whoever has come in renews the mark by putting another, and seeing
//! that the one before is still there. A mark that is old is of somebody dead: who wants to come in removes it and lists
//! again, so that one who was only slow finds it gone, and stops. How old a mark is, is told by the store's own times of
//! both marks: no clock of any machine is asked.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};

use crate::error::Error;
use crate::layout::{MARKS, Prefix};
use crate::request::{put, remove, retried};

/// How long to wait for others.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Age at which a mark is of somebody dead. Much longer than any request takes.
    pub stale: Duration,
    /// After what time a mark is renewed.
    pub renew: Duration,
    /// How long to wait for others in all.
    pub wait: Duration,
    /// How long to wait before looking again.
    pub poll: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { stale: seconds(3600), renew: seconds(300), wait: seconds(600), poll: seconds(2) }
    }
}

/// What somebody does.
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
            Self::Publish => "somebody publishes there",
            Self::Sweep => "gc removes chunks there",
        }
    }
}

/// The mark of somebody who has come in.
pub(crate) struct Mark<'a> {
    prefix: &'a Prefix,
    work: Work,
    id: u64,
    turn: u32,
    renewed: Instant,
    patience: Patience,
    /// What the store's clock said when the mark was put last, in milliseconds.
    pub(crate) now_ms: i64,
}

/// What the marks of others mean to one who wants to come in.
enum Others {
    None,
    Stale(Vec<Path>),
    Live(Path, Work),
}

impl<'a> Mark<'a> {
    /// Comes in, when nobody is there whose work does not go together with this.
    ///
    /// # Errors
    /// [`Error::Busy`] if they do not end in time; those of the store.
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

    /// Somebody who is in the way, after the marks of the dead were removed.
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
        // No two of these are alike, in one process or in several.
        let id = RandomState::new().hash_one(std::process::id());
        let mark = Self { prefix, work, id, turn: 0, renewed: Instant::now(), patience, now_ms: 0 };
        put(&*prefix.store, &mark.path(0), Bytes::new()).await?;
        Ok(mark)
    }

    /// Waits for others. Who publishes is out of the way meanwhile; who sweeps lets nobody in.
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

    /// All marks. Notes what time it is, and that this one's mark of the last turn is there.
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

    /// Renews the mark if it is time to.
    pub(crate) async fn renew_if_due(&mut self) -> Result<(), Error> {
        if self.renewed.elapsed() < self.patience.renew { Ok(()) } else { self.renew().await }
    }

    /// Renews the mark. After this, nobody had taken this one for dead.
    ///
    /// # Errors
    /// [`Error::Lapsed`] if somebody has.
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

    /// Goes out. A mark that cannot be removed is taken for that of somebody dead in time: that is no failure of what
    /// was done.
    pub(crate) async fn leave(self) {
        let _ = remove(&*self.prefix.store, &self.path(self.turn)).await;
    }
}
