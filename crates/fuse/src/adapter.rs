//! What is known of a mount while it is served.

use std::sync::atomic::{AtomicBool, Ordering, fence};

use fuse_device::{Errno, abi};
use vfs::{Error, FileSystem, Ino};

use crate::errno::errno;
use crate::known::Known;
use crate::protected::Protected;
use crate::space::Space;
use crate::{OnDamage, Options};

/// How long the kernel may keep what it is told, in seconds: ten years, as good as for ever. Nobody else
/// changes the image, and of its own changes the kernel knows.
pub(crate) const VALID_SEC: u64 = 10 * 365 * 24 * 60 * 60;

/// A file system, served to the kernel.
pub struct Adapter<'a> {
    pub(crate) fs: &'a dyn FileSystem,
    pub(crate) options: Options,
    /// Inodes that the kernel knows.
    pub(crate) known: Known,
    /// How long the kernel may keep which inode a name stands for, in seconds.
    pub(crate) entry_valid_sec: u64,
    /// What is left, and what found no room.
    pub(crate) space: Space,
    /// The image was found damaged.
    damaged: AtomicBool,
    /// Something could not be written.
    lost: AtomicBool,
    /// It was asked to stop for good.
    pub(crate) shut_down: AtomicBool,
    /// Something has changed since [`Self::take_changed`].
    changed: AtomicBool,
    pub(crate) protected: Protected,
}

impl<'a> Adapter<'a> {
    /// Serves `fs`.
    pub fn new(fs: &'a dyn FileSystem, options: Options) -> Self {
        Self {
            fs,
            options,
            known: Known::default(),
            // The kernel takes names that differ for different entries: it must ask each time.
            entry_valid_sec: if fs.folds_names() { 0 } else { VALID_SEC },
            space: Space::default(),
            damaged: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            shut_down: AtomicBool::new(false),
            changed: AtomicBool::new(false),
            protected: Protected::default(),
        }
    }

    /// Lets go of all inodes that the kernel knew, for after the mount: files that were open and have no
    /// name are then gone. Dropping the adapter does the same.
    ///
    /// # Errors
    /// The first that the file system has with one. The others are let go of all the same.
    pub fn finish(&self) -> vfs::Result<()> {
        self.known.close_all(self.fs)
    }

    /// Whether the image was found damaged so far.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Whether nothing is written any more, because the image was found damaged.
    pub(crate) fn has_stopped(&self) -> bool {
        self.is_damaged() && self.options.on_damage == OnDamage::ReadOnly
    }

    /// Something has changed. To be called after it has.
    pub(crate) fn note_change(&self) {
        // Either this sees that the last change was taken, or the thread that took it syncs this one too.
        fence(Ordering::SeqCst);
        if !self.changed.load(Ordering::Relaxed) {
            self.changed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether something has changed since the last call. All of that is done: a sync that follows
    /// makes it durable.
    pub(crate) fn take_changed(&self) -> bool {
        let changed = self.changed.swap(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        changed
    }

    /// The inode of a node: the number is the same, but the root is always node 1.
    pub(crate) fn ino(&self, nodeid: u64) -> Ino {
        if nodeid == abi::ROOT_ID { self.fs.root() } else { Ino(nodeid) }
    }

    /// The node of an inode.
    pub(crate) fn node(&self, ino: Ino) -> u64 {
        if ino == self.fs.root() { abi::ROOT_ID } else { ino.0 }
    }

    /// Changes are about to be made.
    ///
    /// # Errors
    /// `EROFS` if none may be made (any more).
    pub(crate) fn check_writable(&self) -> Result<(), Errno> {
        if self.options.read_only || self.has_stopped() { Err(Errno::ROFS) } else { Ok(()) }
    }

    /// The number for an error. Every error of the file system comes through here.
    pub(crate) fn failed(&self, error: &Error) -> Errno {
        if matches!(error, Error::Corrupt(_)) && !self.damaged.swap(true, Ordering::Relaxed) {
            // The caller gets a number. Who looks at this process can be told more.
            tracing::error!("{error}");
            if self.has_stopped() {
                self.space.end();
            }
        }
        errno(error)
    }

    /// The same for an error of something that was to be stored. Once the device has failed, writes do not wait:
    /// each is told at once whether it was stored.
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
