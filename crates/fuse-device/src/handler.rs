//! What a file system is to this crate.

use crate::{Errno, InitFlags, Operation, PageCache, Reply, Request};

/// What the kernel offers when a session starts.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Minor version of its protocol; the major one is 7.
    pub minor: u32,
    /// Most bytes that it reads ahead.
    pub max_readahead: u32,
    /// What it can do.
    pub features: InitFlags,
}

/// What a file system wants of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What it uses of [`Kernel::features`]. The session adds what concerns the transport alone
    /// (`INIT_EXT`, `MAX_PAGES`, `BIG_WRITES`, `OVER_IO_URING`), and takes away what was not offered.
    pub features: InitFlags,
    /// Most bytes of one write, and of one read: a multiple of 4096, at most 1 MiB.
    pub max_write: u32,
    /// Most bytes to read ahead.
    pub max_readahead: u32,
    /// Granularity of times in nanoseconds: a power of ten up to 1,000,000,000.
    pub time_gran: u32,
}

/// A file system as a session sees it. Called from several threads at once.
pub trait Handler: Send + Sync {
    /// Chooses what is used. Called once, before anything else.
    fn init(&self, kernel: &Kernel) -> Settings;

    /// Does what is asked and puts the answer into `reply`; an error becomes the answer instead.
    /// For requests without an answer (`Forget`, `BatchForget`, `Interrupt`) the result is ignored.
    ///
    /// # Errors
    /// The error number that the calling program gets.
    fn handle(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno>;

    /// Whether a request surely waits for no other one, and hardly ever takes longer than waking a thread:
    /// then the thread that has read it does it before anybody reads the next.
    fn is_quick(&self, _request: &Request<'_>) -> bool {
        false
    }

    /// Whether a request is one for [`Self::handle_late`].
    fn is_late(&self, _operation: &Operation<'_>) -> bool {
        false
    }

    /// Does what is asked, as [`Self::handle`], on a thread of its own that does one such request after
    /// the other: here the kernel may be asked for something that it needs other requests done for. Where
    /// requests come through io_uring there is no such thread, and [`Self::handle`] gets them all.
    ///
    /// # Errors
    /// The error number that the calling program gets.
    fn handle_late(
        &self,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
        _cache: &PageCache<'_>,
    ) -> Result<(), Errno> {
        self.handle(request, reply)
    }
}
