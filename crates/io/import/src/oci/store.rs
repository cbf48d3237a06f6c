//! Storage of the blobs of an image: a directory, or an archive whose members are found by name.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::FileAt;
use oci_spec::image::Digest;

use super::reference::Transport;
use super::verify::{Blob, Hasher};
use super::{ContainerFault, Limits, Reference};
use crate::host::{as_path, is_stream, temporary_file_in};
use crate::tar::compress::{Compression, Gzip, MAGIC_LEN, Zstd};
use crate::tar::{BLOCK_BYTES, Header};
use crate::{Damage, EntryKind, Source, SourceError, TarSource, Unsupported};

/// Maximum size of a document (manifest, index, configuration) in bytes.
pub(super) const DOCUMENT_BYTES_MAX: u64 = 16 << 20;

/// Maximum number of members of an archive, and maximum path length of a relevant one.
const MEMBERS_MAX: usize = 100_000;
const MEMBER_PATH_MAX: usize = 4096;

/// Maximum number of links that are followed to a member.
const LINKS_MAX: usize = 16;

/// The files of an image.
pub(super) struct Store {
    /// Name of the image in errors.
    pub(super) image: String,
    place: BlobSource,
}

enum BlobSource {
    Directory(PathBuf),
    Archive {
        file: Arc<File>,
        members: HashMap<Vec<u8>, Member>,
    },
    /// A single file, independent of the name.
    File {
        path: PathBuf,
        file: Arc<File>,
    },
}

enum Member {
    File { offset: u64, len: u64 },
    Link(Vec<u8>),
}

impl Store {
    /// Opens the storage of a reference. An archive that is compressed or sequential is copied to an unnamed file in
    /// `beside`.
    pub(super) fn open(
        reference: &Reference,
        beside: &Path,
        limits: &Limits,
    ) -> Result<Self, SourceError> {
        let image = reference.to_string();
        let path = &reference.path;
        if reference.transport == Transport::Oci {
            let found = std::fs::metadata(path).map_err(|e| SourceError::io("open", path, e))?;
            if !found.is_dir() {
                let what = format!("{path:?} is not a directory");
                return Err(ContainerFault::NotLayout(what).of(&image, None));
            }
            return Ok(Self { image, place: BlobSource::Directory(path.clone()) });
        }
        let file = archive(path, beside, limits, &image)?;
        let members = members(&file, path, &image)?;
        Ok(Self { image, place: BlobSource::Archive { file, members } })
    }

    /// Creates an empty store whose files will be in `file`.
    #[cfg(feature = "pull")]
    pub(super) fn empty(image: String, file: Arc<File>) -> Self {
        Self { image, place: BlobSource::Archive { file, members: HashMap::new() } }
    }

    /// Adds a file at an offset of the store's own file.
    #[cfg(feature = "pull")]
    pub(super) fn add(&mut self, name: String, offset: u64, len: u64) {
        if let BlobSource::Archive { members, .. } = &mut self.place {
            members.insert(name.into_bytes(), Member::File { offset, len });
        }
    }

    /// Opens a layer in a separate file. A sequential one is copied as stored to an unnamed file in `beside`.
    pub(super) fn of_layer(
        path: &Path,
        beside: &Path,
        limits: &Limits,
    ) -> Result<Self, SourceError> {
        let image = path.display().to_string();
        let io = |e| SourceError::io("open", path, e);
        let (path, file) = if path == Path::new("-") {
            let path = PathBuf::from("standard input");
            let file = keep_stored(Box::new(io::stdin()), &path, beside, limits, &image)?;
            (path, file)
        } else {
            let found = std::fs::metadata(path).map_err(io)?;
            let is_stream = is_stream(found.file_type());
            if !is_stream && !found.is_file() {
                return Err(ContainerFault::NotRegular.of(&image, None));
            }
            let file = File::open(path).map_err(io)?;
            let file = match is_stream {
                true => keep_stored(Box::new(file), path, beside, limits, &image)?,
                false => Arc::new(file),
            };
            (path.to_owned(), file)
        };
        Ok(Self { image, place: BlobSource::File { path, file } })
    }

    /// Returns whether a file exists.
    pub(super) fn has(&self, name: &str) -> bool {
        match &self.place {
            BlobSource::Directory(dir) => std::fs::symlink_metadata(dir.join(name)).is_ok(),
            BlobSource::Archive { members, .. } => members.contains_key(name.as_bytes()),
            BlobSource::File { .. } => true,
        }
    }

