//! Making changes durable every few seconds.

use std::time::Duration;

use vfs::FileSystem;

/// Syncs a file system at intervals, on a thread of the scope, until it is dropped.
pub struct Syncer {}

impl Syncer {
    /// Starts.
    pub fn start<'scope, 'env: 'scope>(
        scope: &'scope std::thread::Scope<'scope, 'env>,
        fs: &'env dyn FileSystem,
        interval: Duration,
    ) -> Self {
        let _ = (scope, fs, interval);
        todo!()
    }
}
