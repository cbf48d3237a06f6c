//! Contents of earlier files of the image, for comparison.

use std::collections::HashMap;

use import::{ContentFile, DataRun, Detached};
use vfs::Ino;

use super::{BuildError, READ_BYTES, ShareBlocks, identity};

/// Bytes of two files that are compared first. Most differing files differ there.
const FIRST_BYTES: u64 = 4096;

/// Files so far.
pub(super) struct Held<'a> {
    device: &'a dyn ShareBlocks,
    /// Sources and sizes of file contents. The contents of all other files are in the image.
    sources: HashMap<Ino, (Detached, u64)>,
    /// File that was read last.
    open: Option<(Ino, ContentFile)>,
    buffer: Vec<u8>,
    window: Window,
}

/// Read-ahead buffer of a file.
#[derive(Default)]
struct Window {
    ino: Option<Ino>,
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn get(&self, (ino, at): (Ino, u64), len: usize) -> Option<&[u8]> {
        let start = usize::try_from(at.checked_sub(self.start)?).ok()?;
        self.bytes.get(start..start.checked_add(len)?).filter(|_| self.ino == Some(ino))
    }
}

/// New file to compare with earlier ones.
pub(super) enum New<'f> {
    Source(&'f ContentFile),
    /// A file that was written to the image.
    Image(Ino),
}

impl<'a> Held<'a> {
    pub(super) fn new(device: &'a dyn ShareBlocks) -> Self {
        let (sources, window) = (HashMap::new(), Window::default());
        Self { device, sources, open: None, buffer: vec![0; READ_BYTES], window }
    }

    /// Records the source of the contents of a file of `size` bytes.
    pub(super) fn add(&mut self, ino: Ino, size: u64, body: &Detached) {
        self.sources.insert(ino, (body.clone(), size));
    }

