//! Types accepted as paths in an image.

use std::borrow::Cow;
#[cfg(unix)]
use std::ffi::{OsStr, OsString};
#[cfg(unix)]
use std::path::{Path, PathBuf};

/// Path in an image: bytes, with `/` between names. It starts at the root, with or without a leading `/`.
///
/// Text and bytes are paths on every host. Host paths are accepted on Unix only, because they are bytes there.
///
/// ```
/// use diskwright::fs::AsImagePath;
///
/// fn len(path: impl AsImagePath) -> usize {
///     path.as_image_path().len()
/// }
/// assert_eq!(len("/etc/fstab"), len(b"/etc/fstab"));
/// assert_eq!(len(vec![b'/', 0xff]), 2);
/// # #[cfg(unix)]
/// assert_eq!(len(std::path::Path::new("/etc").join("fstab")), 10);
/// ```
pub trait AsImagePath {
    /// Returns the bytes of the path.
    fn as_image_path(&self) -> &[u8];
}

impl<P: AsImagePath + ?Sized> AsImagePath for &P {
    fn as_image_path(&self) -> &[u8] {
        (**self).as_image_path()
    }
}

impl AsImagePath for [u8] {
    fn as_image_path(&self) -> &[u8] {
        self
    }
}

impl<const LEN: usize> AsImagePath for [u8; LEN] {
    fn as_image_path(&self) -> &[u8] {
        self
    }
}

impl AsImagePath for Vec<u8> {
    fn as_image_path(&self) -> &[u8] {
        self
    }
}

impl AsImagePath for str {
    fn as_image_path(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl AsImagePath for String {
    fn as_image_path(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl<P: AsImagePath + ToOwned + ?Sized> AsImagePath for Cow<'_, P>
where
    P::Owned: AsImagePath,
{
    fn as_image_path(&self) -> &[u8] {
        match self {
            Cow::Borrowed(path) => path.as_image_path(),
            Cow::Owned(path) => path.as_image_path(),
        }
    }
}

#[cfg(unix)]
impl AsImagePath for OsStr {
    fn as_image_path(&self) -> &[u8] {
        self.as_encoded_bytes()
    }
}

#[cfg(unix)]
impl AsImagePath for OsString {
    fn as_image_path(&self) -> &[u8] {
        self.as_encoded_bytes()
    }
}

#[cfg(unix)]
impl AsImagePath for Path {
    fn as_image_path(&self) -> &[u8] {
        self.as_os_str().as_encoded_bytes()
    }
}

#[cfg(unix)]
impl AsImagePath for PathBuf {
    fn as_image_path(&self) -> &[u8] {
        self.as_os_str().as_encoded_bytes()
    }
}

/// Returns the path of a file in a directory.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = dir.to_vec();
    if !path.ends_with(b"/") && !name.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

#[cfg(feature = "tar")]
/// Returns a path with a leading `/` and without a trailing one.
pub(crate) fn absolute(path: &[u8]) -> Vec<u8> {
    let mut absolute = Vec::with_capacity(path.len() + 1);
    for part in path.split(|&b| b == b'/').filter(|part| !part.is_empty() && *part != b".") {
        absolute.push(b'/');
        absolute.extend_from_slice(part);
    }
    if absolute.is_empty() { b"/".to_vec() } else { absolute }
}
