//! The log as the engine's log: checkpoints are transactions in it.

use std::sync::Arc;

use blockdev::BlockDevice;
use parking_lot::Mutex;
use transaction::{Checkpoint, Log};
use vfs::{Error, Result};

use super::Position;
use crate::format::superblock::Superblock;

/// The log of a file system, open for writing.
#[derive(Clone)]
pub(crate) struct XfsLog {
    state: Arc<Mutex<State>>,
}

struct State {
    /// Items that go into the next checkpoint before all else: what says that intents are done.
    done: Vec<Vec<u8>>,
}

impl XfsLog {
    /// Opens the log at `position`, where everything before is in its place. Nothing is written yet.
    pub(crate) fn open(
        _device: Arc<dyn BlockDevice>,
        _sb: &Superblock,
        _position: Position,
    ) -> Result<Self> {
        let _ = Self { state: Arc::new(Mutex::new(State { done: Vec::new() })) };
        Err(Error::unsupported("changing XFS images in place", "it is not there yet"))
    }

    /// Adds an item of one region to the next checkpoint. To be called in the operation that finishes the
    /// intent, before it commits, while no other operation runs.
    #[allow(dead_code, reason = "intents come next")]
    pub(crate) fn add_done(&self, item: Vec<u8>) {
        self.state.lock().done.push(item);
    }
}

impl Log for XfsLog {
    fn blocks_max(&self) -> usize {
        1
    }

    fn write(&self, _checkpoint: &Checkpoint<'_>) -> transaction::Result<()> {
        Err(std::io::Error::other("not there yet").into())
    }

    fn is_short(&self, _blocks: usize) -> bool {
        false
    }

    fn retire(&self, _sequence: u64) -> transaction::Result<()> {
        Ok(())
    }
}
