//! How a host appears in the MMP block, and how it waits.

use std::time::Duration;

use vfs::Timestamp;

use crate::format::mmp::{CHECK_INTERVAL_MIN, INTERVAL_MAX, RawMmp, update_interval};
use crate::format::superblock::Superblock;
use crate::params::clock::Clock;

/// Purpose of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Changing the file system. Other hosts see sequence numbers that change.
    Change,
    /// Repairing the file system. Other hosts see the sequence number of a check, and refuse it at once.
    Check,
}

/// Function that reports a long wait. Its argument is the reason and the time.
pub type OnWait = fn(&str);

/// Settings of a claim.
#[derive(Clone, Copy, Debug)]
pub struct MmpOptions {
    /// Name of this host, padded with zeros.
    pub node: [u8; 64],
    /// Name of the device, padded with zeros.
    pub device: [u8; 32],
    /// Length of one second of the protocol. For tests only: other hosts use real seconds.
    pub second: Duration,
    /// Fixed time for the block instead of the clock.
    pub time: Option<Timestamp>,
    /// Called before a wait for a host that may use the file system.
    pub on_wait: Option<OnWait>,
}

impl Default for MmpOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl MmpOptions {
    /// Options for programs that know no name of the host.
    pub const DEFAULT: Self = Self::named(b"diskwright", b"");

    /// Returns the options for a host and a device. Names that are too long are cut.
    #[must_use]
    pub const fn named(node: &[u8], device: &[u8]) -> Self {
        let second = Duration::from_secs(1);
        Self { node: field(node), device: field(device), second, time: None, on_wait: None }
    }

    /// Waits. Fails on a host that cannot.
    pub(super) fn sleep(&self, time: Duration) -> Result<(), ()> {
        if !vfs::clock::IS_ON_HOST {
            return Err(());
        }
        std::thread::sleep(time);
        Ok(())
    }

    /// Returns a block of this host. Its check interval is twice the update interval, as in the kernel.
    pub(super) fn sign(&self, found: &RawMmp, sb: &Superblock) -> RawMmp {
        let mut own = found.clone();
        own.nodename = self.node;
        own.bdevname = self.device;
        let check = (2 * update_interval(sb.raw.mmp_interval.get())).max(CHECK_INTERVAL_MIN);
        own.check_interval = check.min(INTERVAL_MAX).into();
        own.time = self.now().into();
        own
    }

    /// Returns the time for the block, in seconds.
    pub(super) fn now(&self) -> u64 {
        Clock { fixed: self.time }.now().as_secs()
    }
}

/// Returns the bytes of a name in a field of `N` bytes that ends with a zero.
const fn field<const N: usize>(name: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let mut at = 0;
    while at < name.len() && at < N - 1 {
        bytes[at] = name[at];
        at += 1;
    }
    bytes
}

/// Describes the host that wrote a block last.
pub(super) fn owner(found: &RawMmp) -> String {
    let text = |bytes: &[u8]| {
        let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..len]).escape_debug().to_string()
    };
    let (node, device) = (text(&found.nodename), text(&found.bdevname));
    format!("host \"{node}\", device \"{device}\", sequence {:#010x}", found.seq.get())
}