    /// Opens a file to which `named_by` refers.
    pub(super) fn blob(&self, name: &str, named_by: &str) -> Result<Blob, SourceError> {
        let fail = |fault: ContainerFault| fault.of(&self.image, Some(name));
        let missing = || fail(ContainerFault::Missing(named_by.to_owned()));
        match &self.place {
            BlobSource::Directory(dir) => {
                let path = dir.join(name);
                let io = |e: io::Error| match e.kind() {
                    io::ErrorKind::NotFound => missing(),
                    _ => SourceError::io("open", &path, e),
                };
                // Only regular files are opened: opening a pipe would block.
                if !std::fs::metadata(&path).map_err(io)?.is_file() {
                    return Err(fail(ContainerFault::NotRegular));
                }
                let file = File::open(&path).map_err(io)?;
                let len = file.metadata().map_err(io)?.len();
                Ok(Blob { file: Arc::new(file), offset: 0, len, name: name.to_owned() })
            }
            BlobSource::Archive { file, members } => {
                let mut member = members.get(name.as_bytes()).ok_or_else(missing)?;
                for _ in 0..LINKS_MAX {
                    match member {
                        Member::File { offset, len } => {
                            let (offset, len, name) = (*offset, *len, name.to_owned());
                            return Ok(Blob { file: Arc::clone(file), offset, len, name });
                        }
                        Member::Link(target) => {
                            let target = members.get(target);
                            member = target.ok_or_else(|| fail(ContainerFault::Link))?;
                        }
                    }
                }
                Err(fail(ContainerFault::Link))
            }
            BlobSource::File { path, file } => {
                let len = file.metadata().map_err(|e| SourceError::io("read", path, e))?.len();
                Ok(Blob { file: Arc::clone(file), offset: 0, len, name: name.to_owned() })
            }
        }
    }

    /// Reads a whole document, and compares it with its descriptor if there is one.
    pub(super) fn document(
        &self,
        name: &str,
        named_by: &str,
        what: &'static str,
        descriptor: Option<(&Digest, Option<u64>)>,
    ) -> Result<Vec<u8>, SourceError> {
        let fail = |fault: ContainerFault| fault.of(&self.image, Some(name));
        let blob = self.blob(name, named_by)?;
        if blob.len > DOCUMENT_BYTES_MAX {
            let (found, limit) = (blob.len, DOCUMENT_BYTES_MAX);
            return Err(fail(ContainerFault::DocumentSize { what, found, limit }));
        }
        let mut bytes = vec![0; blob.len as usize];
        let read = blob.file.read_exact_at(&mut bytes, blob.offset);
        read.map_err(|e| SourceError::io("read", Path::new(name), e))?;
        if let Some((digest, size)) = descriptor {
            self.check_size(&blob, size)?;
            let mut hasher = Hasher::of(digest).map_err(fail)?;
            hasher.update(&bytes);
            hasher
                .check(digest)
                .map_err(|(expected, found)| fail(ContainerFault::Digest { expected, found }))?;
        }
        Ok(bytes)
    }

