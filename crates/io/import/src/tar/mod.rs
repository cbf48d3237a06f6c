//! A tar archive as a source.
//!
//! An entry is a header block, preceded by any number of extension entries (PAX headers, GNU long names), and followed
//! by its data in whole blocks. A size in an archive never causes an allocation before that many bytes have been read.

mod acl;
mod at;
pub(crate) mod compress;
mod header;
mod input;
mod path;
mod pax;
pub(crate) mod readahead;
mod sparse;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use acl::Accounts;
use header::SparseBlock;
pub use header::{BLOCK_BYTES, Header};
use input::Input;
use path::normalize;
use pax::Pax;
use sparse::MapParser;

use crate::host::as_path;
use crate::{
    Content, Damage, DataRun, Entry, EntryKind, Metadata, Progress, Source, SourceError, Time,
    Unsupported, Xattr,
};

/// Maximum size of a PAX header in bytes. It contains sparse maps and extended attributes.
const PAX_BYTES_MAX: u64 = 64 << 20;
/// Maximum size of a GNU long name or link target in bytes.
const LONG_NAME_BYTES_MAX: u64 = 1 << 20;

/// A tar archive: V7, ustar, PAX or GNU, plain or compressed with gzip or zstd.
pub struct TarSource {
    input: Input,
    accounts: Accounts,
    /// Extended headers that apply to all following entries.
    global: Pax,
    current: Current,
    is_over: bool,
    /// True if the end of the input is accepted instead of the end marker.
    may_end_unmarked: bool,
}

/// The entry that is being read or was last returned.
#[derive(Default)]
struct Current {
    /// Offset of its header.
    offset: u64,
    path: Option<PathBuf>,
    /// Remaining bytes of its data.
    data_left: u64,
    /// Padding bytes after its data.
    padding: u64,
    /// True if its data is read through [`Source::read`].
    is_streamed: bool,
}

/// Values of the extension entries before an entry.
struct Extensions {
    pax: Pax,
    path: Option<Vec<u8>>,
    linkpath: Option<Vec<u8>>,
}

/// A fault without its location.
enum ArchiveFault {
    Damage(Damage),
    Unsupported(Unsupported),
    Source(SourceError),
}

impl From<Damage> for ArchiveFault {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}

impl From<Unsupported> for ArchiveFault {
    fn from(feature: Unsupported) -> Self {
        Self::Unsupported(feature)
    }
}

impl From<SourceError> for ArchiveFault {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

impl TarSource {
    /// Opens the archive at `path`. File contents of an uncompressed archive are
    /// [`Body::Detached`](crate::Body::Detached), those of others must be read in order.
    ///
    /// # Errors
    /// If it cannot be opened, or the compression is not supported.
    pub(crate) fn open(path: &Path) -> Result<Self, SourceError> {
        Ok(Self::new(Input::open(path)?))
    }

    /// Reads an archive from a stream. `name` is used in errors.
    ///
    /// # Errors
    /// If the stream cannot be read, or the compression is not supported.
    pub fn from_stream(
        stream: impl Read + Send + 'static,
        name: &str,
    ) -> Result<Self, SourceError> {
        Ok(Self::new(Input::stream(stream, Path::new(name), None)?))
    }

    /// Reads an archive from a stream and appends a copy of the stored bytes to `copy`, for [`Self::from_copy`]. `name`
    /// is used in errors. Bytes behind the archive are read, but not copied.
    ///
    /// # Errors
    /// Returns the errors of [`Self::from_stream`]; [`SourceError::Copy`] if the copy cannot be written.
    pub fn copying(
        stream: impl Read + Send + 'static,
        name: &Path,
        copy: &Arc<File>,
    ) -> Result<Self, SourceError> {
        Ok(Self::new(Input::stream(stream, name, Some(Arc::clone(copy)))?))
    }

    /// Reads the copy of a source that was [copying](Self::copying) and was read to its end. `name` is used in errors.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn from_copy(copy: &Arc<File>, name: &Path) -> Result<Self, SourceError> {
        Ok(Self::new(Input::of_copy(Arc::clone(copy), name)?))
    }

    /// Reads an already decompressed stream. `name` is used in errors.
    pub(crate) fn from_plain(stream: impl Read + Send + 'static, name: &Path) -> Self {
        Self::new(Input::plain(stream, name))
    }

