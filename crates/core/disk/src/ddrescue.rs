//! Mapfiles of GNU ddrescue, and copies of failing disks.
//!
//! Source of the format: "Mapfile structure" in the manual of GNU ddrescue 1.27.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::{BlockDevice, ContentKind, check_range};

/// Areas of a copy that were not rescued, from a mapfile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapfile {
    /// In order, without overlap. The last one has no end.
    lost: Vec<Range<u64>>,
    /// End of the last area, which is the end of the disk.
    end: u64,
}

/// An invalid mapfile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the mapfile: expected {expected}, found {found:?}")]
pub struct MapfileError {
    line: usize,
    expected: String,
    found: String,
}

impl Mapfile {
    /// Parses the text of a mapfile. All areas but those with the status `+` are lost, and so is everything past the
    /// end of the last one.
    ///
    /// # Errors
    /// If a line is invalid, or the areas overlap or have gaps.
    pub fn parse(text: &str) -> Result<Self, MapfileError> {
        let lines = text.lines().zip(1..).map(|(line, number)| (line.trim(), number));
        let mut lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
        // The state of the copy: position, status, and pass in recent versions.
        let Some((state, line)) = lines.next() else {
            return Err(MapfileError {
                line: text.lines().count(),
                expected: "the line with the current position".into(),
                found: String::new(),
            });
        };
        let words: Vec<_> = state.split_whitespace().collect();
        if !(2..=3).contains(&words.len()) || number(words[0]).is_none() {
            let expected = "current position, status and pass".into();
            return Err(MapfileError { line, expected, found: state.into() });
        }
        let (mut map, mut at) = (Self::default(), None);
        for (text, line) in lines {
            let wrong = |expected: String| MapfileError { line, expected, found: text.into() };
            let (start, len, status) =
                area(text).ok_or_else(|| wrong("position, size, and one of ? * / - +".into()))?;
            let end = start.checked_add(len).filter(|end| i64::try_from(*end).is_ok());
            let end = end.ok_or_else(|| wrong("an end below 2^63".into()))?;
            let expected = at.unwrap_or(start);
            if start != expected {
                return Err(wrong(format!("position {expected:#x}")));
            }
            if at.is_none() {
                map.lose(0..start);
            }
            if status != '+' {
                map.lose(start..end);
            }
            at = Some(end);
        }
        map.end = at.unwrap_or(0);
        map.lose(map.end..u64::MAX);
        Ok(map)
    }

    fn lose(&mut self, range: Range<u64>) {
        match self.lost.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.lost.push(range),
        }
    }

    /// Returns the first lost bytes in a range.
    fn next_lost(&self, range: Range<u64>) -> Option<Range<u64>> {
        let next = self.lost.partition_point(|lost| lost.end <= range.start);
        let lost = self.lost.get(next)?;
        let lost = lost.start.max(range.start)..lost.end.min(range.end);
        (!lost.is_empty()).then_some(lost)
    }

    /// Returns the first lost byte in a range.
    fn first_lost(&self, range: Range<u64>) -> Option<u64> {
        self.next_lost(range).map(|lost| lost.start)
    }
}

/// Parses the line of an area.
fn area(text: &str) -> Option<(u64, u64, char)> {
    let words: Vec<_> = text.split_whitespace().collect();
    let [start, len, status] = words[..] else { return None };
    let mut status = status.chars();
    let (first, None) = (status.next()?, status.next()) else { return None };
    "?*/-+".contains(first).then_some((number(start)?, number(len)?, first))
}

/// Parses a decimal, hexadecimal (`0x`) or octal (`0`) number.
fn number(text: &str) -> Option<u64> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match (hex, text.strip_prefix('0')) {
        (Some(digits), _) => u64::from_str_radix(digits, 16).ok(),
        (None, Some(digits)) if !digits.is_empty() => u64::from_str_radix(digits, 8).ok(),
        _ => text.parse().ok(),
    }
}

/// Copy of a failing disk. Lost areas are read errors, never zeros. It cannot be written.
///
/// It is as long as the disk. The file of the copy is shorter if the end of the disk was not rescued.
pub struct RescuedDevice {
    inner: Arc<dyn BlockDevice>,
    map: Arc<Mapfile>,
}

impl RescuedDevice {
    /// Returns the copy `inner` with the lost areas of a mapfile.
    pub fn new(inner: Arc<dyn BlockDevice>, map: Arc<Mapfile>) -> Self {
        Self { inner, map }
    }
}