    /// Compares the size of a blob with its descriptor.
    pub(super) fn check_size(&self, blob: &Blob, size: Option<u64>) -> Result<(), SourceError> {
        match size {
            Some(expected) if expected != blob.len => {
                let fault = ContainerFault::Size { expected, found: blob.len };
                Err(fault.of(&self.image, Some(&blob.name)))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the path of a blob according to the specification.
pub(super) fn blob_name(digest: &Digest) -> String {
    format!("blobs/{}/{}", digest.algorithm(), digest.digest())
}

/// Opens an archive for random access to its members.
fn archive(
    path: &Path,
    beside: &Path,
    limits: &Limits,
    image: &str,
) -> Result<Arc<File>, SourceError> {
    let io = |e| SourceError::io("open", path, e);
    if path == Path::new("-") {
        return copy(Box::new(io::stdin()), path, beside, limits, image);
    }
    let found = std::fs::metadata(path).map_err(io)?;
    let file = File::open(path).map_err(io)?;
    if is_stream(found.file_type()) {
        return copy(Box::new(file), path, beside, limits, image);
    }
    if !found.is_file() {
        return Err(ContainerFault::NotRegular.of(image, None));
    }
    let mut head = [0; MAGIC_LEN];
    let head_len = file.read_at(&mut head, 0).map_err(|e| SourceError::io("read", path, e))?;
    if Compression::of(&head[..head_len]) == Compression::None {
        return Ok(Arc::new(file));
    }
    copy(Box::new(file), path, beside, limits, image)
}

/// Copies an archive, decompressed, to an unnamed file.
fn copy(
    mut stream: Box<dyn Read>,
    path: &Path,
    beside: &Path,
    limits: &Limits,
    image: &str,
) -> Result<Arc<File>, SourceError> {
    let io = |e| SourceError::io("read", path, e);
    let mut head = Vec::new();
    stream.by_ref().take(MAGIC_LEN as u64).read_to_end(&mut head).map_err(io)?;
    let compression = Compression::of(&head);
    let stored = BufReader::with_capacity(128 << 10, Cursor::new(head).chain(stream));
    let mut plain: Box<dyn Read> = match compression {
        Compression::None => Box::new(stored),
        Compression::Gzip => Box::new(Gzip::new(stored)),
        Compression::Zstd => Box::new(Zstd::new(stored)),
        Compression::Other(name) => {
            let feature = Unsupported::Compression(name);
            let archive = path.to_owned();
            return Err(SourceError::Unsupported { archive, offset: 0, entry: None, feature });
        }
    };
    let failed = |e: io::Error| decoding(e, path);
    // Anything other than an archive is rejected before it is copied.
    let mut first = Vec::with_capacity(BLOCK_BYTES);
    plain.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut first).map_err(failed)?;
    let block: Option<&[u8; BLOCK_BYTES]> = first.as_slice().try_into().ok();
    if block.is_none_or(|block| Header::parse(block).is_err()) {
        return Err(damaged(path, Damage::NotTar));
    }
    let rest = Cursor::new(first).chain(plain);
    spool(rest, "keep a copy of an archive in", beside, limits, image, failed)
}

/// Copies a layer as stored to an unnamed file. Anything other than an archive is rejected by its first header.
fn keep_stored(
    mut stream: Box<dyn Read>,
    path: &Path,
    beside: &Path,
    limits: &Limits,
    image: &str,
) -> Result<Arc<File>, SourceError> {
    let read = |e| SourceError::io("read", path, e);
    let mut first = Vec::with_capacity(BLOCK_BYTES);
    stream.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut first).map_err(read)?;
    let is_plain = Compression::of(&first) == Compression::None;
    let block: Option<&[u8; BLOCK_BYTES]> = first.as_slice().try_into().ok();
    // A layer without entries begins with the end marker.
    let is_header = |block: &[u8; BLOCK_BYTES]| {
        block.iter().all(|&byte| byte == 0) || Header::parse(block).is_ok()
    };
    if is_plain && !block.is_some_and(is_header) {
        return Err(damaged(path, Damage::NotTar));
    }
    let stream = Cursor::new(first).chain(stream);
    spool(stream, "keep a copy of a layer in", beside, limits, image, read)
}

/// Copies a stream to an unnamed file.
fn spool(
    mut stream: impl Read,
    operation: &'static str,
    beside: &Path,
    limits: &Limits,
    image: &str,
    unread: impl Fn(io::Error) -> SourceError,
) -> Result<Arc<File>, SourceError> {
    let keep = |e| SourceError::io(operation, beside, e);
    let mut copy = temporary_file_in(beside).map_err(keep)?;
    let mut chunk = vec![0; 256 << 10];
    let mut kept = 0;
    loop {
        let n = stream.read(&mut chunk).map_err(&unread)?;
        if n == 0 {
            return Ok(Arc::new(copy));
        }
        kept += n as u64;
        if kept > limits.archive_bytes {
            return Err(ContainerFault::ArchiveSize { limit: limits.archive_bytes }.of(image, None));
        }
        copy.write_all(&chunk[..n]).map_err(keep)?;
    }
}

fn damaged(path: &Path, damage: Damage) -> SourceError {
    SourceError::Damaged { archive: path.to_owned(), offset: 0, entry: None, damage }
}

/// Converts an error of a decoder, or of the host below it.
fn decoding(error: io::Error, path: &Path) -> SourceError {
    match error.kind() {
        _ if error.raw_os_error().is_some() => SourceError::io("read", path, error),
        io::ErrorKind::UnexpectedEof => damaged(path, Damage::Truncated),
        _ => damaged(path, Damage::Compression(error.to_string())),
    }
}

/// Finds the members of an archive.
fn members(
    file: &Arc<File>,
    path: &Path,
    image: &str,
) -> Result<HashMap<Vec<u8>, Member>, SourceError> {
    let mut source = TarSource::from_copy(file, path)?;
    let mut members = HashMap::new();
    while let Some(entry) = source.next_entry()? {
        if members.len() == MEMBERS_MAX {
            return Err(ContainerFault::TooManyMembers(MEMBERS_MAX).of(image, None));
        }
        if entry.path.len() > MEMBER_PATH_MAX {
            continue;
        }
        let member = match entry.kind {
            EntryKind::File(content) if content.sparse().is_none() => {
                Member::File { offset: source.data_offset(), len: content.size() }
            }
            EntryKind::Hardlink(target) => Member::Link(target),
            EntryKind::Symlink(target) => match beside_member(&entry.path, &target) {
                Some(target) => Member::Link(target),
                None => continue,
            },
            _ => continue,
        };
        members.insert(entry.path, member);
    }
    Ok(members)
}

/// Resolves a symbolic link of an archive, if it stays within the archive.
fn beside_member(path: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    let mut parts: Vec<&[u8]> = path.split(|&b| b == b'/').collect();
    parts.pop();
    if target.starts_with(b"/") {
        return None;
    }
    for part in target.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join(&b'/'))
}

/// Returns the name of a blob in the errors of the tar reader.
pub(super) fn archive_name(store: &Store, blob: &Blob) -> PathBuf {
    match &store.place {
        BlobSource::Directory(dir) => dir.join(&blob.name),
        BlobSource::File { path, .. } => path.clone(),
        BlobSource::Archive { .. } => {
            as_path(format!("{}, {}", store.image, blob.name).as_bytes()).into()
        }
    }
}
