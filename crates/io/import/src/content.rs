//! File contents: location of the data, and access to it.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::FileAt;

use crate::directory::HostFile;
use crate::{Damage, SourceChange, SourceError};

/// A data range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRun {
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes, never 0 in [`Content::runs`].
    pub len: u64,
}

/// The contents of a regular file.
#[derive(Debug)]
pub struct Content {
    whole: DataRun,
    sparse: Option<Arc<[DataRun]>>,
    body: Body,
}

/// Access to the data of a file.
#[derive(Debug)]
pub enum Body {
    /// No data: the file is empty or entirely a hole.
    Empty,
    /// Sequential and immediate only, through [`Source::read`](crate::Source::read).
    Stream,
    /// Readable at any time and offset, from any thread.
    Detached(Detached),
}

/// Contents that can be opened at any time and from any thread.
#[derive(Clone, Debug)]
pub struct Detached(ContentLocation);

#[derive(Clone, Debug)]
enum ContentLocation {
    Host(Box<HostFile>),
    Archive { archive: Arc<ArchiveFile>, offset: u64, content: Box<(u64, Option<Arc<[DataRun]>>)> },
    Elsewhere(Arc<dyn ReadContent>),
}

/// Contents stored outside of the locations that this crate supports.
pub trait ReadContent: Send + Sync + fmt::Debug {
    /// Fills `buf` with the file's bytes from `offset` on; holes read as zeros.
    ///
    /// # Errors
    /// If they cannot be read, or the file ends before.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError>;
}

/// An uncompressed archive from which file contents are read.
#[derive(Debug)]
pub(crate) struct ArchiveFile {
    pub(crate) file: Arc<File>,
    pub(crate) path: PathBuf,
}

impl Content {
    /// Contents of a host file; `sparse` lists its data ranges if it has holes.
    pub(crate) fn host(size: u64, sparse: Option<Vec<DataRun>>, file: Box<HostFile>) -> Self {
        Self::new(size, shared(sparse), |_| Body::Detached(Detached(ContentLocation::Host(file))))
    }

    /// Contents that must be read sequentially.
    pub(crate) fn stream(size: u64, sparse: Option<Vec<DataRun>>) -> Self {
        Self::new(size, shared(sparse), |_| Body::Stream)
    }

    /// Contents whose data ranges are stored consecutively in an archive, starting at byte `offset`.
    pub(crate) fn archived(
        size: u64,
        sparse: Option<Vec<DataRun>>,
        archive: &Arc<ArchiveFile>,
        offset: u64,
    ) -> Self {
        Self::archived_shared(size, shared(sparse), archive, offset)
    }

    /// Like [`Self::archived`], with shared data ranges.
    pub(crate) fn archived_shared(
        size: u64,
        sparse: Option<Arc<[DataRun]>>,
        archive: &Arc<ArchiveFile>,
        offset: u64,
    ) -> Self {
        Self::new(size, sparse, |runs| {
            let content = Box::new((size, runs));
            Body::Detached(Detached(ContentLocation::Archive {
                archive: archive.clone(),
                offset,
                content,
            }))
        })
    }

    /// Contents of `size` bytes with a custom reader. `sparse` lists the data ranges if there are holes: sorted,
    /// disjoint and within the size.
    pub fn elsewhere(
        size: u64,
        sparse: Option<Vec<DataRun>>,
        reader: Arc<dyn ReadContent>,
    ) -> Self {
        Self::new(size, shared(sparse), |_| {
            Body::Detached(Detached(ContentLocation::Elsewhere(reader)))
        })
    }

    /// Contents without data.
    pub(crate) fn hole(size: u64) -> Self {
        Self::new(size, shared((size > 0).then(Vec::new)), |_| Body::Empty)
    }

