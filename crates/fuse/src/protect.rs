//! Files whose flags forbid writing.
//!
//! The file system refuses what may not be; but the kernel (Linux 6.18), which does not know such flags of
//! FUSE files, takes writes into its cache first. What is refused when it writes back is an error of
//! fsync(2) and close(2), too late. So it is made to ask before the first byte: it may not keep the
//! attributes of such a file, and looks at each write(2) whether the file could be run with others' rights.
//! Of an immutable file it is told that it could. Then it sends the SETATTR that sets nothing, and that
//! fails.
//!
//! Of a file that may be appended to it cannot be told apart who appends. There, what is written back may
//! have old bytes in front of new ones, as long as they are the same.
//!
//! The kernel keeps what was refused, and shows it. It is made to forget it when attributes are asked for
//! next, as it does whenever it opens such a file to read it.

use std::sync::atomic::Ordering;

use fuse_device::{Errno, PageCache};
use vfs::{Attributes, Error, FileType, Ino};

use crate::Adapter;

/// What the length of an attribute is said to be that is not there.
const PRETENDED_LEN: u32 = 20;

/// Bytes that are compared at a time.
const COMPARED_BYTES: usize = 64 << 10;

impl Adapter<'_> {
    /// From now on, there may be files whose flags forbid changes.
    pub(crate) fn note_protection(&self) {
        if !self.protected.exist.load(Ordering::Relaxed) {
            self.protected.exist.store(true, Ordering::Relaxed);
        }
    }

    /// Notes what the flags of an inode forbid that the kernel is told of. Whether they forbid anything.
    pub(crate) fn is_protected(&self, attributes: &Attributes) -> bool {
        let is_any = attributes.protection.is_any();
        if is_any {
            self.note_protection();
        }
        is_any
    }

    /// Whether the contents of a file may change at all.
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

    /// How long the kernel is told that the capabilities of an immutable file are, whether it has any or
    /// not; `None` for every other file.
    pub(crate) fn pretended_capabilities(&self, ino: Ino) -> Option<u32> {
        if !self.protected.exist.load(Ordering::Relaxed) {
            return None;
        }
        let attributes = self.fs.attributes(ino).ok()?;
        let is_file = attributes.file_type == FileType::Regular;
        (is_file && attributes.protection.is_immutable).then_some(PRETENDED_LEN)
    }

    /// Writes to a file what the kernel writes back of it, in whole pages.
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

    /// Has the kernel forget what was refused.
    pub(crate) fn forget_refused(&self, cache: &PageCache<'_>) {
        for ino in self.protected.take_refused() {
            // What it cannot forget it goes on showing.
            let _ = cache.write_back(self.node(ino), 0..u64::MAX);
        }
    }

    /// Whether a file has these bytes already.
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
