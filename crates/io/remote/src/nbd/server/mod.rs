//! The NBD server.

mod connection;
mod handshake;
mod replies;
mod transmission;

use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use disk::BlockDevice;

use crate::nbd::Address;
use crate::nbd::stream::{Listener, Stream};
use crate::socket;

/// Maximum number of clients past the handshake. Further ones are closed.
const CONNECTIONS_MAX: usize = 32;
/// Maximum number of connections in their handshakes. One more closes the oldest of them.
const HANDSHAKES_MAX: usize = 32;
/// Interval of checks for new connections and for the stop flag.
const POLL: Duration = Duration::from_millis(20);
/// Time for clients to read their last replies after the stop flag is set.
const GRACE: Duration = Duration::from_secs(5);

/// Exports one device to at most 32 NBD clients at a time, which may share it: writes flushed by one client are durable
/// and visible to all. The server buffers at most 64 MiB of contents for each connection. A client that stalls within a
/// message for a minute, or violates the protocol, is disconnected without effect on the others.
pub struct Server {
    listener: Listener,
    address: Address,
    exported: Exported,
}

/// The exported device.
#[derive(Clone)]
struct Exported {
    device: Arc<dyn BlockDevice>,
    name: String,
    read_only: bool,
}

impl Server {
    /// Listens at `address` and exports `device` as `name`. Clients that request an empty name get it, too. A Unix
    /// socket is created, and removed when the server is dropped.
    ///
    /// # Errors
    /// If it cannot listen there, for instance because another server does.
    pub fn bind(
        address: &Address,
        device: Arc<dyn BlockDevice>,
        name: &str,
        read_only: bool,
    ) -> io::Result<Self> {
        let listener = Listener::bind(address)?;
        let address = listener.address(address);
        Ok(Self { listener, address, exported: Exported { device, name: name.into(), read_only } })
    }

    /// Returns the listening address. For TCP port 0 it contains the actual port.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Serves clients until `stop` is set. Then it answers pending requests, disconnects the clients and flushes the
    /// device.
    ///
    /// # Errors
    /// If accepting connections fails permanently, or the final flush fails.
    pub fn serve(&self, stop: &AtomicBool) -> io::Result<()> {
        let open = Connections::default();
        let accepted = thread::scope(|scope| {
            let accepted = self.accept(scope, &open, stop);
            open.finish();
            accepted
        });
        socket::finish(accepted, &*self.exported.device, self.exported.read_only)
    }

    fn accept<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        open: &'scope Connections,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            match self.listener.accept() {
                Ok(Some(stream)) => self.start(scope, open, stream),
                Ok(None) => thread::sleep(POLL),
                Err(error) if is_passing(&error) => thread::sleep(POLL),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Serves a connection in its own thread. If that fails, the connection is closed.
    fn start<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        open: &'scope Connections,
        stream: Stream,
    ) {
        let Some(entry) = open.enter(&stream) else { return };
        let serve = move || {
            connection::serve(&stream, &self.exported, || entry.establish());
            stream.shutdown(Shutdown::Both);
            drop(entry);
        };
        // If the thread does not start, its entry is dropped.
        let _ = thread::Builder::new().name("nbd".into()).spawn_scoped(scope, serve);
    }
}

/// Checks whether accepting can continue: the error concerns one connection, or a temporary shortage.
fn is_passing(error: &io::Error) -> bool {
    // Too many open files in the process or the system (EMFILE, ENFILE), and no buffer space (ENOBUFS).
    const SHORTAGES: [i32; 3] = [24, 23, 105];
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
            | io::ErrorKind::OutOfMemory
    ) || error.raw_os_error().is_some_and(|number| SHORTAGES.contains(&number))
}

/// The open connections.
#[derive(Default)]
struct Connections(Mutex<ConnectionTable>);

#[derive(Default)]
struct ConnectionTable {
    /// Connections by ascending number.
    streams: BTreeMap<u64, Connected>,
    next: u64,
}

struct Connected {
    stream: Stream,
    is_established: bool,
}

/// Registration of one open connection.
struct Registration<'a> {
    open: &'a Connections,
    number: u64,
}

impl ConnectionTable {
    fn established(&self) -> usize {
        self.streams.values().filter(|connected| connected.is_established).count()
    }
}

impl Connections {
    fn hold(&self) -> MutexGuard<'_, ConnectionTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a connection. If too many are in their handshakes, closes the oldest of these. Returns `None` if the
    /// connection is closed, or too many are past the handshake.
    fn enter(&self, stream: &Stream) -> Option<Registration<'_>> {
        let stream = stream.try_clone().ok()?;
        let mut open = self.hold();
        if open.established() >= CONNECTIONS_MAX {
            return None;
        }
        let half_open = open.streams.iter().filter(|(_, connected)| !connected.is_established);
        let (count, oldest) = half_open
            .fold((0, None), |(count, oldest), (number, _)| (count + 1, oldest.or(Some(*number))));
        if count >= HANDSHAKES_MAX
            && let Some(oldest) = oldest.and_then(|number| open.streams.remove(&number))
        {
            oldest.stream.shutdown(Shutdown::Both);
        }
        let number = open.next;
        open.next += 1;
        open.streams.insert(number, Connected { stream, is_established: false });
        drop(open);
        Some(Registration { open: self, number })
    }

    /// Lets each connection finish the requests received so far, then closes those whose clients do not read their
    /// replies.
    fn finish(&self) {
        self.shutdown(Shutdown::Read);
        let begun = Instant::now();
        while begun.elapsed() < GRACE && !self.hold().streams.is_empty() {
            thread::sleep(POLL);
        }
        self.shutdown(Shutdown::Both);
    }

    fn shutdown(&self, how: Shutdown) {
        self.hold().streams.values().for_each(|connected| connected.stream.shutdown(how));
    }
}

impl Registration<'_> {
    /// Marks the connection as past the handshake. Returns false if there are too many, or it was closed.
    fn establish(&self) -> bool {
        let mut open = self.open.hold();
        if open.established() >= CONNECTIONS_MAX {
            return false;
        }
        let Some(connected) = open.streams.get_mut(&self.number) else { return false };
        connected.is_established = true;
        true
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.open.hold().streams.remove(&self.number);
    }
}
