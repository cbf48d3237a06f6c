//! Command-line syntax of source images.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::{OtherDevices, host};

/// Prefix of an image on the command line.
const PREFIX: &[u8] = b"image:";

/// Source image and its location in a file.
#[derive(Clone, Debug)]
pub struct ImageFile {
    /// The file or block device.
    pub path: PathBuf,
    /// Byte offset of the image in the file.
    pub offset: u64,
    /// Number of the partition that contains the image, instead of `offset`.
    pub partition: Option<u32>,
    /// Other devices of the image.
    pub devices: OtherDevices,
}

impl ImageFile {
    /// Parses `image:FILE` or `image:FILE:PARTITION`. Returns `None` if the prefix is missing. An existing file with
    /// the whole name takes precedence over a partition.
    pub fn parse(text: &OsStr) -> Option<Self> {
        let bytes = text.as_encoded_bytes().strip_prefix(PREFIX)?;
        let whole = host::path(bytes).ok()?;
        let is_there = std::fs::symlink_metadata(whole).is_ok();
        let colon = bytes.iter().rposition(|&byte| byte == b':').filter(|_| !is_there);
        let number = colon.and_then(|at| std::str::from_utf8(&bytes[at + 1..]).ok()?.parse().ok());
        let devices = OtherDevices::default();
        Some(match (colon, number) {
            (Some(at), Some(number)) => {
                let path = host::path(&bytes[..at]).ok()?.to_owned();
                Self { path, offset: 0, partition: Some(number), devices }
            }
            _ => Self { path: whole.to_owned(), offset: 0, partition: None, devices },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_after_the_last_colon_is_a_partition() {
        let parse = |text: &str| {
            ImageFile::parse(OsStr::new(text)).map(|found| (found.path, found.partition))
        };
        assert_eq!(parse("root.img"), None);
        assert_eq!(parse("image:root.img"), Some(("root.img".into(), None)));
        assert_eq!(parse("image:disk:2"), Some(("disk".into(), Some(2))));
        assert_eq!(parse("image:a:b"), Some(("a:b".into(), None)));
        assert_eq!(parse("image:a:-1"), Some(("a:-1".into(), None)));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk:2");
        std::fs::write(&path, b"").unwrap();
        let text = format!("image:{}", path.display());
        assert_eq!(parse(&text), Some((path, None)));
    }
}