    fn new(
        size: u64,
        sparse: Option<Arc<[DataRun]>>,
        body: impl FnOnce(Option<Arc<[DataRun]>>) -> Body,
    ) -> Self {
        let whole = DataRun { offset: 0, len: size };
        let is_empty = size == 0 || sparse.as_ref().is_some_and(|runs| runs.is_empty());
        let body = if is_empty { Body::Empty } else { body(sparse.clone()) };
        Self { whole, sparse, body }
    }

    /// Returns the same contents again. For sequential contents, only the holes can be duplicated.
    pub(crate) fn duplicate(&self) -> Self {
        let body = match &self.body {
            Body::Empty => Body::Empty,
            Body::Stream => Body::Stream,
            Body::Detached(detached) => Body::Detached(detached.clone()),
        };
        Self { whole: self.whole, sparse: self.sparse.clone(), body }
    }

    /// Returns the data ranges of a sparse file, shared.
    pub(crate) fn sparse(&self) -> Option<&Arc<[DataRun]>> {
        self.sparse.as_ref()
    }

    /// Returns the size in bytes, including holes. A damaged archive can contain any size and [runs](Self::runs) of any
    /// length, so callers must allocate memory only for bytes already read. The data of a [`Body::Detached`] is known
    /// to exist.
    pub fn size(&self) -> u64 {
        self.whole.len
    }

    /// Returns the data ranges, sorted and disjoint; all other bytes are holes.
    pub fn runs(&self) -> &[DataRun] {
        match &self.sparse {
            Some(runs) => runs,
            None if self.whole.len == 0 => &[],
            None => std::slice::from_ref(&self.whole),
        }
    }

    /// Returns the total length of all data ranges.
    pub fn data_len(&self) -> u64 {
        self.runs().iter().map(|run| run.len).sum()
    }

    /// Returns the access to the data.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Converts into the access to the data.
    pub fn into_body(self) -> Body {
        self.body
    }
}

fn shared(sparse: Option<Vec<DataRun>>) -> Option<Arc<[DataRun]>> {
    sparse.map(Into::into)
}

/// Opened contents. Reads are independent of each other and may come from any thread.
#[derive(Debug)]
pub struct ContentFile(OpenContent);

#[derive(Debug)]
enum OpenContent {
    Host { file: File, expected: HostFile },
    Archive { archive: Arc<ArchiveFile>, size: u64, pieces: Vec<ArchivedRun> },
    Elsewhere(Arc<dyn ReadContent>),
}

/// A contiguous range of contents within a host file.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// The host file.
    pub file: &'a File,
    /// Offset in the host file.
    pub offset: u64,
    /// Length of the range.
    pub len: u64,
}

/// A data range and its offset in the archive.
#[derive(Clone, Copy, Debug)]
struct ArchivedRun {
    run: DataRun,
    stored_at: u64,
}

impl Detached {
    /// Returns the archive and the offset of the data, if the contents are in an archive.
    pub(crate) fn place_of(content: Content) -> Option<(Arc<ArchiveFile>, u64)> {
        match content.body {
            Body::Detached(Self(ContentLocation::Archive { archive, offset, .. })) => {
                Some((archive, offset))
            }
            _ => None,
        }
    }

    /// Opens the contents.
    ///
    /// # Errors
    /// If the file cannot be opened, or is not the listed file any more.
    pub fn open(&self) -> Result<ContentFile, SourceError> {
        match &self.0 {
            ContentLocation::Host(host) => {
                let file = host.open()?;
                Ok(ContentFile(OpenContent::Host { file, expected: HostFile::clone(host) }))
            }
            ContentLocation::Archive { archive, offset, content } => {
                let (size, runs) = &**content;
                let whole = [DataRun { offset: 0, len: *size }];
                let mut stored_at = *offset;
                let mut pieces = Vec::new();
                for &run in runs.as_deref().unwrap_or(&whole) {
                    pieces.push(ArchivedRun { run, stored_at });
                    stored_at += run.len;
                }
                Ok(ContentFile(OpenContent::Archive {
                    archive: archive.clone(),
                    size: *size,
                    pieces,
                }))
            }
            ContentLocation::Elsewhere(reader) => {
                Ok(ContentFile(OpenContent::Elsewhere(Arc::clone(reader))))
            }
        }
    }
}

