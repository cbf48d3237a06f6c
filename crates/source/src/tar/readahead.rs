//! Decompression on a thread of its own, a bounded distance ahead of the reader. On a host without threads it is
//! the reader's.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::host::HAS_THREADS;

/// Bytes handed over at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks that may wait for the reader.
const CHUNKS_AHEAD: usize = 4;

/// Reads another reader on a thread. Dropping it lets the thread end at its next chunk; it is not
/// waited for, since a pipe may never give that chunk.
pub(crate) struct ReadAhead(Reader);

enum Reader {
    Here(Box<dyn Read + Send>),
    Thread(Chunks),
}

/// What the thread has read.
struct Chunks {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Vec<u8>,
    /// Bytes of `chunk` already returned.
    used: usize,
    /// The last chunk, which is empty, or an error has come.
    is_over: bool,
}

impl ReadAhead {
    pub(crate) fn start(inner: Box<dyn Read + Send>) -> io::Result<Self> {
        if !HAS_THREADS {
            return Ok(Self(Reader::Here(inner)));
        }
        let (sender, chunks) = sync_channel(CHUNKS_AHEAD);
        thread::Builder::new().name("decompress".to_owned()).spawn(move || pump(inner, &sender))?;
        let chunks = Chunks { chunks, chunk: Vec::new(), used: 0, is_over: false };
        Ok(Self(Reader::Thread(chunks)))
    }
}

/// Sends chunks up to an empty one or an error, or until nobody wants more.
fn pump(mut inner: Box<dyn Read + Send>, sender: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        let read = inner.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut chunk);
        // What came before an error is good, and an archive may end before it.
        let is_last = chunk.is_empty() || read.is_err();
        if (read.is_ok() || !chunk.is_empty()) && sender.send(Ok(chunk)).is_err() {
            return;
        }
        if let Err(error) = read {
            let _ = sender.send(Err(error));
        }
        if is_last {
            return;
        }
    }
}

impl Read for ReadAhead {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Reader::Here(reader) => reader.read(buf),
            Reader::Thread(chunks) => chunks.read(buf),
        }
    }
}

impl Read for Chunks {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.used == self.chunk.len() && !self.is_over {
            let ended = || io::Error::other("the thread that decompresses ended early");
            let next = self.chunks.recv().unwrap_or_else(|_| Err(ended()));
            self.is_over = next.as_ref().map_or(true, Vec::is_empty);
            self.chunk = next?;
            self.used = 0;
        }
        let n = (&self.chunk[self.used..]).read(buf)?;
        self.used += n;
        Ok(n)
    }
}
