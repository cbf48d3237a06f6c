//! A disk whose blocks a table locates.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use disk::BlockDevice;
use parking_lot::Mutex;

/// Size of a page of a table in bytes.
const PAGE_BYTES: u64 = 4096;
/// Number of table pages that are kept.
const PAGES: usize = 64;

/// Place of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockPlace {
    /// Zeros.
    Zeros,
    /// Bytes of the file, from an offset on.
    File(u64),
    /// One word, repeated.
    Fill([u8; 4]),
    /// The bytes.
    Bytes(Arc<[u8]>),
}

/// The table of a container.
pub trait BlockMap: Send + Sync {
    /// Returns the place of the block that contains the byte at `offset`, with the offset within it, and the number of
    /// bytes from there to its end.
    ///
    /// # Errors
    /// If the table cannot be read or is damaged.
    fn locate(&self, file: &TableFile, offset: u64) -> io::Result<(BlockPlace, u64, u64)>;
}

/// A file with a small cache for tables.
pub struct TableFile {
    file: Arc<dyn BlockDevice>,
    pages: Mutex<Vec<(u64, Arc<[u8]>)>>,
}

impl TableFile {
    pub(super) fn new(file: Arc<dyn BlockDevice>) -> Self {
        Self { file, pages: Mutex::new(Vec::new()) }
    }

    /// Returns the file.
    pub fn device(&self) -> &dyn BlockDevice {
        &*self.file
    }

    /// Reads a table entry of `N` bytes.
    ///
    /// # Errors
    /// If it is past the end of the file, or the file fails.
    pub fn entry<const N: usize>(&self, offset: u64) -> io::Result<[u8; N]> {
        let mut entry = [0; N];
        let within = (offset % PAGE_BYTES) as usize;
        if offset.checked_add(N as u64).is_none_or(|end| end > self.file.len()) {
            let what =
                format!("damaged table: an entry at byte {offset}, past the end of the file");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        if within + N > PAGE_BYTES as usize {
            self.file.read_at(offset, &mut entry)?;
        } else {
            let page = self.page(offset - within as u64)?;
            entry.copy_from_slice(&page[within..within + N]);
        }
        Ok(entry)
    }

    fn page(&self, at: u64) -> io::Result<Arc<[u8]>> {
        let mut pages = self.pages.lock();
        if let Some(index) = pages.iter().position(|(found, _)| *found == at) {
            // The last one is the latest.
            let page = pages.remove(index);
            let bytes = Arc::clone(&page.1);
            pages.push(page);
            return Ok(bytes);
        }
        let mut bytes = vec![0; PAGE_BYTES.min(self.file.len() - at) as usize];
        self.file.read_at(at, &mut bytes)?;
        let bytes: Arc<[u8]> = bytes.into();
        if pages.len() == PAGES {
            pages.remove(0);
        }
        pages.push((at, Arc::clone(&bytes)));
        Ok(bytes)
    }
}

/// The disk of a container.
pub struct ContainerDevice<M> {
    file: TableFile,
    map: M,
    len: u64,
}

impl<M: BlockMap> ContainerDevice<M> {
    pub(super) fn new(file: Arc<dyn BlockDevice>, map: M, len: u64) -> Self {
        Self { file: TableFile::new(file), map, len }
    }
}

impl<M: BlockMap> BlockDevice for ContainerDevice<M> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len) {
            let (asked, has) = (buf.len(), self.len);
            let what = format!("bytes {offset}+{asked} are past the end of the disk ({has} bytes)");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (place, within, left) = self.map.locate(&self.file, at)?;
            let part = left.min(rest.len() as u64) as usize;
            let (now, later) = rest.split_at_mut(part);
            match place {
                BlockPlace::Zeros => now.fill(0),
                BlockPlace::Fill(word) => {
                    let from = (within % 4) as usize;
                    now.iter_mut().enumerate().for_each(|(i, byte)| *byte = word[(from + i) % 4]);
                }
                BlockPlace::File(start) => {
                    self.file.file.read_at(start.saturating_add(within), now)?;
                }
                BlockPlace::Bytes(bytes) => {
                    let bytes = bytes.get(within as usize..within as usize + part);
                    now.copy_from_slice(bytes.ok_or(io::ErrorKind::InvalidData)?);
                }
            }
            (at, rest) = (at + part as u64, later);
        }
        Ok(())
    }

    fn known_zeros(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        let (mut at, end) = (offset, offset.checked_add(len).filter(|end| *end <= self.len)?);
        while at < end {
            let (place, _, left) = self.map.locate(&self.file, at).ok()?;
            if left == 0 {
                return None;
            }
            let next = at + left.min(end - at);
            if place == BlockPlace::Zeros {
                return Some(at..next);
            }
            at = next;
        }
        None
    }

    fn has_read_ahead(&self) -> bool {
        self.file.file.has_read_ahead()
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
