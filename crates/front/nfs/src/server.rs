//! The server: connections of clients, and the end.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use vfs::FileSystem;
use vfs::served::{Served, ServedOutcome, is_passing};

use crate::connection::{Connection, Traffic};
use crate::{NfsOptions, NfsService};

/// Maximum number of connections. One more closes the one that was idle longest.
const CONNECTIONS_MAX: usize = 64;
/// Interval of checks for new connections and for the stop flag.
const POLL: Duration = Duration::from_millis(20);
/// Time for clients to read their last replies after the stop flag is set.
const GRACE: Duration = Duration::from_secs(5);

/// Serves a file system to at most 64 connections. Each has at most 8 requests in progress, of at most 1100 KiB. With
/// more than 16 connections it has fewer, so that all together have at most 128. A client that stalls within a message
/// for 30 seconds is disconnected without effect on the others.
pub struct NfsServer {
    listener: TcpListener,
    address: SocketAddr,
    options: NfsOptions,
    open: OpenConnections,
}

impl NfsServer {
    /// Listens at an address. Port 0 chooses a free port.
    ///
    /// # Errors
    /// If it cannot listen there, for instance because another server does.
    pub fn bind(address: SocketAddr, options: NfsOptions) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let (address, open) = (listener.local_addr()?, OpenConnections::default());
        Ok(Self { listener, address, options, open })
    }

    /// Returns the listening address, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns whether a client is connected.
    pub fn is_connected(&self) -> bool {
        self.open.is_any_open()
    }

    /// Returns the path that clients mount, with the host.
    pub fn source(&self) -> String {
        format!("{}:{}", self.host(), self.options.export.as_str())
    }

    /// Returns the address for programs with libnfs, which contains the path of the export.
    pub fn url(&self) -> String {
        let (host, port) = (self.host(), self.address.port());
        let path = self.options.export.as_str();
        format!("nfs://{host}{path}?nfsport={port}&mountport={port}")
    }

    /// Returns the command that mounts the export on Linux, without the directory.
    pub fn linux_command(&self) -> String {
        let (host, port) = (self.host(), self.address.port());
        let path = self.options.export.as_str();
        format!(
            "mount -t nfs -o vers=3,proto=tcp,port={port},mountproto=tcp,mountport={port},nolock {host}:{path}"
        )
    }

    /// Returns the command that mounts the export on macOS, without the directory.
    pub fn macos_command(&self) -> String {
        let (host, port) = (self.host(), self.address.port());
        let path = self.options.export.as_str();
        format!("mount_nfs -o vers=3,tcp,port={port},mountport={port},locallocks {host}:{path}")
    }

    fn host(&self) -> String {
        match self.address {
            SocketAddr::V4(address) => address.ip().to_string(),
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        }
    }

    /// Serves clients until `stop` is set. Then it answers pending requests, disconnects the clients and makes all
    /// changes durable.
    ///
    /// # Errors
    /// If accepting connections fails permanently, or changes cannot be stored.
    pub fn serve(&self, fs: &dyn FileSystem, stop: &AtomicBool) -> io::Result<ServedOutcome> {
        let service = NfsService::new(fs, self.options.clone())?;
        let traffic = Traffic::default();
        let has_ended = AtomicBool::new(false);
        let accepted = thread::scope(|scope| {
            // The service logs an error. Each client gets it when it asks for durability.
            let sync = || Served::sync_until(&has_ended, || drop(service.sync()));
            let syncing = thread::Builder::new().name("nfs-sync".into()).spawn_scoped(scope, sync);
            let accepted = syncing.and_then(|_| self.accept(scope, (&service, &traffic), stop));
            self.open.finish();
            has_ended.store(true, Ordering::Relaxed);
            accepted
        });
        let synced = service.sync();
        accepted?;
        synced.map_err(io::Error::from)?;
        Ok(service.served.outcome())
    }

    fn accept<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        served: (&'scope NfsService<'scope>, &'scope Traffic),
        stop: &AtomicBool,
    ) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    if let Some(stream) = self.permitted(stream, peer) {
                        self.start(scope, served, stream);
                    }
                }
                Err(error) if is_passing(&error) => thread::sleep(POLL),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns a connection if its user may connect.
    fn permitted(&self, stream: TcpStream, peer: SocketAddr) -> Option<TcpStream> {
        let local = stream.local_addr().ok()?;
        let refused = self.options.local_users.check(local, peer);
        refused.inspect_err(|refusal| tracing::warn!("{refusal}")).ok().map(|()| stream)
    }

    /// Serves a connection on new threads. If that fails, the connection is closed.
    fn start<'scope>(
        &self,
        scope: &'scope thread::Scope<'scope, '_>,
        (service, traffic): (&'scope NfsService<'scope>, &'scope Traffic),
        stream: TcpStream,
    ) {
        let Ok(connection) = Connection::new(stream) else { return };
        let connection = Arc::new(connection);
        self.open.enter(&connection);
        let serve = move || connection.serve(scope, service, traffic);
        // If the thread does not start, the last reference of the connection is dropped.
        let _ = thread::Builder::new().name("nfs".into()).spawn_scoped(scope, serve);
    }
}

/// The open connections, by ascending number.
#[derive(Default)]
struct OpenConnections(Mutex<(u64, BTreeMap<u64, std::sync::Weak<Connection>>)>);

impl OpenConnections {
    /// Registers a connection. If there are too many, closes the one that was idle longest: clients connect again when
    /// they need to.
    fn enter(&self, connection: &Arc<Connection>) {
        let mut open = self.0.lock();
        let (next, connections) = &mut *open;
        connections.retain(|_, connection| connection.strong_count() > 0);
        if connections.len() >= CONNECTIONS_MAX {
            let used = |connection: &Arc<Connection>| connection.last_used();
            let alive = connections.iter().filter_map(|(number, c)| Some((*number, c.upgrade()?)));
            if let Some((number, idle)) = alive.min_by_key(|(_, connection)| used(connection)) {
                idle.shutdown(Shutdown::Both);
                connections.remove(&number);
            }
        }
        connections.insert(*next, Arc::downgrade(connection));
        *next += 1;
    }

    /// Lets each connection finish the requests received so far, then closes those whose clients do not read their
    /// replies.
    fn finish(&self) {
        self.shutdown(Shutdown::Read);
        let began = Instant::now();
        while began.elapsed() < GRACE && self.is_any_open() {
            thread::sleep(POLL);
        }
        self.shutdown(Shutdown::Both);
    }

    fn is_any_open(&self) -> bool {
        self.0.lock().1.values().any(|connection| connection.strong_count() > 0)
    }

    fn shutdown(&self, how: Shutdown) {
        for connection in self.0.lock().1.values().filter_map(std::sync::Weak::upgrade) {
            connection.shutdown(how);
        }
    }
}
