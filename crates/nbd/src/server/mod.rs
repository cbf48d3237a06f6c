//! The server.

mod connection;
mod handshake;
mod transmission;

use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use blockdev::BlockDevice;

use crate::Address;
use crate::stream::{Listener, Stream};

/// Limit of clients past the handshake. Further ones are closed.
const CONNECTIONS_MAX: usize = 32;
/// Limit of connections in their handshakes. One more ends the oldest of them.
const HANDSHAKES_MAX: usize = 32;
/// How often it is looked for connections, and whether to stop.
const POLL: Duration = Duration::from_millis(20);
/// How long clients may take their last replies once the server is to stop.
const GRACE: Duration = Duration::from_secs(5);

/// Offers one device to NBD clients, at most 32 at a time, which may share it: what one has flushed is durable and seen
/// by all. Of each connection the server holds at most 64 MiB of contents at a time. Who stalls in the middle of a
/// message for a minute, or says what is no NBD, is disconnected; the others do not notice.
pub struct Server {
    listener: Listener,
    address: Address,
    exported: Exported,
}

/// What is offered.
#[derive(Clone)]
struct Exported {
    device: Arc<dyn BlockDevice>,
    name: String,
    read_only: bool,
}

impl Server {
    /// Listens at `address` to offer `device` under `name`; clients that give no name mean it, too. A Unix socket is
    /// made there, and removed when the server is dropped.
    ///
    /// # Errors
    /// If it cannot listen there: for instance, if another server does.
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

    /// Where it listens. Of TCP, with the port that it got if it was asked for port 0.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Serves until `stop` is set; then requests under way are answered, clients are disconnected, and the device is
    /// flushed.
    ///
    /// # Errors
    /// If no connection can be accepted any more, or the device cannot be flushed at the end.
    pub fn serve(&self, stop: &AtomicBool) -> io::Result<()> {
        let open = Connections::default();
        let accepted = thread::scope(|scope| {
            let accepted = self.accept(scope, &open, stop);
            open.finish();
            accepted
        });
        let flushed = if self.exported.read_only { Ok(()) } else { self.exported.device.flush() };
        accepted.and(flushed)
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

    /// Serves a connection in a thread of its own. Where that cannot be, the client finds it closed.
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
        // An entry of a thread that does not start is dropped with it.
        let _ = thread::Builder::new().name("nbd".into()).spawn_scoped(scope, serve);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.address {
            // Somebody may have removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whether accepting can go on: the connection's fault, or a shortage that passes.
fn is_passing(error: &io::Error) -> bool {
    // Too many open files, of the process or the machine (EMFILE, ENFILE), and no buffers (ENOBUFS).
    const SHORTAGES: [i32; 3] = [24, 23, 105];
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
            | io::ErrorKind::OutOfMemory
    ) || error.raw_os_error().is_some_and(|number| SHORTAGES.contains(&number))
}

/// The connections that are open, to be ended.
#[derive(Default)]
struct Connections(Mutex<Open>);

#[derive(Default)]
struct Open {
    /// Connections by number. Numbers rise.
    streams: BTreeMap<u64, Connected>,
    next: u64,
}

struct Connected {
    stream: Stream,
    is_established: bool,
}

/// The place of a connection among those that are open.
struct Entry<'a> {
    open: &'a Connections,
    number: u64,
}

impl Open {
    fn established(&self) -> usize {
        self.streams.values().filter(|connected| connected.is_established).count()
    }
}

impl Connections {
    fn hold(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a connection, and ends the oldest one in its handshake if there are too many of these. `None` if the
    /// connection is gone, or too many are past the handshake.
    fn enter(&self, stream: &Stream) -> Option<Entry<'_>> {
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
        Some(Entry { open: self, number })
    }

    /// Lets every connection end after the requests that have come, and ends those whose clients do not take their
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

impl Entry<'_> {
    /// Counts the connection among those past the handshake; false if there are too many, or it was ended.
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

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.open.hold().streams.remove(&self.number);
    }
}
