//! The image of a manifest: a device whose contents are compared with the manifest when they are read.

use std::io;

use disk::BlockDevice;
use parking_lot::Mutex;

use crate::publish::cut::read_chunk;
use crate::publish::digest::Digest;
use crate::publish::error::Error;
use crate::publish::manifest::Manifest;

/// A read-only device that fails if the image changed after its manifest was made. Without it, the bundle of an image
/// that another program changes could contradict the chunks.
pub(crate) struct CheckedImage<'a> {
    device: &'a dyn BlockDevice,
    manifest: &'a Manifest,
    /// The chunk that was read last.
    last: Mutex<(Option<u32>, Vec<u8>)>,
}

impl<'a> CheckedImage<'a> {
    pub(crate) fn new(device: &'a dyn BlockDevice, manifest: &'a Manifest) -> Self {
        Self { device, manifest, last: Mutex::default() }
    }

    fn read_chunk(&self, number: u32, contents: &mut Vec<u8>) -> Result<(), Error> {
        let Some(digest) = self.manifest.digest_of(number) else {
            contents.clear();
            contents.resize(self.manifest.len_of(number), 0);
            return Ok(());
        };
        read_chunk(self.device, self.manifest.chunk_bytes(), number, contents)?;
        if Digest::of(contents) == digest {
            return Ok(());
        }
        Err(Error::ImageChanged {
            offset: u64::from(number) * u64::from(self.manifest.chunk_bytes()),
        })
    }
}

impl BlockDevice for CheckedImage<'_> {
    fn len(&self) -> u64 {
        self.manifest.image_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let chunk_bytes = u64::from(self.manifest.chunk_bytes());
        let (mut at, mut rest) = (offset, buf);
        let mut last = self.last.lock();
        while !rest.is_empty() {
            let number = (at / chunk_bytes) as u32;
            let (known, contents) = &mut *last;
            if *known != Some(number) {
                *known = None;
                self.read_chunk(number, contents).map_err(io::Error::other)?;
                *known = Some(number);
            }
            let start = (at % chunk_bytes) as usize;
            let len = rest.len().min(contents.len().saturating_sub(start));
            if len == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            rest[..len].copy_from_slice(&contents[start..start + len]);
            (at, rest) = (at + len as u64, &mut rest[len..]);
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn zero_range(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
