//! Where the time of directory listings goes: what a file system measures of itself while somebody
//! wants to know.
//!
//! Time is taken by block of a directory, never by entry, so that measuring changes little. While
//! nobody measures, a block costs one branch that is always the same.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a listing spends time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListingStep {
    /// Finding the directory and its blocks, reading and checking them, copying them.
    Reading,
    /// Hashing names.
    Hashing,
    /// Bringing entries into the order of their cookies.
    Sorting,
    /// Handing entries to the caller, and what the caller does with them.
    Delivering,
}

const STEPS: usize = 4;

/// What listings did, and how long it took them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListingTimes {
    nanos: [u64; STEPS],
    /// Blocks that entries were taken from. Directories that lie in their inode have none.
    pub blocks: u64,
    /// Entries that were handed to the caller, `.` and `..` not counted.
    pub entries: u64,
}

impl ListingTimes {
    /// Time spent on a step, all threads together.
    pub fn time(&self, step: ListingStep) -> Duration {
        Duration::from_nanos(self.nanos[step as usize])
    }
}

/// Adds up what all listings of a file system do between [`start`](Self::start) and
/// [`stop`](Self::stop).
#[derive(Debug, Default)]
pub struct ListingProfile {
    is_on: AtomicBool,
    nanos: [AtomicU64; STEPS],
    blocks: AtomicU64,
    entries: AtomicU64,
}

impl ListingProfile {
    /// Measures listings that begin from now on. What was measured before and never asked for is
    /// forgotten.
    pub fn start(&self) {
        self.take();
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Measures no more, and says what the listings that have ended did.
    pub fn stop(&self) -> ListingTimes {
        self.is_on.store(false, Ordering::Relaxed);
        self.take()
    }

    /// For a file system: the clock of a listing that begins.
    pub fn clock(&self) -> ListingClock<'_> {
        // A host without a clock measures nothing.
        if vfs::clock::IS_ON_HOST && self.is_on.load(Ordering::Relaxed) {
            let times = ListingTimes::default();
            ListingClock(Some(Running { profile: self, times, since: Instant::now() }))
        } else {
            ListingClock::off()
        }
    }

    fn take(&self) -> ListingTimes {
        let take = |sum: &AtomicU64| sum.swap(0, Ordering::Relaxed);
        ListingTimes {
            nanos: std::array::from_fn(|step| take(&self.nanos[step])),
            blocks: take(&self.blocks),
            entries: take(&self.entries),
        }
    }

    fn add(&self, times: &ListingTimes) {
        let add = |sum: &AtomicU64, value| sum.fetch_add(value, Ordering::Relaxed);
        for (sum, &value) in self.nanos.iter().zip(&times.nanos) {
            add(sum, value);
        }
        add(&self.blocks, times.blocks);
        add(&self.entries, times.entries);
    }
}

/// A file system that measures its listings.
pub trait MeasuresListings: vfs::FileSystem {
    /// What tells where the time of listings goes.
    fn listing_profile(&self) -> &ListingProfile;
}

/// The clock of one listing. Dropped, it adds what it measured to its profile.
#[derive(Debug)]
pub struct ListingClock<'p>(Option<Running<'p>>);

#[derive(Debug)]
struct Running<'p> {
    profile: &'p ListingProfile,
    times: ListingTimes,
    since: Instant,
}

impl ListingClock<'_> {
    /// A clock that measures nothing.
    pub const fn off() -> Self {
        Self(None)
    }

    /// Counts the time since the last call, or since the listing began, for `step`.
    #[inline]
    pub fn lap(&mut self, step: ListingStep) {
        if let Some(running) = &mut self.0 {
            running.lap(step);
        }
    }

    /// Counts blocks that entries were taken from, and entries that were handed over.
    #[inline]
    pub fn count(&mut self, blocks: u64, entries: u64) {
        if let Some(Running { times, .. }) = &mut self.0 {
            times.blocks += blocks;
            times.entries += entries;
        }
    }
}

impl Running<'_> {
    #[cold]
    fn lap(&mut self, step: ListingStep) {
        let now = Instant::now();
        let nanos = now.duration_since(self.since).as_nanos();
        self.times.nanos[step as usize] += u64::try_from(nanos).unwrap_or(u64::MAX);
        self.since = now;
    }
}

impl Drop for ListingClock<'_> {
    fn drop(&mut self) {
        if let Some(Running { profile, times, .. }) = &self.0 {
            profile.add(times);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_what_happens_between_start_and_stop() {
        let profile = ListingProfile::default();
        let list = || {
            let mut clock = profile.clock();
            std::thread::sleep(Duration::from_millis(2));
            clock.lap(ListingStep::Reading);
            clock.lap(ListingStep::Delivering);
            clock.count(1, 7);
        };
        list();
        assert_eq!(profile.stop(), ListingTimes::default(), "it was off");
        profile.start();
        list();
        list();
        let times = profile.stop();
        assert_eq!((times.blocks, times.entries), (2, 14));
        assert!(times.time(ListingStep::Reading) >= Duration::from_millis(4));
        assert!(times.time(ListingStep::Delivering) < times.time(ListingStep::Reading));
        assert_eq!(times.time(ListingStep::Sorting), Duration::ZERO);
        list();
        assert_eq!(profile.stop(), ListingTimes::default(), "off again");
    }
}
