//! Limits the number of open transactions if the log is small.
//!
//! A checkpoint is closed when it has about as many blocks as the log can take, but open transactions still join it. A
//! log of ordinary size has room for them; with a small log, the number of open transactions is limited.

use parking_lot::{Condvar, Mutex};

use crate::checkpoint_lock;

/// Maximum number of blocks that an open transaction is assumed to add, if the log is small.
const TXN_BLOCKS: usize = 32;

/// Size of checkpoints, in blocks, below which transactions are limited. A larger log has room for more transactions
/// than there are threads.
const LOG_BLOCKS_SMALL: usize = 4096;

/// Number of transactions that may still be opened.
pub(crate) struct Permits {
    left: Mutex<usize>,
    given_back: Condvar,
}

impl Permits {
    /// Returns the permits for a log with checkpoints of up to `blocks_max` blocks, or `None` if it is not small.
    pub(crate) fn for_log(blocks_max: usize) -> Option<Self> {
        let is_small = blocks_max < LOG_BLOCKS_SMALL;
        let left = Mutex::new((blocks_max / 8 / TXN_BLOCKS).max(1));
        is_small.then(|| Self { left, given_back: Condvar::new() })
    }

    /// Waits until a transaction may be opened. The thread must not have one open.
    pub(crate) fn take(&self) -> Permit<'_> {
        let mut left = self.left.lock();
        self.given_back.wait_while(&mut left, |left| *left == 0);
        *left -= 1;
        Permit(self)
    }
}

/// Permission to have a transaction open, returned on drop.
pub(crate) struct Permit<'p>(&'p Permits);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.left.lock() += 1;
        self.0.given_back.notify_one();
    }
}

/// Engine-wide resources of an open transaction.
pub(crate) struct Admission<'e> {
    /// Prevents the running checkpoint from being closed.
    #[expect(dead_code, reason = "held until dropped")]
    pub(crate) checkpoint_lock: checkpoint_lock::SharedGuard<'e>,
    #[expect(dead_code, reason = "held until dropped")]
    pub(crate) permit: Option<Permit<'e>>,
}
