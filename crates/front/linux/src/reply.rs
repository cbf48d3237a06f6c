//! The reply to a request: the part after the `fuse_out_header`, which the session adds.

use std::fs::File;

use zerocopy::{Immutable, IntoBytes};

use crate::Errno;
use crate::abi::OutHeader;
use crate::device::Device;
use crate::pipe::Pipe;

/// A reply under construction in a buffer of the session. Does not allocate.
#[derive(Debug)]
pub struct Reply<'a> {
    buffer: &'a mut [u8],
    len: usize,
    /// Set if the reply can be sent from files.
    by_pipe: Option<ByPipe<'a>>,
    is_sent: bool,
}

/// Resources for a reply from files.
#[derive(Debug)]
pub(crate) struct ByPipe<'a> {
    /// An empty pipe. `None` after a failure.
    pub(crate) pipe: &'a mut Option<Pipe>,
    /// Descriptor that the request was read from.
    pub(crate) device: &'a Device,
    /// Number of the request.
    pub(crate) unique: u64,
}

impl<'a> Reply<'a> {
    /// Creates an empty reply in `buffer`. Overwrites the contents of `buffer`.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0, by_pipe: None, is_sent: false }
    }

    /// Like [`Self::new`], for replies that can be sent from files.
    pub(crate) fn with_pipe(buffer: &'a mut [u8], by_pipe: ByPipe<'a>) -> Self {
        Self { buffer, len: 0, by_pipe: Some(by_pipe), is_sent: false }
    }

    /// Returns whether [`Self::send_files`] can succeed.
    pub fn sends_files(&self) -> bool {
        self.by_pipe.as_ref().is_some_and(|by| by.pipe.is_some())
    }

    /// Sends the whole reply from parts of files, each with its first byte and length. The data
    /// must not change before this returns; the kernel has copied it by then.
    ///
    /// Returns whether the reply was sent. If not, nothing was sent, and the caller must build the
    /// reply in the buffer. Reasons are an oversized reply, unreadable data, and a kernel that
    /// rejects it.
    ///
    /// # Panics
    /// If the reply is not empty.
    pub fn send_files<'f>(
        &mut self,
        parts: impl Iterator<Item = (&'f File, u64, u64)> + Clone,
    ) -> bool {
        assert!(self.is_empty(), "the reply must be empty before file data is added");
        let Some(ByPipe { pipe, device, unique }) = &mut self.by_pipe else { return false };
        let Some(there) = pipe.as_ref().filter(|pipe| pipe.fits(parts.clone())) else {
            return false;
        };
        let len = parts.clone().map(|(_, _, len)| len).sum::<u64>();
        let Ok(len) = u32::try_from(len + size_of::<OutHeader>() as u64) else { return false };
        let header = OutHeader { len, error: 0, unique: *unique };
        match there.send(device, &header, parts) {
            Ok(()) => self.is_sent = true,
            // The pipe may still contain data.
            Err(_) => **pipe = None,
        }
        self.is_sent
    }

    /// Returns whether the reply was already sent to the kernel.
    pub(crate) fn is_sent(&self) -> bool {
        self.is_sent
    }

    /// Appends a structure of the protocol.
    ///
    /// # Errors
    /// `EIO` if the buffer is full, as with all methods that append.
    pub fn put<T: IntoBytes + Immutable>(&mut self, value: &T) -> Result<(), Errno> {
        self.put_bytes(value.as_bytes())
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// `EIO` if the buffer is full.
    pub fn put_bytes(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let room = self.buffer.get_mut(self.len..self.len + bytes.len()).ok_or(Errno::IO)?;
        room.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// Returns the next `len` bytes of the buffer, with unspecified contents, to be filled in
    /// place. [`Self::advance`] appends them to the reply.
    ///
    /// # Errors
    /// `EIO` if the buffer is full.
    pub fn room(&mut self, len: usize) -> Result<&mut [u8], Errno> {
        self.buffer.get_mut(self.len..).and_then(|rest| rest.get_mut(..len)).ok_or(Errno::IO)
    }

    /// Appends the next `len` bytes of the buffer, which were filled through [`Self::room`].
    ///
    /// # Panics
    /// If the buffer has fewer bytes left.
    pub fn advance(&mut self, len: usize) {
        assert!(len <= self.buffer.len() - self.len, "more data than the reply can contain");
        self.len += len;
    }

    /// Returns the reply so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// Returns the reply so far, for changes in place.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.len]
    }

    /// Returns the length of the reply so far, in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the reply is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
