//! Compression of a layer during writing. The same layer gives the same bytes.

use std::io::{self, Write};
use std::path::Path;

use flate2::write::GzEncoder;
use structured_zstd::encoding::{CompressionLevel, compress_to_vec};

/// Uncompressed size of a zstd frame.
const FRAME_BYTES: usize = 8 << 20;

/// Compression of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Uncompressed.
    None,
    /// gzip, which every container engine supports.
    Gzip,
    /// zstd, in frames of 8 MiB.
    Zstd,
}

impl Compression {
    /// Selects the compression by file extension: `.gz`, `.tgz`, `.zst`, `.tzst`, or none.
    pub fn of_name(path: &Path) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz" | "tgz") => Self::Gzip,
            Some("zst" | "tzst") => Self::Zstd,
            _ => Self::None,
        }
    }
}

/// Encoder that writes compressed bytes to `W`.
pub(super) enum Encoder<W: Write> {
    None(W),
    Gzip(GzEncoder<W>),
    Zstd(Frames<W>),
}

/// Buffer for a zstd frame.
pub(super) struct Frames<W> {
    out: W,
    collected: Vec<u8>,
}

impl<W: Write> Encoder<W> {
    pub(super) fn new(out: W, compression: Compression) -> Self {
        match compression {
            Compression::None => Self::None(out),
            Compression::Gzip => Self::Gzip(GzEncoder::new(out, flate2::Compression::default())),
            Compression::Zstd => Self::Zstd(Frames { out, collected: Vec::new() }),
        }
    }

    /// Writes the remaining data and the end of the stream.
    pub(super) fn finish(self) -> io::Result<()> {
        let mut out = match self {
            Self::None(out) => out,
            Self::Gzip(encoder) => encoder.finish()?,
            Self::Zstd(mut frames) => {
                frames.end_frame()?;
                frames.out
            }
        };
        out.flush()
    }
}

impl<W: Write> Frames<W> {
    fn end_frame(&mut self) -> io::Result<()> {
        if self.collected.is_empty() {
            return Ok(());
        }
        let frame = compress_to_vec(&self.collected[..], CompressionLevel::Fastest);
        self.collected.clear();
        self.out.write_all(&frame)
    }
}

impl<W: Write> Write for Encoder<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::None(out) => out.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Zstd(frames) => {
                let len = bytes.len().min(FRAME_BYTES - frames.collected.len());
                frames.collected.extend_from_slice(&bytes[..len]);
                if frames.collected.len() == FRAME_BYTES {
                    frames.end_frame()?;
                }
                Ok(len)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::None(out) => out.flush(),
            Self::Gzip(encoder) => encoder.flush(),
            // A frame ends only when it is full.
            Self::Zstd(frames) => frames.out.flush(),
        }
    }
}
