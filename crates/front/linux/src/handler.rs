//! Interface between a session and a file system.

use crate::{Errno, InitFlags, Operation, PageCache, Reply, Request};

/// Capabilities that the kernel offers when a session starts.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Minor version of the kernel's protocol; the major version is 7.
    pub minor: u32,
    /// Maximum read-ahead in bytes.
    pub max_readahead: u32,
    /// Features that the kernel supports.
    pub features: InitFlags,
}

/// Settings that a file system requests from the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Features of [`Kernel::features`] to use. The session adds those of the transport
    /// (`INIT_EXT`, `MAX_PAGES`, `BIG_WRITES`, `OVER_IO_URING`) and removes those that the kernel
    /// does not offer.
    pub features: InitFlags,
    /// Maximum size of one write or read in bytes: a multiple of 4096, at most 1 MiB.
    pub max_write: u32,
    /// Maximum read-ahead in bytes.
    pub max_readahead: u32,
    /// Timestamp granularity in nanoseconds: a power of ten up to 1,000,000,000.
    pub time_gran: u32,
}

/// A file system that serves requests. Several threads call it concurrently.
pub trait Handler: Send + Sync {
    /// Chooses the settings. Called once, before any other method.
    fn init(&self, kernel: &Kernel) -> Settings;

    /// Handles a request and puts the reply into `reply`. On error the error number is sent
    /// instead. The result is ignored for requests without a reply (`Forget`, `BatchForget`,
    /// `Interrupt`).
    ///
    /// # Errors
    /// The error number for the calling program.
    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno>;

    /// Returns whether a request never waits for another one and usually takes less time than
    /// waking a thread. The reading thread handles such a request before another thread reads the
    /// next one.
    fn is_quick(&self, _request: &Request<'_>) -> bool {
        false
    }

    /// Returns whether a request must be handled by [`Self::handle_late`].
    fn is_late(&self, _operation: &Operation<'_>) -> bool {
        false
    }

    /// Like [`Self::handle`], but runs on a dedicated thread that handles one request at a time.
    /// The handler may call the kernel here even if the kernel must send other requests to complete
    /// the call. Requests over io_uring have no such thread; [`Self::handle`] receives all of them.
    ///
    /// # Errors
    /// The error number for the calling program.
    fn handle_late(
        &self,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
        _cache: &PageCache<'_>,
    ) -> Result<(), Errno> {
        self.handle(request, reply)
    }
}
