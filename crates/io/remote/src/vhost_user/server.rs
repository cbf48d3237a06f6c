//! The server: one front end after the other.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use disk::BlockDevice;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use vhost::vhost_user::{Error as ProtocolError, Listener};
use vhost_user_backend::{Error as DaemonError, ShutdownHandle, VhostUserDaemon};
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;

use super::backend::{Backend, STOP_EVENT};
use super::request::Exported;
use crate::socket::{self, UnixSocket};

/// Interval of checks for new connections and for the stop flag.
const POLL: Duration = Duration::from_millis(50);
/// Maximum number of queues: one bit of a mask is used for each.
const QUEUES_MAX: usize = 64;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of queues: 1 to 64. Each has a thread. A guest may use fewer.
    pub queues: usize,
    /// Rejects all changes.
    pub read_only: bool,
    /// Serial number of the disk in the guest. Guests see its first 20 bytes.
    pub id: String,
}

/// Exports one device to one virtual machine at a time. When the connection ends, the next front end is served. A front
/// end that violates the protocol is disconnected.
///
/// Each queue performs its requests in order, so a front end can continue after a restart of the server: requests that
/// were not answered are performed again.
pub struct Server {
    socket: UnixSocket,
    exported: Arc<Exported>,
    queues: usize,
}

impl Server {
    /// Listens at a Unix socket, which is removed when the server is dropped.
    ///
    /// # Errors
    /// If the number of queues is invalid, or it cannot listen there, for instance because another server does.
    pub fn bind(path: &Path, device: Arc<dyn BlockDevice>, options: &Options) -> io::Result<Self> {
        if !(1..=QUEUES_MAX).contains(&options.queues) {
            let message = format!("expected 1 to {QUEUES_MAX} queues, found {}", options.queues);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let socket = UnixSocket::bind(path)?;
        let exported = Exported::new(device, options.read_only, &options.id);
        Ok(Self { socket, exported: Arc::new(exported), queues: options.queues })
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.socket.path()
    }

    /// Serves virtual machines until `stop` is set. Then it completes the current requests, disconnects, and flushes
    /// the device.
    ///
    /// # Errors
    /// If connections cannot be accepted, or the final flush fails.
    pub fn serve(&self, stop: &AtomicBool) -> io::Result<()> {
        let served = self.accept(stop);
        socket::finish(served, &*self.exported.device, self.exported.read_only)
    }

    fn accept(&self, stop: &AtomicBool) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let timeout = POLL.try_into().expect("it is short");
            let mut ready = [PollFd::new(&*self.socket, PollFlags::IN)];
            match poll(&mut ready, Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => self.connection(stop)?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Serves one front end until it disconnects or `stop` is set.
    fn connection(&self, stop: &AtomicBool) -> io::Result<()> {
        let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
        let backend = Backend::new(Arc::clone(&self.exported), memory.clone(), self.queues);
        let (event, backend) = (eventfd(0, EventfdFlags::CLOEXEC)?, Arc::new(backend));
        let daemon = VhostUserDaemon::new("vhost-user".into(), Arc::clone(&backend), memory);
        let mut daemon = daemon.map_err(|error| io::Error::other(error.to_string()))?;
        // Dropped before the daemon, which waits for its threads. The event must outlive these.
        let _threads = Threads { backend, event: &event };
        for thread in daemon.get_epoll_handlers() {
            let registered = thread.register_listener(event.as_raw_fd(), EventSet::IN, STOP_EVENT);
            if let Err(error) = registered {
                // Dropping it would wait for this thread.
                std::mem::forget(daemon);
                return Err(error);
            }
        }
        let mut listener = Listener::from(self.socket.try_clone()?);
        let served = daemon.start(&mut listener).and_then(|()| {
            let (connection, is_over) = (daemon.shutdown_handle(), AtomicBool::new(false));
            thread::scope(|scope| {
                let watch = || {
                    while !is_over.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
                        thread::park_timeout(POLL);
                    }
                    connection.iter().for_each(ShutdownHandle::shutdown);
                };
                let watcher = thread::Builder::new().spawn_scoped(scope, watch);
                if watcher.is_err() {
                    connection.iter().for_each(ShutdownHandle::shutdown);
                }
                let served = daemon.wait();
                is_over.store(true, Ordering::Relaxed);
                watcher.map_err(DaemonError::StartDaemon)?.thread().unpark();
                served
            })
        });
        match served {
            Err(
                DaemonError::CreateBackendListener(ProtocolError::SocketError(error))
                | DaemonError::StartDaemon(error),
            ) => Err(error),
            // The front end has disconnected, or violated the protocol.
            _ => Ok(()),
        }
    }
}

/// The threads of a connection, which are stopped on drop.
struct Threads<'e> {
    backend: Arc<Backend>,
    event: &'e OwnedFd,
}

impl Drop for Threads<'_> {
    fn drop(&mut self) {
        self.backend.stop();
        // An event counter of 1 cannot overflow.
        let _ = rustix::io::write(self.event, &1_u64.to_ne_bytes());
    }
}
