//! File records for JavaScript.

use serde::Serialize;
use vfs::path::{LastLink, Order};
use vfs::{Attributes, FileType, Ino, Paths, Timestamp, text};

use crate::failure::{Failure, Result};

/// A file with its attributes, without contents.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    name: String,
    /// Bytes of a name in hexadecimal, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
    #[serde(flatten)]
    stat: Option<Stat>,
    /// Error that prevented reading the attributes.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Failure>,
}

/// The attributes of a file.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stat {
    ino: u64,
    #[serde(rename = "type")]
    file_type: &'static str,
    /// Type and permissions, as in `st_mode`.
    mode: u16,
    /// Type and permissions in the format of `ls -l`.
    mode_text: String,
    nlink: u32,
    uid: u32,
    gid: u32,
    size: u64,
    /// In units of 512 bytes.
    blocks: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rdev: Option<[u32; 2]>,
    atime: (i64, u32),
    mtime: (i64, u32),
    ctime: (i64, u32),
    #[serde(skip_serializing_if = "Option::is_none")]
    birthtime: Option<(i64, u32)>,
}

/// Readable entries of a directory.
#[derive(Debug, Serialize)]
pub(crate) struct Listing {
    entries: Vec<Entry>,
    /// Error that ended the listing.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Failure>,
}

/// All properties of one file.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Details {
    #[serde(flatten)]
    stat: Stat,
    /// Names of its flags.
    flags: Vec<String>,
    /// The target of a symbolic link.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// Names of extended attributes and their values in hexadecimal.
    xattrs: Vec<(String, String)>,
    /// Errors of unreadable properties.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Failure>,
}

const fn pair(time: Timestamp) -> (i64, u32) {
    (time.sec, time.nsec)
}

pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl From<&Attributes> for Stat {
    fn from(a: &Attributes) -> Self {
        let is_device = matches!(a.file_type, FileType::CharDevice | FileType::BlockDevice);
        Self {
            ino: a.ino.0,
            file_type: text::type_word(a.file_type),
            mode: a.permissions | a.file_type.mode_bits(),
            mode_text: text::mode(a),
            nlink: a.links,
            uid: a.uid,
            gid: a.gid,
            size: a.size,
            blocks: a.blocks_512,
            rdev: is_device.then_some([a.device.major, a.device.minor]),
            atime: pair(a.atime),
            mtime: pair(a.mtime),
            ctime: pair(a.ctime),
            birthtime: a.crtime.map(pair),
        }
    }
}

impl Entry {
    fn new(name: &[u8], found: vfs::Result<Attributes>) -> Self {
        let (stat, error) = match found {
            Ok(attributes) => (Some(Stat::from(&attributes)), None),
            Err(error) => (None, Some(Failure::from(error))),
        };
        let name_hex = std::str::from_utf8(name).is_err().then(|| text::hex(name));
        Self { name: lossy(name), name_hex, stat, error }
    }
}

/// Name with its attributes or an error.
pub(crate) type Named = (Vec<u8>, vfs::Result<Attributes>);

/// Returns the entries of a directory sorted by name, and the error that ended the listing.
pub(crate) fn children(paths: Paths<'_>, dir: Ino) -> (Vec<Named>, Option<vfs::Error>) {
    let mut walk = paths.walk(dir, Order::Sorted);
    let (mut found, mut failed) = (Vec::new(), None);
    while let Some(visit) = walk.advance() {
        let name = walk.name().to_vec();
        match visit {
            // The directory itself comes first.
            Ok(visit) if visit.depth == 0 => {}
            Ok(visit) => {
                walk.skip_children();
                found.push((name, Ok(visit.attributes)));
            }
            // The blocks of the directory itself are unreadable, so entries are missing.
            Err(error) if name.is_empty() => {
                failed.get_or_insert(error);
            }
            Err(error) => found.push((name, Err(error))),
        }
    }
    (found, failed)
}