impl ContentFile {
    /// Fills `buf` with the file's bytes from `offset` on; holes read as zeros.
    ///
    /// # Errors
    /// I/O errors, also if the file has become too short or the range exceeds the listed size.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        match &self.0 {
            OpenContent::Host { file, expected } => match file.read_exact_at(buf, offset) {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(expected.shrunk(file)),
                other => other.map_err(|e| SourceError::io("read", &expected.host_path(), e)),
            },
            OpenContent::Archive { archive, size, pieces } => {
                let end = offset.checked_add(buf.len() as u64);
                if end.is_none_or(|end| end > *size) {
                    let e = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Err(SourceError::io("read", &archive.path, e));
                }
                archive.read_pieces(pieces, offset, buf)
            }
            OpenContent::Elsewhere(reader) => reader.read_at(offset, buf),
        }
    }

    /// Returns the location on the host of the bytes from `offset` on, for a copy by the host. Returns `None` in a hole
    /// and past the end. A copy is valid only after [`ContentFile::finish`], like a read.
    pub fn stored(&self, offset: u64) -> Option<Stored<'_>> {
        match &self.0 {
            OpenContent::Host { file, expected } => {
                let len = expected.size().checked_sub(offset).filter(|len| *len > 0)?;
                Some(Stored { file, offset, len })
            }
            OpenContent::Archive { archive, pieces, .. } => {
                let next = pieces.partition_point(|piece| piece.run.offset <= offset);
                let piece = &pieces[next.checked_sub(1)?];
                let within = offset - piece.run.offset;
                let len = piece.run.len.checked_sub(within).filter(|len| *len > 0)?;
                Some(Stored { file: &archive.file, offset: piece.stored_at + within, len })
            }
            // Custom contents, such as a file in the image of a file system.
            OpenContent::Elsewhere(_) => None,
        }
    }

    /// Finishes reading: checks that the file has not changed since it was listed.
    ///
    /// # Errors
    /// [`SourceError::Changed`] if its size or modification time differs.
    pub fn finish(self) -> Result<(), SourceError> {
        match self.0 {
            OpenContent::Host { file, expected } => expected.check(&file),
            OpenContent::Archive { .. } | OpenContent::Elsewhere(_) => Ok(()),
        }
    }
}

impl ArchiveFile {
    fn read_pieces(
        &self,
        pieces: &[ArchivedRun],
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), SourceError> {
        let end = offset + buf.len() as u64;
        let first = pieces.partition_point(|piece| piece.run.offset + piece.run.len <= offset);
        let mut filled = 0;
        for piece in pieces[first..].iter().take_while(|piece| piece.run.offset < end) {
            let from = piece.run.offset.max(offset);
            let to = (piece.run.offset + piece.run.len).min(end);
            let (start, stop) = ((from - offset) as usize, (to - offset) as usize);
            buf[filled..start].fill(0);
            self.read(piece.stored_at + (from - piece.run.offset), &mut buf[start..stop])?;
            filled = stop;
        }
        buf[filled..].fill(0);
        Ok(())
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        self.file.read_exact_at(buf, offset).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => SourceError::Damaged {
                archive: self.path.clone(),
                offset,
                entry: None,
                damage: Damage::Truncated,
            },
            _ => SourceError::io("read", &self.path, e),
        })
    }
}

/// Returns the error for the file at `path` whose size changed.
pub(crate) fn size_changed(path: &Path, expected: u64, found: u64) -> SourceError {
    let change = if expected == found {
        SourceChange::Modified
    } else {
        SourceChange::Size { expected, found }
    };
    SourceError::Changed { path: path.to_owned(), change }
}
