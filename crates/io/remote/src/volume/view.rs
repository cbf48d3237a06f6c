//! A read-only view of a volume as of one moment.

use std::io;
use std::sync::Arc;

use crate::place::runtime::block_on;
use disk::{BlockDevice, ContentKind};
use slatedb::DbReader;

use crate::volume::blocks::{Geometry, Scan};
use crate::volume::bulk::{BlockValue, BulkObjects};
use crate::volume::marker::Marker;
use crate::volume::reader::BlockReader;
use crate::volume::{Location, Options, VolumeError, database, names};

/// Number of blocks that are read together for a copy.
const COPIED_BLOCKS: usize = 1024;

/// A volume as it was when the view was opened, or as of a snapshot. A view writes nothing and does not fence the
/// writer.
///
/// If the volume has a writer, the view contains the writes that were synced before it was opened. Objects that the writer
/// replaces may be removed when they are a day old. Reads then fail, except those of a snapshot.
pub struct View {
    reader: Arc<BlockReader<DbReader>>,
    at: Location,
}

impl View {
    /// Opens the current state of a volume, or a snapshot, for reading.
    ///
    /// # Errors
    /// If it does not exist, it is damaged, or the bucket is inaccessible.
    pub fn open(
        at: &Location,
        snapshot: Option<&str>,
        options: &Options,
    ) -> Result<Self, VolumeError> {
        block_on(async {
            let marker = Marker::read(at).await?;
            let checkpoint = match snapshot {
                Some(name) => Some(names::find(at, name).await?),
                None => None,
            };
            let reader = database::open_to_read(at, &marker, checkpoint, options).await?;
            let geometry = Geometry::check(&reader, &marker).await?;
            let objects = BulkObjects::new(at, &marker, options);
            let reader = Arc::new(BlockReader::new(reader, geometry, objects));
            Ok(Self { reader, at: at.clone() })
        })
    }

    /// Copies all non-zero blocks to a zeroed device of the same size. `heard` receives the offset up to which the copy
    /// is complete; an error from it cancels the copy.
    ///
    /// # Errors
    /// If a read or write fails, or those of `heard`.
    pub fn copy_to(
        &self,
        device: &dyn BlockDevice,
        heard: &mut dyn FnMut(u64) -> io::Result<()>,
    ) -> Result<(), VolumeError> {
        let BlockReader { reads, geometry, .. } = &*self.reader;
        let block_bytes = geometry.block_bytes;
        let mut scan = block_on(Scan::new(reads, 0..geometry.blocks(), *geometry))?;
        loop {
            let mut values = Vec::new();
            while let Some(value) = block_on(scan.next())? {
                values.push(value);
                if values.len() == COPIED_BLOCKS {
                    break;
                }
            }
            if values.is_empty() {
                break;
            }
            let data = block_on(self.data(&values))?;
            for ((block, _), data) in values.iter().zip(data.chunks(block_bytes as usize)) {
                device.write_at(block * block_bytes, data)?;
                heard((block + 1) * block_bytes)?;
            }
        }
        device.flush()?;
        Ok(())
    }

    /// Returns the contents of blocks, one after the other.
    async fn data(&self, values: &[(u64, BlockValue)]) -> Result<Vec<u8>, VolumeError> {
        let size = self.reader.geometry.block_bytes as usize;
        let mut data = vec![0; values.len() * size];
        let mut bulk = Vec::new();
        for (at, (_, value)) in values.iter().enumerate() {
            match value {
                BlockValue::Data(found) => data[at * size..][..size].copy_from_slice(found),
                BlockValue::Bulk(reference) => bulk.push((*reference, at)),
            }
        }
        self.reader.objects.read(&bulk, &mut data).await?;
        Ok(data)
    }
}

impl BlockDevice for View {
    fn len(&self) -> u64 {
        self.reader.geometry.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.reader.note_read(offset, buf.len() as u64);
        block_on(self.reader.read(offset, buf)).map_err(|error| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("{}: {error}", self.at.address))
        })
    }

    fn has_read_ahead(&self) -> bool {
        self.reader.geometry.has_bulk
    }

    fn read_ahead(&self, offset: u64, len: u64, _content: ContentKind) {
        self.reader.read_ahead(offset, len);
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

impl Drop for View {
    fn drop(&mut self) {
        // A view has nothing to flush, so errors can be ignored.
        let _ = block_on(self.reader.reads.close());
    }
}
