//! Attribute names: a number for the prefix, and the rest of the name.

use vfs::acl;

/// `e_name_index` of names that only the file system uses (`system.data`).
pub(crate) const INDEX_SYSTEM: u8 = 7;
const INDEX_ACL_ACCESS: u8 = 2;
const INDEX_ACL_DEFAULT: u8 = 3;

/// Prefixes that Linux shows, by `e_name_index`. Attributes with other numbers (Lustre, encryption contexts, inline
/// data) have no name there and are not listed.
const PREFIXES: [(u8, &[u8]); 6] = [
    (1, b"user."),
    (INDEX_ACL_ACCESS, acl::ACCESS),
    (INDEX_ACL_DEFAULT, acl::DEFAULT),
    (4, b"trusted."),
    (6, b"security."),
    (10, b"gnu."),
];

/// Returns whether attributes of this `e_name_index` are access control lists, whose on-disk form differs from the one
/// that Linux shows.
pub(crate) const fn is_acl_index(index: u8) -> bool {
    matches!(index, INDEX_ACL_ACCESS | INDEX_ACL_DEFAULT)
}

/// A stored attribute name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AttributeName<'a> {
    /// `e_name_index`: number of the name's prefix.
    pub index: u8,
    /// Rest of the name.
    pub suffix: &'a [u8],
}

impl<'a> AttributeName<'a> {
    /// Name of the attribute for inline data beyond `i_block`.
    pub(crate) const INLINE_DATA: AttributeName<'static> =
        AttributeName { index: INDEX_SYSTEM, suffix: b"data" };

    /// Converts a Linux name to its stored form. Returns `None` if ext4 cannot store it.
    pub(crate) fn from_linux(name: &'a [u8]) -> Option<Self> {
        PREFIXES.iter().find_map(|&(index, prefix)| {
            let suffix = name.strip_prefix(prefix)?;
            let sound = suffix.is_empty() == is_acl_index(index) && suffix.len() <= 255;
            sound.then_some(Self { index, suffix })
        })
    }

    /// Returns the prefix of the Linux name. Returns `None` if Linux does not show such attributes.
    pub(crate) fn linux_prefix(self) -> Option<&'static [u8]> {
        let (_, prefix) = PREFIXES.iter().find(|&&(index, _)| index == self.index)?;
        (self.suffix.is_empty() == is_acl_index(self.index)).then_some(*prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive() {
        for name in ["user.a", "trusted.overlay.opaque", "system.posix_acl_default", "security.x"] {
            let stored = AttributeName::from_linux(name.as_bytes()).unwrap();
            let shown = [stored.linux_prefix().unwrap(), stored.suffix].concat();
            assert_eq!(shown, name.as_bytes());
        }
    }

    #[test]
    fn other_names_cannot_be_stored() {
        for name in ["user.", "system.data", "other.x", "user", "system.posix_acl_accessx"] {
            assert_eq!(AttributeName::from_linux(name.as_bytes()), None, "{name}");
        }
        assert_eq!(AttributeName::INLINE_DATA.linux_prefix(), None);
    }
}
