//! A mount that is served.
//!
//! Each thread has a descriptor of the device and two buffers of its own, and does one request after the
//! other, from reading it to writing its answer: nothing is handed from thread to thread, and nothing is
//! allocated once a thread runs.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use zerocopy::FromBytes;

use crate::abi::InHeader;
use crate::answer::{Answer, answer};
use crate::buffer::Buffer;
use crate::device::Device;
use crate::handshake::{Agreed, shake_hands};
use crate::mount::{self, Mount};
use crate::request::is_answered;
use crate::{Errno, Handler, InitFlags, MountOptions, Request, Unmounter};

/// Most bytes of the value of an extended attribute, and of a list of their names.
const XATTR_MAX: usize = 64 << 10;
/// What a buffer has room for beside data: headers, structures, names.
const BESIDES_DATA: usize = 4096;

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
pub struct Session {
    // Dropped first: nothing may wait for an answer while the mount is taken away.
    device: Device,
    mount: MountGuard,
}

impl Session {
    /// Mounts, by mount(2) if that is allowed and else by `fusermount3`.
    ///
    /// # Errors
    /// If it cannot be mounted; the error says why.
    pub fn mount(mountpoint: &Path, options: &MountOptions) -> io::Result<Self> {
        let (device, mount) = mount::mount(mountpoint, options)?;
        Ok(Self { device, mount: MountGuard(Arc::new(mount)) })
    }

    /// What unmounts it from elsewhere.
    pub fn unmounter(&self) -> Unmounter {
        Unmounter::new(Arc::clone(&self.mount.0))
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
        // In this order they are dropped: see `Session`.
        let Self { mount: guard, device } = self;
        let agreed = shake_hands(&device, handler, InitFlags::empty())?;
        let workers = (0..options.threads.max(1))
            .map(|_| Worker::new(&device, &agreed))
            .collect::<io::Result<Vec<_>>>()?;
        // The workers' descriptors are all: with the last one the kernel gives the mount up.
        drop(device);
        serve_all(workers, handler, &guard.0, ready)
    }
}

/// Unmounts at the end of its life, when nobody serves the mount any more.
#[derive(Debug)]
struct MountGuard(Arc<Mount>);

impl Drop for MountGuard {
    fn drop(&mut self) {
        self.0.set_served(false);
        self.0.abandon();
    }
}

/// Runs a thread for each worker until the mount is gone, or one of them fails.
fn serve_all(
    workers: Vec<Worker>,
    handler: &dyn Handler,
    mount: &Mount,
    ready: impl FnOnce(),
) -> io::Result<()> {
    let complained = &AtomicBool::new(false);
    thread::scope(|scope| {
        let mut outcome = Ok(());
        let mut threads = Vec::new();
        for (nth, worker) in workers.into_iter().enumerate() {
            let run = move || worker.run_to_end(handler, mount, complained);
            match thread::Builder::new().name(format!("fuse-{nth}")).spawn_scoped(scope, run) {
                Ok(thread) => threads.push(thread),
                Err(error) => outcome = Err(error),
            }
        }
        if outcome.is_ok() {
            mount.set_served(true);
            ready();
        } else {
            mount.abort();
        }
        for thread in threads {
            let ended =
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
            outcome = outcome.and(ended);
        }
        outcome
    })
}

/// What a thread has for itself.
struct Worker {
    device: Device,
    request: Buffer,
    reply: Buffer,
}

impl Worker {
    fn new(device: &Device, agreed: &Agreed) -> io::Result<Self> {
        let len = agreed.max_write.max(XATTR_MAX) + BESIDES_DATA;
        Ok(Self {
            device: device.for_another_thread()?,
            request: Buffer::new(len),
            reply: Buffer::new(len),
        })
    }

    /// Serves until the mount is gone. On an error it goes for all threads.
    fn run_to_end(
        mut self,
        handler: &dyn Handler,
        mount: &Mount,
        complained: &AtomicBool,
    ) -> io::Result<()> {
        let ended = self.run(handler, complained);
        if ended.is_err() {
            mount.abort();
        }
        ended
    }

    fn run(&mut self, handler: &dyn Handler, complained: &AtomicBool) -> io::Result<()> {
        let reply = self.reply.bytes();
        let buffer = self.request.bytes();
        while let Some(len) = self.device.receive(buffer)? {
            match Request::parse(&buffer[..len]) {
                Ok(request) => {
                    let done = answer(handler, &request, reply);
                    if request.operation.is_answered() {
                        let header = done.header(request.header.unique);
                        self.device.send(&header, &reply[..done.len])?;
                    }
                }
                Err(malformed) => {
                    if !complained.swap(true, Ordering::Relaxed) {
                        eprintln!("{malformed}");
                    }
                    refuse(&self.device, &buffer[..len])?;
                }
            }
        }
        Ok(())
    }
}

/// Answers a malformed request, if it is one that is answered.
fn refuse(device: &Device, message: &[u8]) -> io::Result<()> {
    match InHeader::read_from_prefix(message) {
        Ok((header, _)) if is_answered(header.opcode) => {
            device.send(&Answer::failed(Errno::IO).header(header.unique), &[])
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::path::Path;

    use super::{Session, Worker, serve_all, shake_hands};
    use crate::device::Device;
    use crate::{Errno, Handler, InitFlags, Kernel, MountOptions, Reply, Request, Settings};

    struct Nothing;

    impl Handler for Nothing {
        fn init(&self, _: &Kernel) -> Settings {
            let features = InitFlags::empty();
            Settings { features, max_write: 4096, max_readahead: 0, time_gran: 1 }
        }

        fn handle(&self, _: &Request<'_>, _: &mut Reply<'_>) -> Result<(), Errno> {
            Err(Errno::NOSYS)
        }
    }

    fn is_mounted(place: &Path) -> bool {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        mounts.lines().any(|line| line.split(' ').nth(1) == place.to_str())
    }

    #[test]
    fn a_thread_that_fails_ends_all_and_nothing_stays_mounted() {
        oracle::require!(Root, Fuse);
        let place = tempfile::tempdir().unwrap();
        let session = Session::mount(place.path(), &MountOptions::default()).unwrap();
        let Session { device, mount } = session;
        let agreed = shake_hands(&device, &Nothing, InitFlags::empty()).unwrap();
        let mut workers: Vec<_> = (0..3).map(|_| Worker::new(&device, &agreed).unwrap()).collect();
        // A directory cannot be read.
        workers[1].device = Device::new(File::open(place.path().parent().unwrap()).unwrap().into());
        drop(device);
        let served = serve_all(workers, &Nothing, &mount.0, || ());
        let error = served.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::ISDIR.raw_os_error()));
        drop(mount);
        assert!(!is_mounted(place.path()));
    }
}
