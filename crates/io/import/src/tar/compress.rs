//! Decompression: gzip with any number of members, zstd with any number of frames.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;
use structured_zstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use structured_zstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Number of leading bytes that [`Compression::of`] needs.
pub(crate) const MAGIC_LEN: usize = 6;

/// Decompressed size that is always accepted, in bytes.
const EXPANDED_FREE_BYTES: u64 = 1 << 30;
/// Maximum compression ratio beyond that. The maximum of gzip is 1032.
const EXPANDED_SHARE: u64 = 1024;

/// Returns the default limit of the decompressed size of `stored` bytes.
pub(crate) fn expanded_max(stored: u64) -> u64 {
    stored.saturating_mul(EXPANDED_SHARE).saturating_add(EXPANDED_FREE_BYTES)
}

/// Compression of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
    /// Detected, with this name, but not supported.
    Other(&'static str),
}

impl Compression {
    /// Detects the compression from the first bytes of a file, which may be fewer than needed.
    pub(crate) fn of(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            // A frame, or a skippable frame before one.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0] => Self::Other("xz"),
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Self::Other("bzip2"),
            [0x04, 0x22, 0x4d, 0x18, ..] => Self::Other("lz4"),
            [b'L', b'Z', b'I', b'P', ..] => Self::Other("lzip"),
            [0x89, b'L', b'Z', b'O', ..] => Self::Other("lzop"),
            [0x1f, 0x9d | 0xa0, ..] => Self::Other("compress"),
            [b'P', b'K', 3, 4, ..] => Self::Other("zip"),
            _ => Self::None,
        }
    }
}

/// Decoder of a gzip file. Zeros after the last member are padding and end it.
pub(crate) struct Gzip<R> {
    /// `None` after the end of the file.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Gzip<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { member: Some(GzDecoder::new(input)) }
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let n = member.read(buf)?;
            if n > 0 || buf.is_empty() {
                return Ok(n);
            }
            let Some(mut input) = self.member.take().map(GzDecoder::into_inner) else { break };
            if input.fill_buf()?.first().is_some_and(|&b| b != 0) {
                self.member = Some(GzDecoder::new(input));
            }
        }
        Ok(0)
    }
}

/// Decoder of a zstd file.
pub(crate) struct Zstd<R> {
    input: R,
    frame: FrameDecoder,
    is_in_frame: bool,
}

impl<R: BufRead> Zstd<R> {
    pub(crate) fn new(input: R) -> Self {
        // Windows, and so memory, are limited to 128 MiB, as in zstd itself.
        Self { input, frame: FrameDecoder::new(), is_in_frame: false }
    }

    /// Moves to the next frame with content. Returns false at the end of the file.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.input.fill_buf()?.is_empty() {
            match self.frame.reset(&mut self.input) {
                Ok(()) => {
                    self.is_in_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let skipped = io::copy(&mut (&mut self.input).take(length), &mut io::sink())?;
                    if skipped < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(e) => return Err(zstd_error(&mut self.input, e)),
            }
        }
        Ok(false)
    }

    fn end_frame(&mut self) -> io::Result<()> {
        self.is_in_frame = false;
        let stored = self.frame.get_checksum_from_data();
        if stored.is_some() && stored != self.frame.get_calculated_checksum() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "zstd checksum does not match"));
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        while self.is_in_frame || self.next_frame()? {
            while self.frame.can_collect() == 0 && !self.frame.is_finished() {
                self.frame
                    .decode_blocks(&mut self.input, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(|e| zstd_error(&mut self.input, e))?;
            }
            let n = self.frame.read(buf)?;
            if n > 0 {
                return Ok(n);
            }
            self.end_frame()?;
        }
        Ok(0)
    }
}

/// Restores the kind of a decoder's error: at the end of the input it is `UnexpectedEof`.
fn zstd_error(input: &mut impl BufRead, error: FrameDecoderError) -> io::Error {
    match input.fill_buf() {
        Ok([]) => io::ErrorKind::UnexpectedEof.into(),
        Err(e) => e,
        Ok(_) => io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
    }
}
