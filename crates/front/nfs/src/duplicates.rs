//! Replies to recent changes. A client that lost its connection repeats its requests; a change must not be made twice,
//! because the second attempt would fail (`Exist`, `NoEnt`).
//!
//! Requests are equal if transaction ID, address of the client, procedure and a checksum of the message are. The port of
//! the client does not count, because a new connection may have another.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Maximum number of replies, more than requests can be in progress.
const REPLIES_MAX: usize = 2048;
/// Age after which a reply is not repeated. Transaction IDs may repeat then.
const AGE_MAX: Duration = Duration::from_secs(300);
/// Maximum time that a repeated request waits for the first one.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Identity of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RequestKey {
    pub(crate) client: IpAddr,
    pub(crate) xid: u32,
    pub(crate) procedure: u32,
    pub(crate) checksum: u64,
}

struct Entry {
    began: Instant,
    /// `None` while the request is in progress.
    reply: Option<Vec<u8>>,
}

#[derive(Default)]
struct Table {
    entries: HashMap<RequestKey, Entry>,
    /// Keys of the entries, oldest first.
    order: VecDeque<RequestKey>,
}

/// The replies.
#[derive(Default)]
pub(crate) struct DuplicateCache {
    table: Mutex<Table>,
    finished: Condvar,
}

/// Outcome of [`DuplicateCache::begin`].
pub(crate) enum Begun<'a> {
    /// The request is new.
    New(Ticket<'a>),
    /// The request was answered with this reply.
    Answered(Vec<u8>),
    /// The first request takes too long. The client repeats this one later.
    Pending,
}

/// Permission to process a request. Without a reply, a repeated request is processed again.
pub(crate) struct Ticket<'a> {
    cache: &'a DuplicateCache,
    key: RequestKey,
}

impl DuplicateCache {
    /// Registers a request. If it is in progress, waits for its reply.
    pub(crate) fn begin(&self, key: RequestKey) -> Begun<'_> {
        let now = Instant::now();
        let mut table = self.table.lock();
        loop {
            table.expire(now);
            match table.entries.get(&key) {
                None => break,
                Some(Entry { reply: Some(reply), .. }) => return Begun::Answered(reply.clone()),
                Some(_) => {
                    if self.finished.wait_until(&mut table, now + WAIT_MAX).timed_out() {
                        return Begun::Pending;
                    }
                }
            }
        }
        table.entries.insert(key, Entry { began: now, reply: None });
        table.order.push_back(key);
        Begun::New(Ticket { cache: self, key })
    }
}

impl Table {
    /// Removes old replies, and makes room for one more. Requests in progress stay.
    fn expire(&mut self, now: Instant) {
        for _ in 0..self.order.len() {
            let Some(key) = self.order.front() else { break };
            let Some(entry) = self.entries.get(key) else {
                self.order.pop_front();
                continue;
            };
            let is_old = now.saturating_duration_since(entry.began) > AGE_MAX;
            if !is_old && self.order.len() < REPLIES_MAX {
                break;
            }
            let key = *key;
            self.order.pop_front();
            if entry.reply.is_some() {
                self.entries.remove(&key);
            } else {
                self.order.push_back(key);
            }
        }
    }
}

impl Ticket<'_> {
    /// Stores the reply.
    pub(crate) fn finish(self, reply: &[u8]) {
        if let Some(entry) = self.cache.table.lock().entries.get_mut(&self.key) {
            entry.reply = Some(reply.to_vec());
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut table = self.cache.table.lock();
        if table.entries.get(&self.key).is_some_and(|entry| entry.reply.is_none()) {
            table.entries.remove(&self.key);
            // Otherwise the same request could enter the order twice.
            table.order.retain(|key| *key != self.key);
        }
        drop(table);
        self.cache.finished.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn key(xid: u32) -> RequestKey {
        RequestKey { client: Ipv4Addr::LOCALHOST.into(), xid, procedure: 9, checksum: 1 }
    }

    fn begin(cache: &DuplicateCache, key: RequestKey) -> Ticket<'_> {
        match cache.begin(key) {
            Begun::New(ticket) => ticket,
            _ => panic!("{key:?} is a duplicate"),
        }
    }

    fn answer(cache: &DuplicateCache, key: RequestKey) -> Option<Vec<u8>> {
        match cache.begin(key) {
            Begun::Answered(reply) => Some(reply),
            _ => None,
        }
    }

    #[test]
    fn equal_requests_get_the_first_reply() {
        let cache = DuplicateCache::default();
        begin(&cache, key(1)).finish(b"first");
        assert_eq!(answer(&cache, key(1)).as_deref(), Some(&b"first"[..]));
        for other in [
            RequestKey { xid: 2, ..key(1) },
            RequestKey { procedure: 8, ..key(1) },
            RequestKey { checksum: 2, ..key(1) },
            RequestKey { client: Ipv4Addr::new(127, 0, 0, 2).into(), ..key(1) },
        ] {
            drop(begin(&cache, other));
        }
    }

    #[test]
    fn a_request_without_a_reply_is_processed_again() {
        let cache = DuplicateCache::default();
        drop(begin(&cache, key(1)));
        begin(&cache, key(1)).finish(b"second");
        assert_eq!(answer(&cache, key(1)).as_deref(), Some(&b"second"[..]));
        assert_eq!(cache.table.lock().order.len(), 1);
    }

    #[test]
    fn a_repeated_request_waits_for_the_first_one() {
        let cache = DuplicateCache::default();
        let ticket = begin(&cache, key(1));
        std::thread::scope(|scope| {
            let second = scope.spawn(|| answer(&cache, key(1)));
            std::thread::sleep(Duration::from_millis(20));
            ticket.finish(b"late");
            assert_eq!(second.join().unwrap().as_deref(), Some(&b"late"[..]));
        });
    }

    #[test]
    fn the_oldest_replies_are_dropped() {
        let cache = DuplicateCache::default();
        let pending = begin(&cache, key(0));
        for xid in 1..=2 * REPLIES_MAX as u32 {
            begin(&cache, key(xid)).finish(b"");
        }
        assert!(cache.table.lock().entries.len() <= REPLIES_MAX);
        assert!(answer(&cache, key(2 * REPLIES_MAX as u32)).is_some());
        drop(begin(&cache, key(1)));
        pending.finish(b"pending");
        assert_eq!(answer(&cache, key(0)).as_deref(), Some(&b"pending"[..]));
    }

    #[test]
    fn old_replies_expire() {
        let mut table = Table::default();
        let now = Instant::now();
        table.entries.insert(key(1), Entry { began: now, reply: Some(Vec::new()) });
        table.order.push_back(key(1));
        table.expire(now + AGE_MAX);
        assert_eq!(table.entries.len(), 1);
        table.expire(now + AGE_MAX + Duration::from_secs(1));
        assert!(table.entries.is_empty() && table.order.is_empty());
    }
}
