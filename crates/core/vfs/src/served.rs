//! State that the servers of a file system share: whether it may change, times of changes, durability, damage.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::clock::AscendingClock;
use crate::{Error, FileSystem, Result, Timestamp};

/// Interval of checks for the end.
const POLL: Duration = Duration::from_millis(20);
/// Interval of syncs, as that of a mount.
const SYNC_INTERVAL: Duration = Duration::from_secs(5);

/// State of the image after serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedOutcome {
    /// The image was found damaged. Nothing was written after that.
    pub is_damaged: bool,
}

/// A file system that a server offers to its clients. Every method may be called from any thread.
pub struct Served<'a> {
    fs: &'a dyn FileSystem,
    is_read_only: bool,
    clock: AscendingClock,
    /// True if the image was found damaged.
    damaged: AtomicBool,
    /// True if something has changed since the last sync.
    changed: AtomicBool,
}

impl<'a> Served<'a> {
    /// Creates the state of a server of `fs`.
    pub fn new(fs: &'a dyn FileSystem, is_read_only: bool) -> Self {
        let clock = AscendingClock::default();
        let (damaged, changed) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { fs, is_read_only, clock, damaged, changed }
    }

    /// Returns the file system.
    pub fn fs(&self) -> &'a dyn FileSystem {
        self.fs
    }

    /// Returns the time of a change, which is later than that of the change before.
    pub fn now(&self) -> Timestamp {
        self.clock.next()
    }

    /// Returns whether clients may not change anything.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Returns whether the image was found damaged. Changes are not permitted then.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Returns the state of the image.
    pub fn outcome(&self) -> ServedOutcome {
        ServedOutcome { is_damaged: self.is_damaged() }
    }

    /// Notes an error of the file system. Returns whether it is the first damage found, which belongs into the log.
    pub fn note(&self, error: &Error) -> bool {
        matches!(error, Error::Corrupt(_)) && !self.damaged.swap(true, Ordering::Relaxed)
    }

    /// Returns whether changes are permitted, and still are.
    pub fn is_writable(&self) -> bool {
        !self.is_read_only && !self.is_damaged()
    }

    /// Notes that something has changed, or may have.
    pub fn set_changed(&self) {
        self.changed.store(true, Ordering::SeqCst);
    }

    /// Makes all changes durable, if there are any. After damage nothing is written any more.
    ///
    /// # Errors
    /// If the file system cannot store them.
    pub fn sync(&self) -> Result<()> {
        if self.is_damaged() || !self.changed.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        self.fs.sync()
    }

    /// Calls `sync` every few seconds until `has_ended` is set.
    pub fn sync_until(has_ended: &AtomicBool, sync: impl Fn()) {
        let mut last = Instant::now();
        while !has_ended.load(Ordering::Relaxed) {
            thread::sleep(POLL);
            if last.elapsed() >= SYNC_INTERVAL {
                sync();
                last = Instant::now();
            }
        }
    }
}

/// Checks whether a server can continue to accept connections after an error: no client connects, or the error concerns
/// one connection or a temporary shortage.
pub fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    // Too many open files in the process or the system (EMFILE, ENFILE), and no buffer space (ENOBUFS).
    const SHORTAGES: [i32; 3] = [24, 23, 105];
    matches!(
        error.kind(),
        K::WouldBlock | K::ConnectionAborted | K::ConnectionReset | K::Interrupted | K::OutOfMemory
    ) || error.raw_os_error().is_some_and(|number| SHORTAGES.contains(&number))
}
