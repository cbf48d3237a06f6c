//! Attributes of files for `dav-server`.

use std::time::SystemTime;

use dav_server::fs::{DavMetaData, FsError, FsResult};
use vfs::{Attributes, FileType};

use crate::times;

/// Attributes of a file, a directory or a symbolic link.
#[derive(Clone, Debug)]
pub(crate) struct Metadata {
    attributes: Attributes,
    /// True if the tag becomes the value of a property, to which `dav-server` adds no quotation marks.
    is_property: bool,
}

impl Metadata {
    pub(crate) fn boxed(attributes: Attributes, is_property: bool) -> Box<dyn DavMetaData> {
        Box::new(Self { attributes, is_property })
    }
}

impl DavMetaData for Metadata {
    fn len(&self) -> u64 {
        if self.is_file() { self.attributes.size } else { 0 }
    }

    fn modified(&self) -> FsResult<SystemTime> {
        Ok(times::of(self.attributes.mtime))
    }

    fn is_dir(&self) -> bool {
        self.attributes.file_type.is_dir()
    }

    fn is_file(&self) -> bool {
        self.attributes.file_type == FileType::Regular
    }

    fn is_symlink(&self) -> bool {
        self.attributes.file_type == FileType::Symlink
    }

    /// The tag differs for each file and after each change, because times of changes ascend.
    fn etag(&self) -> Option<String> {
        let Attributes { ino, generation, size, ctime, .. } = self.attributes;
        let (sec, nsec) = (ctime.sec, ctime.nsec);
        let tag = format!("{:x}-{generation:x}-{size:x}-{sec:x}.{nsec:x}", ino.0);
        Some(if self.is_property { format!("\"{tag}\"") } else { tag })
    }

    fn accessed(&self) -> FsResult<SystemTime> {
        Ok(times::of(self.attributes.atime))
    }

    fn created(&self) -> FsResult<SystemTime> {
        self.attributes.crtime.map(times::of).ok_or(FsError::NotImplemented)
    }

    fn status_changed(&self) -> FsResult<SystemTime> {
        Ok(times::of(self.attributes.ctime))
    }

    fn executable(&self) -> FsResult<bool> {
        Ok(self.is_file() && self.attributes.permissions & 0o111 != 0)
    }
}
