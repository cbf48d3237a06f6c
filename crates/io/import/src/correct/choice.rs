//! Inclusion and exclusion of files.

use super::globs::Glob;

/// A pattern of included or excluded files.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Pattern of paths.
    pub glob: Glob,
    /// True if they are included.
    pub is_included: bool,
}

/// Decides for each path. The last matching pattern decides; if none matches, the decision for the directory applies.
#[derive(Debug, Default)]
pub(super) struct Chooser {
    /// The directory of the last path, and whether it is included.
    parent: (Vec<u8>, bool),
    is_started: bool,
}

impl Chooser {
    /// Returns whether a path is included. Counts matching patterns in `used`.
    pub(super) fn takes(
        &mut self,
        choices: &[Choice],
        path: &[u8],
        is_directory: bool,
        used: &mut [u64],
    ) -> bool {
        if choices.is_empty() || path.is_empty() {
            return true;
        }
        if let Some(index) = last_match(choices, path, is_directory) {
            used[index] += 1;
            return choices[index].is_included;
        }
        let parent = parent(path);
        if !self.is_started || self.parent.0 != parent {
            self.parent = (parent.to_vec(), takes_directory(choices, parent));
            self.is_started = true;
        }
        self.parent.1
    }
}

fn takes_directory(choices: &[Choice], path: &[u8]) -> bool {
    let mut path = path;
    while !path.is_empty() {
        if let Some(index) = last_match(choices, path, true) {
            return choices[index].is_included;
        }
        path = parent(path);
    }
    true
}

fn last_match(choices: &[Choice], path: &[u8], is_directory: bool) -> Option<usize> {
    choices.iter().rposition(|choice| choice.glob.is_match(path, is_directory))
}

/// Returns the directory of a path.
pub(super) fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&byte| byte == b'/').map_or(&[], |slash| &path[..slash])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pattern_decides_and_contents_follow_their_directory() {
        let choice = |glob, is_included| Choice { glob: Glob::parse(glob).unwrap(), is_included };
        let choices =
            [choice("/usr/share/doc", false), choice("copyright", true), choice("*.gz", false)];
        let mut chooser = Chooser::default();
        let mut used = [0; 3];
        let mut takes = |path: &str| chooser.takes(&choices, path.as_bytes(), false, &mut used);
        assert!(takes("usr/share"));
        assert!(!takes("usr/share/doc"));
        assert!(!takes("usr/share/doc/a"));
        assert!(!takes("usr/share/doc/a/README"));
        assert!(takes("usr/share/doc/a/copyright"));
        assert!(!takes("usr/share/man.gz"));
        assert!(takes("usr/share/documents"));
        assert!(takes(""));
        assert_eq!(used, [1, 1, 1]);
    }
}
