//! The answer to a request: what follows the `fuse_out_header`, which the session makes.

use std::fs::File;

use zerocopy::{Immutable, IntoBytes};

use crate::Errno;
use crate::abi::OutHeader;
use crate::device::Device;
use crate::pipe::Pipe;

/// An answer in the making, in a buffer of the session's. Nothing is allocated.
#[derive(Debug)]
pub struct Reply<'a> {
    buffer: &'a mut [u8],
    len: usize,
    /// Where it can be sent from files.
    by_pipe: Option<ByPipe<'a>>,
    is_sent: bool,
}

/// What an answer from files takes.
#[derive(Debug)]
pub(crate) struct ByPipe<'a> {
    /// Empty. It is taken away when it failed.
    pub(crate) pipe: &'a mut Option<Pipe>,
    /// Where the request came from.
    pub(crate) device: &'a Device,
    /// The number of the request.
    pub(crate) unique: u64,
}

impl<'a> Reply<'a> {
    /// An empty answer, to be put into `buffer`. What that holds is overwritten.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0, by_pipe: None, is_sent: false }
    }

    /// The same where answers may be sent from files.
    pub(crate) fn with_pipe(buffer: &'a mut [u8], by_pipe: ByPipe<'a>) -> Self {
        Self { buffer, len: 0, by_pipe: Some(by_pipe), is_sent: false }
    }

    /// Whether [`Self::send_files`] can send anything at all.
    pub fn sends_files(&self) -> bool {
        self.by_pipe.as_ref().is_some_and(|by| by.pipe.is_some())
    }

    /// Sends the whole answer at once: these parts of files, each with its first byte and its length. They
    /// must not change before this returns; then the kernel has copied them.
    ///
    /// Whether they were sent. If not, nothing was, and the answer has to be put together as ever: too
    /// much, bytes that cannot be read, a kernel that does not take it.
    ///
    /// # Panics
    /// If something was put in before.
    pub fn send_files<'f>(
        &mut self,
        parts: impl Iterator<Item = (&'f File, u64, u64)> + Clone,
    ) -> bool {
        assert!(self.is_empty(), "an answer from files has nothing else");
        let Some(ByPipe { pipe, device, unique }) = &mut self.by_pipe else { return false };
        let Some(there) = pipe.as_ref().filter(|pipe| pipe.fits(parts.clone())) else {
            return false;
        };
        let len = parts.clone().map(|(_, _, len)| len).sum::<u64>();
        let Ok(len) = u32::try_from(len + size_of::<OutHeader>() as u64) else { return false };
        let header = OutHeader { len, error: 0, unique: *unique };
        match there.send(device, &header, parts) {
            Ok(()) => self.is_sent = true,
            // Something may be left in it.
            Err(_) => **pipe = None,
        }
        self.is_sent
    }

    /// Whether it is with the kernel.
    pub(crate) fn is_sent(&self) -> bool {
        self.is_sent
    }

    /// Appends a structure of the protocol.
    ///
    /// # Errors
    /// `EIO` if there is no room, as for all that is appended.
    pub fn put<T: IntoBytes + Immutable>(&mut self, value: &T) -> Result<(), Errno> {
        self.put_bytes(value.as_bytes())
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// `EIO` if there is no room.
    pub fn put_bytes(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let room = self.buffer.get_mut(self.len..self.len + bytes.len()).ok_or(Errno::IO)?;
        room.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// The next `len` bytes, to be filled in place; they hold anything. [`Self::advance`] says how many
    /// of them belong to the answer.
    ///
    /// # Errors
    /// `EIO` if there is no room.
    pub fn room(&mut self, len: usize) -> Result<&mut [u8], Errno> {
        self.buffer.get_mut(self.len..).and_then(|rest| rest.get_mut(..len)).ok_or(Errno::IO)
    }

    /// Takes the next `len` bytes, filled through [`Self::room`], into the answer.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn advance(&mut self, len: usize) {
        assert!(len <= self.buffer.len() - self.len, "more than the reply has room for");
        self.len += len;
    }

    /// The answer so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// The answer so far, to be corrected in place.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.len]
    }

    /// Bytes of the answer so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing has been put in.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes everything back from byte `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}
