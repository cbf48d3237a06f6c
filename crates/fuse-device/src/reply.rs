//! The answer to a request: what follows the `fuse_out_header`, which the session makes.

use zerocopy::{Immutable, IntoBytes};

use crate::Errno;

/// An answer in the making, in a buffer of the session's. Nothing is allocated.
#[derive(Debug)]
pub struct Reply<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> Reply<'a> {
    /// An empty answer, to be put into `buffer`. What that holds is overwritten.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0 }
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
