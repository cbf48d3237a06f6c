//! JSON record of a file in an image.

use serde::Serialize;
use vfs::{Attributes, FileSystem, FileType};

use crate::text::{self, lossy, not_utf8};

/// All properties of a file except its contents. Names that are not UTF-8 are accompanied by their bytes in
/// hexadecimal.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_bytes: Option<String>,
    inode: u64,
    #[serde(rename = "type")]
    file_type: &'static str,
    mode: String,
    links: u32,
    uid: u32,
    gid: u32,
    size: u64,
    blocks_512: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    major: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    minor: Option<u32>,
    mtime: String,
    atime: String,
    ctime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    crtime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_bytes: Option<String>,
    /// True if the target is omitted because it is encrypted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    target_encrypted: bool,
}

impl Record {
    /// Creates the record of the file at an absolute path.
    ///
    /// # Errors
    /// If the target of a symbolic link cannot be read. An encrypted link has no target.
    pub fn new(fs: &dyn FileSystem, path: &[u8], attributes: &Attributes) -> vfs::Result<Self> {
        let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
        let file_type = attributes.file_type;
        let device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice)
            .then_some(attributes.device);
        let (target, target_encrypted) = match file_type {
            FileType::Symlink => match fs.readlink(attributes.ino) {
                Err(vfs::Error::Encrypted(_)) => (None, true),
                target => (Some(target?), false),
            },
            _ => (None, false),
        };
        Ok(Self {
            path: lossy(path),
            path_bytes: not_utf8(path),
            name: lossy(name),
            name_bytes: not_utf8(name),
            inode: attributes.ino.0,
            file_type: text::type_word(file_type),
            mode: format!("{:04o}", attributes.permissions),
            links: attributes.links,
            uid: attributes.uid,
            gid: attributes.gid,
            size: attributes.size,
            blocks_512: attributes.blocks_512,
            major: device.map(|device| device.major),
            minor: device.map(|device| device.minor),
            mtime: text::rfc3339(attributes.mtime),
            atime: text::rfc3339(attributes.atime),
            ctime: text::rfc3339(attributes.ctime),
            crtime: attributes.crtime.map(text::rfc3339),
            target: target.as_deref().map(lossy),
            target_bytes: target.as_deref().and_then(not_utf8),
            target_encrypted,
        })
    }

    /// Returns the record as one line of JSON with a newline.
    pub fn json_line(&self) -> String {
        // Serialisation cannot fail, because records contain only strings and numbers under fixed keys.
        let mut line = disk::address::safe_json(serde_json::to_string(self).unwrap_or_default());
        line.push('\n');
        line
    }
}
