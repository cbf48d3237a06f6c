//! Mounting and unmounting.

use std::ffi::OsString;
use std::io;

/// How the kernel mounts.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// What `mount` and `/proc/mounts` show as the device.
    pub fs_name: OsString,
    /// What they show as the type, after `fuse.`.
    pub subtype: String,
    /// Nothing can be changed.
    pub read_only: bool,
    /// Other users than the one who mounts may use it (needs root, or `user_allow_other` in
    /// `/etc/fuse.conf`).
    pub allow_other: bool,
    /// Set-user-id bits and capabilities count (needs root).
    pub suid: bool,
    /// Devices work (needs root).
    pub dev: bool,
    /// Programs can not be run.
    pub noexec: bool,
    /// Every write waits until it is durable.
    pub sync: bool,
    /// Every change of a directory waits until it is durable.
    pub dirsync: bool,
}

/// Unmounts a session's mount, from any thread.
#[derive(Clone, Debug)]
pub struct Unmounter {}

impl Unmounter {
    /// Writes back what the kernel caches and unmounts. While programs use the mount, it goes from
    /// where it is mounted at once, and for good when the session ends.
    ///
    /// # Errors
    /// If it cannot be unmounted. That it is not mounted any more is none.
    pub fn unmount(&self) -> io::Result<()> {
        todo!()
    }
}
