//! Open files for `dav-server`.

use std::fmt;
use std::io::SeekFrom;
use std::mem;

use bytes::{Buf, Bytes};
use dav_server::fs::{DavFile, DavMetaData, FsError, FsFuture, FsResult, OpenOptions};
use vfs::path::LastLink;
use vfs::{Attributes, FileType, Ino};

use crate::metadata::Metadata;
use crate::pool::JobPool;
use crate::volume::Volume;

/// Size of a write, in bytes. Data of clients is collected up to it.
const WRITE_BYTES: usize = 256 << 10;

/// Purpose of an open file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FilePurpose {
    Read,
    /// The file gets its name at the end, or replaces the file of that name.
    Upload {
        path: Vec<u8>,
        is_new: bool,
        has_name: bool,
    },
    /// Changes of parts of a file, or data added at its end.
    Change {
        appends: bool,
    },
}

/// A file that a request uses. It is closed when it is dropped; an upload without a name is freed then.
pub(crate) struct OpenFile {
    pool: JobPool,
    attributes: Attributes,
    purpose: FilePurpose,
    position: u64,
    /// Data to write at `position`.
    pending: Vec<u8>,
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenFile").field("purpose", &self.purpose).finish_non_exhaustive()
    }
}

impl OpenFile {
    pub(crate) async fn to_read(pool: &JobPool, path: Vec<u8>) -> FsResult<Self> {
        let open = move |volume: &Volume<'_>| {
            let file = volume.metadata(&path, LastLink::Follow)?;
            if file.file_type != FileType::Regular {
                return Err(FsError::Forbidden);
            }
            volume.result(volume.fs().open(file.ino))?;
            Ok(file)
        };
        Self::open(pool, FilePurpose::Read, open).await
    }

    pub(crate) async fn to_upload(
        pool: &JobPool,
        path: Vec<u8>,
        options: &OpenOptions,
    ) -> FsResult<Self> {
        let (size, is_new, must_exist) = (options.size, options.create_new, !options.create);
        let purpose = FilePurpose::Upload { path: path.clone(), is_new, has_name: false };
        let open = move |volume: &Volume<'_>| {
            let exists = volume.metadata(&path, LastLink::Follow).is_ok();
            match exists {
                true if is_new => return Err(FsError::Exists),
                false if must_exist => return Err(FsError::NotFound),
                _ => {}
            }
            let ino = volume.begin_upload(&path, size)?;
            volume.result(volume.fs().attributes(ino)).inspect_err(|_| volume.close(ino))
        };
        Self::open(pool, purpose, open).await
    }

    pub(crate) async fn to_change(
        pool: &JobPool,
        path: Vec<u8>,
        options: &OpenOptions,
    ) -> FsResult<Self> {
        let (create, is_new, append) = (options.create, options.create_new, options.append);
        let open = move |volume: &Volume<'_>| volume.open_in_place(&path, create, is_new);
        let purpose = FilePurpose::Change { appends: append };
        let mut file = Self::open(pool, purpose, open).await?;
        if append {
            file.position = file.attributes.size;
        }
        Ok(file)
    }

    async fn open(
        pool: &JobPool,
        purpose: FilePurpose,
        open: impl FnOnce(&Volume<'_>) -> FsResult<Attributes> + Send + 'static,
    ) -> FsResult<Self> {
        // The value is made by the job, so the file is closed also if the request is cancelled now.
        let owner = pool.clone();
        let opened = move |volume: &Volume<'_>| {
            let attributes = open(volume)?;
            Ok(Self { pool: owner, attributes, purpose, position: 0, pending: Vec::new() })
        };
        pool.run(opened).await
    }

    fn ino(&self) -> Ino {
        self.attributes.ino
    }

    /// Adds data. Writes it if there is enough.
    async fn add(&mut self, mut data: impl Buf) -> FsResult<()> {
        while data.has_remaining() {
            let piece = data.chunk();
            let count = piece.len().min(WRITE_BYTES - self.pending.len());
            self.pending.extend_from_slice(&piece[..count]);
            data.advance(count);
            if self.pending.len() == WRITE_BYTES {
                self.write_pending().await?;
            }
        }
        Ok(())
    }

    async fn write_pending(&mut self) -> FsResult<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let (ino, offset, data) = (self.ino(), self.position, mem::take(&mut self.pending));
        let write = move |volume: &Volume<'_>| {
            let now = Some(volume.served.now());
            volume.change(|| volume.fs().write(ino, offset, &data, now))?;
            Ok(data)
        };
        let mut written = self.pool.run(write).await?;
        self.position += written.len() as u64;
        written.clear();
        self.pending = written;
        Ok(())
    }

    async fn finish(&mut self) -> FsResult<()> {
        self.write_pending().await?;
        let ino = self.ino();
        let finished = match &mut self.purpose {
            FilePurpose::Upload { path, is_new, has_name } if !*has_name => {
                *has_name = true;
                let (path, is_new) = (mem::take(path), *is_new);
                self.pool.run(move |volume| volume.finish_upload(ino, &path, is_new)).await
            }
            _ => self.pool.run(move |volume| volume.result(volume.fs().attributes(ino))).await,
        };
        self.attributes = finished?;
        Ok(())
    }

    async fn read(&mut self, count: usize) -> FsResult<Bytes> {
        let (ino, offset) = (self.ino(), self.position);
        let read = move |volume: &Volume<'_>| {
            let mut data = vec![0; count];
            let count = volume.result(volume.fs().read(ino, offset, &mut data))?;
            data.truncate(count);
            Ok(Bytes::from(data))
        };
        let data = self.pool.run(read).await?;
        self.position += data.len() as u64;
        Ok(data)
    }

    async fn seek_to(&mut self, target: SeekFrom) -> FsResult<u64> {
        self.write_pending().await?;
        // `dav-server` seeks to the beginning, also before it appends.
        if self.purpose == (FilePurpose::Change { appends: true }) {
            return Ok(self.position);
        }
        let position = match target {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.attributes.size.checked_add_signed(by),
        };
        self.position = position.ok_or(FsError::Forbidden)?;
        Ok(self.position)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let ino = self.ino();
        self.pool.start_job(move |volume| volume.close(ino));
    }
}

impl DavFile for OpenFile {
    fn metadata(&mut self) -> FsFuture<'_, Box<dyn DavMetaData>> {
        let metadata = Metadata::boxed(self.attributes, false);
        Box::pin(std::future::ready(Ok(metadata)))
    }

    fn write_buf(&mut self, data: Box<dyn Buf + Send>) -> FsFuture<'_, ()> {
        Box::pin(self.add(data))
    }

    fn write_bytes(&mut self, data: Bytes) -> FsFuture<'_, ()> {
        Box::pin(self.add(data))
    }

    fn read_bytes(&mut self, count: usize) -> FsFuture<'_, Bytes> {
        Box::pin(self.read(count))
    }

    fn seek(&mut self, target: SeekFrom) -> FsFuture<'_, u64> {
        Box::pin(self.seek_to(target))
    }

    fn flush(&mut self) -> FsFuture<'_, ()> {
        Box::pin(self.finish())
    }
}
