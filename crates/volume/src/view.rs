//! A volume as it is at one moment, to be read.

use std::io;

use blockdev::BlockDevice;
use place::runtime::block_on;
use slatedb::DbReader;

use crate::blocks::{Geometry, Scan};
use crate::marker::Marker;
use crate::{Location, Options, VolumeError, database, names};

/// A volume as it was when this was opened, or as a snapshot has it. Nothing is written, and nobody is fenced.
///
/// Of a volume that somebody changes meanwhile it has what was synced before. Objects that are replaced stay for a day:
/// so long it can be used.
pub struct View {
    reader: DbReader,
    geometry: Geometry,
    at: Location,
}

impl View {
    /// Opens a volume, or a snapshot of it, for reading.
    ///
    /// # Errors
    /// If there is none, it is damaged, or the bucket cannot be used.
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

    /// Writes what is not zeros to a device of zeros that is as long. `heard` is told of the bytes up to which that is
    /// done, and may end it with an error.
    ///
    /// # Errors
    /// If something cannot be read or written, or what `heard` returns.
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
        // Nothing was changed.
        let _ = block_on(self.reader.close());
    }
}