    /// Like [`Self::from_plain`], for a stream whose digest is verified, or whose decoder detects its end. Truncation
    /// is impossible then, so the end marker may be missing: some programs (`umoci insert`) omit it.
    pub(crate) fn from_verified(stream: impl Read + Send + 'static, name: &Path) -> Self {
        Self { may_end_unmarked: true, ..Self::from_plain(stream, name) }
    }

    /// Returns the offset in the uncompressed archive of the last entry's data, if none of it was read.
    pub(crate) fn data_offset(&self) -> u64 {
        self.input.offset
    }

    /// Returns whether the archive is compressed, so that file contents must be read in order.
    pub fn is_compressed(&self) -> bool {
        self.input.is_compressed()
    }

    fn new(input: Input) -> Self {
        Self {
            input,
            accounts: Accounts::default(),
            global: Pax::default(),
            current: Current::default(),
            is_over: false,
            may_end_unmarked: false,
        }
    }

    fn advance(&mut self) -> Result<Option<Entry>, ArchiveFault> {
        let rest = self.current.data_left + self.current.padding;
        if !self.input.skip(rest)? {
            return Err(Damage::Truncated.into());
        }
        self.current = Current::default();
        let mut extensions = Extensions { pax: self.global.clone(), path: None, linkpath: None };
        loop {
            self.current.offset = self.input.offset;
            let Some(block) = self.next_header()? else { return Ok(None) };
            let header = self.parse(&block)?;
            match header.typeflag {
                b'x' | b'X' => {
                    let records = self.extension(header, "PAX header", PAX_BYTES_MAX)?;
                    extensions.pax.apply(&records)?;
                }
                b'g' => {
                    let records = self.extension(header, "PAX header", PAX_BYTES_MAX)?;
                    self.global.apply(&records)?;
                    extensions.pax.apply(&records)?;
                }
                b'L' => extensions.path = Some(self.long_name(header)?),
                b'K' => extensions.linkpath = Some(self.long_name(header)?),
                b'V' => {}
                _ => return self.entry(header, extensions).map(Some),
            }
        }
    }

