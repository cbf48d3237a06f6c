//! Path of an export.

use std::fmt;
use std::fmt::Write;
use std::io;
use std::str::FromStr;

/// Maximum length of a path in bytes.
const LEN_MAX: usize = 255;

/// Path of an export: `/`, then names of letters, digits, `.`, `_` and `-`.
#[derive(Clone, PartialEq, Eq)]
pub struct ExportPath {
    path: String,
    is_secret: bool,
}

/// An invalid path of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportPathError;

impl fmt::Display for ExportPathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "expected a path such as /images/root: names of letters, digits, '.', '_' and '-', at most 255 bytes",
        )
    }
}

impl std::error::Error for ExportPathError {}

impl ExportPath {
    /// Returns a path of 128 random bits, which only clients know that were given it. The server does not list it.
    ///
    /// # Errors
    /// If the host has no random numbers.
    pub fn random() -> io::Result<Self> {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret).map_err(io::Error::other)?;
        let mut path = String::from("/");
        for byte in secret {
            // Writing to a string cannot fail.
            let _ = write!(path, "{byte:02x}");
        }
        Ok(Self { path, is_secret: true })
    }

    /// Returns the path, which begins with `/`.
    pub fn as_str(&self) -> &str {
        &self.path
    }

    /// Returns whether the server keeps the path from clients that do not know it.
    pub fn is_secret(&self) -> bool {
        self.is_secret
    }

    /// Returns the names below the export in the path that a client wants to mount, or `None` if it is another path.
    pub(crate) fn names_below<'p>(&self, wanted: &'p [u8]) -> Option<Vec<&'p [u8]>> {
        let (start, below) = wanted.split_at_checked(self.path.len())?;
        // The time does not depend on the number of equal bytes.
        let differ = start.iter().zip(self.path.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        if differ != 0 || !(below.is_empty() || below.starts_with(b"/")) {
            return None;
        }
        Some(below.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect())
    }
}

impl FromStr for ExportPath {
    type Err = ExportPathError;

    fn from_str(text: &str) -> Result<Self, ExportPathError> {
        let path = format!("/{}", text.trim_matches('/'));
        let is_valid = |name: &str| {
            !matches!(name, "" | "." | "..")
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        if path.len() > LEN_MAX || !path[1..].split('/').all(is_valid) {
            return Err(ExportPathError);
        }
        Ok(Self { path, is_secret: false })
    }
}

/// Does not show secret paths, for logs.
impl fmt::Debug for ExportPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_secret { "ExportPath(secret)" } else { &self.path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read() {
        let path = |text: &str| text.parse::<ExportPath>().map(|path| path.path);
        assert_eq!(path("a").as_deref(), Ok("/a"));
        assert_eq!(path("/a.b/c-d_e/").as_deref(), Ok("/a.b/c-d_e"));
        for wrong in ["", "/", "a//b", "a b", "..", "a/../b", "ä", "a?b", &"a".repeat(300)] {
            assert_eq!(path(wrong), Err(ExportPathError), "{wrong}");
        }
    }

    #[test]
    fn random_paths_differ_and_are_secret() {
        let (a, b) = (ExportPath::random().unwrap(), ExportPath::random().unwrap());
        assert!(a != b && a.as_str().len() == 33 && a.is_secret());
        assert!(!format!("{a:?}").contains(&a.as_str()[1..]));
    }

    #[test]
    fn directories_below_the_export_are_found() {
        let path: ExportPath = "/root".parse().unwrap();
        assert_eq!(path.names_below(b"/root"), Some(vec![]));
        assert_eq!(path.names_below(b"/root//a/b/"), Some(vec![&b"a"[..], b"b"]));
        for other in [&b"/roo"[..], b"/rootx", b"/", b"", b"/Root", b"root"] {
            assert_eq!(path.names_below(other), None, "{other:?}");
        }
    }
}
