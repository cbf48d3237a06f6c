//! Disks of this host, as the system describes them: Linux in `/sys/block`, macOS by diskutil(8), Windows by PowerShell.
//!
//! [`raw`] opens the disks of macOS and Windows as images.

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(target_os = "macos", path = "macos.rs")]
#[cfg_attr(windows, path = "windows.rs")]
#[cfg_attr(not(any(target_os = "linux", target_os = "macos", windows)), path = "unknown.rs")]
mod host;
mod host_disk;
#[cfg(all(test, not(target_os = "macos")))]
mod macos;
#[cfg(any(test, target_os = "macos", windows))]
pub(crate) mod raw;
#[cfg(all(test, not(windows)))]
mod windows;

pub(crate) use host::disks as all;
pub(crate) use host_disk::{HostDisk, HostPartition, not_opened};
