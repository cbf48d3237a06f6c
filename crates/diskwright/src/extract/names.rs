//! Which names files get on the host.
//!
//! On Linux any name will do. On Windows not every name can be had: it is refused, or another one stands for it
//! ([`crate::windows_names`]). Who asks for these stand-ins gets them on every host.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;

use vfs::{FileSystem, Ino};

use crate::windows_names::{Problem, folded, mapped, problem};

/// Whether this host has only some names.
const IS_CHOOSY: bool = cfg!(windows);

/// The name that a file of an image gets on the host, wherever it comes to lie: mapped, if `maps`.
///
/// # Errors
/// Why it gets none.
pub(crate) fn host_name(name: &[u8], maps: bool) -> Result<Cow<'_, [u8]>, Problem> {
    HostNames::new(maps).name(name)
}

/// Returns a name that a directory of the host takes for this one, exactly if it ignores case. `None` for a name
/// without letters.
pub(super) fn in_other_case(name: &[u8]) -> Option<Vec<u8>> {
    let name = std::str::from_utf8(name).ok()?;
    let upper = name.to_uppercase();
    let other = if upper == name { name.to_lowercase() } else { upper };
    (other != name).then(|| other.into_bytes())
}

/// Checks the names of a directory of the host that has something under the name of a new file.
///
/// # Errors
/// If that has another spelling of the name, as in a directory that ignores case.
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
        "the directory ignores case and has {other} for the same name: rename one of them"
    )))
}

/// Which names the files of a tree get, directory by directory.
pub(super) struct HostNames {
    maps: bool,
    /// Of each directory on the way.
    levels: Vec<Alike>,
}

/// Names of a directory that fold to the same as others there: whether one of them was given already.
type Alike = HashMap<Vec<u8>, bool>;

impl HostNames {
    /// Names that others stand for if `maps`.
    pub(super) fn new(maps: bool) -> Self {
        Self { maps, levels: Vec::new() }
    }

    fn are_looked_at(&self) -> bool {
        self.maps || IS_CHOOSY
    }

    /// A directory is entered: what comes is in it.
    pub(super) fn enter(&mut self, fs: &dyn FileSystem, dir: Ino) {
        let mut counts: HashMap<Vec<u8>, u32> = HashMap::new();
        if self.are_looked_at() {
            // What cannot be listed is for the walk to tell.
            let _ = fs.for_each_entry(dir, &mut |entry| {
                *counts.entry(folded(entry.name)).or_default() += 1;
                ControlFlow::Continue(())
            });
        }
        let alike = counts.into_iter().filter(|&(_, count)| count > 1);
        self.levels.push(alike.map(|(name, _)| (name, false)).collect());
    }

    /// The directories that are deeper than those above `depth` are left.
    pub(super) fn leave_to(&mut self, depth: usize) {
        self.levels.truncate(depth);
    }

    /// The name that a file of the current directory gets on the host.
    ///
    /// # Errors
    /// Why it gets none.
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

    /// What a link leads to on the host: each name on the way as it stands there, if names are mapped. Of names that
    /// differ only in the case of letters, those of other directories are not known.
    ///
    /// # Errors
    /// Why it cannot.
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
