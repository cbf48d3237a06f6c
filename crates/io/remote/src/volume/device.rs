//! A volume opened for writing.

use std::io;
use std::time::Duration;

use crate::place::runtime::block_on;
use bytes::Bytes;
use disk::{BlockDevice, is_zero};
use parking_lot::{Mutex, MutexGuard};
use slatedb::config::{CheckpointOptions, CheckpointScope, CloseOptions, FlushType};
use slatedb::{Db, WriteBatch};

use crate::volume::blocks::{Geometry, Scan, Touched, key};
use crate::volume::marker::Marker;
use crate::volume::{Location, Options, VolumeError, database, names};

/// Maximum number of blocks in one write to the database.
const BATCH_BLOCKS: u64 = 256;
/// Maximum number of blocks that are removed without a scan for existing ones.
const REMOVED_UNSEEN_MAX: u64 = 64;
/// Number of locks for partial block writes.
const LOCKS: u64 = 64;
/// Maximum time for closing a volume on drop. After that it is left as after a crash.
const CLOSE_TIME: Duration = Duration::from_secs(60);

/// A volume with exclusive write access. The next process that opens it fences this one: all later writes and flushes
/// fail.
///
/// Writes are buffered in memory until [`flush`](BlockDevice::flush), up to about 256 MiB; beyond that, writers wait.
/// After a failed write or flush, all later ones fail too, and the bucket's state is that after a crash. Dropping a
/// volume closes it, so that the next open is faster.
pub struct Volume {
    db: Db,
    geometry: Geometry,
    at: Location,
    /// Locks for read-modify-write of single blocks.
    parts: Vec<Mutex<()>>,
    /// The first failure, which prevents all further writes.
    failed: Mutex<Option<String>>,
}

impl Volume {
    /// Opens a volume for writing, and fences its previous writer.
    ///
    /// # Errors
    /// If it does not exist, it is damaged, or the bucket is inaccessible.
    pub fn open(at: &Location, options: &Options) -> Result<Self, VolumeError> {
        block_on(async {
            let marker = Marker::read(at).await?;
            let db = database::open(at, &marker, options).await?;
            match Geometry::check(&db, &marker).await {
                Ok(geometry) => Ok(Self::new(at, db, geometry)),
                Err(error) => {
                    // No data were written, so errors can be ignored.
                    let _ = db.close_with_options(unflushed()).await;
                    Err(error)
                }
            }
        })
    }

    pub(crate) fn new(at: &Location, db: Db, geometry: Geometry) -> Self {
        let parts = (0..LOCKS).map(|_| Mutex::default()).collect();
        Self { db, geometry, at: at.clone(), parts, failed: Mutex::default() }
    }

    /// Creates a snapshot that contains all writes completed before the call.
    ///
    /// # Errors
    /// If the name is taken or invalid, or the bucket is inaccessible.
    pub fn snapshot(&self, name: &str) -> Result<(), VolumeError> {
        let options = CheckpointOptions { name: Some(name.into()), ..Default::default() };
        block_on(async {
            names::check_free(&self.at, name).await?;
            self.db.create_checkpoint(CheckpointScope::All, &options).await?;
            Ok(())
        })
    }

    /// Makes all writes durable and closes the volume.
    ///
    /// # Errors
    /// If a write cannot be made durable.
    pub fn close(self) -> Result<(), VolumeError> {
        self.flushed()?;
        block_on(self.db.close()).map_err(VolumeError::from)
    }

    fn flushed(&self) -> Result<(), VolumeError> {
        self.db_result(block_on(self.db.flush()))
    }

    /// Records the first failure.
    fn db_result<T>(&self, result: Result<T, slatedb::Error>) -> Result<T, VolumeError> {
        result.map_err(|error| {
            let error = VolumeError::from(error);
            self.failed.lock().get_or_insert_with(|| error.to_string());
            error
        })
    }

