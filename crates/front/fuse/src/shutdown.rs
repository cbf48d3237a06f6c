//! XFS_IOC_GOINGDOWN, which is EXT4_IOC_SHUTDOWN in ext4: the file system stops as in a crash. Afterwards every request
//! fails with `EIO`, and nothing is written any more.
//!
//! The command number declares an output argument that is in fact an input, so the kernel does not pass it on. The
//! flags are read from the caller's memory, which requires the permission to do so.

use std::sync::atomic::Ordering;

use linux::{Errno, Operation, PageCache};

use crate::ioctl::{GOINGDOWN, Ioctl};
use crate::{Adapter, caller};

// Flags (`XFS_FSOP_GOING_FLAGS_...`).
/// Write back everything first, including the kernel's cache.
const DEFAULT: u32 = 0;
/// Make changes durable first, without the kernel's cache.
const LOGFLUSH: u32 = 1;
/// Write nothing first.
const NOLOGFLUSH: u32 = 2;

/// Returns whether an operation is this request, which may depend on other requests.
pub(crate) fn is_shutdown(operation: &Operation<'_>) -> bool {
    matches!(operation, Operation::Ioctl { args, .. } if args.cmd == GOINGDOWN)
}

impl Adapter<'_> {
    /// Shuts down, for the superuser only. Without a `cache` to write back (over io_uring), the mode that writes back
    /// first is not available.
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
            // An error is all the more a reason to continue the shutdown.
            LOGFLUSH => self.syncfs().unwrap_or_default(),
            NOLOGFLUSH => {}
            _ => return Err(Errno::INVAL),
        }
        self.result(self.fs.shut_down())?;
        self.shut_down.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns whether it was shut down: the image is in the state after a crash, and must stay so.
    pub fn is_shut_down(&self) -> bool {
        self.shut_down.load(Ordering::Relaxed)
    }
}