    fn parse<'a>(&self, block: &'a [u8; BLOCK_BYTES]) -> Result<&'a Header, Damage> {
        // A bad first header means that this is not a tar archive at all.
        Header::parse(block).map_err(|e| if self.current.offset == 0 { Damage::NotTar } else { e })
    }

    /// Returns the next header block, or `None` at the archive's end.
    fn next_header(&mut self) -> Result<Option<[u8; BLOCK_BYTES]>, ArchiveFault> {
        let mut block = [0; BLOCK_BYTES];
        match self.input.read(&mut block)? {
            BLOCK_BYTES if block.iter().any(|&b| b != 0) => return Ok(Some(block)),
            BLOCK_BYTES => {}
            0 if self.may_end_unmarked => {
                self.input.drain()?;
                return Ok(None);
            }
            _ if self.current.offset == 0 => return Err(Damage::NotTar.into()),
            0 => return Err(Damage::NoEndMarker.into()),
            _ => return Err(Damage::Truncated.into()),
        }
        // The second block of the marker may be missing, but not be replaced by other data.
        let read = self.input.read(&mut block)?;
        if block[..read].iter().any(|&b| b != 0) {
            return Err(Damage::NoEndMarker.into());
        }
        self.input.drain()?;
        Ok(None)
    }

    /// Reads the data of an extension entry and the padding after it.
    fn extension(
        &mut self,
        header: &Header,
        what: &'static str,
        limit: u64,
    ) -> Result<Vec<u8>, ArchiveFault> {
        let size = header.size()?;
        if size > limit {
            return Err(Damage::TooLarge { what, found: size, limit }.into());
        }
        // Grows with the bytes actually read.
        let mut data = Vec::new();
        let mut chunk = [0; 16 * BLOCK_BYTES];
        let mut left = size;
        while left > 0 {
            let n = chunk.len().min(left as usize);
            self.read_exact(&mut chunk[..n])?;
            data.extend_from_slice(&chunk[..n]);
            left -= n as u64;
        }
        if !self.input.skip(padding(size))? {
            return Err(Damage::Truncated.into());
        }
        Ok(data)
    }

    fn long_name(&mut self, header: &Header) -> Result<Vec<u8>, ArchiveFault> {
        let mut name = self.extension(header, "long name", LONG_NAME_BYTES_MAX)?;
        if name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }

    fn read_exact(&mut self, buf: &mut [u8]) -> Result<(), ArchiveFault> {
        if self.input.read(buf)? == buf.len() { Ok(()) } else { Err(Damage::Truncated.into()) }
    }

    fn entry(&mut self, header: &Header, extensions: Extensions) -> Result<Entry, ArchiveFault> {
        let Extensions { mut pax, path, linkpath } = extensions;
        let path = pax.sparse.name.take().or(pax.path.take()).or(path);
        let path = path.unwrap_or_else(|| header.path());
        self.current.path = Some(as_path(&path).into_owned());
        let linkpath = pax.linkpath.take().or(linkpath);
        let linkpath = linkpath.unwrap_or_else(|| header.linkname().to_vec());
        let ends_in_slash = path.ends_with(b"/");
        let path = normalize(&path, "the path")?;
        let metadata = metadata(header, &pax)?;
        let mut xattrs = xattrs(&mut pax, &self.accounts)?;
        let kind = match header.typeflag {
            b'0' | 0 if ends_in_slash => EntryKind::Directory,
            b'0' | 0 | b'7' => EntryKind::File(self.content(header, pax)?),
            b'S' => EntryKind::File(self.gnu_sparse(header)?),
            b'1' => {
                xattrs.clear();
                EntryKind::Hardlink(normalize(&linkpath, "the target of a hard link")?)
            }
            b'2' if linkpath.is_empty() || linkpath.contains(&0) => {
                return Err(Damage::Path("the target of a symbolic link").into());
            }
            b'2' => EntryKind::Symlink(linkpath),
            b'3' => EntryKind::CharDevice { major: header.devmajor()?, minor: header.devminor()? },
            b'4' => EntryKind::BlockDevice { major: header.devmajor()?, minor: header.devminor()? },
            b'5' => EntryKind::Directory,
            b'D' => {
                // In an incremental archive a list of the directory's files follows.
                self.set_data(pax.size.map_or_else(|| header.size(), Ok)?, 0);
                EntryKind::Directory
            }
            b'6' => EntryKind::Fifo,
            other => return Err(Unsupported::EntryType(other).into()),
        };
        if path.is_empty() && !matches!(kind, EntryKind::Directory) {
            return Err(Damage::Path("the path").into());
        }
        Ok(Entry { path, kind, metadata, xattrs, inode: None })
    }

    /// Sets the remaining data of an entry with `stored` bytes, `used` of which were consumed.
    fn set_data(&mut self, stored: u64, used: u64) {
        self.current.data_left = stored - used;
        self.current.padding = padding(stored);
    }

    /// Returns the contents of a regular file, which may be in a PAX sparse format.
    fn content(&mut self, header: &Header, pax: Pax) -> Result<Content, ArchiveFault> {
        let stored = pax.size.map_or_else(|| header.size(), Ok)?;
        let sparse = pax.sparse;
        let version = (sparse.major.as_deref(), sparse.minor.as_deref());
        let (runs, used) = match version {
            (None, None) if sparse.size.is_none() && sparse.runs.is_empty() => {
                self.set_data(stored, 0);
                return self.located(stored, None);
            }
            (None, None) | (Some(b"0"), Some(b"0" | b"1")) => (sparse.runs, 0),
            (Some(b"1"), Some(b"0")) => self.sparse_map(stored)?,
            (major, minor) => {
                let part =
                    |n: Option<&[u8]>| String::from_utf8_lossy(n.unwrap_or(b"?")).into_owned();
                let version = format!("{}.{}", part(major), part(minor));
                return Err(Unsupported::SparseVersion(version).into());
            }
        };
        let size = sparse.size.ok_or(Damage::Sparse("the real size is missing"))?;
        let runs = sparse::check(runs, size, stored - used)?;
        self.set_data(stored, used);
        self.located(size, Some(runs))
    }

    /// Reads the map before the data of PAX sparse format 1.0, and its length in bytes.
    fn sparse_map(&mut self, stored: u64) -> Result<(Vec<DataRun>, u64), ArchiveFault> {
        let mut map = MapParser::default();
        let mut block = [0; BLOCK_BYTES];
        let mut used = 0;
        loop {
            used += BLOCK_BYTES as u64;
            if used > stored {
                return Err(Damage::Sparse("the map is longer than the data").into());
            }
            self.read_exact(&mut block)?;
            if map.push(&block)? {
                return Ok((map.into_runs(), used));
            }
        }
    }

    /// Returns the contents of a file in GNU's old sparse format, whose map continues in separate blocks.
    fn gnu_sparse(&mut self, header: &Header) -> Result<Content, ArchiveFault> {
        let mut runs = Vec::new();
        let mut block = [0; BLOCK_BYTES];
        let mut is_extended = header.sparse_runs(&mut runs)?;
        while is_extended {
            if runs.len() > sparse::RUNS_MAX {
                return Err(Damage::Sparse("too many runs").into());
            }
            self.read_exact(&mut block)?;
            is_extended = SparseBlock::sparse_runs(&block, &mut runs)?;
        }
        let (size, stored) = (header.realsize()?, header.size()?);
        let runs = sparse::check(runs, size, stored)?;
        self.set_data(stored, 0);
        self.located(size, Some(runs))
    }

    /// Returns contents whose data comes next in the archive.
    fn located(&mut self, size: u64, runs: Option<Vec<DataRun>>) -> Result<Content, ArchiveFault> {
        if !self.input.may_have(self.current.data_left) {
            return Err(Damage::Truncated.into());
        }
        Ok(match self.input.archive_file() {
            Some(archive) => Content::archived(size, runs, archive, self.input.offset),
            None => {
                self.current.is_streamed = true;
                Content::stream(size, runs)
            }
        })
    }

    /// Adds the location to a fault, and ends the stream.
    fn fail(&mut self, fault: ArchiveFault) -> SourceError {
        self.is_over = true;
        let archive = self.input.name().to_owned();
        let (offset, entry) = (self.current.offset, self.current.path.take());
        match fault {
            ArchiveFault::Damage(damage @ (Damage::Truncated | Damage::NoEndMarker)) => {
                SourceError::Damaged { archive, offset: self.input.offset, entry, damage }
            }
            ArchiveFault::Damage(damage) => SourceError::Damaged { archive, offset, entry, damage },
            ArchiveFault::Unsupported(feature) => {
                SourceError::Unsupported { archive, offset, entry, feature }
            }
            ArchiveFault::Source(SourceError::Damaged { archive, offset, damage, .. }) => {
                SourceError::Damaged { archive, offset, entry, damage }
            }
            ArchiveFault::Source(error) => error,
        }
    }
}