    fn named(&self, error: VolumeError) -> io::Error {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("{}: {error}", self.at.address))
    }

    /// Fails if an earlier write or flush failed.
    fn check_usable(&self) -> io::Result<()> {
        match &*self.failed.lock() {
            None => Ok(()),
            Some(why) => Err(io::Error::other(format!("{}: {why}", self.at.address))),
        }
    }

    async fn write(&self, offset: u64, data: &[u8]) -> Result<(), VolumeError> {
        let Touched { blocks, skip } = self.geometry.touched(offset, data.len() as u64)?;
        let size = self.geometry.block_bytes as usize;
        let _parts = self.lock_parts(offset, data.len() as u64);
        let mut rest = data;
        let mut batch = WriteBatch::new();
        for block in blocks.clone() {
            let skip = if block == blocks.start { skip } else { 0 };
            let (piece, after) = rest.split_at(rest.len().min(size - skip));
            rest = after;
            let value = if piece.len() == size {
                Bytes::copy_from_slice(piece)
            } else {
                let old = self.geometry.block(&self.db, block).await?;
                let mut value = old.map_or_else(|| vec![0; size], Vec::from);
                value[skip..][..piece.len()].copy_from_slice(piece);
                value.into()
            };
            if is_zero(&value) {
                batch.delete(key(block));
            } else {
                batch.put_bytes(Bytes::copy_from_slice(&key(block)), value);
            }
            let is_full = (block + 1 - blocks.start).is_multiple_of(BATCH_BLOCKS);
            if is_full || block + 1 == blocks.end {
                self.db_result(self.db.write(std::mem::take(&mut batch)).await.map(drop))?;
            }
        }
        Ok(())
    }

    /// Locks the partially written blocks at both ends of a range. Callers serialise overlapping writes. Two writes to
    /// different parts of one block must be serialised here.
    fn lock_parts(&self, offset: u64, len: u64) -> Vec<MutexGuard<'_, ()>> {
        let size = self.geometry.block_bytes;
        let cut = [offset, offset + len].into_iter().filter(|at| !at.is_multiple_of(size));
        let mut locks: Vec<_> = cut.map(|at| at / size % LOCKS).collect();
        locks.sort_unstable();
        locks.dedup();
        locks.into_iter().map(|lock| self.parts[lock as usize].lock()).collect()
    }

    async fn zero(&self, offset: u64, len: u64) -> Result<(), VolumeError> {
        let size = self.geometry.block_bytes;
        let end = offset + len;
        let (start, stop) = (offset.next_multiple_of(size), end / size * size);
        if start >= stop {
            return self.write(offset, &vec![0; len as usize]).await;
        }
        self.write(offset, &vec![0; (start - offset) as usize]).await?;
        self.remove(start / size..stop / size).await?;
        self.write(stop, &vec![0; (end - stop) as usize]).await
    }

    /// Removes blocks. Large ranges are scanned first, because each tombstone of a missing key would stay for long.
    async fn remove(&self, blocks: std::ops::Range<u64>) -> Result<(), VolumeError> {
        let mut batch = WriteBatch::new();
        if blocks.end - blocks.start <= REMOVED_UNSEEN_MAX {
            blocks.for_each(|block| batch.delete(key(block)));
            return self.db_result(self.db.write(batch).await.map(drop));
        }
        let mut scan = Scan::new(&self.db, blocks, self.geometry).await?;
        let mut count = 0;
        while let Some((block, _)) = scan.next().await? {
            batch.delete(key(block));
            count += 1;
            if count == BATCH_BLOCKS {
                self.db_result(self.db.write(std::mem::take(&mut batch)).await.map(drop))?;
                count = 0;
            }
        }
        if count > 0 {
            self.db_result(self.db.write(batch).await.map(drop))?;
        }
        Ok(())
    }
}

impl BlockDevice for Volume {
    fn len(&self) -> u64 {
        self.geometry.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let read = block_on(self.geometry.read(&self.db, offset, buf));
        read.map_err(|error| self.named(error))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check_usable()?;
        block_on(self.write(offset, data)).map_err(|error| self.named(error))
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.geometry.touched(offset, len)?;
        self.check_usable()?;
        block_on(self.zero(offset, len)).map_err(|error| self.named(error))
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.zero_range(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        self.check_usable()?;
        self.flushed().map_err(|error| self.named(error))
    }

    /// Each flush is a request to the bucket.
    fn has_long_flushes(&self) -> bool {
        true
    }

    /// The database's log keeps the order of writes: a crash loses only the latest unflushed ones.
    fn barrier(&self) -> io::Result<()> {
        self.check_usable()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let options = if self.failed.lock().is_some() { unflushed() } else { Default::default() };
        // Flushed writes are in the log in any case; closing only moves them into tables.
        let closed = async {
            tokio::time::timeout(CLOSE_TIME, self.db.close_with_options(options)).await.map(drop)
        };
        let _ = block_on(closed);
    }
}

fn unflushed() -> CloseOptions {
    CloseOptions::default().with_flush_type(None::<FlushType>)
}
