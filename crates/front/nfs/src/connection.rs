//! One connection: records in, replies out.
//!
//! Several threads serve a connection. One of them reads a request at a time, and answers it while the next thread reads
//! the next request. So the number of threads limits the requests in progress, and a client that sends more waits. A
//! thread keeps its turn while it answers if no other request waits and the answer is quick, because waking a thread
//! takes longer than such an answer.

use std::io::{self, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::service::NfsService;

/// Maximum number of requests in progress on a connection.
const REQUESTS_MAX: usize = 8;
/// The same if there are many connections.
const REQUESTS_MIN: usize = 2;
/// Number of requests in progress that all connections share: those of 64 connections at their minimum.
const REQUESTS_SHARED: usize = 128;
/// Maximum time of an answer that is quick. Waking a thread takes some tens of microseconds.
const QUICK: Duration = Duration::from_micros(200);
/// Maximum size of a request in bytes: the largest write and its arguments.
const RECORD_BYTES_MAX: usize = 1100 << 10;
/// Maximum number of fragments of a request.
const FRAGMENTS_MAX: usize = 1024;
/// Memory that a request gets before its bytes have arrived.
const STEP_BYTES: usize = 64 << 10;
/// Bit of the last fragment of a record.
const LAST: u32 = 1 << 31;

/// Maximum time from the first to the last byte of a request, and for a reply.
const MESSAGE_TIME_MAX: Duration = Duration::from_secs(30);
/// Time after which a call of the socket returns.
const POLL: Duration = Duration::from_secs(1);

/// Totals of all connections.
#[derive(Default)]
pub(crate) struct Traffic {
    /// Number of requests so far.
    requests: AtomicU64,
    /// Number of connections that are served.
    connections: AtomicUsize,
}

impl Traffic {
    /// Returns the maximum number of requests in progress on a connection. It bounds the memory of all connections.
    fn requests_max(&self) -> usize {
        let connections = self.connections.load(Ordering::Relaxed).max(1);
        (REQUESTS_SHARED / connections).clamp(REQUESTS_MIN, REQUESTS_MAX)
    }
}

/// A connection of a client.
pub(crate) struct Connection {
    stream: TcpStream,
    client: IpAddr,
    reader: Mutex<BufReader<TcpStream>>,
    /// Held while a reply is sent.
    writing: Mutex<()>,
    threads: AtomicUsize,
    /// Number of threads that read or wait for their turn.
    readers: AtomicUsize,
    is_ended: AtomicBool,
    /// True if the last answer was quick. The next one probably is.
    is_quick: AtomicBool,
    /// Number of the last request, or 0 before the first one.
    last_used: AtomicU64,
}

impl Connection {
    /// # Errors
    /// If the socket cannot be prepared.
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(POLL))?;
        stream.set_write_timeout(Some(POLL))?;
        let client = stream.peer_addr()?.ip().to_canonical();
        let reader = Mutex::new(BufReader::new(stream.try_clone()?));
        Ok(Self {
            stream,
            client,
            reader,
            writing: Mutex::new(()),
            threads: AtomicUsize::new(1),
            readers: AtomicUsize::new(0),
            is_ended: AtomicBool::new(false),
            is_quick: AtomicBool::new(false),
            last_used: AtomicU64::new(0),
        })
    }

    /// Ends one direction, or both. Threads that read or write return.
    pub(crate) fn shutdown(&self, how: Shutdown) {
        // The client may have closed the connection before.
        let _ = self.stream.shutdown(how);
    }

    /// Returns the number of the last request, or 0 before the first one.
    pub(crate) fn last_used(&self) -> u64 {
        self.last_used.load(Ordering::Relaxed)
    }

    /// Serves the connection on this thread and on further ones.
    pub(crate) fn serve<'scope>(
        self: &Arc<Self>,
        scope: &'scope thread::Scope<'scope, '_>,
        service: &'scope NfsService<'scope>,
        traffic: &'scope Traffic,
    ) {
        traffic.connections.fetch_add(1, Ordering::Relaxed);
        self.serve_on_thread(scope, service, traffic);
    }

    fn serve_on_thread<'scope>(
        self: &Arc<Self>,
        scope: &'scope thread::Scope<'scope, '_>,
        service: &'scope NfsService<'scope>,
        traffic: &'scope Traffic,
    ) {
        while let Some(message) = self.next_message(scope, service, traffic) {
            self.answer(service, traffic, &message);
            if self.leave_surplus(traffic) {
                return;
            }
        }
        if self.threads.fetch_sub(1, Ordering::AcqRel) == 1 {
            traffic.connections.fetch_sub(1, Ordering::Relaxed);
            self.shutdown(Shutdown::Both);
        }
    }

    /// Removes this thread from those of the connection if there are too many. Others remain.
    fn leave_surplus(&self, traffic: &Traffic) -> bool {
        let max = traffic.requests_max();
        let fewer = |threads| (threads > max).then(|| threads - 1);
        self.threads.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer).is_ok()
    }

    fn answer(&self, service: &NfsService<'_>, traffic: &Traffic, message: &[u8]) {
        self.last_used
            .store(traffic.requests.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        let began = Instant::now();
        let reply = service.answer(self.client, message);
        self.is_quick.store(began.elapsed() < QUICK, Ordering::Relaxed);
        if let Some(reply) = reply
            && self.send(&reply).is_err()
        {
            self.end();
        }
    }

    /// Returns the next message that another thread should not wait for, or `None` after the end. Answers messages
    /// before it. Another thread reads the one after it.
    fn next_message<'scope>(
        self: &Arc<Self>,
        scope: &'scope thread::Scope<'scope, '_>,
        service: &'scope NfsService<'scope>,
        traffic: &'scope Traffic,
    ) -> Option<Vec<u8>> {
        self.readers.fetch_add(1, Ordering::AcqRel);
        let mut reader = self.reader.lock();
        let message = loop {
            match self.read(&mut reader) {
                Some(message) if self.keeps_turn(&reader, &message) => {
                    self.answer(service, traffic, &message);
                }
                message => break message,
            }
        };
        let is_last_reader = self.readers.fetch_sub(1, Ordering::AcqRel) == 1;
        if message.is_none() {
            self.end();
        } else if is_last_reader && self.threads.load(Ordering::Acquire) < traffic.requests_max() {
            self.threads.fetch_add(1, Ordering::AcqRel);
            let connection = Arc::clone(self);
            let serve = move || connection.serve_on_thread(scope, service, traffic);
            if thread::Builder::new().name("nfs".into()).spawn_scoped(scope, serve).is_err() {
                self.threads.fetch_sub(1, Ordering::AcqRel);
            }
        }
        message
    }

    /// Returns whether the thread that read a message should answer it before the next message is read.
    fn keeps_turn(&self, reader: &BufReader<TcpStream>, message: &[u8]) -> bool {
        self.is_quick.load(Ordering::Relaxed)
            && reader.buffer().is_empty()
            && NfsService::is_query(message)
    }

    /// Reads a message. Returns `None` after the end.
    fn read(&self, reader: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
        match self.is_ended.load(Ordering::Acquire) {
            true => None,
            false => read_record(reader, MESSAGE_TIME_MAX).ok().flatten(),
        }
    }

    /// Lets all threads finish their requests.
    fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        self.shutdown(Shutdown::Read);
    }

    fn send(&self, reply: &[u8]) -> io::Result<()> {
        let _writing = self.writing.lock();
        let sent = write_all(&self.stream, reply, MESSAGE_TIME_MAX);
        if sent.is_err() {
            // A partial reply must not be followed by another one.
            self.shutdown(Shutdown::Both);
        }
        sent
    }
}

