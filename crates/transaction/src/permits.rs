//! Keeping the transactions that are open at a time few enough for the log.
//!
//! A checkpoint is closed when it has about as many blocks as the log can take, but what is open then
//! still joins it. A log of usual size has room for that; with a small one, threads take turns.

use parking_lot::{Condvar, Mutex};

use crate::checkpoint_lock;

/// Blocks that an open transaction may add, as far as small logs are concerned.
const TXN_BLOCKS: usize = 32;

/// Most blocks of a checkpoint for which transactions are counted. A log that takes more has room for
/// more transactions than there are threads.
const LOG_BLOCKS_SMALL: usize = 4096;

/// Transactions that may still be opened.
pub(crate) struct Permits {
    left: Mutex<usize>,
    given_back: Condvar,
}

impl Permits {
    /// What a log needs whose checkpoints have up to `blocks_max` blocks, if it is small.
    pub(crate) fn for_log(blocks_max: usize) -> Option<Self> {
        let is_small = blocks_max < LOG_BLOCKS_SMALL;
        let left = Mutex::new((blocks_max / 8 / TXN_BLOCKS).max(1));
        is_small.then(|| Self { left, given_back: Condvar::new() })
    }

    /// Waits until a transaction may be opened. The thread must have none open.
    pub(crate) fn take(&self) -> Permit<'_> {
        let mut left = self.left.lock();
        self.given_back.wait_while(&mut left, |left| *left == 0);
        *left -= 1;
        Permit(self)
    }
}

/// Leave to have a transaction open, given back when dropped.
pub(crate) struct Permit<'p>(&'p Permits);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.left.lock() += 1;
        self.0.given_back.notify_one();
    }
}

/// What an open transaction holds of the engine as a whole.
pub(crate) struct Admission<'e> {
    /// Keeps the running checkpoint from being closed.
    #[expect(dead_code, reason = "it is held")]
    pub(crate) checkpoint_lock: checkpoint_lock::Shared<'e>,
    #[expect(dead_code, reason = "it is held")]
    pub(crate) permit: Option<Permit<'e>>,
}