impl BlockDevice for RescuedDevice {
    fn len(&self) -> u64 {
        self.inner.len().max(self.map.end)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.len(), offset, buf.len() as u64)?;
        if let Some(lost) = self.map.first_lost(offset..offset + buf.len() as u64) {
            let message = format!("byte {lost} was not rescued, says the mapfile");
            return Err(io::Error::other(message));
        }
        self.inner.read_at(offset, buf)
    }

    fn in_file(&self, offset: u64, len: u64) -> Option<(&File, u64)> {
        let is_whole = self.map.first_lost(offset..offset.checked_add(len)?).is_none();
        if is_whole { self.inner.in_file(offset, len) } else { None }
    }

    fn known_unreadable(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        check_range(self.len(), offset, len).ok()?;
        self.map.next_lost(offset..offset + len)
    }

    fn has_read_ahead(&self) -> bool {
        self.inner.has_read_ahead()
    }

    fn read_ahead(&self, offset: u64, len: u64, content: ContentKind) {
        self.inner.read_ahead(offset, len, content);
    }

    fn write_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn zero_range(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a mapfile whose finished areas are added in order.
#[derive(Clone, Debug)]
pub struct MapfileWriter {
    text: String,
    at: u64,
    end: u64,
}

impl MapfileWriter {
    /// Begins the mapfile of a device of `end` bytes. `version` is that of the program, for the comment.
    pub fn new(end: u64, version: &str) -> Self {
        let text = format!(
            "# Mapfile. Created by diskwright {version}\n\
             # current_pos  current_status  current_pass\n\
             0x00000000     ?               1\n\
             #      pos        size  status\n"
        );
        Self { text, at: 0, end }
    }

    /// Adds a finished area (`+`). Areas between two of them are not tried (`?`).
    pub fn finished(&mut self, bytes: Range<u64>) {
        self.until(bytes.start, '?');
        self.until(bytes.end, '+');
    }

    /// Returns the text, which describes the whole device.
    pub fn end(mut self) -> String {
        self.until(self.end, '?');
        self.text
    }

    fn until(&mut self, end: u64, status: char) {
        let end = end.min(self.end);
        if end > self.at {
            let len = end - self.at;
            writeln!(self.text, "{:#010x}  {len:#010x}  {status}", self.at).expect("memory");
            self.at = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn all_but_finished_areas_are_lost() {
        let text =
            "# comment\n\n0x20 - 1\n0x10 0x10 +\n32 8 *\n050 0x8 +\n0x30 1 -\n49 1 ?\n50 14 +\n";
        let map = Mapfile::parse(text).unwrap();
        assert_eq!(map.lost, [0..16, 32..40, 48..50, 64..u64::MAX]);
        assert_eq!(map.first_lost(16..32), None);
        assert_eq!(map.first_lost(16..33), Some(32));
        assert_eq!(map.first_lost(39..48), Some(39));
        assert_eq!(map.first_lost(40..48), None);
        assert_eq!(map.first_lost(50..64), None);
        assert_eq!(map.first_lost(60..100), Some(64));
        assert_eq!(map.first_lost(32..32), None);
        assert_eq!(Mapfile::parse("0 ?").unwrap().first_lost(0..1), Some(0));
    }

    #[test]
    fn invalid_lines_are_named() {
        for (text, line) in [
            ("", 0),
            ("# only a comment\n", 1),
            ("0 ? 1 2\n", 1),
            ("x ?\n", 1),
            ("0 ?\n0 10\n", 2),
            ("0 ?\n0 10 !\n", 2),
            ("0 ?\n0 10 ++\n", 2),
            ("0 ?\n0 10 +\n11 5 +\n", 3),
            ("0 ?\n0 10 +\n9 5 +\n", 3),
            ("0 ?\n1 0xffffffffffffffff +\n", 2),
            ("0 ?\n0 -1 +\n", 2),
            ("0 ?\n0 0x +\n", 2),
        ] {
            let error = Mapfile::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text:?}: {error}");
        }
    }

    #[test]
    fn the_text_covers_the_whole_device() {
        let mut writer = MapfileWriter::new(0x3000, "1");
        writer.finished(0x1000..0x1800);
        writer.finished(0x2000..0x9000);
        let text = writer.end();
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "0x00000000     ?               1",
            "0x00000000  0x00001000  ?",
            "0x00001000  0x00000800  +",
            "0x00001800  0x00000800  ?",
            "0x00002000  0x00001000  +",
        ];
        assert_eq!(lines, expected);
        let map = Mapfile::parse(&text).unwrap();
        assert_eq!(map.lost, [0..0x1000, 0x1800..0x2000, 0x3000..u64::MAX]);
    }

    #[test]
    fn a_copy_without_the_end_of_the_disk_is_as_long_as_the_disk() {
        let map = Mapfile::parse("0 ?\n0 24 +\n24 40 ?\n").unwrap();
        let device = RescuedDevice::new(Arc::new(MemoryDevice::new(16)), Arc::new(map));
        assert_eq!(device.len(), 64);
        let mut read = [0; 8];
        device.read_at(8, &mut read).unwrap();
        // The mapfile says that these bytes were rescued, but the copy ends before.
        assert!(device.read_at(16, &mut read).is_err());
        assert!(device.read_at(32, &mut read).unwrap_err().to_string().contains("not rescued"));
    }

    #[test]
    fn lost_areas_are_errors_and_nothing_is_written() {
        let memory = Arc::new(MemoryDevice::new(64));
        memory.write_at(0, &[7; 64]).unwrap();
        let map = Mapfile::parse("0 ?\n0 16 +\n16 16 -\n32 32 +\n").unwrap();
        let device = RescuedDevice::new(memory, Arc::new(map));
        let mut read = [0; 16];
        device.read_at(0, &mut read).unwrap();
        assert_eq!(read, [7; 16]);
        let error = device.read_at(1, &mut read).unwrap_err();
        assert!(error.to_string().contains("byte 16 was not rescued"), "{error}");
        device.read_at(32, &mut read).unwrap();
        assert!(device.write_at(0, &[1]).is_err() && device.zero_range(0, 1).is_err());
        assert_eq!(device.known_unreadable(0, 64), Some(16..32));
        assert_eq!(device.known_unreadable(20, 4), Some(20..24));
        assert_eq!((device.known_unreadable(32, 32), device.known_unreadable(0, 65)), (None, None));
        let window = crate::WindowDevice::new(Arc::new(device), 8, 40).unwrap();
        assert_eq!(window.known_unreadable(2, 20), Some(8..22));
    }
}