/// Reads a record. Waits for its first byte without limit, and for the rest for at most `time_max`. Returns `None` at
/// the end of the connection.
fn read_record(reader: &mut impl Read, time_max: Duration) -> io::Result<Option<Vec<u8>>> {
    let mut message = Vec::new();
    let mut until = None;
    for _fragment in 0..FRAGMENTS_MAX {
        let mut mark = [0; 4];
        if !read_exact(reader, &mut mark, &mut until, time_max)? {
            return Ok(None);
        }
        let mark = u32::from_be_bytes(mark);
        let mut rest = (mark & !LAST) as usize;
        if rest > RECORD_BYTES_MAX - message.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the request is too large"));
        }
        while rest > 0 {
            let (at, step) = (message.len(), rest.min(STEP_BYTES));
            message.resize(at + step, 0);
            if !read_exact(reader, &mut message[at..], &mut until, time_max)? {
                return Ok(None);
            }
            rest -= step;
        }
        if mark & LAST != 0 {
            return Ok(Some(message));
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the request has too many fragments"))
}

/// Fills a buffer. `until` is set by the first byte. Returns false at the end of the connection.
fn read_exact(
    reader: &mut impl Read,
    mut buffer: &mut [u8],
    until: &mut Option<Instant>,
    time_max: Duration,
) -> io::Result<bool> {
    while !buffer.is_empty() {
        match reader.read(buffer) {
            Ok(0) => return Ok(false),
            Ok(len) => {
                until.get_or_insert_with(|| Instant::now() + time_max);
                buffer = &mut buffer[len..];
            }
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
        if !buffer.is_empty() && until.is_some_and(|until| Instant::now() >= until) {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(true)
}

fn write_all(mut stream: impl Write, mut bytes: &[u8], time_max: Duration) -> io::Result<()> {
    let until = Instant::now() + time_max;
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => bytes = &bytes[len..],
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
        if !bytes.is_empty() && Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(error.kind(), K::WouldBlock | K::TimedOut | K::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME_MAX: Duration = Duration::from_secs(60);

    fn fragment(bytes: &[u8], is_last: bool) -> Vec<u8> {
        let mark = bytes.len() as u32 | if is_last { LAST } else { 0 };
        [&mark.to_be_bytes(), bytes].concat()
    }

    #[test]
    fn fragments_are_joined() {
        let bytes = [
            fragment(b"ab", false),
            fragment(b"", false),
            fragment(b"c", true),
            fragment(b"d", true),
        ];
        let bytes = bytes.concat();
        let mut reader = &bytes[..];
        assert_eq!(read_record(&mut reader, TIME_MAX).unwrap(), Some(b"abc".to_vec()));
        assert_eq!(read_record(&mut reader, TIME_MAX).unwrap(), Some(b"d".to_vec()));
        assert_eq!(read_record(&mut reader, TIME_MAX).unwrap(), None);
    }

    #[test]
    fn requests_are_bounded() {
        let largest = vec![7; RECORD_BYTES_MAX];
        let bytes = fragment(&largest, true);
        assert_eq!(read_record(&mut &bytes[..], TIME_MAX).unwrap(), Some(largest.clone()));
        let error = |bytes: &[u8]| read_record(&mut &*bytes, TIME_MAX).unwrap_err().kind();
        assert_eq!(error(&[0xff; 8]), io::ErrorKind::InvalidData);
        let two = [fragment(&largest, false), fragment(b"x", true)].concat();
        assert_eq!(error(&two), io::ErrorKind::InvalidData);
        let many = fragment(b"", false).repeat(FRAGMENTS_MAX + 1);
        assert_eq!(error(&many), io::ErrorKind::InvalidData);
    }

    #[test]
    fn truncated_requests_end_the_connection() {
        let bytes = fragment(b"abcdef", true);
        for len in 0..bytes.len() {
            assert_eq!(read_record(&mut &bytes[..len], TIME_MAX).unwrap(), None, "{len}");
        }
    }

    #[test]
    fn connections_share_the_requests_in_progress() {
        let traffic = Traffic::default();
        for (connections, max) in [(0, 8), (1, 8), (16, 8), (32, 4), (64, 2), (1000, 2)] {
            traffic.connections.store(connections, Ordering::Relaxed);
            assert_eq!(traffic.requests_max(), max, "{connections} connections");
        }
    }

    /// Returns one byte at a time, after timeouts.
    struct Slow<'a>(&'a [u8], u32);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 += 1;
            if !self.1.is_multiple_of(3) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.0.read(&mut buffer[..1])
        }
    }

    #[test]
    fn half_requests_time_out() {
        let bytes = fragment(b"abcdef", true);
        let record = read_record(&mut Slow(&bytes, 0), TIME_MAX).unwrap();
        assert_eq!(record, Some(b"abcdef".to_vec()));
        let error = read_record(&mut Slow(&bytes, 0), Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
