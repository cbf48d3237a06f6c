//! A mount that is served.

use std::io;
use std::path::Path;

use crate::{Handler, MountOptions, Unmounter};

/// How a session is served.
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// Threads that serve requests, at least 1.
    pub threads: usize,
    /// Use io_uring if kernel and system allow it.
    pub io_uring: bool,
}

/// A mount whose requests this process answers. Dropped, it is unmounted.
#[derive(Debug)]
pub struct Session {}

impl Session {
    /// Mounts, by mount(2) if that is allowed and else by `fusermount3`.
    ///
    /// # Errors
    /// If it cannot be mounted; the error says why.
    pub fn mount(mountpoint: &Path, options: &MountOptions) -> io::Result<Self> {
        let _ = (mountpoint, options);
        todo!()
    }

    /// What unmounts it from elsewhere.
    pub fn unmounter(&self) -> Unmounter {
        todo!()
    }

    /// Starts the protocol, calls `ready`, and answers requests until it is unmounted.
    ///
    /// # Errors
    /// If the kernel speaks another protocol, or the device fails.
    pub fn serve(
        self,
        handler: &dyn Handler,
        options: &SessionOptions,
        ready: impl FnOnce(),
    ) -> io::Result<()> {
        let _ = (handler, options, ready);
        todo!()
    }
}
