//! External data representation (RFC 4506): big-endian words, opaque data padded to four bytes.

/// The arguments of a message are truncated or invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbage;

/// Reads arguments. Data is borrowed from the message, so a length field never leads to an allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XdrReader<'a> {
    bytes: &'a [u8],
}

impl<'a> XdrReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns the bytes that were not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Garbage> {
        let (array, rest) = self.bytes.split_first_chunk().ok_or(Garbage)?;
        self.bytes = rest;
        Ok(*array)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Garbage> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Garbage> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn bool(&mut self) -> Result<bool, Garbage> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbage),
        }
    }

    /// Reads an optional value.
    pub(crate) fn option<T>(
        &mut self,
        value: impl FnOnce(&mut Self) -> Result<T, Garbage>,
    ) -> Result<Option<T>, Garbage> {
        if self.bool()? { value(self).map(Some) } else { Ok(None) }
    }

    /// Reads data with a length of at most `len_max` bytes.
    pub(crate) fn opaque(&mut self, len_max: usize) -> Result<&'a [u8], Garbage> {
        let len = self.u32()? as usize;
        if len > len_max {
            return Err(Garbage);
        }
        let (data, rest) = self.bytes.split_at_checked(len).ok_or(Garbage)?;
        self.bytes = rest.get(padding(len)..).ok_or(Garbage)?;
        Ok(data)
    }
}

/// Number of bytes after data of this length.
pub(crate) const fn padding(len: usize) -> usize {
    len.wrapping_neg() % 4
}

/// Builds a reply, after the four bytes of a record mark.
#[derive(Debug)]
pub(crate) struct XdrWriter {
    bytes: Vec<u8>,
}

impl XdrWriter {
    /// Size of a record mark.
    const MARK: usize = 4;
    /// Bit of the last fragment of a record (RFC 5531, section 11).
    const LAST: u32 = 1 << 31;

    pub(crate) fn new() -> Self {
        let mut bytes = Vec::with_capacity(512);
        bytes.resize(Self::MARK, 0);
        Self { bytes }
    }

    /// Returns the number of bytes of the message.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - Self::MARK
    }

    /// Removes everything after the first `len` bytes of the message.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(Self::MARK + len);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.u32(value.into());
    }

    /// Reserves memory for further bytes.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    pub(crate) fn opaque(&mut self, data: &[u8]) {
        self.u32(data.len() as u32);
        self.bytes.extend_from_slice(data);
        self.bytes.extend_from_slice(&[0; 3][..padding(data.len())]);
    }

    /// Appends data of at most `len_max` bytes, which `fill` stores in a buffer. Returns its length.
    pub(crate) fn opaque_with<E>(
        &mut self,
        len_max: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let at = self.bytes.len();
        self.u32(0);
        let data_at = self.bytes.len();
        self.bytes.resize(data_at + len_max, 0);
        let len = fill(&mut self.bytes[data_at..])?.min(len_max);
        self.bytes.truncate(data_at + len);
        self.bytes.resize(data_at + len + padding(len), 0);
        self.bytes[at..data_at].copy_from_slice(&(len as u32).to_be_bytes());
        Ok(len)
    }

    /// Overwrites the message from `at` on with another one.
    pub(crate) fn overwrite(&mut self, at: usize, other: &Self) {
        let (at, new) = (Self::MARK + at, &other.bytes[Self::MARK..]);
        self.bytes[at..at + new.len()].copy_from_slice(new);
    }

    /// Returns the message as a record of one fragment.
    pub(crate) fn into_record(mut self) -> Vec<u8> {
        let mark = self.len() as u32 | Self::LAST;
        self.bytes[..Self::MARK].copy_from_slice(&mark.to_be_bytes());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_written() {
        let mut writer = XdrWriter::new();
        writer.u32(7);
        writer.u64(1 << 40);
        writer.bool(true);
        writer.opaque(b"abcde");
        let filled = writer.opaque_with(9, |buffer| {
            buffer[..3].copy_from_slice(b"xyz");
            Ok::<_, Garbage>(3)
        });
        assert_eq!(filled, Ok(3));
        writer.u64(u64::from_be_bytes(*b"12345678"));
        let record = writer.into_record();
        assert_eq!(record.len() % 4, 0);
        assert_eq!(record[..4], (0x8000_0000_u32 | (record.len() as u32 - 4)).to_be_bytes());
        let mut reader = XdrReader::new(&record[4..]);
        assert_eq!((reader.u32(), reader.u64(), reader.bool()), (Ok(7), Ok(1 << 40), Ok(true)));
        assert_eq!((reader.opaque(5), reader.opaque(3)), (Ok(&b"abcde"[..]), Ok(&b"xyz"[..])));
        assert_eq!((reader.array(), reader.rest()), (Ok(*b"12345678"), &b""[..]));
    }

    #[test]
    fn lengths_beyond_the_message_are_refused() {
        for (bytes, len_max) in [
            (&[0xff, 0xff, 0xff, 0xff, 1, 2][..], usize::MAX),
            (&[0, 0, 0, 5, 1, 2, 3, 4], usize::MAX),
            (&[0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0], usize::MAX),
            (&[0, 0, 0, 4, 1, 2, 3, 4], 3),
            (&[0, 0, 0], usize::MAX),
        ] {
            assert_eq!(XdrReader::new(bytes).opaque(len_max), Err(Garbage), "{bytes:?}");
        }
        assert_eq!(XdrReader::new(&[0, 0, 0, 2]).bool(), Err(Garbage));
    }
}
