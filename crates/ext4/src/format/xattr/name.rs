//! Names of attributes: a number for the common start of the name, and the rest.

use vfs::acl;

/// `e_name_index` of names that only the file system itself uses (`system.data`).
pub const INDEX_SYSTEM: u8 = 7;
const INDEX_ACL_ACCESS: u8 = 2;
const INDEX_ACL_DEFAULT: u8 = 3;

/// The names Linux shows, by `e_name_index`. Attributes of other numbers (Lustre, encryption
/// contexts, inline data) have no name there and are not listed.
const PREFIXES: [(u8, &[u8]); 6] = [
    (1, b"user."),
    (INDEX_ACL_ACCESS, acl::ACCESS),
    (INDEX_ACL_DEFAULT, acl::DEFAULT),
    (4, b"trusted."),
    (6, b"security."),
    (10, b"gnu."),
];

/// Whether attributes of this `e_name_index` are access control lists, which are stored in
/// another form than Linux shows them.
pub const fn is_acl_index(index: u8) -> bool {
    matches!(index, INDEX_ACL_ACCESS | INDEX_ACL_DEFAULT)
}

/// A name as an entry stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttributeName<'a> {
    /// `e_name_index`: stands for the start of the name.
    pub index: u8,
    /// The rest of it.
    pub suffix: &'a [u8],
}

impl<'a> AttributeName<'a> {
    /// The name of inline data past `i_block`.
    pub const INLINE_DATA: AttributeName<'static> =
        AttributeName { index: INDEX_SYSTEM, suffix: b"data" };

    /// How a name as Linux writes it is stored. `None` if ext4 cannot store it.
    pub fn from_linux(name: &'a [u8]) -> Option<Self> {
        PREFIXES.iter().find_map(|&(index, prefix)| {
            let suffix = name.strip_prefix(prefix)?;
            let sound = suffix.is_empty() == is_acl_index(index) && suffix.len() <= 255;
            sound.then_some(Self { index, suffix })
        })
    }

    /// The start of the name as Linux writes it. `None` if Linux does not show such attributes.
    pub fn linux_prefix(self) -> Option<&'static [u8]> {
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
