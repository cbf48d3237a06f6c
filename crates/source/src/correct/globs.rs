//! Patterns of paths.

use std::fmt;

use globset::{Candidate, GlobBuilder, GlobMatcher};

/// A pattern of paths in an image, which begin with `/` here.
///
/// `*` and `?` stand for anything but a slash, `[a-z]` and `[!a-z]` for a character, `{a,b}` for one of
/// several, `**` as a component for any number of directories, and at the end for everything below. A
/// backslash takes the meaning from what follows. A pattern with a slash that is not at its end is about
/// the whole path; one without is about a name in any directory. One that ends with a slash is about
/// directories only.
#[derive(Clone)]
pub struct Glob {
    text: String,
    matcher: GlobMatcher,
    is_root: bool,
    directories_only: bool,
}

impl Glob {
    /// Parses a pattern.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("write a pattern such as /etc/*.conf or *.pyc; / is the root itself".into());
        }
        let trimmed = text.trim_end_matches('/');
        let directories_only = !trimmed.is_empty() && trimmed.len() < text.len();
        let pattern = match trimmed.strip_prefix('/') {
            Some(rest) => rest.to_owned(),
            None if trimmed.contains('/') => trimmed.to_owned(),
            None => format!("**/{trimmed}"),
        };
        let glob = GlobBuilder::new(&pattern)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(|e| format!("pattern {text:?}: {}", e.kind()))?;
        let (text, matcher) = (text.to_owned(), glob.compile_matcher());
        Ok(Self { text, matcher, is_root: trimmed.is_empty(), directories_only })
    }

    /// Whether it stands for a path in the form of `Entry::path`.
    pub fn is_match(&self, path: &[u8], is_directory: bool) -> bool {
        if self.directories_only && !is_directory {
            return false;
        }
        if path.is_empty() || self.is_root {
            return path.is_empty() && self.is_root;
        }
        self.matcher.is_match_candidate(&Candidate::from_bytes(path))
    }

    /// The pattern as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::Glob;

    #[test]
    fn patterns_stand_for_paths() {
        let is = |glob: &str, path: &str| {
            Glob::parse(glob).unwrap().is_match(path.as_bytes(), path.ends_with("dir"))
        };
        for (glob, path) in [
            ("*.pyc", "a.pyc"),
            ("*.pyc", "usr/lib/a.pyc"),
            ("/etc/*.conf", "etc/a.conf"),
            ("etc/*.conf", "etc/a.conf"),
            ("/usr/**", "usr/a"),
            ("/usr/**", "usr/a/b"),
            ("/**/x", "x"),
            ("/**/x", "a/b/x"),
            ("/a/**/b", "a/b"),
            ("/", ""),
            ("dir/", "a/dir"),
            ("/{bin,sbin}/[a-c]?", "sbin/bx"),
            ("/a\\*", "a*"),
        ] {
            assert!(is(glob, path), "{glob} {path}");
        }
        for (glob, path) in [
            ("/*.pyc", "usr/a.pyc"),
            ("/etc/*", "etc/a/b"),
            ("etc/x", "usr/etc/x"),
            ("/usr/**", "usr"),
            ("/", "a"),
            ("*", ""),
            ("/**", ""),
            ("file/", "a/file"),
            ("/a\\*", "ab"),
        ] {
            assert!(!is(glob, path), "{glob} {path}");
        }
        // Names in any bytes.
        assert!(Glob::parse("/a/*").unwrap().is_match(b"a/\xff\n", false));
        assert!(Glob::parse("[").is_err());
        assert!(Glob::parse("").is_err());
    }
}
