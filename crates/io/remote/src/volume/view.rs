//! A read-only view of a volume as of one moment.

use std::io;

use crate::place::runtime::block_on;
use disk::BlockDevice;
use slatedb::DbReader;

use crate::volume::blocks::{Geometry, Scan};
use crate::volume::marker::Marker;
use crate::volume::{Location, Options, VolumeError, database, names};

/// A volume as it was when the view was opened, or as of a snapshot. A view writes nothing and does not fence the
/// writer.
///
/// If the volume has a writer, the view contains the writes that were synced before it was opened. Replaced objects are
/// kept for one day, so a view is usable for that long.
pub struct View {
    reader: DbReader,
    geometry: Geometry,
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
            Ok(Self { reader, geometry, at: at.clone() })
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
        let Geometry { len, block_bytes } = self.geometry;
        let mut scan = block_on(Scan::new(&self.reader, 0..len / block_bytes, self.geometry))?;
        while let Some((block, value)) = block_on(scan.next())? {
            device.write_at(block * block_bytes, &value)?;
            heard((block + 1) * block_bytes)?;
        }
        device.flush()?;
        Ok(())
    }
}

impl BlockDevice for View {
    fn len(&self) -> u64 {
        self.geometry.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        block_on(self.geometry.read(&self.reader, offset, buf)).map_err(|error| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("{}: {error}", self.at.address))
        })
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
        let _ = block_on(self.reader.close());
    }
}
