//! Changes of flags, project IDs and extent size hints.

use vfs::{FileAttributesChange, FileType, InodeFlags};

use super::{Editor, SymlinkPolicy};
use crate::Result;
use crate::lsattr::{LETTERS, NAMES};

/// Change of flags in the syntax of chattr(1): `+`, `-` or `=` followed by letters or long names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlagChange {
    /// Flags to set.
    pub set: InodeFlags,
    /// Flags to clear.
    pub clear: InodeFlags,
}

/// Flags cleared by `=` unless listed: all changeable flags that are not part of a hint.
const REPLACED: InodeFlags = InodeFlags::all()
    .difference(InodeFlags::DESCRIBING)
    .difference(InodeFlags::EXTENTS)
    .difference(InodeFlags::REALTIME)
    .difference(InodeFlags::EXTSIZE)
    .difference(InodeFlags::EXTSZINHERIT)
    .difference(InodeFlags::COWEXTSIZE);

impl FlagChange {
    /// Adds the change of one argument.
    ///
    /// # Errors
    /// A message if the argument is invalid.
    pub fn parse(self, word: &str) -> Result<Self, String> {
        let mut chars = word.chars();
        let sign = chars.next();
        let flags = flags_of(chars.as_str())?;
        let (set, clear) = match sign {
            Some('+') => (self.set | flags, self.clear - flags),
            Some('-') => (self.set - flags, self.clear | flags),
            Some('=') => (flags, REPLACED - flags),
            _ => return Err(format!("{word}: write flags after +, - or =")),
        };
        Ok(Self { set, clear })
    }
}

fn flags_of(text: &str) -> Result<InodeFlags, String> {
    let named = |text: &str| NAMES.iter().find(|(_, name)| *name == text).map(|&(flag, _)| flag);
    if let Some(all) = text.split(',').map(named).collect::<Option<InodeFlags>>() {
        return Ok(all);
    }
    let lettered = |letter: char| {
        let found = LETTERS.iter().find(|(_, of)| *of == letter).map(|&(flag, _)| flag);
        found.filter(|&flag| REPLACED.union(InodeFlags::EXTENTS).contains(flag)).ok_or_else(|| {
            format!("{letter}: not a flag that can be changed; see diskwright chattr --help")
        })
    };
    text.chars().map(lettered).collect()
}

impl Editor<'_> {
    /// Changes flags, project ID and hints, with `recursive` also of all files below. Symbolic links below a directory
    /// are skipped, and so are files there that support none of the changes.
    ///
    /// # Errors
    /// If a file cannot be read or written, or does not support the change. Files before it are changed.
    pub fn change_flags(
        &self,
        path: &[u8],
        change: &FileAttributesChange,
        recursive: bool,
    ) -> Result<u64> {
        let change = FileAttributesChange { ctime: self.time(), ..*change };
        let is_project_alone = FileAttributesChange { project_id: None, ..change }
            == FileAttributesChange { ctime: change.ctime, ..FileAttributesChange::default() };
        self.each(path, SymlinkPolicy::Follow, recursive, &|old| {
            let may_have = matches!(old.file_type, FileType::Regular | FileType::Directory);
            let is_passed = recursive && !may_have && !is_project_alone;
            if is_passed { Ok(()) } else { self.fs().set_file_attributes(old.ino, &change) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> FlagChange {
        words.iter().fold(FlagChange::default(), |all, word| all.parse(word).unwrap())
    }

    #[test]
    fn words_add_up_as_in_chattr() {
        let both = InodeFlags::IMMUTABLE | InodeFlags::NOATIME;
        assert_eq!(parsed(&["+iA"]), FlagChange { set: both, clear: InodeFlags::empty() });
        let last = parsed(&["+iA", "-i"]);
        assert_eq!((last.set, last.clear), (InodeFlags::NOATIME, InodeFlags::IMMUTABLE));
        let exact = parsed(&["=d"]);
        assert_eq!(exact.set, InodeFlags::NODUMP);
        assert!(exact.clear.contains(both) && !exact.clear.contains(InodeFlags::EXTENTS));
        assert_eq!(parsed(&["+nosymlinks,nodefrag"]).set.iter().count(), 2);
    }

    #[test]
    fn unknown_flags_are_reported() {
        for word in ["i", "+", "+y", "+I", "*a"] {
            let is_empty_list = word == "+";
            assert_eq!(FlagChange::default().parse(word).is_ok(), is_empty_list, "{word}");
        }
    }
}
