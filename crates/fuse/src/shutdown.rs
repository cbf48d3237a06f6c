//! XFS_IOC_GOINGDOWN, which ext4 knows as EXT4_IOC_SHUTDOWN: the file system stops as if the machine had.
//! Afterwards every request fails with `EIO`, and nothing is written any more.
//!
//! The number says that a caller reads what in truth it writes, so that the kernel hands over nothing: what
//! is to be flushed before is read from the caller's memory, which takes the right to do so.

use std::sync::atomic::Ordering;

use fuse_device::{Errno, Operation, PageCache};

use crate::ioctl::{GOINGDOWN, Ioctl};
use crate::{Adapter, caller};

// Flags (`XFS_FSOP_GOING_FLAGS_...`).
/// All is written back first, what the kernel caches, too.
const DEFAULT: u32 = 0;
/// What is done is made durable first, but for what the kernel caches.
const LOGFLUSH: u32 = 1;
/// Nothing is written first.
const NOLOGFLUSH: u32 = 2;

/// Whether an operation is this request. It may need other ones done.
pub(crate) fn is_shutdown(operation: &Operation<'_>) -> bool {
    matches!(operation, Operation::Ioctl { args, .. } if args.cmd == GOINGDOWN)
}

impl Adapter<'_> {
    /// Obeys, for the superuser alone. Without a `cache` to write back (over io_uring) it cannot do so first.
    pub(crate) fn shut_down(
        &self,
        request: &Ioctl<'_>,
        cache: Option<&PageCache<'_>>,
    ) -> Result<(), Errno> {
        if !caller::is_superuser(request.header) {
            return Err(Errno::PERM);
        }
        match caller::read_memory(request.header, request.args.arg)? {
            DEFAULT => {
                cache.ok_or(Errno::OPNOTSUPP)?.write_back_all()?;
                self.syncfs()?;
            }
            // The shutdown goes on if this fails: there is the more reason for it then.
            LOGFLUSH => self.syncfs().unwrap_or_default(),
            NOLOGFLUSH => {}
            _ => return Err(Errno::INVAL),
        }
        self.result(self.fs.shut_down())?;
        self.shut_down.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether it was shut down: the image is as after a crash, and is to be left so.
    pub fn is_shut_down(&self) -> bool {
        self.shut_down.load(Ordering::Relaxed)
    }
}
