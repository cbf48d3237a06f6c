//! Creates volumes.

use std::io;

use crate::place::runtime::block_on;
use disk::BlockDevice;

use crate::volume::blocks::{SIZE, size_value};
use crate::volume::marker::{self, Marker};
use crate::volume::{Location, Options, Volume, VolumeError, database};

/// A volume under construction: a device of zeros, which [`Self::finish`] turns into a volume. If it is dropped before,
/// the written objects stay in the bucket until `delete` removes them.
pub struct NewVolume {
    volume: Volume,
    marker: Marker,
    at: Location,
}

impl NewVolume {
    /// Starts to create a volume of `len` bytes.
    ///
    /// # Errors
    /// If the size is invalid, the prefix is not empty, or the bucket is inaccessible.
    pub fn create(at: &Location, len: u64, options: &Options) -> Result<Self, VolumeError> {
        let marker = Marker::new(len)?;
        block_on(async {
            if marker::exists(at).await? {
                return Err(VolumeError::Exists("a volume"));
            }
            if database::admin(at).read_manifest(None).await?.is_some() {
                return Err(VolumeError::Exists(
                    "an incomplete volume, or one that is being created,",
                ));
            }
            let db = database::open(at, &marker, options).await?;
            db.put(SIZE, size_value(&marker)).await?;
            let volume = Volume::new(at, db, &marker, options);
            Ok(Self { volume, marker, at: at.clone() })
        })
    }

    /// Returns the volume's UUID, which may also serve as the UUID of its file system.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.marker.uuid.into_bytes()
    }

    /// Makes all data durable and writes the marker.
    ///
    /// # Errors
    /// If the bucket is inaccessible, or another process has created a volume there.
    pub fn finish(self) -> Result<(), VolumeError> {
        self.volume.close()?;
        block_on(self.marker.write(&self.at))
    }
}

impl BlockDevice for NewVolume {
    fn len(&self) -> u64 {
        self.volume.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.volume.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.volume.write_at(offset, data)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.volume.zero_range(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.volume.discard(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        self.volume.flush()
    }
}
