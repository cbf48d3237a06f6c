//! A remote image whose metadata come from a bundle.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use disk::ranges::merged;
use disk::{BlockDevice, ContentKind};

use super::frames::FrameSource;
use crate::bundle::format::FRAME_BYTES;
use crate::bundle::{ExtentSource, Tables, warn};
use crate::place::lazy::{LazyDevice, LazyOptions};

/// Maximum distance of parts of the image in one request, in bytes.
const GAP_BYTES_MAX: u64 = 128 << 10;

/// A read-only device that reads the units of a bundle from it, and all other bytes from the image. After the first
/// error of the bundle, all bytes come from the image.
pub struct BundledDevice {
    image: Arc<LazyDevice>,
    stream: LazyDevice,
    tables: Arc<Tables>,
    name: String,
    is_off: AtomicBool,
}

impl BundledDevice {
    /// Combines an image with its bundle. `stored` reads the bundle and has its first `first_bytes`. `name` is used in
    /// messages. The caller has checked that the bundle belongs to the image.
    pub(super) fn new(
        image: Arc<LazyDevice>,
        stored: LazyDevice,
        tables: Arc<Tables>,
        first_bytes: u64,
        name: &str,
        options: &LazyOptions,
    ) -> Self {
        let source = FrameSource::new(stored, Arc::clone(&tables), first_bytes, name.to_owned());
        // Frames are decompressed in parallel, each with its own request. The device below merges and retries them.
        let above =
            LazyOptions { disk: None, tries: 1, request_bytes: FRAME_BYTES, ..options.clone() };
        let stream = LazyDevice::new(Arc::new(source), above);
        let device =
            Self { image, stream, tables, name: name.to_owned(), is_off: AtomicBool::new(false) };
        device.read_start();
        device
    }

    /// Prefetches the data of the recorded start, which follow the metadata.
    fn read_start(&self) {
        let start = self.tables.metadata_bytes()..self.tables.stream_bytes();
        if !start.is_empty() {
            self.stream.read_ahead_in_order(vec![start]);
        }
    }

    /// Prefetches those parts of `ranges` that the bundle does not contain, in order.
    pub fn read_ahead_in_order(&self, ranges: &[Range<u64>]) {
        let of_image = ranges.iter().flat_map(|range| self.parts_of_image(range.clone()));
        self.image.read_ahead_in_order(of_image.collect());
    }

    /// Returns whether the bundle is in use. It is not after an error.
    #[must_use]
    pub fn has_bundle(&self) -> bool {
        !self.is_off.load(Ordering::Relaxed)
    }

    fn parts_of_image(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let parts = self.tables.index.parts(range);
        parts.filter(|(_, source)| *source == ExtentSource::Image).map(|(part, _)| part)
    }

    fn read_image(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.image.read_at(offset, buf)
    }

    /// Reads from the stream, or from the image if the stream cannot be read.
    fn read_stream(&self, at: u64, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        match self.stream.read_at(at, buf) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.turn_off(&error);
                self.read_image(offset, buf)
            }
        }
    }

    fn turn_off(&self, error: &io::Error) {
        if !self.is_off.swap(true, Ordering::Relaxed) {
            warn(&self.name, error);
        }
    }
}

impl BlockDevice for BundledDevice {
    fn len(&self) -> u64 {
        self.image.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.saturating_add(buf.len() as u64);
        // The image reports reads past its end.
        if end > self.len() || !self.has_bundle() {
            return self.read_image(offset, buf);
        }
        for (part, source) in self.tables.index.parts(offset..end) {
            let buf = &mut buf[(part.start - offset) as usize..(part.end - offset) as usize];
            match source {
                ExtentSource::Image => self.read_image(part.start, buf)?,
                ExtentSource::Zeros => buf.fill(0),
                ExtentSource::Stream(at) => self.read_stream(at, part.start, buf)?,
            }
        }
        Ok(())
    }

    fn known_zeros(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        let range = offset..offset.checked_add(len).filter(|end| *end <= self.len())?;
        if !self.has_bundle() {
            return self.image.known_zeros(offset, len);
        }
        self.tables.index.parts(range).find_map(|(part, source)| match source {
            ExtentSource::Image => self.image.known_zeros(part.start, part.end - part.start),
            ExtentSource::Zeros => Some(part),
            ExtentSource::Stream(_) => None,
        })
    }

    fn has_read_ahead(&self) -> bool {
        self.image.has_read_ahead()
    }

    fn read_ahead(&self, offset: u64, len: u64, content: ContentKind) {
        if !self.has_bundle() {
            return self.image.read_ahead(offset, len, content);
        }
        let range = offset..offset.saturating_add(len).min(self.len());
        // Around metadata are contents that a reader of metadata does not need. The bundle prefetches by its own order.
        if content == ContentKind::Metadata && self.tables.index.overlaps(&range) {
            return;
        }
        for part in merged(self.parts_of_image(range).collect(), GAP_BYTES_MAX) {
            self.image.read_ahead(part.start, part.end - part.start, content);
        }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.image.write_at(offset, data)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.image.zero_range(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
