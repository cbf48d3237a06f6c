//! The server: connections of clients, and the end.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use futures_util::future::{Either, select};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioTimer;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;
use vfs::FileSystem;
use vfs::served::{Served, ServedOutcome, is_passing};

use crate::answer::Answerer;
use crate::connections::ConnectionTable;
use crate::options::{WebdavAccess, WebdavOptions};
use crate::pool::JobPool;
use crate::stream::TimedStream;
use crate::volume::Volume;

/// Interval of checks for the stop flag.
const POLL: Duration = Duration::from_millis(20);
/// Time for requests in progress after the stop flag is set.
const GRACE: Duration = Duration::from_secs(5);
/// Time for the header of a request, from the end of the request before.
const HEADER_TIME: Duration = Duration::from_secs(60);
/// Maximum number of headers in a request, and the size of the buffer for all of them.
const HEADERS_MAX: usize = 100;
const HEADER_BYTES_MAX: usize = 32 << 10;

/// Serves a file system to at most 64 connections. Memory of a connection is bounded. A client that stalls within a
/// request or response for 30 seconds is disconnected without effect on the others.
pub struct WebdavServer {
    listener: TcpListener,
    address: SocketAddr,
    options: WebdavOptions,
}

impl WebdavServer {
    /// Listens at an address. Port 0 chooses a free port.
    ///
    /// # Errors
    /// If it cannot listen there, for instance because another server does.
    pub fn bind(address: SocketAddr, options: WebdavOptions) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { address: listener.local_addr()?, listener, options })
    }

    /// Returns the listening address, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address for clients. It contains the secret, if there is one.
    pub fn url(&self) -> String {
        match &self.options.access {
            WebdavAccess::Secret(secret) => format!("http://{}/{}/", self.address, secret.as_str()),
            WebdavAccess::Password(_) => format!("http://{}/", self.address),
        }
    }

    /// Serves clients until `stop` is set. Then it answers pending requests, disconnects the clients and makes all
    /// changes durable. Uploads in progress leave nothing.
    ///
    /// # Errors
    /// If accepting connections fails permanently, or changes cannot be stored.
    pub fn serve(&self, fs: &dyn FileSystem, stop: &AtomicBool) -> io::Result<ServedOutcome> {
        let volume = Volume::new(fs, self.options.clone());
        let has_ended = AtomicBool::new(false);
        let accepted = thread::scope(|scope| {
            // The log has the details. Requests fail when they ask for durability.
            let sync = || Served::sync_until(&has_ended, || drop(sync(&volume)));
            let syncing =
                thread::Builder::new().name("webdav-sync".into()).spawn_scoped(scope, sync);
            let accepted = syncing
                .and_then(|_| JobPool::start(scope, &volume))
                .and_then(|pool| self.run(pool, stop));
            has_ended.store(true, Ordering::Relaxed);
            accepted
        });
        let synced = sync(&volume);
        accepted?;
        synced?;
        Ok(volume.served.outcome())
    }

    fn run(&self, pool: JobPool, stop: &AtomicBool) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answerer = Arc::new(Answerer::new(self.options.clone(), pool));
        // Dropping the runtime drops the remaining connections, which closes their files.
        runtime.block_on(self.accept(answerer, stop))
    }

    async fn accept(&self, answerer: Arc<Answerer>, stop: &AtomicBool) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener.try_clone()?)?;
        let (stopping, stopped) = watch::channel(());
        let (open, began) = (ConnectionTable::default(), Instant::now());
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            match tokio::time::timeout(POLL, listener.accept()).await {
                Ok(Ok((stream, peer))) if self.permits(&stream, peer) => {
                    open.make_room();
                    let now = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                    let last_used = Arc::new(AtomicU64::new(now));
                    let stream = timed(stream, began, &last_used);
                    let task = tokio::spawn(serve(stream, answerer.clone(), stopped.clone()));
                    open.enter(number, task.abort_handle(), last_used);
                    number += 1;
                }
                Ok(Ok(_)) => {}
                Ok(Err(error)) if !is_passing(&error) => return Err(error),
                Ok(Err(_)) => tokio::time::sleep(POLL).await,
                // No client connects.
                Err(_) => {}
            }
        }
        drop(listener);
        // Each connection finishes its request.
        drop(stopping);
        let ending = Instant::now();
        while ending.elapsed() < GRACE && open.is_any_open() {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Returns whether the user of a connection may connect.
    fn permits(&self, stream: &TcpStream, peer: SocketAddr) -> bool {
        let Ok(local) = stream.local_addr() else { return false };
        let checked = self.options.local_users.check(local, peer);
        checked.inspect_err(|refusal| tracing::warn!("{refusal}")).is_ok()
    }
}

fn sync(volume: &Volume<'_>) -> io::Result<()> {
    volume.served.sync().map_err(|error| {
        volume.failed(&error);
        tracing::error!("changes could not be stored: {error}");
        io::Error::from(error)
    })
}

fn timed(stream: TcpStream, began: Instant, last_used: &Arc<AtomicU64>) -> TimedStream {
    // Small answers must not wait for those before. Without this they are slower, but right.
    let _ = stream.set_nodelay(true);
    TimedStream::new(stream, began, last_used.clone())
}

/// Serves a connection until the client closes it, or `stopped` ends.
async fn serve(stream: TimedStream, answerer: Arc<Answerer>, mut stopped: watch::Receiver<()>) {
    let service = service_fn(|request| {
        let answerer = answerer.clone();
        async move { answerer.answer(request).await }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADER_BYTES_MAX);
    let mut connection = pin!(http.serve_connection(stream, service));
    let stop = pin!(stopped.changed());
    let ended = match select(connection.as_mut(), stop).await {
        Either::Left((ended, _)) => ended,
        Either::Right(_) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection ended: {error}");
    }
}
