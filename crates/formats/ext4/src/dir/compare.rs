//! Storing and comparing names of a directory.

use std::borrow::Cow;

use vfs::Result;

use crate::Ext4Core;
use crate::dir::casefold;
use crate::dir::encrypted::WantedName;
use crate::format::hash::{HashParameters, NameHash, NameHasher, TOGETHER};
use crate::format::inode::flags;
use crate::inode::Handle;

/// Encoding and comparison of the names of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameEncoding {
    /// Stored unchanged and compared byte by byte.
    Plain,
    /// Stored unchanged and compared without regard to case.
    Folded,
    /// Encrypted.
    Encrypted,
}

impl NameEncoding {
    pub(crate) fn of(dir: &Handle) -> Self {
        if dir.has_flag(flags::ENCRYPT) {
            Self::Encrypted
        } else if dir.has_flag(flags::CASEFOLD) {
            Self::Folded
        } else {
            Self::Plain
        }
    }

    /// Returns a form of the name that is equal for all its spellings.
    pub(crate) fn folded(self, name: &[u8]) -> Cow<'_, [u8]> {
        if self != Self::Folded {
            return Cow::Borrowed(name);
        }
        let mut folded = Vec::new();
        casefold::fold(name, &mut folded);
        Cow::Owned(folded)
    }

    /// Hashes a stored name. `scratch` receives its folded form.
    pub(crate) fn hash(self, hasher: &NameHasher, name: &[u8], scratch: &mut Vec<u8>) -> NameHash {
        if self == Self::Folded {
            casefold::fold(name, scratch);
            hasher.hash(scratch)
        } else {
            hasher.hash(name)
        }
    }

    /// Hashes several stored names.
    pub(crate) fn hash_together(
        self,
        hasher: &NameHasher,
        names: &[&[u8]; TOGETHER],
        scratch: &mut Vec<u8>,
    ) -> [NameHash; TOGETHER] {
        if self == Self::Folded {
            names.map(|name| self.hash(hasher, name, scratch))
        } else {
            hasher.hash_together(names)
        }
    }
}

/// Returns whether a directory can contain a name.
pub(super) fn is_possible(name: &[u8]) -> bool {
    // Check all bytes without an early exit, so that the loop can be vectorised.
    let impossible = name.iter().fold(false, |any, &b| any | (b == b'/') | (b == 0));
    !name.is_empty() && !impossible
}

/// A name to search for.
pub(crate) struct Wanted<'n> {
    style: NameEncoding,
    /// The name in the form that stored names are compared with.
    name: Cow<'n, [u8]>,
    /// The name, if stored names are encrypted.
    encrypted: Option<WantedName>,
    scratch: (Vec<u8>, Vec<u8>),
}

impl<'n> Wanted<'n> {
    /// Returns a name to search for in a directory that is not encrypted.
    pub(crate) fn new(style: NameEncoding, name: &'n [u8]) -> Self {
        Self { style, name: style.folded(name), encrypted: None, scratch: Default::default() }
    }

    /// Returns a name to search for in a directory.
    pub(crate) fn in_directory(fs: &Ext4Core, dir: &Handle, name: &'n [u8]) -> Result<Self> {
        let style = NameEncoding::of(dir);
        let mut wanted = Self::new(style, name);
        if style == NameEncoding::Encrypted {
            wanted.encrypted = Some(WantedName::in_directory(fs, dir, name)?);
        }
        Ok(wanted)
    }

    /// Returns the name itself if stored names are compared byte by byte.
    pub(crate) fn exact(&self) -> Option<&[u8]> {
        (self.style == NameEncoding::Plain).then_some(&self.name)
    }

    /// Returns its major hash in an index of a hash version. Returns `None` if the version is unknown, or if the
    /// displayed form does not determine it.
    pub(crate) fn major(&self, parameters: &HashParameters, version: u8) -> Option<u32> {
        match &self.encrypted {
            Some(wanted) => wanted.major(parameters, version),
            None => Some(parameters.hasher(version)?.hash(&self.name).major),
        }
    }

    /// Returns whether it matches a stored name.
    pub(crate) fn is(&mut self, stored: &[u8]) -> bool {
        if let Some(wanted) = &self.encrypted {
            return wanted.is(stored, &mut self.scratch);
        }
        if self.style == NameEncoding::Folded {
            casefold::fold(stored, &mut self.scratch.0);
            *self.name == *self.scratch.0
        } else {
            *self.name == *stored
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_names_are_recognized() {
        for name in [&b"a/b"[..], b"", b"a\0"] {
            assert!(!is_possible(name));
        }
    }
}
