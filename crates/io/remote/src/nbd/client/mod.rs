//! The NBD client.

mod connection;
mod handshake;
mod holes;
mod reply;

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError, RwLock};

use disk::BlockDevice;

pub use self::reply::parse_reply;

use self::connection::Connection;
use self::holes::Holes;
use crate::nbd::Export;
use crate::nbd::Pace;
use crate::nbd::protocol::{command, transmission};

/// Maximum length of one `WRITE_ZEROES` request.
const ZEROES_BYTES_MAX: u64 = 1 << 30;
/// Maximum length of one `BLOCK_STATUS` request, without the rest of a block.
const STATUS_BYTES_MAX: u64 = 1 << 30;
/// Buffer size for zeros sent as data, if the server has no `WRITE_ZEROES`.
const ZEROS_SENT_BYTES: u64 = 1 << 20;

/// An export of an NBD server as a device. Threads share one connection, with one pending request each. If the server
/// does not answer for a minute, or violates the protocol, the connection fails: all later requests return that error.
pub struct Client {
    connection: Connection,
    terms: Terms,
    export: Export,
    /// Held for writing during partial block writes, for reading during whole ones.
    parts: RwLock<()>,
    failed_flush: Mutex<Option<String>>,
    holes: Holes,
}

/// Properties of an export as reported by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Terms {
    len: u64,
    flags: u16,
    /// Alignment of offsets and lengths; a power of two.
    block_bytes: u32,
    /// Maximum length of a read or write; a multiple of `block_bytes`.
    payload_bytes_max: u32,
    /// Replies to reads consist of chunks.
    has_chunks: bool,
    /// Identifier of the metadata context of holes, if the server has it.
    allocation_id: Option<u32>,
}

impl Client {
    /// Connects to `nbd://HOST[:PORT]/NAME` or `nbd+unix:///NAME?socket=PATH`.
    ///
    /// # Errors
    /// If the address is invalid, no NBD server answers, or it has no such export.
    pub fn connect(url: &str) -> io::Result<Self> {
        Self::connect_within(url, Pace::default())
    }

    /// Connects with another pace that the server must keep.
    ///
    /// # Errors
    /// See [`Self::connect`].
    pub fn connect_within(url: &str, pace: Pace) -> io::Result<Self> {
        let export: Export =
            url.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{export}: {}", plain(&error)));
        let stream = crate::nbd::stream::Stream::connect(&export.address).map_err(named)?;
        let terms = handshake::agree(&stream, &export.name, pace).map_err(named)?;
        let connection = Connection::start(stream, pace, &terms).map_err(named)?;
        let (parts, failed_flush) = (RwLock::new(()), Mutex::new(None));
        Ok(Self { connection, terms, export, parts, failed_flush, holes: Holes::default() })
    }

    /// Checks whether the export is read-only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.can(transmission::READ_ONLY)
    }

    fn can(&self, flag: u16) -> bool {
        self.terms.flags & flag != 0
    }

    /// Adds the export to an error.
    fn named(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {}", self.export, plain(error)))
    }

    fn check(&self, offset: u64, len: u64, writes: bool) -> io::Result<()> {
        if writes && self.is_read_only() {
            let error =
                io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the export is read-only");
            return Err(self.named(&error));
        }
        match offset.checked_add(len) {
            Some(end) if end <= self.terms.len => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!(
                    "bytes {offset}+{len} are past the end of {} ({} bytes)",
                    self.export, self.terms.len
                ),
            )),
        }
    }

    /// Returns the whole blocks that overlap a range, as start and length. The end of the device may cut the last one.
    fn around(&self, offset: u64, len: u64) -> (u64, u64) {
        let block = u64::from(self.terms.block_bytes);
        let start = offset - offset % block;
        let end = (offset + len).next_multiple_of(block).min(self.terms.len);
        (start, end - start)
    }

    fn read_pieces(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut at = offset;
        for piece in buf.chunks_mut(self.terms.payload_bytes_max as usize) {
            let len = piece.len() as u32;
            let read = self.connection.request(command::READ, at, len, &[]);
            piece.copy_from_slice(&read.map_err(|error| self.named(&error))?.contents);
            at += u64::from(len);
        }
        Ok(())
    }

    fn write_pieces(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut at = offset;
        for piece in data.chunks(self.terms.payload_bytes_max as usize) {
            let len = piece.len() as u32;
            let written = self.connection.request(command::WRITE, at, len, piece);
            self.holes.forget();
            written.map_err(|error| self.named(&error))?;
            at += u64::from(len);
        }
        Ok(())
    }

    /// Sends a request without data for a range of whole blocks.
    fn order(&self, command: u16, offset: u64, len: u64) -> io::Result<()> {
        let mut at = offset;
        while at < offset + len {
            let piece = (offset + len - at).min(ZEROES_BYTES_MAX);
            let done = self.connection.request(command, at, piece as u32, &[]);
            self.holes.forget();
            done.map_err(|error| self.named(&error))?;
            at += piece;
        }
        Ok(())
    }

    /// Requests the status of the blocks from `offset` on. Returns the start and the extents with their flags.
    fn status(&self, offset: u64) -> Option<(u64, Vec<(u32, u32)>)> {
        let (start, len) = self.around(offset, STATUS_BYTES_MAX.min(self.terms.len - offset));
        let status = self.connection.request(command::BLOCK_STATUS, start, len as u32, &[]);
        Some((start, status.ok()?.extents))
    }

    /// Returns the whole blocks within a range, as start and length.
    fn within(&self, offset: u64, len: u64) -> (u64, u64) {
        let block = u64::from(self.terms.block_bytes);
        let start = offset.next_multiple_of(block);
        let end = offset + len;
        let end = if end == self.terms.len { end } else { end - end % block };
        (start, end.saturating_sub(start))
    }

    fn send_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        let zeros = vec![0; ZEROS_SENT_BYTES.min(len) as usize];
        let mut at = offset;
        while at < offset + len {
            let piece = (offset + len - at).min(ZEROS_SENT_BYTES);
            self.write_at(at, &zeros[..piece as usize])?;
            at += piece;
        }
        Ok(())
    }
}

