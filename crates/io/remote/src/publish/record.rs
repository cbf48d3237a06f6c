//! Records of the parts that a start reads. Each line has offset and length of one part, in bytes, in the order of
//! first access. Lines that start with `#` are comments.

use std::collections::HashSet;
use std::io::{self, BufRead, Write};
use std::ops::Range;
use std::sync::Arc;

use disk::{BlockDevice, ContentKind};
use parking_lot::Mutex;

/// Granularity of a record in bytes. Each unit occurs at most once.
const UNIT_BYTES: u64 = 4096;

/// Maximum number of parts in a record, and of units in a new record (4 GiB).
const PARTS_MAX: usize = 1 << 20;

/// The reason why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Reading the file failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A line is malformed.
    #[error("line {number}: expected an offset and a length, found {text:?}")]
    Line {
        /// Number of the line, from 1.
        number: usize,
        /// The line, or its start.
        text: String,
    },
    /// The record has too many parts.
    #[error("it has more than {PARTS_MAX} parts")]
    TooLong,
}

/// Parses a record.
///
/// # Errors
/// If it is malformed.
pub fn parse(input: impl BufRead) -> Result<Vec<Range<u64>>, RecordError> {
    let mut parts = Vec::new();
    for (number, line) in input.lines().enumerate() {
        let line = line?;
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        if parts.len() == PARTS_MAX {
            return Err(RecordError::TooLong);
        }
        let text = || line.chars().take(80).collect();
        let wrong = || RecordError::Line { number: number + 1, text: text() };
        parts.push(parse_line(&line).ok_or_else(wrong)?);
    }
    Ok(parts)
}

fn parse_line(line: &str) -> Option<Range<u64>> {
    let (start, count) = line.trim().split_once(char::is_whitespace)?;
    let start: u64 = start.parse().ok()?;
    Some(start..start.checked_add(count.trim().parse().ok()?)?)
}

/// A device that records which of its parts are read, and in which order.
pub struct RecordingReads {
    inner: Arc<dyn BlockDevice>,
    touched: Mutex<Touched>,
}

#[derive(Default)]
struct Touched {
    seen: HashSet<u64>,
    order: Vec<u64>,
}

impl RecordingReads {
    /// Starts recording the reads of `inner`.
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self { inner, touched: Mutex::default() }
    }

    /// Returns the parts that were read so far, in the order of first access.
    #[must_use]
    pub fn ranges(&self) -> Vec<Range<u64>> {
        let touched = self.touched.lock();
        let runs = touched.order.chunk_by(|a, b| a + 1 == *b);
        runs.map(|run| run[0] * UNIT_BYTES..(run[0] + run.len() as u64) * UNIT_BYTES).collect()
    }

    /// Writes the record of all reads so far.
    ///
    /// # Errors
    /// Returns the errors of `out`.
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "# First byte and bytes of what was read, in this order.")?;
        let order = self.touched.lock().order.clone();
        for run in order.chunk_by(|a, b| a + 1 == *b) {
            writeln!(out, "{} {}", run[0] * UNIT_BYTES, run.len() as u64 * UNIT_BYTES)?;
        }
        Ok(())
    }
}

impl BlockDevice for RecordingReads {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)?;
        if buf.is_empty() {
            return Ok(());
        }
        let units = offset / UNIT_BYTES..(offset + buf.len() as u64).div_ceil(UNIT_BYTES);
        let mut touched = self.touched.lock();
        for unit in units {
            if touched.order.len() < PARTS_MAX && touched.seen.insert(unit) {
                touched.order.push(unit);
            }
        }
        Ok(())
    }

    fn has_read_ahead(&self) -> bool {
        self.inner.has_read_ahead()
    }

    fn read_ahead(&self, offset: u64, len: u64, content: ContentKind) {
        self.inner.read_ahead(offset, len, content);
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, data)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.zero_range(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use disk::MemoryDevice;

    use super::*;

    #[test]
    fn reads_are_recorded_once_and_in_order() {
        let device = RecordingReads::new(Arc::new(MemoryDevice::new(1 << 20)));
        for (offset, len) in [(65_536, 10_000), (0, 1), (68_000, 1), (4096, 4096), (500_000, 0)] {
            device.read_at(offset, &mut vec![0; len]).unwrap();
        }
        assert!(device.read_at(1 << 20, &mut [0]).is_err());
        let mut text = Vec::new();
        device.write_to(&mut text).unwrap();
        assert_eq!(parse(&*text).unwrap(), [65_536..77_824, 0..8192]);
    }

    #[test]
    fn malformed_records_are_reported() {
        assert_eq!(parse(&b"# x\n\n 5 7 \n0 1"[..]).unwrap(), [5..12, 0..1]);
        for bad in ["5", "a 1", "1 -1", "18446744073709551615 1", "1 2 3"] {
            assert!(
                matches!(parse(bad.as_bytes()), Err(RecordError::Line { number: 1, .. })),
                "{bad}"
            );
        }
        assert!(matches!(parse(&[0xff, b'\n'][..]), Err(RecordError::Io(_))));
    }
}
