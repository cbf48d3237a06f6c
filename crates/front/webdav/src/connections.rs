//! The open connections.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// Maximum number of connections. One more closes the one that was idle longest.
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// Open connection.
struct OpenConnection {
    task: AbortHandle,
    last_used: Arc<AtomicU64>,
}

/// The open connections, by ascending number.
#[derive(Clone, Default)]
pub(crate) struct ConnectionTable(Arc<Mutex<BTreeMap<u64, OpenConnection>>>);

impl ConnectionTable {
    /// Makes room for a connection. If there are too many, closes the one that was idle longest: clients connect again
    /// when they need to.
    pub(crate) fn make_room(&self) {
        let mut open = self.0.lock();
        open.retain(|_, connection| !connection.task.is_finished());
        while open.len() >= CONNECTIONS_MAX {
            let used = |(_, connection): &(&u64, &OpenConnection)| {
                connection.last_used.load(Ordering::Relaxed)
            };
            let Some(number) = open.iter().min_by_key(used).map(|(number, _)| *number) else {
                return;
            };
            if let Some(idle) = open.remove(&number) {
                idle.task.abort();
            }
        }
    }

    pub(crate) fn enter(&self, number: u64, task: AbortHandle, last_used: Arc<AtomicU64>) {
        self.0.lock().insert(number, OpenConnection { task, last_used });
    }

    pub(crate) fn is_any_open(&self) -> bool {
        self.0.lock().values().any(|connection| !connection.task.is_finished())
    }
}