impl Source for TarSource {
    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        if self.is_over {
            return Ok(None);
        }
        let next = self.advance().map_err(|fault| self.fail(fault))?;
        self.is_over = next.is_none();
        Ok(next)
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize, SourceError> {
        if self.is_over || !self.current.is_streamed {
            return Ok(0);
        }
        let len = self.current.data_left.min(buf.len() as u64);
        let buf = &mut buf[..len as usize];
        self.read_exact(buf).map_err(|fault| self.fail(fault))?;
        self.current.data_left -= len;
        Ok(buf.len())
    }

    fn progress(&self) -> Progress {
        self.input.progress()
    }
}

/// Returns the number of padding bytes after `size` bytes of data.
fn padding(size: u64) -> u64 {
    let block = BLOCK_BYTES as u64;
    (block - size % block) % block
}

fn metadata(header: &Header, pax: &Pax) -> Result<Metadata, Damage> {
    let header_time = || Ok(Time { sec: header.mtime()?, nsec: 0 });
    Ok(Metadata {
        permissions: header.permissions()?,
        uid: pax.uid.map_or_else(|| header.uid(), Ok)?,
        gid: pax.gid.map_or_else(|| header.gid(), Ok)?,
        mtime: pax.mtime.map_or_else(header_time, Ok)?,
        atime: pax.atime,
        ctime: pax.ctime,
    })
}

fn xattrs(pax: &mut Pax, accounts: &Accounts) -> Result<Vec<Xattr>, Damage> {
    let mut xattrs = Vec::new();
    let acls = [(&pax.acl_access, vfs::acl::ACCESS), (&pax.acl_default, vfs::acl::DEFAULT)];
    for (text, name) in acls {
        if let Some(text) = text
            && let Some(value) = acl::to_xattr(text, accounts)?
        {
            xattrs.push(Xattr { name: name.to_vec(), value });
        }
    }
    // An ACL in an attribute is more exact than the text, and replaces it.
    xattrs.append(&mut pax.xattrs);
    Xattr::normalize(&mut xattrs);
    Ok(xattrs)
}
