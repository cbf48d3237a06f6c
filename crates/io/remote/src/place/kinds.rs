//! Parses arguments that name an image: a local file or another place.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use disk::BlockDevice;
use disk::address::Address;

/// Location of an image that is not a raw local file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageLocation {
    /// An object: `s3://bucket/key`, `gs://…`, `az://…`, `http://…`, `https://…`.
    Object(Address),
    /// A virtual disk: `qcow2:FILE`, `vmdk:FILE`, `vhdx:FILE`, `vpc:FILE`. The first field is the word before the
    /// colon.
    Disk(String, PathBuf),
    /// A zstd file with a seek table: `zst:FILE`, or a name that ends in `.zst`.
    Zstd(PathBuf),
    /// An export of an NBD server: `nbd://host[:port]/export`, `nbd+unix:///export?socket=PATH`.
    Nbd(Address),
}

/// Schemes of object stores and web servers.
const OBJECT_SCHEMES: [&str; 7] = ["s3", "gs", "az", "abfs", "abfss", "http", "https"];
const NBD_SCHEMES: [&str; 2] = ["nbd", "nbd+unix"];
const DISK_WORDS: [&str; 4] = ["qcow2", "vmdk", "vhdx", "vpc"];

impl ImageLocation {
    /// Returns the local file that contains the place, if there is one.
    #[must_use]
    pub fn file(&self) -> Option<&std::path::Path> {
        match self {
            Self::Disk(_, file) | Self::Zstd(file) => Some(file),
            Self::Object(_) | Self::Nbd(_) => None,
        }
    }

    /// Parses a word. Returns `None` for a local file. A local file whose name looks like a place needs a slash before
    /// the colon: `./s3:`.
    #[must_use]
    pub fn parse(word: &OsStr) -> Option<Self> {
        let text = word.to_str()?;
        if let Some((scheme, _)) = text.split_once("://") {
            if OBJECT_SCHEMES.contains(&scheme) {
                return Some(Self::Object(text.into()));
            }
            if NBD_SCHEMES.contains(&scheme) {
                return Some(Self::Nbd(text.into()));
            }
        }
        match text.split_once(':') {
            Some((kind, file)) if DISK_WORDS.contains(&kind) => {
                Some(Self::Disk(kind.to_owned(), file.into()))
            }
            Some(("zst", file)) => Some(Self::Zstd(file.into())),
            _ if text.ends_with(".zst") => Some(Self::Zstd(text.into())),
            _ => None,
        }
    }
}

/// A place opened for reading.
pub struct OpenPlace {
    /// Its contents.
    pub device: Arc<dyn BlockDevice>,
    /// Identity of the contents, if known: places of equal identity have equal bytes.
    pub identity: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_places_or_files() {
        let parse = |word: &str| ImageLocation::parse(OsStr::new(word));
        assert_eq!(
            parse("s3://bucket/root.img"),
            Some(ImageLocation::Object("s3://bucket/root.img".into()))
        );
        assert_eq!(
            parse("nbd+unix:///disk?socket=/run/s"),
            Some(ImageLocation::Nbd("nbd+unix:///disk?socket=/run/s".into()))
        );
        assert_eq!(
            parse("qcow2:disk.qcow2"),
            Some(ImageLocation::Disk("qcow2".into(), "disk.qcow2".into()))
        );
        assert_eq!(parse("root.img.zst"), Some(ImageLocation::Zstd("root.img.zst".into())));
        assert_eq!(parse("./s3:"), None);
        assert_eq!(parse("ftp://host/file"), None);
        assert_eq!(parse("a:b"), None);
    }
}
