//! Mounts that clients have reported.

use std::collections::VecDeque;
use std::net::IpAddr;

use parking_lot::Mutex;

/// Maximum number of recorded mounts. Clients need not unmount, so the oldest ones are dropped.
const MOUNTS_MAX: usize = 64;

/// Mounts that clients have not ended: address and path. Only DUMP needs them.
#[derive(Default)]
pub(crate) struct MountTable(Mutex<VecDeque<(IpAddr, Vec<u8>)>>);

impl MountTable {
    pub(crate) fn add(&self, client: IpAddr, path: &[u8]) {
        let mut mounts = self.0.lock();
        let mount = (client, path.to_vec());
        if mounts.contains(&mount) {
            return;
        }
        if mounts.len() == MOUNTS_MAX {
            mounts.pop_front();
        }
        mounts.push_back(mount);
    }

    /// Removes a mount of a client, or all of them.
    pub(crate) fn remove(&self, client: IpAddr, path: Option<&[u8]>) {
        self.0.lock().retain(|(of, mounted)| *of != client || path.is_some_and(|p| p != mounted));
    }

    pub(crate) fn all(&self) -> Vec<(IpAddr, Vec<u8>)> {
        self.0.lock().iter().cloned().collect()
    }
}
