//! A connection shared by threads. Each thread waits for its own reply; a background thread reads all replies.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::nbd::protocol::{REPLY_BYTES, Reply, Request, command, errno, violation};
use crate::nbd::stream::{Pace, Paced, Stream, read_vec};

/// A connection after its handshake.
pub(super) struct Connection(Arc<ConnectionState>);

struct ConnectionState {
    stream: Stream,
    pace: Pace,
    /// Bytes of replies received so far.
    come: AtomicU64,
    state: Mutex<PendingReplies>,
    /// Held while a request is sent, so that requests do not interleave.
    sending: Mutex<()>,
}

#[derive(Default)]
struct PendingReplies {
    next_cookie: u64,
    waiting: HashMap<u64, Waiting>,
    /// The first failure. All later requests fail with it.
    failed: Option<(io::ErrorKind, String)>,
}

/// A pending request.
struct Waiting {
    /// Length of the contents of a successful reply.
    contents_bytes: u32,
    /// Channel to the waiting thread: contents, or an error number.
    answer: SyncSender<Result<Vec<u8>, u32>>,
}

impl Connection {
    /// Starts the thread that reads replies.
    pub(super) fn start(stream: Stream, pace: Pace) -> io::Result<Self> {
        // The connection may be idle for long.
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(Some(pace.window))?;
        let shared = Arc::new(ConnectionState {
            stream,
            pace,
            come: AtomicU64::new(0),
            state: Mutex::default(),
            sending: Mutex::new(()),
        });
        let reader = Arc::clone(&shared);
        thread::Builder::new().name("nbd replies".into()).spawn(move || {
            let error = loop {
                if let Err(error) = reader.read_reply() {
                    break error;
                }
            };
            reader.fail(&error);
        })?;
        Ok(Self(shared))
    }

    /// Sends a request and waits for its reply. Returns the contents that it reads.
    pub(super) fn request(
        &self,
        command: u16,
        offset: u64,
        len: u32,
        contents: &[u8],
    ) -> io::Result<Vec<u8>> {
        let (answer, answered) = sync_channel(1);
        let contents_bytes = if command == command::READ { len } else { 0 };
        let cookie = self.0.enter(Waiting { contents_bytes, answer })?;
        let header = Request { flags: 0, command, cookie, offset, len }.bytes();
        if let Err(error) = self.0.send(&header, contents) {
            self.0.fail(&error);
        }
        self.0.wait(&answered)
    }
}

impl Drop for Connection {
    /// Sends a disconnect request, which may fail, and ends the thread.
    fn drop(&mut self) {
        let request =
            Request { flags: 0, command: command::DISCONNECT, cookie: 0, offset: 0, len: 0 };
        if self.0.hold().failed.is_none() {
            let _ = self.0.send(&request.bytes(), &[]);
        }
        self.0.stream.shutdown(Shutdown::Both);
    }
}

impl ConnectionState {
    fn hold(&self) -> MutexGuard<'_, PendingReplies> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a pending request and returns its cookie.
    fn enter(&self, waiting: Waiting) -> io::Result<u64> {
        let mut state = self.hold();
        if state.failed.is_some() {
            drop(state);
            return Err(self.failure());
        }
        let cookie = state.next_cookie;
        state.next_cookie += 1;
        state.waiting.insert(cookie, waiting);
        Ok(cookie)
    }

    /// Waits for one reply. Fails if replies arrive more slowly than the required pace.
    fn wait(&self, answered: &Receiver<Result<Vec<u8>, u32>>) -> io::Result<Vec<u8>> {
        loop {
            let before = self.come.load(Ordering::Relaxed);
            match answered.recv_timeout(self.pace.window) {
                Ok(answer) => return answer.map_err(error_of),
                Err(RecvTimeoutError::Timeout)
                    if self.come.load(Ordering::Relaxed) - before >= self.pace.window_bytes => {}
                Err(RecvTimeoutError::Timeout) => {
                    self.fail(&io::ErrorKind::TimedOut.into());
                    return Err(self.failure());
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.failure()),
            }
        }
    }

    fn send(&self, header: &[u8], contents: &[u8]) -> io::Result<()> {
        let _turn = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let mut writer = &self.stream;
        writer.write_all(header)?;
        writer.write_all(contents)
    }

    /// Reads one reply and passes it to the waiting thread.
    fn read_reply(&self) -> io::Result<()> {
        let mut header = [0; REPLY_BYTES];
        // The connection may be idle for long. A reply that has started must keep the pace.
        self.stream.set_read_timeout(None)?;
        (&self.stream).read_exact(&mut header[..1])?;
        let mut reader =
            CountedReader { reader: Paced::new(&self.stream, self.pace), come: &self.come };
        reader.read_exact(&mut header[1..])?;
        let Reply { error, cookie } = Reply::parse(&header)?;
        let waiting = self.hold().waiting.remove(&cookie);
        let Some(Waiting { contents_bytes, answer }) = waiting else {
            return Err(violation(format!("a reply to an unknown request {cookie}")));
        };
        let contents = match error {
            errno::NONE => Ok(read_vec(&mut reader, contents_bytes)?),
            number => Err(number),
        };
        // The waiting thread may have given up.
        let _ = answer.send(contents);
        Ok(())
    }

    /// Fails the connection and all pending requests. Keeps the first error.
    fn fail(&self, error: &io::Error) {
        let mut state = self.hold();
        state.failed.get_or_insert_with(|| (error.kind(), super::plain(error)));
        state.waiting.clear();
        drop(state);
        self.stream.shutdown(Shutdown::Both);
    }

    fn failure(&self) -> io::Error {
        match &self.hold().failed {
            Some((kind, why)) => io::Error::new(kind_of_failure(*kind), why.clone()),
            None => io::ErrorKind::BrokenPipe.into(),
        }
    }
}

/// A reader that counts the bytes of replies.
struct CountedReader<'a> {
    reader: Paced<'a>,
    come: &'a AtomicU64,
}

impl Read for CountedReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buf)?;
        self.come.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Returns the error kind for requests after a failure. A closed connection must not look like the end of the device.
fn kind_of_failure(kind: io::ErrorKind) -> io::ErrorKind {
    match kind {
        io::ErrorKind::UnexpectedEof => io::ErrorKind::ConnectionAborted,
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut,
        kind => kind,
    }
}

/// Converts an error number of the protocol.
fn error_of(number: u32) -> io::Error {
    let (kind, what) = match number {
        errno::PERM => (io::ErrorKind::PermissionDenied, "permission denied by the server"),
        errno::NO_MEMORY => (io::ErrorKind::OutOfMemory, "the server is out of memory"),
        errno::INVALID => {
            (io::ErrorKind::InvalidInput, "the server rejects the request as invalid")
        }
        errno::NO_SPACE => (io::ErrorKind::StorageFull, "the server has no space left"),
        errno::OVERFLOW => {
            (io::ErrorKind::InvalidInput, "the server rejects the request as too large")
        }
        errno::UNSUPPORTED => (io::ErrorKind::Unsupported, "the server does not support it"),
        errno::SHUTDOWN => (io::ErrorKind::ConnectionAborted, "the server is shutting down"),
        errno::IO => (io::ErrorKind::Other, "the server's device returned an error"),
        _ => {
            return io::Error::other(format!("the server returned error {number}"));
        }
    };
    io::Error::new(kind, what)
}
