//! Connections and listeners for TCP and Unix sockets.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::nbd::Address;
#[cfg(unix)]
use crate::socket::UnixSocket;

/// Connection timeout.
const CONNECT_TIME: Duration = Duration::from_secs(30);

/// A connection. Clones share the socket and its timeouts.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// Applies a call to either kind of socket.
macro_rules! either {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream {
            Stream::Tcp($inner) => $call,
            #[cfg(unix)]
            Stream::Unix($inner) => $call,
        }
    };
}

impl Stream {
    pub(crate) fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => {
                let stream = connect_tcp(address)?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
            #[cfg(unix)]
            Address::Unix(path) => UnixStream::connect(path).map(Self::Unix),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            #[cfg(unix)]
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
        })
    }

    /// Sets the timeout of one read, for all clones.
    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        either!(self, stream => stream.set_read_timeout(timeout))
    }

    /// Sets the timeout of one write, for all clones.
    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        either!(self, stream => stream.set_write_timeout(timeout))
    }

    /// Shuts the connection down. Blocked calls of all threads return.
    pub(crate) fn shutdown(&self, how: Shutdown) {
        // The connection may be closed already.
        let _ = either!(self, stream => stream.shutdown(how));
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Read for &Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        either!(self, stream => (&mut &*stream).read(buf))
    }
}

impl Write for &Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        either!(self, stream => (&mut &*stream).write(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Connects to the first of a host's addresses that accepts.
fn connect_tcp(address: &str) -> io::Result<TcpStream> {
    let mut error = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIME) {
            Ok(stream) => return Ok(stream),
            Err(failed) => error = failed,
        }
    }
    Err(error)
}

/// Minimum speed of a peer within a message.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Length of a time window.
    pub window: Duration,
    /// Minimum number of bytes per window.
    pub window_bytes: u64,
    /// Timeout of the whole handshake, which has a bounded size.
    pub handshake: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let window = Duration::from_secs(60);
        Self { window, window_bytes: 16 << 10, handshake: Duration::from_secs(60) }
    }
}

/// Reads a message and fails if a window has too few bytes.
pub(crate) struct Paced<'a> {
    stream: &'a Stream,
    pace: Pace,
    end: Instant,
    bytes: u64,
}

impl<'a> Paced<'a> {
    pub(crate) fn new(stream: &'a Stream, pace: Pace) -> Self {
        Self { stream, pace, end: Instant::now() + pace.window, bytes: 0 }
    }
}

impl Read for Paced<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let now = Instant::now();
            if now >= self.end {
                if self.bytes < self.pace.window_bytes {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                (self.end, self.bytes) = (now + self.pace.window, 0);
            }
            self.stream.set_read_timeout(Some(self.end - now))?;
            match (&mut &*self.stream).read(buf) {
                // The window has ended: the next iteration checks its bytes.
                Err(error) if is_timeout(&error) => {}
                read => {
                    let read = read?;
                    self.bytes += read as u64;
                    return Ok(read);
                }
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// A reader with a deadline.
pub(crate) struct Timed<'a> {
    stream: &'a Stream,
    end: Instant,
}

impl<'a> Timed<'a> {
    pub(crate) fn new(stream: &'a Stream, time: Duration) -> Self {
        Self { stream, end: Instant::now() + time }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        (&mut &*self.stream).read(buf)
    }
}

/// Reads exactly `N` bytes.
pub(crate) fn read_array<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads exactly `len` bytes. Memory grows with the received bytes, not with the announced length.
pub(crate) fn read_vec(stream: &mut impl Read, len: u32) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(len.into()).read_to_end(&mut bytes)?;
    if bytes.len() != len as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixSocket),
}

impl Listener {
    /// Starts to listen.
    pub(crate) fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(Self::Tcp(listener))
            }
            #[cfg(unix)]
            Address::Unix(path) => UnixSocket::bind(path).map(Self::Unix),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Accepts a connection; `None` if there is none at the moment.
    pub(crate) fn accept(&self) -> io::Result<Option<Stream>> {
        let accepted = match self {
            Self::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
            #[cfg(unix)]
            Self::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        either!(&stream, stream => stream.set_nonblocking(false)?);
        match &stream {
            Stream::Tcp(stream) => stream.set_nodelay(true)?,
            #[cfg(unix)]
            Stream::Unix(_) => {}
        }
        Ok(Some(stream))
    }

    /// Returns the listening address, with the actual port for port 0.
    pub(crate) fn address(&self, asked: &Address) -> Address {
        match self {
            Self::Tcp(listener) => listener
                .local_addr()
                .map_or_else(|_| asked.clone(), |address| Address::Tcp(address.to_string())),
            #[cfg(unix)]
            Self::Unix(_) => asked.clone(),
        }
    }
}
