//! A volume that is open to be changed.

use std::io;
use std::time::Duration;

use blockdev::{BlockDevice, is_zero};
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use place::runtime::block_on;
use slatedb::config::{CheckpointOptions, CheckpointScope, CloseOptions, FlushType};
use slatedb::{Db, WriteBatch};

use crate::blocks::{Geometry, Scan, Touched, key};
use crate::marker::Marker;
use crate::{Location, Options, VolumeError, database, names};

/// Blocks of one write to the database.
const BATCH_BLOCKS: u64 = 256;
/// Ranges of so many blocks are looked through for what there is to remove.
const REMOVED_UNSEEN_MAX: u64 = 64;
/// Locks of blocks of which a part is written.
const LOCKS: u64 = 64;
/// How long leaving a volume may take, before it is left as after a crash.
const CLOSE_TIME: Duration = Duration::from_secs(60);

/// A volume that this process alone can change: whoever opens it next fences this one, whose writes and flushes fail
/// from then on.
///
/// What is written is in memory until [`flush`](BlockDevice::flush), some 256 MiB at most; after that writers wait. After a
/// write or a flush has failed, all of them do: what the bucket has is as after a crash. Dropped, it is closed, so that
/// it opens sooner the next time.
pub struct Volume {
    db: Db,
    geometry: Geometry,
    at: Location,
    /// Of blocks that are read, changed in part and written back.
    parts: Vec<Mutex<()>>,
    /// Why nothing can be written any more.
    failed: Mutex<Option<String>>,
}

impl Volume {
    /// Opens a volume to be changed, and fences whoever had it open.
    ///
    /// # Errors
    /// If there is none, it is damaged, or the bucket cannot be used.
    pub fn open(at: &Location, options: &Options) -> Result<Self, VolumeError> {
        block_on(async {
            let marker = Marker::read(at).await?;
            let db = database::open(at, &marker, options).await?;
            match Geometry::check(&db, &marker).await {
                Ok(geometry) => Ok(Self::new(at, db, geometry)),
                Err(error) => {
                    // It was not changed.
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

    /// Keeps the volume as it is now under a name: what was written before the call is in it.
    ///
    /// # Errors
    /// If the name is taken or is none, or the bucket cannot be used.
    pub fn snapshot(&self, name: &str) -> Result<(), VolumeError> {
        let options = CheckpointOptions { name: Some(name.into()), ..Default::default() };
        block_on(async {
            names::check_free(&self.at, name).await?;
            self.db.create_checkpoint(CheckpointScope::All, &options).await?;
            Ok(())
        })
    }

    /// Makes everything durable and closes the volume.
    ///
    /// # Errors
    /// If something is not durable.
    pub fn close(self) -> Result<(), VolumeError> {
        self.flushed()?;
        block_on(self.db.close()).map_err(VolumeError::from)
    }

    fn flushed(&self) -> Result<(), VolumeError> {
        self.db_result(block_on(self.db.flush()))
    }

    /// Notes the first failure.
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

    /// An error if something failed before.
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

    /// Holds the blocks at both ends of a range that are not covered by it. What overlaps callers put in order, but
    /// neighbours in a block they do not know of.
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

    /// Removes blocks. Of many only those that are there: a key that is removed in vain stays for long.
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

    /// One is a request to the bucket.
    fn has_long_flushes(&self) -> bool {
        true
    }

    /// The database's log is in the order of the writes, and of what is not flushed a crash leaves what came first.
    fn barrier(&self) -> io::Result<()> {
        self.check_usable()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let options = if self.failed.lock().is_some() { unflushed() } else { Default::default() };
        // What was flushed is in the log in any case; closing only brings it into tables.
        let closed = async {
            tokio::time::timeout(CLOSE_TIME, self.db.close_with_options(options)).await.map(drop)
        };
        let _ = block_on(closed);
    }
}

fn unflushed() -> CloseOptions {
    CloseOptions::default().with_flush_type(None::<FlushType>)
}
