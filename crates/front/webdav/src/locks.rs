//! Locks of clients (RFC 4918, section 6). They are in memory and end with the server. `MemLs` of `dav-server` is not
//! used, because its locks neither expire nor have a limit.

use std::future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dav_server::davpath::DavPath;
use dav_server::ls::{DavLock, DavLockSystem, LsFuture};
use parking_lot::Mutex;
use uuid::Uuid;
use xmltree::Element;

use crate::names;

/// Maximum number of locks.
const LOCKS_MAX: usize = 1024;
/// Time until a lock expires, if the client does not refresh it: default and maximum.
const LIFETIME: Duration = Duration::from_secs(600);
const LIFETIME_MAX: Duration = Duration::from_secs(86_400);

/// Lock, with the names on its path.
#[derive(Clone, Debug)]
struct HeldLock {
    lock: DavLock,
    names: Vec<Vec<u8>>,
}

impl HeldLock {
    fn is_expired(&self, now: SystemTime) -> bool {
        self.lock.timeout_at.is_some_and(|end| end <= now)
    }

    /// Returns whether the lock applies to a path.
    fn covers(&self, names: &[Vec<u8>]) -> bool {
        names.starts_with(&self.names) && (self.lock.deep || names.len() == self.names.len())
    }

    fn is_at_or_below(&self, names: &[Vec<u8>]) -> bool {
        self.names.starts_with(names)
    }
}

/// All locks.
#[derive(Clone, Debug, Default)]
pub(crate) struct LockTable(Arc<Mutex<Vec<HeldLock>>>);

impl LockTable {
    /// Runs `act` with the locks that have not expired.
    fn with<T>(&self, act: impl FnOnce(&mut Vec<HeldLock>) -> T) -> T {
        let mut locks = self.0.lock();
        let now = SystemTime::now();
        locks.retain(|held| !held.is_expired(now));
        act(&mut locks)
    }
}

impl DavLockSystem for LockTable {
    fn lock(
        &self,
        path: &DavPath,
        principal: Option<&str>,
        owner: Option<&Element>,
        timeout: Option<Duration>,
        shared: bool,
        deep: bool,
    ) -> LsFuture<'_, Result<DavLock, DavLock>> {
        let names = names_of(path);
        let timeout = Some(timeout.unwrap_or(LIFETIME).min(LIFETIME_MAX));
        let new = DavLock {
            token: Uuid::new_v4().urn().to_string(),
            path: Box::new(path.clone()),
            principal: principal.map(Into::into),
            owner: owner.map(|owner| Box::new(owner.clone())),
            timeout_at: timeout.and_then(|timeout| SystemTime::now().checked_add(timeout)),
            timeout,
            shared,
            deep,
        };
        ready(self.with(|locks| {
            let concerns =
                |held: &&HeldLock| held.covers(&names) || deep && held.is_at_or_below(&names);
            let conflict = locks.iter().filter(concerns).find(|held| !shared || !held.lock.shared);
            if let Some(conflict) = conflict {
                return Err(conflict.lock.clone());
            }
            if locks.len() >= LOCKS_MAX {
                tracing::warn!("a client asks for a lock, but there are {LOCKS_MAX} already");
                return Err(new);
            }
            locks.push(HeldLock { lock: new.clone(), names });
            Ok(new)
        }))
    }

    fn unlock(&self, path: &DavPath, token: &str) -> LsFuture<'_, Result<(), ()>> {
        let names = names_of(path);
        ready(self.with(|locks| {
            let is_meant = |held: &HeldLock| held.lock.token == token && held.covers(&names);
            let at = locks.iter().position(is_meant).ok_or(())?;
            locks.swap_remove(at);
            Ok(())
        }))
    }

    fn refresh(
        &self,
        path: &DavPath,
        token: &str,
        timeout: Option<Duration>,
    ) -> LsFuture<'_, Result<DavLock, ()>> {
        let names = names_of(path);
        let timeout = timeout.unwrap_or(LIFETIME).min(LIFETIME_MAX);
        ready(self.with(|locks| {
            let is_meant = |held: &&mut HeldLock| held.lock.token == token && held.covers(&names);
            let held = locks.iter_mut().find(is_meant).ok_or(())?;
            held.lock.timeout = Some(timeout);
            held.lock.timeout_at = SystemTime::now().checked_add(timeout);
            Ok(held.lock.clone())
        }))
    }

    fn check(
        &self,
        path: &DavPath,
        principal: Option<&str>,
        ignore_principal: bool,
        deep: bool,
        submitted_tokens: &[String],
    ) -> LsFuture<'_, Result<(), DavLock>> {
        let names = names_of(path);
        let is_held = |lock: &DavLock| {
            submitted_tokens.contains(&lock.token)
                && (ignore_principal || principal == lock.principal.as_deref())
        };
        ready(self.with(|locks| {
            let covering = || locks.iter().map(|held| &held.lock).zip(locks.iter());
            let covering =
                || covering().filter(|(_, held)| held.covers(&names)).map(|(lock, _)| lock);
            // One token suffices among shared locks.
            let has_one = covering().any(is_held);
            let is_open = |lock: &DavLock| is_held(lock) || lock.shared && has_one;
            let conflict = covering().find(|lock| !is_open(lock));
            let below = || locks.iter().filter(|held| deep && held.is_at_or_below(&names));
            let conflict =
                conflict.or_else(|| below().map(|held| &held.lock).find(|lock| !is_held(lock)));
            conflict.map_or(Ok(()), |lock| Err(lock.clone()))
        }))
    }

    fn discover(&self, path: &DavPath) -> LsFuture<'_, Vec<DavLock>> {
        let names = names_of(path);
        ready(self.with(|locks| {
            let covering = locks.iter().filter(|held| held.covers(&names));
            covering.map(|held| held.lock.clone()).collect()
        }))
    }

    fn delete(&self, path: &DavPath) -> LsFuture<'_, Result<(), ()>> {
        let names = names_of(path);
        self.with(|locks| locks.retain(|held| !held.is_at_or_below(&names)));
        ready(Ok(()))
    }
}

/// Returns the names on a path in the image, so that all spellings of a path share its locks.
fn names_of(path: &DavPath) -> Vec<Vec<u8>> {
    let names = path.as_bytes().split(|&byte| byte == b'/').filter(|name| !name.is_empty());
    names.map(names::stored).collect()
}

fn ready<'a, T: Send + 'a>(value: T) -> LsFuture<'a, T> {
    Box::pin(future::ready(value))
}