    /// Compares a file with another one over runs that both have. If equal, returns their contribution to the checksum
    /// of all contents.
    pub(super) fn same(
        &mut self,
        other: Ino,
        runs: &[DataRun],
        new: &New<'_>,
        buffer: &mut [u8],
    ) -> Result<Option<u64>, BuildError> {
        let mut ours = std::mem::take(&mut self.buffer);
        let mut contents = Some(0_u64);
        let mut unit = FIRST_BYTES;
        'runs: for run in runs {
            let (mut at, end) = (run.offset, run.offset + run.len);
            while at < end {
                let len = (unit - at % unit).min(end - at);
                let (new_bytes, bytes) = (&mut buffer[..len as usize], &mut ours[..len as usize]);
                let is_read = match new {
                    New::Source(file) => file.read_at(at, new_bytes).map(|()| true)?,
                    New::Image(ino) => self.device.read_back(*ino, at, new_bytes)? as u64 == len,
                };
                if !is_read || !self.read(other, at, bytes)? || new_bytes != bytes {
                    contents = None;
                    break 'runs;
                }
                let term = identity::contents_term(at, new_bytes);
                contents = contents.map(|sum| sum.wrapping_add(term));
                at += len;
                unit = READ_BYTES as u64;
            }
        }
        self.buffer = ours;
        Ok(contents)
    }

    /// Returns whether a file has these bytes at an offset. Reads ahead if this query continues the previous one.
    pub(super) fn has(&mut self, place: (Ino, u64), bytes: &[u8]) -> Result<bool, BuildError> {
        if let Some(found) = self.window.get(place, bytes.len()) {
            return Ok(found == bytes);
        }
        let goes_on = self.window.ino == Some(place.0) && self.window.end() == place.1;
        let ahead = if goes_on { 4 * self.window.bytes.len() } else { 0 };
        let len = ahead.clamp(bytes.len(), READ_BYTES.max(bytes.len()));
        let mut window = std::mem::take(&mut self.window);
        window.bytes.resize(len, 0);
        (window.ino, window.start) = (Some(place.0), place.1);
        let len = self.read_some(place.0, place.1, &mut window.bytes)?;
        window.bytes.truncate(len);
        self.window = window;
        Ok(self.window.get(place, bytes.len()) == Some(bytes))
    }

    /// Reads bytes of a file. Returns false at the end of the file.
    fn read(&mut self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<bool, BuildError> {
        let len = buffer.len();
        Ok(self.read_some(ino, offset, buffer)? == len)
    }

    /// Reads bytes up to the end of a file. Returns the number of bytes.
    fn read_some(&mut self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize, BuildError> {
        let Some((body, size)) = self.sources.get(&ino) else {
            return Ok(self.device.read_back(ino, offset, buffer)?);
        };
        let len = size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        if self.open.as_ref().is_none_or(|(open, _)| *open != ino) {
            let file = body.open()?;
            self.close()?;
            self.open = Some((ino, file));
        }
        if let Some((_, file)) = &self.open {
            file.read_at(offset, &mut buffer[..len])?;
        }
        Ok(len)
    }

    /// Closes the file that was read last.
    ///
    /// # Errors
    /// If the file changed meanwhile.
    pub(super) fn close(&mut self) -> Result<(), BuildError> {
        match self.open.take() {
            Some((_, file)) => Ok(file.finish()?),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Image whose files are byte vectors.
    struct VecImage {
        files: HashMap<Ino, Vec<u8>>,
        reads: Cell<usize>,
    }

    impl ShareBlocks for VecImage {
        fn block_size(&self) -> u64 {
            4096
        }

        fn share(&self, _: (Ino, u64), _: (Ino, u64), _: u64) -> vfs::Result<()> {
            Ok(())
        }

        fn read_back(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> vfs::Result<usize> {
            self.reads.set(self.reads.get() + 1);
            let rest = self.files[&ino].get(offset as usize..).unwrap_or_default();
            let len = rest.len().min(buffer.len());
            buffer[..len].copy_from_slice(&rest[..len]);
            Ok(len)
        }
    }

    fn image() -> VecImage {
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|at| (at * 7 % 251) as u8).collect();
        let mut nearly = bytes.clone();
        nearly[999_999] ^= 1;
        let files = [(Ino(1), bytes.clone()), (Ino(2), bytes), (Ino(3), nearly)];
        VecImage { files: files.into(), reads: Cell::new(0) }
    }

    #[test]
    fn files_are_compared_to_their_last_byte() {
        let image = image();
        let mut held = Held::new(&image);
        let mut buffer = vec![0; READ_BYTES];
        let runs = [DataRun { offset: 5, len: 9000 }, DataRun { offset: 20_000, len: 980_000 }];
        let mut same =
            |other, new| held.same(Ino(other), &runs, &New::Image(Ino(new)), &mut buffer);
        let contents = runs.iter().fold(0_u64, |sum, run| {
            let bytes = &image.files[&Ino(1)][run.offset as usize..][..run.len as usize];
            sum.wrapping_add(identity::contents_term(run.offset, bytes))
        });
        assert_eq!(same(1, 2).unwrap(), Some(contents));
        assert_eq!(same(1, 3).unwrap(), None);
        assert!(same(3, 3).unwrap().is_some());
    }

    #[test]
    fn blocks_that_follow_each_other_are_read_together() {
        let image = image();
        let mut held = Held::new(&image);
        let bytes = image.files[&Ino(1)].clone();
        for at in (0..1_000_000).step_by(4096) {
            let block = &bytes[at..(at + 4096).min(bytes.len())];
            assert!(held.has((Ino(1), at as u64), block).unwrap());
        }
        assert!(image.reads.get() < 12, "{}", image.reads.get());
        // Other offsets and files: no read-ahead.
        assert!(!held.has((Ino(1), 8192), &bytes[..4096]).unwrap());
        assert!(held.has((Ino(2), 8192), &bytes[8192..12_288]).unwrap());
        assert!(!held.has((Ino(3), 999_424), &bytes[999_424..]).unwrap());
        // Past the end.
        assert!(!held.has((Ino(3), 999_424), &[0; 4096]).unwrap());
    }
}
