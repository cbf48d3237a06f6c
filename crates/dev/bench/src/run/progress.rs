//! Progress of a comparison as one number of operations.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Observer;

/// Counts operations for an observer. The reported total is the sum of completed and remaining ones.
pub(super) struct OperationCounter<'o> {
    observer: &'o dyn Observer,
    done: AtomicU64,
    to_come: AtomicU64,
}

impl<'o> OperationCounter<'o> {
    /// Creates it with a number of remaining operations.
    pub(super) fn new(observer: &'o dyn Observer, operations: u64) -> Self {
        observer.total(operations);
        Self { observer, done: AtomicU64::new(0), to_come: AtomicU64::new(operations) }
    }

    /// Returns the observer.
    pub(super) fn observer(&self) -> &'o dyn Observer {
        self.observer
    }

    /// Starts a run. Returns the number of operations completed before it.
    pub(super) fn begin(&self, operations: u64) -> u64 {
        self.to_come.fetch_sub(operations, Ordering::Relaxed);
        self.done.load(Ordering::Relaxed)
    }

    /// Counts completed operations.
    pub(super) fn advance(&self, operations: u64) {
        self.done.fetch_add(operations, Ordering::Relaxed);
        self.observer.advance(operations);
    }

    /// Ends a run that started after `before` operations and was expected to do `operations`. If it succeeded,
    /// unreported operations count as completed.
    pub(super) fn end(&self, before: u64, operations: u64, is_well: bool) {
        let done = self.done.load(Ordering::Relaxed) - before;
        if is_well && done < operations {
            self.advance(operations - done);
        } else if done != operations {
            self.tell();
        }
    }

    /// Adds remaining operations.
    pub(super) fn add(&self, operations: u64) {
        self.to_come.fetch_add(operations, Ordering::Relaxed);
        self.tell();
    }

    /// Removes remaining operations.
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
