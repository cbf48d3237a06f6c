//! How much of a comparison is done, as one number of operations.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Observer;

/// Counts for an observer. The total that it is told is what was done plus what is still to come.
pub(super) struct Progress<'o> {
    observer: &'o dyn Observer,
    done: AtomicU64,
    to_come: AtomicU64,
}

impl<'o> Progress<'o> {
    /// So many operations are to be done.
    pub(super) fn new(observer: &'o dyn Observer, operations: u64) -> Self {
        observer.total(operations);
        Self { observer, done: AtomicU64::new(0), to_come: AtomicU64::new(operations) }
    }

    /// Where progress is reported.
    pub(super) fn observer(&self) -> &'o dyn Observer {
        self.observer
    }

    /// A run of so many operations begins; how many were done before it.
    pub(super) fn begin(&self, operations: u64) -> u64 {
        self.to_come.fetch_sub(operations, Ordering::Relaxed);
        self.done.load(Ordering::Relaxed)
    }

    /// Operations were done.
    pub(super) fn advance(&self, operations: u64) {
        self.done.fetch_add(operations, Ordering::Relaxed);
        self.observer.advance(operations);
    }

    /// A run is over that had `before` operations before it and was expected to do `operations`. One
    /// that ended well without telling of all of them has still done them.
    pub(super) fn end(&self, before: u64, operations: u64, is_well: bool) {
        let done = self.done.load(Ordering::Relaxed) - before;
        if is_well && done < operations {
            self.advance(operations - done);
        } else if done != operations {
            self.tell();
        }
    }

    /// So many more operations are to be done.
    pub(super) fn add(&self, operations: u64) {
        self.to_come.fetch_add(operations, Ordering::Relaxed);
        self.tell();
    }

    /// So many operations will not be done.
    pub(super) fn drop(&self, operations: u64) {
        if operations > 0 {
            self.to_come.fetch_sub(operations, Ordering::Relaxed);
            self.tell();
        }
    }

    fn tell(&self) {
        let total = self.done.load(Ordering::Relaxed) + self.to_come.load(Ordering::Relaxed);
        self.observer.total(total);
    }
}
