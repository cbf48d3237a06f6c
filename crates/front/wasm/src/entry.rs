//! File records for JavaScript.

use diskwright::fs::{File, FileType, FsError, Metadata, Timestamp};
use diskwright::{Error, Image, text};
use serde::Serialize;

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

impl From<&Metadata> for Stat {
    fn from(found: &Metadata) -> Self {
        let attributes = found.attributes();
        let device = matches!(attributes.file_type, FileType::CharDevice | FileType::BlockDevice)
            .then_some(attributes.device);
        Self {
            ino: attributes.ino.0,
            file_type: text::type_word(attributes.file_type),
            mode: attributes.permissions | attributes.file_type.mode_bits(),
            mode_text: text::mode(attributes),
            nlink: attributes.links,
            uid: attributes.uid,
            gid: attributes.gid,
            size: attributes.size,
            blocks: attributes.blocks_512,
            rdev: device.map(|device| [device.major, device.minor]),
            atime: pair(attributes.atime),
            mtime: pair(attributes.mtime),
            ctime: pair(attributes.ctime),
            birthtime: attributes.crtime.map(pair),
        }
    }
}

impl Listing {
    fn add(&mut self, name: &[u8], found: Result<&Metadata, FsError>) {
        let (stat, error) = match found {
            Ok(found) => (Some(Stat::from(found)), None),
            Err(error) => (None, Some(Failure::from(error))),
        };
        let name_hex = std::str::from_utf8(name).is_err().then(|| text::hex(name));
        self.entries.push(Entry { name: lossy(name), name_hex, stat, error });
    }
}

/// Lists a directory, sorted by name.
///
/// # Errors
/// If it does not exist or is not a directory.
pub(crate) fn list(image: &Image, path: &[u8]) -> Result<Listing> {
    let mut listing = Listing { entries: Vec::new(), error: None };
    let mut walk = image.walk(path).sorted();
    let Some(top) = walk.next().transpose()? else { return Ok(listing) };
    if !top.metadata().is_dir() {
        return Err(Error::file(path, FsError::NotADirectory).into());
    }
    while let Some(found) = walk.next() {
        walk.skip_current_dir();
        match found {
            Ok(entry) => listing.add(entry.file_name(), Ok(entry.metadata())),
            Err(Error::File { path: at, source }) if at != path => {
                let name = at.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
                listing.add(name, Err(source));
            }
            // The blocks of the directory itself are unreadable, so entries are missing.
            Err(error) => {
                listing.error.get_or_insert(error.into());
            }
        }
    }
    Ok(listing)
}

/// Returns the attributes of a file.
///
/// # Errors
/// If it does not exist.
pub(crate) fn stat(image: &Image, path: &[u8], follow: bool) -> Result<Stat> {
    let found = if follow { image.metadata(path) } else { image.symlink_metadata(path) };
    Ok(Stat::from(&found?))
}

/// Returns all properties of a file, without following links.
///
/// # Errors
/// If it does not exist.
pub(crate) fn details(image: &Image, path: &[u8]) -> Result<Details> {
    let found = image.symlink_metadata(path)?;
    let mut errors = Vec::new();
    let mut note = |error: Failure| errors.push(error);
    let flags = image.file_system()?.file_attributes(found.ino());
    let flags = flags.map_err(|error| note(Failure::at(path, error))).unwrap_or_default().flags;
    let mut target = None;
    if found.is_symlink() {
        target = image.read_link(path).map_err(|error| note(error.into())).ok();
    }
    let names = image.list_xattrs(path).map_err(|error| note(error.into())).unwrap_or_default();
    let mut xattrs = Vec::with_capacity(names.len());
    for name in names {
        match image.get_xattr(path, &name) {
            Ok(value) => xattrs.push((lossy(&name), text::hex(&value.unwrap_or_default()))),
            Err(error) => note(error.into()),
        }
    }
    let flags = flags.iter_names().map(|(name, _)| name.to_lowercase()).collect();
    let target = target.as_deref().map(lossy);
    Ok(Details { stat: Stat::from(&found), flags, target, xattrs, errors })
}

/// Reads a regular file from `offset` on. Returns fewer than `len` bytes only at its end.
///
/// # Errors
/// If it cannot be read or is not a regular file.
pub(crate) fn read(image: &Image, path: &[u8], offset: u64, len: usize) -> Result<Vec<u8>> {
    let file = File::open(image, path)?;
    // Limit the allocation by the file size.
    let rest = file.metadata()?.len().saturating_sub(offset);
    let len = usize::try_from(rest).unwrap_or(usize::MAX).min(len);
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(len).is_err() {
        let message = format!("out of memory for {len} bytes; read less at once");
        return Err(Failure::new("ENOMEM", message));
    }
    bytes.resize(len, 0);
    let count = file.read_at(&mut bytes, offset)?;
    bytes.truncate(count);
    Ok(bytes)
}
