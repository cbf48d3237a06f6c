//! The end of a mount.

use std::sync::Arc;

use crate::answer::Answer;
use crate::device::Device;
use crate::mount::OwnMount;

/// The end of a mount. umount(2) of a block device's mount returns when this is dropped, so that
/// the caller can close the image first.
#[derive(Debug, Default)]
pub struct Unmounted {
    /// The pending DESTROY request and its descriptor. Other mounts send none.
    request: Option<(Arc<Device>, u64)>,
    /// Dropped last: a child that unmounted it waits for the reply.
    mount: Option<Arc<OwnMount>>,
}

impl Unmounted {
    pub(crate) fn new(device: Arc<Device>, unique: u64) -> Self {
        Self { request: Some((device, unique)), mount: None }
    }

    /// Sets the mount that has ended.
    pub(crate) fn of(mut self, mount: Arc<OwnMount>) -> Self {
        self.mount = Some(mount);
        self
    }
}

impl Drop for Unmounted {
    fn drop(&mut self) {
        if let Some((device, unique)) = self.request.take() {
            let done = Answer { error: 0, len: 0, is_sent: false };
            // A failure is harmless: the kernel stops waiting when the descriptor is closed.
            let _ = device.send(&done.header(unique), &[]);
        }
    }
}
