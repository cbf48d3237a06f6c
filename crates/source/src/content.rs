//! File contents: where their data is, and how to read it.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockdev::FileAt;

use crate::directory::HostFile;
use crate::{Change, Damage, SourceError};

/// A run of a file's bytes that hold data.
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

/// How the data of a file is to be read.
#[derive(Debug)]
pub enum Body {
    /// There is none: the file is empty or all hole.
    Empty,
    /// Only now and in order, through [`Source::read`](crate::Source::read).
    Stream,
    /// At any time, from any thread and at any offset.
    Detached(Detached),
}

/// Contents that can be opened at any time and from any thread.
#[derive(Clone, Debug)]
pub struct Detached(Place);

#[derive(Clone, Debug)]
enum Place {
    Host(Box<HostFile>),
    Archive { archive: Arc<ArchiveFile>, offset: u64, content: Box<(u64, Option<Arc<[DataRun]>>)> },
    Elsewhere(Arc<dyn ReadContent>),
}

/// Contents that lie where this crate does not know its way.
pub trait ReadContent: Send + Sync + fmt::Debug {
    /// Fills `buf` with the file's bytes from `offset` on; holes read as zeros.
    ///
    /// # Errors
    /// If they cannot be read, or the file ends before.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError>;
}

/// An uncompressed archive that file contents are read from.
#[derive(Debug)]
pub(crate) struct ArchiveFile {
    pub(crate) file: Arc<File>,
    pub(crate) path: PathBuf,
}

impl Content {
    /// Contents of a file on the host; `sparse` lists its data if it has holes.
    pub(crate) fn host(size: u64, sparse: Option<Vec<DataRun>>, file: Box<HostFile>) -> Self {
        Self::new(size, shared(sparse), |_| Body::Detached(Detached(Place::Host(file))))
    }

    /// Contents that must be read in order.
    pub(crate) fn stream(size: u64, sparse: Option<Vec<DataRun>>) -> Self {
        Self::new(size, shared(sparse), |_| Body::Stream)
    }

    /// Contents whose data runs lie one after the other in an archive, from byte `offset` on.
    pub(crate) fn archived(
        size: u64,
        sparse: Option<Vec<DataRun>>,
        archive: &Arc<ArchiveFile>,
        offset: u64,
    ) -> Self {
        Self::archived_shared(size, shared(sparse), archive, offset)
    }

    /// The same, of runs that others have too.
    pub(crate) fn archived_shared(
        size: u64,
        sparse: Option<Arc<[DataRun]>>,
        archive: &Arc<ArchiveFile>,
        offset: u64,
    ) -> Self {
        Self::new(size, sparse, |runs| {
            let content = Box::new((size, runs));
            Body::Detached(Detached(Place::Archive { archive: archive.clone(), offset, content }))
        })
    }

    /// Contents of `size` bytes that somebody else reads; `sparse` lists their data if there are holes: sorted, within
    /// the size, and apart from each other.
    pub fn elsewhere(
        size: u64,
        sparse: Option<Vec<DataRun>>,
        reader: Arc<dyn ReadContent>,
    ) -> Self {
        Self::new(size, shared(sparse), |_| Body::Detached(Detached(Place::Elsewhere(reader))))
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

    /// The same contents once more. Of those that must be read in order only the holes can be had twice.
    pub(crate) fn duplicate(&self) -> Self {
        let body = match &self.body {
            Body::Empty => Body::Empty,
            Body::Stream => Body::Stream,
            Body::Detached(detached) => Body::Detached(detached.clone()),
        };
        Self { whole: self.whole, sparse: self.sparse.clone(), body }
    }

    /// The runs of a file with holes, to share.
    pub(crate) fn sparse(&self) -> Option<&Arc<[DataRun]>> {
        self.sparse.as_ref()
    }

    /// Size in bytes, holes included. A damaged archive can announce any size and [runs](Self::runs)
    /// of any length (the data of a [`Body::Detached`] is known to be there): allocate for what has
    /// been read.
    pub fn size(&self) -> u64 {
        self.whole.len
    }

    /// Where the data is, sorted and without overlap; the rest of the file is holes.
    pub fn runs(&self) -> &[DataRun] {
        match &self.sparse {
            Some(runs) => runs,
            None if self.whole.len == 0 => &[],
            None => std::slice::from_ref(&self.whole),
        }
    }

    /// Bytes in all data runs together.
    pub fn data_len(&self) -> u64 {
        self.runs().iter().map(|run| run.len).sum()
    }

    /// How to read the data.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// The same, to keep.
    pub fn into_body(self) -> Body {
        self.body
    }
}

fn shared(sparse: Option<Vec<DataRun>>) -> Option<Arc<[DataRun]>> {
    sparse.map(Into::into)
}

/// Contents that were opened. Reads are independent of each other and may come from any thread.
#[derive(Debug)]
pub struct ContentFile(Opened);

#[derive(Debug)]
enum Opened {
    Host { file: File, expected: HostFile },
    Archive { archive: Arc<ArchiveFile>, size: u64, pieces: Vec<Piece> },
    Elsewhere(Arc<dyn ReadContent>),
}

/// Bytes of a file's contents as they lie in a file of the host.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// The file of the host.
    pub file: &'a File,
    /// Where they begin in it.
    pub offset: u64,
    /// How many lie there in one piece.
    pub len: u64,
}