/// Lists a directory.
///
/// # Errors
/// If it does not exist.
pub(crate) fn list(paths: Paths<'_>, path: &[u8]) -> Result<Listing> {
    let at = |error| Failure::at(path, error);
    let dir = paths.resolve(path, LastLink::Follow).map_err(at)?;
    let attributes = paths.file_system().attributes(dir).map_err(at)?;
    if attributes.file_type != FileType::Directory {
        return Err(at(vfs::Error::NotADirectory));
    }
    let (found, failed) = children(paths, dir);
    let entries = found.into_iter().map(|(name, found)| Entry::new(&name, found)).collect();
    Ok(Listing { entries, error: failed.map(at) })
}

fn last(follow: bool) -> LastLink {
    if follow { LastLink::Follow } else { LastLink::Keep }
}

/// Returns the attributes of a file.
///
/// # Errors
/// If it does not exist.
pub(crate) fn stat(paths: Paths<'_>, path: &[u8], follow: bool) -> Result<Stat> {
    let found = paths.resolve(path, last(follow));
    let attributes = found.and_then(|ino| paths.file_system().attributes(ino));
    attributes.map(|found| Stat::from(&found)).map_err(|error| Failure::at(path, error))
}

/// Returns all properties of a file, without following links.
///
/// # Errors
/// If it does not exist.
pub(crate) fn details(paths: Paths<'_>, path: &[u8]) -> Result<Details> {
    let at = |error| Failure::at(path, error);
    let fs = paths.file_system();
    let ino = paths.resolve(path, LastLink::Keep).map_err(at)?;
    let attributes = fs.attributes(ino).map_err(at)?;
    let mut errors = Vec::new();
    let flags = match fs.file_attributes(ino) {
        Ok(found) => found.flags.iter_names().map(|(name, _)| name.to_lowercase()).collect(),
        Err(error) => {
            errors.push(at(error));
            Vec::new()
        }
    };
    let mut target = None;
    if attributes.file_type == FileType::Symlink {
        match fs.readlink(ino) {
            Ok(found) => target = Some(lossy(&found)),
            Err(error) => errors.push(at(error)),
        }
    }
    let mut names = Vec::new();
    if let Err(error) = fs.list_xattrs(ino, &mut |name| names.push(name.to_vec())) {
        errors.push(at(error));
    }
    names.sort();
    names.dedup();
    let mut xattrs = Vec::with_capacity(names.len());
    for name in names {
        match fs.get_xattr(ino, &name) {
            Ok(value) => xattrs.push((lossy(&name), text::hex(&value))),
            Err(error) => errors.push(at(error)),
        }
    }
    Ok(Details { stat: Stat::from(&attributes), flags, target, xattrs, errors })
}

/// Reads a regular file from `offset` on. Returns fewer than `len` bytes only at its end.
///
/// # Errors
/// If it cannot be read or is not a regular file.
pub(crate) fn read(paths: Paths<'_>, path: &[u8], offset: u64, len: usize) -> Result<Vec<u8>> {
    let at = |error| Failure::at(path, error);
    let fs = paths.file_system();
    let ino = paths.resolve(path, LastLink::Follow).map_err(at)?;
    let attributes = fs.attributes(ino).map_err(at)?;
    match attributes.file_type {
        FileType::Regular => {}
        FileType::Directory => return Err(at(vfs::Error::IsADirectory)),
        _ => return Err(at(vfs::Error::Invalid("not a regular file"))),
    }
    // Limit the allocation by the file size.
    let rest = attributes.size.saturating_sub(offset);
    let len = usize::try_from(rest).unwrap_or(usize::MAX).min(len);
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(len).is_err() {
        return Err(Failure::new(
            "ENOMEM",
            format!("out of memory for {len} bytes; read less at once"),
        ));
    }
    bytes.resize(len, 0);
    let mut done = 0;
    while done < len {
        match fs.read(ino, offset + done as u64, &mut bytes[done..]).map_err(at)? {
            0 => break,
            count => done += count,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}
