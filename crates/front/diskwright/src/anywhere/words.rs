//! Recognition of names of remote images and virtual disks.

use std::io;
use std::path::Path;
use vfs::hint::Setting;

use crate::Error;

/// Prefixes of remote images and virtual disks.
const PREFIXES: [&str; 15] = [
    "s3://",
    "gs://",
    "az://",
    "abfs://",
    "abfss://",
    "http://",
    "https://",
    "nbd://",
    "nbd+unix://",
    "qcow2:",
    "vmdk:",
    "vhdx:",
    "vpc:",
    "zst:",
    "volume:",
];

/// Returns whether a name looks like a remote image or virtual disk, whether or not it can be opened.
pub(crate) fn is_place(word: &Path) -> bool {
    word.to_str().is_some_and(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix)))
}

/// Returns the local file of a name, which may follow a format prefix.
#[cfg(all(feature = "mount", unix))]
pub(crate) fn file_of(word: &Path) -> Option<&Path> {
    if !is_place(word) {
        return Some(word);
    }
    let (_, rest) = word.to_str()?.split_once(':')?;
    (!rest.starts_with("//")).then(|| Path::new(rest))
}

/// Explains a missing file `word` that is actually a remote name: it cannot be read without the feature, or is
/// read-only.
pub(crate) fn missing(word: &Path, error: &io::Error) -> Option<Error> {
    if error.kind() != io::ErrorKind::NotFound || !is_place(word) {
        return None;
    }
    let word = crate::text::shown(word);
    Some(Error::Usage(if cfg!(feature = "anywhere") {
        format!(
            "{word}: this command needs a local file; copy the image first (diskwright convert, or \
             the store's own program), or mount it with {:#}",
            Setting::OVERLAY
        )
    } else {
        format!(
            "{word}: no such file, and this build does not support remote images; install it with \
             them: cargo install diskwright-cli --features anywhere"
        )
    }))
}

/// Splits `PLACE:/PATH` into location and path. The path must be absolute, because locations contain colons.
pub(crate) fn split_side(text: &[u8]) -> Option<(&Path, &[u8])> {
    let text = std::str::from_utf8(text).ok()?;
    let from = PREFIXES.iter().find(|prefix| text.starts_with(**prefix))?.len();
    let colon = from + text[from..].find(":/")?;
    Some((Path::new(&text[..colon]), &text.as_bytes()[colon + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_place_comes_after_the_colon() {
        let split = |text: &'static str| {
            split_side(text.as_bytes()).map(|(place, path)| (place.to_str().unwrap(), path))
        };
        assert_eq!(split("s3://bucket/a.img:/etc"), Some(("s3://bucket/a.img", &b"/etc"[..])));
        assert_eq!(split("http://host:80/a:/x:/y"), Some(("http://host:80/a", &b"/x:/y"[..])));
        assert_eq!(split("qcow2:disk:/etc"), Some(("qcow2:disk", &b"/etc"[..])));
        assert_eq!(split("s3://bucket/a.img"), None);
        assert_eq!(split("root.img:/etc"), None);
    }

    #[test]
    fn a_missing_file_is_not_a_remote_location() {
        let error = io::Error::from(io::ErrorKind::NotFound);
        assert!(missing(Path::new("root.img"), &error).is_none());
        let told = missing(Path::new("s3://bucket/a?secret"), &error).unwrap();
        assert!(told.to_string().starts_with("s3://bucket/a: "), "{told}");
        assert!(!is_place(Path::new("./s3://bucket")));
    }

    #[cfg(all(feature = "mount", unix))]
    #[test]
    fn a_virtual_disk_lies_in_a_file() {
        let file = |word: &'static str| file_of(Path::new(word)).and_then(Path::to_str);
        assert_eq!(file("root.img"), Some("root.img"));
        assert_eq!(file("qcow2:/tmp/disk"), Some("/tmp/disk"));
        assert_eq!(file("s3://bucket/a"), None);
    }
}