/// A data run and where its bytes are in the archive.
#[derive(Clone, Copy, Debug)]
struct Piece {
    run: DataRun,
    stored_at: u64,
}

impl Detached {
    /// Where in an archive the data of contents lie, if they have any.
    pub(crate) fn place_of(content: Content) -> Option<(Arc<ArchiveFile>, u64)> {
        match content.body {
            Body::Detached(Self(Place::Archive { archive, offset, .. })) => Some((archive, offset)),
            _ => None,
        }
    }

    /// Opens the contents.
    ///
    /// # Errors
    /// If the file cannot be opened, or is no longer the file that was listed.
    pub fn open(&self) -> Result<ContentFile, SourceError> {
        match &self.0 {
            Place::Host(host) => {
                let file = host.open()?;
                Ok(ContentFile(Opened::Host { file, expected: HostFile::clone(host) }))
            }
            Place::Archive { archive, offset, content } => {
                let (size, runs) = &**content;
                let whole = [DataRun { offset: 0, len: *size }];
                let mut stored_at = *offset;
                let mut pieces = Vec::new();
                for &run in runs.as_deref().unwrap_or(&whole) {
                    pieces.push(Piece { run, stored_at });
                    stored_at += run.len;
                }
                Ok(ContentFile(Opened::Archive { archive: archive.clone(), size: *size, pieces }))
            }
            Place::Elsewhere(reader) => Ok(ContentFile(Opened::Elsewhere(Arc::clone(reader)))),
        }
    }
}

impl ContentFile {
    /// Fills `buf` with the file's bytes from `offset` on; holes read as zeros.
    ///
    /// # Errors
    /// I/O errors, and if the file is too short for it by now. Asking for bytes beyond the size
    /// that was listed is an I/O error too.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        match &self.0 {
            Opened::Host { file, expected } => match file.read_exact_at(buf, offset) {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(expected.shrunk(file)),
                other => other.map_err(|e| SourceError::io("read", &expected.host_path(), e)),
            },
            Opened::Archive { archive, size, pieces } => {
                let end = offset.checked_add(buf.len() as u64);
                if end.is_none_or(|end| end > *size) {
                    let e = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Err(SourceError::io("read", &archive.path, e));
                }
                archive.read_pieces(pieces, offset, buf)
            }
            Opened::Elsewhere(reader) => reader.read_at(offset, buf),
        }
    }

    /// Where the bytes from `offset` on lie on the host, to be copied by it. `None` in a hole and past the end.
    /// What was copied counts only after [`ContentFile::finish`], as what was read.
    pub fn stored(&self, offset: u64) -> Option<Stored<'_>> {
        match &self.0 {
            Opened::Host { file, expected } => {
                let len = expected.size().checked_sub(offset).filter(|len| *len > 0)?;
                Some(Stored { file, offset, len })
            }
            Opened::Archive { archive, pieces, .. } => {
                let next = pieces.partition_point(|piece| piece.run.offset <= offset);
                let piece = &pieces[next.checked_sub(1)?];
                let within = offset - piece.run.offset;
                let len = piece.run.len.checked_sub(within).filter(|len| *len > 0)?;
                Some(Stored { file: &archive.file, offset: piece.stored_at + within, len })
            }
            // What reads it may be anything, such as the image of a file system.
            Opened::Elsewhere(_) => None,
        }
    }

    /// Ends the reading: confirms that the file is still what it was when it was listed.
    ///
    /// # Errors
    /// [`SourceError::Changed`] if its size or modification time is another one.
    pub fn finish(self) -> Result<(), SourceError> {
        match self.0 {
            Opened::Host { file, expected } => expected.check(&file),
            Opened::Archive { .. } | Opened::Elsewhere(_) => Ok(()),
        }
    }
}

impl ArchiveFile {
    fn read_pieces(
        &self,
        pieces: &[Piece],
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

/// The error for a file at `path` whose size is not what it was.
pub(crate) fn size_changed(path: &Path, expected: u64, found: u64) -> SourceError {
    let change =
        if expected == found { Change::Modified } else { Change::Size { expected, found } };
    SourceError::Changed { path: path.to_owned(), change }
}