impl BlockDevice for Client {
    fn len(&self) -> u64 {
        self.terms.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64, false)?;
        let (start, len) = self.around(offset, buf.len() as u64);
        if buf.is_empty() || (start, len) == (offset, buf.len() as u64) {
            return self.read_pieces(offset, buf);
        }
        let mut blocks = vec![0; len as usize];
        self.read_pieces(start, &mut blocks)?;
        buf.copy_from_slice(&blocks[(offset - start) as usize..][..buf.len()]);
        Ok(())
    }

    /// Asks the server, unless it was asked recently. Other clients may have written since.
    fn known_zeros(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        self.terms.allocation_id?;
        self.check(offset, len, false).ok()?;
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let (next, is_zeros) = self.holes.at(at, |at| self.status(at))?;
            if is_zeros {
                return Some(at..next.min(end));
            }
            at = next;
        }
        None
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len() as u64, true)?;
        let (start, len) = self.around(offset, data.len() as u64);
        if data.is_empty() || (start, len) == (offset, data.len() as u64) {
            let _whole = self.parts.read().unwrap_or_else(PoisonError::into_inner);
            return self.write_pieces(offset, data);
        }
        let _part = self.parts.write().unwrap_or_else(PoisonError::into_inner);
        let mut blocks = vec![0; len as usize];
        self.read_pieces(start, &mut blocks)?;
        blocks[(offset - start) as usize..][..data.len()].copy_from_slice(data);
        self.write_pieces(start, &blocks)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len, true)?;
        let (start, whole) = self.within(offset, len);
        if !self.can(transmission::SEND_WRITE_ZEROES) || whole == 0 {
            return self.send_zeros(offset, len);
        }
        self.send_zeros(offset, start - offset)?;
        self.order(command::WRITE_ZEROES, start, whole)?;
        self.send_zeros(start + whole, offset + len - start - whole)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len, true)?;
        if !self.can(transmission::SEND_TRIM) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (start, whole) = self.within(offset, len);
        self.order(command::TRIM, start, whole)
    }

    /// A failed flush is permanent: the server's lost writes are unknown.
    fn flush(&self) -> io::Result<()> {
        if !self.can(transmission::SEND_FLUSH) {
            // A server without `FLUSH` has written everything that it has acknowledged.
            return Ok(());
        }
        let failed = || self.failed_flush.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = &*failed() {
            return Err(io::Error::other(reason.clone()));
        }
        let flushed = self.connection.request(command::FLUSH, 0, 0, &[]);
        flushed.map(drop).map_err(|error| {
            let error = self.named(&error);
            *failed() = Some(format!("{error}; earlier writes may be lost"));
            error
        })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({}, {:?})", self.export, self.terms)
    }
}

/// Describes an error in plain words.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "the server does not answer".into(),
        io::ErrorKind::UnexpectedEof => "the server has closed the connection".into(),
        _ => error.to_string(),
    }
}
