//! Reads bytes of a device for the detector, and numbers and texts in them.

use std::io;

use crate::BlockDevice;

/// Number of bytes at the start that are read at once. They contain most magic numbers.
const HEAD_BYTES: u64 = 72 << 10;
/// Maximum size of one read after the head.
const READ_BYTES_MAX: u64 = 128 << 10;

/// A device with its first bytes in memory.
pub(super) struct Probe<'a> {
    device: &'a dyn BlockDevice,
    head: Vec<u8>,
}

impl<'a> Probe<'a> {
    pub(super) fn new(device: &'a dyn BlockDevice) -> io::Result<Self> {
        let mut head = vec![0; device.len().min(HEAD_BYTES) as usize];
        device.read_at(0, &mut head)?;
        Ok(Self { device, head })
    }

    pub(super) fn len(&self) -> u64 {
        self.device.len()
    }

    /// Checks whether the first `len` bytes are zeros, as far as they were read.
    pub(super) fn starts_with_zeros(&self, len: usize) -> bool {
        crate::is_zero(&self.head[..self.head.len().min(len)])
    }

    /// Reads bytes. `None` if any of them is past the end.
    pub(super) fn bytes(&self, at: u64, len: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(end) = at.checked_add(len).filter(|end| *end <= self.device.len()) else {
            return Ok(None);
        };
        if let Some(bytes) = self.head.get(at as usize..end as usize).filter(|_| end <= HEAD_BYTES)
        {
            return Ok(Some(bytes.to_vec()));
        }
        let mut bytes = vec![0; len.min(READ_BYTES_MAX) as usize];
        self.device.read_at(at, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Reads the structure at an offset. It is cut at the end of the device.
    pub(super) fn fields(&self, at: u64, len: u64) -> io::Result<Fields> {
        let len = len.min(self.device.len().saturating_sub(at));
        Ok(Fields(self.bytes(at, len)?.unwrap_or_default()))
    }
}

/// Bytes of a structure. Fields past its end read as zeros.
pub(super) struct Fields(Vec<u8>);

impl Fields {
    pub(super) fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let bytes = self.0.get(at..at + N).and_then(|bytes| bytes.try_into().ok());
        bytes.unwrap_or([0; N])
    }

    pub(super) fn byte(&self, at: usize) -> u8 {
        self.array::<1>(at)[0]
    }

    pub(super) fn le16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    pub(super) fn le32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    pub(super) fn le64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }

    pub(super) fn be16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.array(at))
    }

    pub(super) fn be32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.array(at))
    }

    pub(super) fn has(&self, at: usize, magic: &[u8]) -> bool {
        self.0.get(at..at + magic.len()) == Some(magic)
    }

    /// Returns the text up to a NUL or to its limit. `None` if it is empty.
    pub(super) fn text(&self, at: usize, len: usize) -> Option<Vec<u8>> {
        let bytes = self.0.get(at..)?;
        let bytes = &bytes[..bytes.len().min(len)];
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        (!text.is_empty()).then(|| text.to_vec())
    }

    /// Like [`Self::text`], without trailing white space.
    pub(super) fn padded(&self, at: usize, len: usize) -> Option<Vec<u8>> {
        let text = self.text(at, len)?;
        let text = text.trim_ascii_end();
        (!text.is_empty()).then(|| text.to_vec())
    }

    /// Returns little-endian UTF-16 text up to a NUL. `None` if it is empty.
    pub(super) fn utf16(&self, at: usize, units: usize) -> Option<Vec<u8>> {
        let units = (0..units).map(|unit| self.le16(at + unit * 2)).take_while(|unit| *unit != 0);
        let text: String =
            char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
        (!text.is_empty()).then(|| text.into_bytes())
    }

    /// Returns the UUID at an offset, in byte order. `None` if it is zero.
    pub(super) fn uuid(&self, at: usize) -> Option<String> {
        let bytes: [u8; 16] = self.array(at);
        (bytes != [0; 16]).then(|| uuid(bytes))
    }
}

/// Formats a UUID.
pub(super) fn uuid(bytes: [u8; 16]) -> String {
    let mut text = String::new();
    for (index, byte) in bytes.into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}
