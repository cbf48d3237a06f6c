//! Optional time measurements of directory listings.
//!
//! Time is measured per block of a directory, never per entry, so that measuring has little influence. Without a
//! measurement, a block costs one well-predicted branch. Without the feature `listing-times`, which is for measurements
//! only, nothing is measured, and the compiler removes the branch.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A step of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListingStep {
    /// Finding the directory and its blocks, reading, verifying and copying them.
    Reading,
    /// Hashing names.
    Hashing,
    /// Sorting entries by their cookies.
    Sorting,
    /// Passing entries to the caller, including the caller's work.
    Delivering,
}

const STEPS: usize = 4;

/// Work of listings, and the time it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListingTimes {
    nanos: [u64; STEPS],
    /// Blocks that entries were read from. Inline directories have none.
    pub blocks: u64,
    /// Entries passed to the caller, except `.` and `..`.
    pub entries: u64,
}

impl ListingTimes {
    /// Returns the time spent on a step, summed over all threads.
    pub fn time(&self, step: ListingStep) -> Duration {
        Duration::from_nanos(self.nanos[step as usize])
    }
}

/// Accumulates the listings of a file system between [`start`](Self::start) and [`stop`](Self::stop).
#[derive(Debug, Default)]
pub struct ListingProfile {
    is_on: AtomicBool,
    nanos: [AtomicU64; STEPS],
    blocks: AtomicU64,
    entries: AtomicU64,
}

impl ListingProfile {
    /// Starts measuring new listings. Discards earlier results.
    pub fn start(&self) {
        self.take();
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Stops measuring, and returns the results of the listings that have ended.
    pub fn stop(&self) -> ListingTimes {
        self.is_on.store(false, Ordering::Relaxed);
        self.take()
    }

    /// Returns the clock of a new listing. Called by the file system.
    pub(crate) fn clock(&self) -> ListingClock<'_> {
        // A host without a clock measures nothing.
        let can_measure = cfg!(feature = "listing-times") && vfs::clock::IS_ON_HOST;
        if can_measure && self.is_on.load(Ordering::Relaxed) {
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
    /// Returns the profile of listings.
    fn listing_profile(&self) -> &ListingProfile;
}

/// The clock of one listing. On drop it adds its measurements to the profile.
#[derive(Debug)]
pub struct ListingClock<'p>(Option<Running<'p>>);

#[derive(Debug)]
struct Running<'p> {
    profile: &'p ListingProfile,
    times: ListingTimes,
    since: Instant,
}

impl ListingClock<'_> {
    /// Returns a clock that measures nothing.
    pub const fn off() -> Self {
        Self(None)
    }

    /// Attributes the time since the last call, or since the start of the listing, to `step`.
    #[inline]
    pub fn lap(&mut self, step: ListingStep) {
        if cfg!(feature = "listing-times")
            && let Some(running) = &mut self.0
        {
            running.lap(step);
        }
    }

    /// Counts blocks that entries were read from, and entries passed to the caller.
    #[inline]
    pub fn count(&mut self, blocks: u64, entries: u64) {
        if cfg!(feature = "listing-times")
            && let Some(Running { times, .. }) = &mut self.0
        {
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

#[cfg(feature = "listing-times")]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_cover_the_time_between_start_and_stop() {
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
