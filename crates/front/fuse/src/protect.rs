//! Files whose flags forbid writing.
//!
//! The file system rejects forbidden writes. But the kernel (Linux 6.18) ignores these flags for FUSE files and caches
//! writes first, so the error would appear too late, at fsync(2) or close(2). So the kernel must ask before the first
//! byte: it may not cache the attributes of such a file, and checks before each write(2) whether the file has
//! capabilities. For an immutable file the answer is that it has. Then it sends the SETATTR without changes, which
//! fails.
//!
//! For an append-only file, appending writes cannot be distinguished from others. There a write-back may contain old
//! bytes before the new ones, as long as they are unchanged.
//!
//! The kernel keeps rejected data in its cache and shows it. The cache is invalidated at the next request for
//! attributes, which happens whenever such a file is opened for reading.

use std::sync::atomic::Ordering;

use linux::{Errno, PageCache};
use vfs::{Attributes, Error, FileType, Ino};

use crate::Adapter;

/// Reported length of a capabilities attribute that does not exist.
const PRETENDED_LEN: u32 = 20;

/// Number of bytes compared at a time.
const COMPARED_BYTES: usize = 64 << 10;

impl Adapter<'_> {
    /// Records that files with flags that forbid changes may exist.
    pub(crate) fn note_protection(&self) {
        if !self.protected.exist.load(Ordering::Relaxed) {
            self.protected.exist.store(true, Ordering::Relaxed);
        }
    }

    /// Records the restrictions of an inode that is reported to the kernel. Returns whether there are any.
    pub(crate) fn is_protected(&self, attributes: &Attributes) -> bool {
        let is_any = attributes.protection.is_any();
        if is_any {
            self.note_protection();
        }
        is_any
    }

    /// Checks that the contents of a file may change at all.
    ///
    /// # Errors
    /// `EPERM` if not.
    pub(crate) fn check_changeable(&self, ino: Ino) -> Result<(), Errno> {
        if !self.protected.exist.load(Ordering::Relaxed) {
            return Ok(());
        }
        let attributes = self.attributes(ino)?;
        self.result(attributes.protection.check_addition())
    }

    /// Returns the pretended length of the capabilities of an immutable file; `None` for every other file.
    pub(crate) fn pretended_capabilities(&self, ino: Ino) -> Option<u32> {
        if !self.protected.exist.load(Ordering::Relaxed) {
            return None;
        }
        let attributes = self.fs.attributes(ino).ok()?;
        let is_file = attributes.file_type == FileType::Regular;
        (is_file && attributes.protection.is_immutable).then_some(PRETENDED_LEN)
    }

    /// Writes the kernel's write-back, in whole pages, to a file.
    pub(crate) fn write_back(&self, ino: Ino, offset: u64, data: &[u8]) -> vfs::Result<()> {
        let refused = match self.fs.write(ino, offset, data, None) {
            Err(refused @ Error::NotPermitted(_)) => refused,
            done => return done,
        };
        let attributes = self.fs.attributes(ino)?;
        let old_len = attributes.size.saturating_sub(offset).min(data.len() as u64) as usize;
        if attributes.protection.is_immutable || !self.holds(ino, offset, &data[..old_len])? {
            self.protected.note_refused(ino);
            return Err(refused);
        }
        self.fs.write(ino, attributes.size.max(offset), &data[old_len..], None)
    }

    /// Invalidates the kernel's cache of rejected data.
    pub(crate) fn forget_refused(&self, cache: &PageCache<'_>) {
        for ino in self.protected.take_refused() {
            // If the invalidation fails, the data stays visible.
            let _ = cache.write_back(self.node(ino), 0..u64::MAX);
        }
    }

    /// Returns whether a file already contains these bytes.
    fn holds(&self, ino: Ino, offset: u64, data: &[u8]) -> vfs::Result<bool> {
        let mut found = vec![0; COMPARED_BYTES.min(data.len())];
        for (number, part) in data.chunks(COMPARED_BYTES).enumerate() {
            let found = &mut found[..part.len()];
            let len = self.fs.read(ino, offset + (number * COMPARED_BYTES) as u64, found)?;
            if len < part.len() || *found != *part {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
