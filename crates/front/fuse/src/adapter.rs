//! State of a mount while it is served.

use std::sync::atomic::{AtomicBool, Ordering, fence};

use linux::{Errno, abi};
use vfs::{Error, FileSystem, Ino};

use crate::errno::errno;
use crate::lookup_counts::LookupCounts;
use crate::protected::Protected;
use crate::space::Space;
use crate::{OnDamage, Options};

/// Validity of cached information in the kernel, in seconds: ten years, practically unlimited. The image changes only
/// through the kernel, which tracks its own changes.
pub(crate) const VALID_SEC: u64 = 10 * 365 * 24 * 60 * 60;

/// Receives the reads of a mount, for example to prefetch what will be read next.
pub trait ReadObserver: Sync {
    /// Reports that the kernel has begun to list a directory.
    fn listed(&self, dir: Ino);

    /// Reports that the kernel has read bytes of a file.
    fn read(&self, offset: u64, len: u64);
}

/// Serves a file system to the kernel.
pub struct Adapter<'a> {
    pub(crate) fs: &'a dyn FileSystem,
    pub(crate) options: Options,
    /// Inodes known to the kernel.
    pub(crate) lookup_counts: LookupCounts,
    /// Validity of directory entries in the kernel's cache, in seconds.
    pub(crate) entry_valid_sec: u64,
    /// Free space, and failed write-back.
    pub(crate) space: Space,
    /// True if the image was found damaged.
    damaged: AtomicBool,
    /// True if a change could not be stored.
    lost: AtomicBool,
    /// True after a shutdown request.
    pub(crate) shut_down: AtomicBool,
    /// True if something has changed since [`Self::take_changed`].
    changed: AtomicBool,
    pub(crate) protected: Protected,
    pub(crate) observer: Option<&'a dyn ReadObserver>,
}

impl<'a> Adapter<'a> {
    /// Creates an adapter for `fs`.
    pub fn new(fs: &'a dyn FileSystem, options: Options) -> Self {
        Self {
            fs,
            options,
            lookup_counts: LookupCounts::default(),
            // The kernel caches different spellings of a name as different entries, so it must revalidate them each
            // time.
            entry_valid_sec: if fs.folds_names() { 0 } else { VALID_SEC },
            space: Space::default(),
            damaged: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            shut_down: AtomicBool::new(false),
            changed: AtomicBool::new(false),
            protected: Protected::default(),
            observer: None,
        }
    }

    /// Reports reads to an observer.
    #[must_use]
    pub fn observed(mut self, observer: &'a dyn ReadObserver) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Releases all inodes known to the kernel, after the mount has ended. Open files without a name are freed.
    /// Dropping the adapter does the same.
    ///
    /// # Errors
    /// The first error of the file system. All inodes are released even then.
    pub fn finish(&self) -> vfs::Result<()> {
        self.lookup_counts.close_all(self.fs)
    }

    /// Returns whether the image was found damaged.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Returns whether writing has stopped because the image was found damaged.
    pub(crate) fn has_stopped(&self) -> bool {
        self.is_damaged() && self.options.on_damage == OnDamage::ReadOnly
    }

    /// Records a change. Must be called after the change.
    pub(crate) fn note_change(&self) {
        // Either this load sees that the flag was taken, or the thread that took it syncs this change, too.
        fence(Ordering::SeqCst);
        if !self.changed.load(Ordering::Relaxed) {
            self.changed.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether something has changed since the last call. A subsequent sync makes all these changes durable.
    pub(crate) fn take_changed(&self) -> bool {
        let changed = self.changed.swap(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        changed
    }

    /// Returns the inode of a node. The numbers are equal, except that the root is always node 1.
    pub(crate) fn ino(&self, nodeid: u64) -> Ino {
        if nodeid == abi::ROOT_ID { self.fs.root() } else { Ino(nodeid) }
    }

    /// Returns the node of an inode.
    pub(crate) fn node(&self, ino: Ino) -> u64 {
        if ino == self.fs.root() { abi::ROOT_ID } else { ino.0 }
    }

    /// Checks that changes are permitted.
    ///
    /// # Errors
    /// `EROFS` if they are not, or no longer.
    pub(crate) fn check_writable(&self) -> Result<(), Errno> {
        if self.options.read_only || self.has_stopped() { Err(Errno::ROFS) } else { Ok(()) }
    }

    /// Converts an error to an errno. Every error of the file system passes through here.
    pub(crate) fn failed(&self, error: &Error) -> Errno {
        if matches!(error, Error::Corrupt(_)) && !self.damaged.swap(true, Ordering::Relaxed) {
            // The caller gets an errno; the log gets the details.
            tracing::error!("{error}");
            if self.has_stopped() {
                self.space.end();
            }
        }
        errno(error)
    }

    /// Like [`Self::failed`], for an error of a change to be stored. After a device error, writes are synchronous, so
    /// that each one returns its own error.
    pub(crate) fn not_stored(&self, error: &Error) -> Errno {
        if matches!(error, Error::Device(_)) && !self.lost.swap(true, Ordering::Relaxed) {
            tracing::error!("a change could not be stored: {error}");
            self.space.end();
        }
        self.failed(error)
    }
}

impl Drop for Adapter<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            self.failed(&error);
        }
    }
}
