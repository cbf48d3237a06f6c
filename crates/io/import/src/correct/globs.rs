//! Path patterns.

use std::fmt;

use globset::{Candidate, GlobBuilder, GlobMatcher};

/// A pattern of paths in an image. Paths begin with `/` here.
///
/// `*` and `?` match anything except a slash, `[a-z]` and `[!a-z]` a character, `{a,b}` one of several alternatives.
/// `**` as a component matches any number of directories, and at the end everything below. A backslash escapes the
/// following character. A pattern with a slash before its end matches whole paths, others match a name in any
/// directory. A pattern that ends with a slash matches directories only.
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
    /// A sentence that describes the problem.
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

    /// Returns whether it matches a path in the form of `Entry::path`.
    pub fn is_match(&self, path: &[u8], is_directory: bool) -> bool {
        if self.directories_only && !is_directory {
            return false;
        }
        if path.is_empty() || self.is_root {
            return path.is_empty() && self.is_root;
        }
        self.matcher.is_match_candidate(&Candidate::from_bytes(path))
    }

    /// Returns the original text of the pattern.
    pub(crate) fn text(&self) -> &str {
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
        // Names that are not UTF-8.
        assert!(Glob::parse("/a/*").unwrap().is_match(b"a/\xff\n", false));
        assert!(Glob::parse("[").is_err());
        assert!(Glob::parse("").is_err());
    }
}
