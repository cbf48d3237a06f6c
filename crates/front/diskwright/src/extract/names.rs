//! Names of extracted files on the host.
//!
//! Linux accepts all names. Names that Windows does not accept are refused or mapped ([`crate::windows_names`]).
//! Mapping can be requested on every host.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;

use vfs::{FileSystem, Ino};

use crate::windows_names::{Problem, folded, mapped, problem};

/// True if this host restricts names.
const IS_CHOOSY: bool = cfg!(windows);

/// Returns the host name for a file of an image, independent of its directory. It is mapped if `maps`.
///
/// # Errors
/// The reason why the name is not valid.
pub(crate) fn host_name(name: &[u8], maps: bool) -> Result<Cow<'_, [u8]>, Problem> {
    HostNames::new(maps).name(name)
}

/// Returns a name that denotes the same file if and only if the host directory ignores case. Returns `None` for a name
/// without letters.
pub(super) fn in_other_case(name: &[u8]) -> Option<Vec<u8>> {
    let name = std::str::from_utf8(name).ok()?;
    let upper = name.to_uppercase();
    let other = if upper == name { name.to_lowercase() } else { upper };
    (other != name).then(|| other.into_bytes())
}

/// Checks the names of a host directory that already contains the name of a new file.
///
/// # Errors
/// If the existing file has another spelling of the name, as in a case-insensitive directory.
pub(super) fn check_spelling<'n>(
    name: &[u8],
    present: impl Iterator<Item = io::Result<Cow<'n, [u8]>>>,
) -> io::Result<()> {
    let mut other = None;
    for found in present {
        let found = found?;
        if *found == *name {
            return Ok(());
        }
        if folded(&found) == folded(name) {
            other = Some(found);
        }
    }
    let Some(other) = other else { return Ok(()) };
    let other = crate::text::escaped(&other);
    Err(io::Error::other(format!(
        "the directory ignores case and also has {other}; rename one of them"
    )))
}

/// Host names for the files of a tree, by directory.
pub(super) struct HostNames {
    maps: bool,
    /// State of each directory on the current path.
    levels: Vec<Alike>,
}

/// Names of a directory that are equal after case folding, and whether one of them was used already.
type Alike = HashMap<Vec<u8>, bool>;

impl HostNames {
    /// Creates the state. Names are mapped if `maps`.
    pub(super) fn new(maps: bool) -> Self {
        Self { maps, levels: Vec::new() }
    }

    fn are_looked_at(&self) -> bool {
        self.maps || IS_CHOOSY
    }

    /// Enters a directory.
    pub(super) fn enter(&mut self, fs: &dyn FileSystem, dir: Ino) {
        let mut counts: HashMap<Vec<u8>, u32> = HashMap::new();
        if self.are_looked_at() {
            // The walk reports directories that cannot be listed.
            let _ = fs.for_each_entry(dir, &mut |entry| {
                *counts.entry(folded(entry.name)).or_default() += 1;
                ControlFlow::Continue(())
            });
        }
        let alike = counts.into_iter().filter(|&(_, count)| count > 1);
        self.levels.push(alike.map(|(name, _)| (name, false)).collect());
    }

    /// Leaves all directories deeper than `depth`.
    pub(super) fn leave_to(&mut self, depth: usize) {
        self.levels.truncate(depth);
    }

    /// Returns the host name for a file of the current directory.
    ///
    /// # Errors
    /// The reason why the name is not valid.
    pub(super) fn name<'n>(&mut self, name: &'n [u8]) -> Result<Cow<'n, [u8]>, Problem> {
        if !self.are_looked_at() {
            return Ok(Cow::Borrowed(name));
        }
        let twin = self.levels.last_mut().and_then(|alike| alike.get_mut(&folded(name)));
        if self.maps {
            return Ok(Cow::Owned(mapped(name, twin.is_some()).into_bytes()));
        }
        match (problem(name), twin) {
            (Some(problem), _) => Err(problem),
            (None, Some(true)) => Err(Problem::Case),
            (None, Some(is_given)) => {
                *is_given = true;
                Ok(Cow::Borrowed(name))
            }
            (None, None) => Ok(Cow::Borrowed(name)),
        }
    }

    /// Returns the host form of a link target, with each component mapped if requested. Names in other directories that
    /// differ only in case cannot be detected.
    ///
    /// # Errors
    /// The reason why the target is not valid.
    pub(super) fn target<'n>(&self, target: &'n [u8]) -> Result<Cow<'n, [u8]>, Problem> {
        if !self.are_looked_at() {
            return Ok(Cow::Borrowed(target));
        }
        let mut names: Vec<Cow<'_, [u8]>> = Vec::new();
        for name in target.split(|&byte| byte == b'/') {
            names.push(match problem(name) {
                _ if name.is_empty() || matches!(name, b"." | b"..") => Cow::Borrowed(name),
                _ if self.maps => Cow::Owned(mapped(name, false).into_bytes()),
                Some(problem) => return Err(problem),
                None => Cow::Borrowed(name),
            });
        }
        Ok(Cow::Owned(names.join(&b'/')))
    }
}
