//! A connection shared by threads. Each thread waits for its own reply; a background thread reads all replies.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::Terms;
use super::reply::{Answer, PartialReply, Refusal};
use crate::nbd::protocol::{
    CHUNK_BYTES, CHUNK_MAGIC, Chunk, REPLY_BYTES, Reply, Request, command, violation,
};
use crate::nbd::stream::{Pace, Paced, Stream};

/// A connection after its handshake.
pub(super) struct Connection(Arc<ConnectionState>);

struct ConnectionState {
    stream: Stream,
    pace: Pace,
    /// Replies to reads consist of chunks.
    has_chunks: bool,
    /// Identifier of the metadata context of holes.
    allocation_id: Option<u32>,
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
    /// The parts of the reply that have arrived.
    reply: PartialReply,
    /// Channel to the waiting thread.
    answer: SyncSender<Result<Answer, Refusal>>,
}

impl Connection {
    /// Starts the thread that reads replies.
    pub(super) fn start(stream: Stream, pace: Pace, terms: &Terms) -> io::Result<Self> {
        // The connection may be idle for long.
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(Some(pace.window))?;
        let shared = Arc::new(ConnectionState {
            stream,
            pace,
            has_chunks: terms.has_chunks,
            allocation_id: terms.allocation_id,
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

    /// Sends a request and waits for its reply.
    pub(super) fn request(
        &self,
        command: u16,
        offset: u64,
        len: u32,
        contents: &[u8],
    ) -> io::Result<Answer> {
        let (answer, answered) = sync_channel(1);
        let reply = PartialReply::new(command, offset, len, self.0.allocation_id);
        let cookie = self.0.enter(Waiting { reply, answer })?;
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
    fn wait(&self, answered: &Receiver<Result<Answer, Refusal>>) -> io::Result<Answer> {
        loop {
            let before = self.come.load(Ordering::Relaxed);
            match answered.recv_timeout(self.pace.window) {
                Ok(answer) => return answer.map_err(Refusal::into_error),
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

    /// Reads one reply, or one chunk of it.
    fn read_reply(&self) -> io::Result<()> {
        let mut magic = [0; 4];
        // The connection may be idle for long. A reply that has started must keep the pace.
        self.stream.set_read_timeout(None)?;
        (&self.stream).read_exact(&mut magic[..1])?;
        let mut reader =
            CountedReader { reader: Paced::new(&self.stream, self.pace), come: &self.come };
        reader.read_exact(&mut magic[1..])?;
        if self.has_chunks && magic == CHUNK_MAGIC.to_be_bytes() {
            return self.read_chunk(magic, &mut reader);
        }
        let mut header = [0; REPLY_BYTES];
        header[..4].copy_from_slice(&magic);
        reader.read_exact(&mut header[4..])?;
        let Reply { error, cookie } = Reply::parse(&header)?;
        let Waiting { mut reply, answer } = self.take(cookie)?;
        self.noted(reply.add_simple(error, self.has_chunks, &mut reader))?;
        // The waiting thread may have given up.
        let _ = answer.send(self.noted(reply.finish())?);
        Ok(())
    }

    /// Reads one chunk, and passes the reply to the waiting thread if it is the last one.
    fn read_chunk(&self, magic: [u8; 4], reader: &mut impl Read) -> io::Result<()> {
        let mut header = [0; CHUNK_BYTES];
        header[..4].copy_from_slice(&magic);
        reader.read_exact(&mut header[4..])?;
        let chunk = Chunk::parse(&header)?;
        let Waiting { mut reply, answer } = self.take(chunk.cookie)?;
        self.noted(reply.add(&chunk, reader))?;
        if chunk.is_last {
            // The waiting thread may have given up.
            let _ = answer.send(self.noted(reply.finish())?);
        } else {
            self.hold().waiting.insert(chunk.cookie, Waiting { reply, answer });
        }
        Ok(())
    }

    /// Returns a pending request and removes it from the table.
    fn take(&self, cookie: u64) -> io::Result<Waiting> {
        let waiting = self.hold().waiting.remove(&cookie);
        waiting.ok_or_else(|| violation(format!("a reply to an unknown request {cookie}")))
    }

    /// Fails the connection if `result` is an error, before the channel of the waiting thread is dropped.
    fn noted<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| self.fail(error))
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
