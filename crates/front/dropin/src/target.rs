//! Names of images: a path, optionally followed by `?offset=` and the byte offset of the file system.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use diskwright::OpenImage;

use crate::failure::{Failure, Statuses};

/// Separator between path and offset, as in the e2fsprogs library.
const SEPARATOR: &str = "?offset=";

/// Image to open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) path: PathBuf,
    /// Byte offset of the file system.
    pub(crate) offset: u64,
}

impl Target {
    /// Parses a name. Without `?offset=`, or if it is not UTF-8, the whole name is a path.
    pub(crate) fn parse(name: OsString, statuses: Statuses) -> Result<Self, Failure> {
        let Some((path, offset)) = name.to_str().and_then(|name| name.split_once(SEPARATOR)) else {
            return Ok(Self { path: name.into(), offset: 0 });
        };
        let offset = bytes(offset).ok_or_else(|| {
            let name = name.to_string_lossy();
            statuses.usage(format_args!("{name}: the offset is not a number of bytes: {offset:?}"))
        })?;
        Ok(Self { path: path.into(), offset })
    }

    /// Selects the image that fills this file or device.
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), offset: 0 }
    }

    /// Returns the options for opening the image.
    pub(crate) fn open(&self) -> OpenImage {
        OpenImage::default().offset(self.offset)
    }
}

/// Parses decimal digits, or hexadecimal ones after `0x`.
fn bytes(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::STATUSES;

    fn parse(name: &str) -> Result<Target, String> {
        Target::parse(name.into(), STATUSES).map_err(|failure| failure.message)
    }

    #[test]
    fn names_end_before_the_offset() {
        let at = |path: &str, offset| Ok(Target { path: path.into(), offset });
        assert_eq!(parse("image"), at("image", 0));
        assert_eq!(parse("image?offset=1048576"), at("image", 1 << 20));
        assert_eq!(parse("dir/image?offset=0x100000"), at("dir/image", 1 << 20));
        // File names may contain a question mark.
        assert_eq!(parse("what?"), at("what?", 0));
        for wrong in ["image?offset=", "image?offset=1M", "image?offset=-1", "image?offset=1,x"] {
            assert!(parse(wrong).unwrap_err().contains("not a number of bytes"), "{wrong}");
        }
    }
}
