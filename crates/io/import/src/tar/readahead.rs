//! Decompression on a separate thread, a bounded distance ahead of the reader. On a host without threads it runs on the
//! reader's thread.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use crate::host::HAS_THREADS;

/// Size of a chunk in bytes.
const CHUNK_BYTES: usize = 256 << 10;
/// Maximum number of chunks ahead of the reader.
const CHUNKS_AHEAD: usize = 4;

/// Reads another reader on a thread. After a drop, the thread ends at its next chunk. The drop does not wait for it,
/// because a pipe may never supply that chunk.
pub(crate) struct ReadAhead(ArchiveReader);

enum ArchiveReader {
    Here(Box<dyn Read + Send>),
    Thread(Chunks),
}

/// The chunks from the thread.
struct Chunks {
    chunks: Receiver<io::Result<Chunk>>,
    /// Returns the memory of chunks to the thread.
    spare: Sender<Chunk>,
    chunk: Chunk,
    /// Number of bytes of the chunk already returned.
    used: usize,
    /// True after the last chunk, which is empty, or an error.
    is_over: bool,
}

/// A chunk of bytes.
#[derive(Default)]
struct Chunk {
    memory: Vec<u8>,
    /// Number of bytes read.
    len: usize,
}

impl Chunk {
    /// Reads until the chunk is full, the reader ends or an error occurs.
    fn fill(&mut self, reader: &mut dyn Read) -> io::Result<()> {
        self.memory.resize(CHUNK_BYTES, 0);
        self.len = 0;
        while self.len < CHUNK_BYTES {
            match reader.read(&mut self.memory[self.len..]) {
                Ok(0) => break,
                Ok(n) => self.len += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl ReadAhead {
    pub(crate) fn start(inner: Box<dyn Read + Send>) -> io::Result<Self> {
        if !HAS_THREADS {
            return Ok(Self(ArchiveReader::Here(inner)));
        }
        let (sender, chunks) = sync_channel(CHUNKS_AHEAD);
        let (spare, spares) = channel();
        thread::Builder::new()
            .name("decompress".to_owned())
            .spawn(move || pump(inner, &sender, &spares))?;
        let chunks = Chunks { chunks, spare, chunk: Chunk::default(), used: 0, is_over: false };
        Ok(Self(ArchiveReader::Thread(chunks)))
    }
}

/// Sends chunks up to an empty one or an error, or until the receiver is dropped.
fn pump(
    mut inner: Box<dyn Read + Send>,
    sender: &SyncSender<io::Result<Chunk>>,
    spares: &Receiver<Chunk>,
) {
    loop {
        let mut chunk = spares.try_recv().unwrap_or_default();
        let read = chunk.fill(&mut *inner);
        // Bytes before an error are valid, and the archive may end among them.
        let is_empty = chunk.len == 0;
        if (read.is_ok() || !is_empty) && sender.send(Ok(chunk)).is_err() {
            return;
        }
        let is_last = is_empty || read.is_err();
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
            ArchiveReader::Here(reader) => reader.read(buf),
            ArchiveReader::Thread(chunks) => chunks.read(buf),
        }
    }
}

impl Read for Chunks {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.used == self.chunk.len && !self.is_over {
            let ended = || io::Error::other("the decompression thread ended early");
            let next = self.chunks.recv().unwrap_or_else(|_| Err(ended()));
            self.is_over = next.as_ref().map_or(true, |chunk| chunk.len == 0);
            let used = std::mem::replace(&mut self.chunk, next?);
            self.used = 0;
            // The thread may have ended.
            let _ = self.spare.send(used);
        }
        let n = (&self.chunk.memory[self.used..self.chunk.len]).read(buf)?;
        self.used += n;
        Ok(n)
    }
}
