//! ext4's form of POSIX access control lists.
//!
//! On disk: version 1, then entries {tag u16, permissions u16}; entries of named users and groups also have an id u32.

use vfs::acl::{self, AclEntry, NO_ID, Tag};

const VERSION_EXT4: u32 = 1;
const SHORT_SIZE: usize = 4;
const LONG_SIZE: usize = 8;

/// Converts a list from the on-disk form to the form that Linux shows. Returns `None` if it is damaged.
pub(crate) fn acl_to_linux(stored: &[u8]) -> Option<Vec<u8>> {
    let mut rest = stored.strip_prefix(&VERSION_EXT4.to_le_bytes())?;
    let mut entries = Vec::with_capacity(rest.len() / SHORT_SIZE);
    while !rest.is_empty() {
        let (&[tag0, tag1, permissions0, permissions1], after) = rest.split_first_chunk()?;
        let tag = Tag::from_number(u16::from_le_bytes([tag0, tag1]))?;
        let permissions = u16::from_le_bytes([permissions0, permissions1]);
        let (id, after) = match tag.is_named() {
            true => {
                after.split_first_chunk().map(|(&id, after)| (u32::from_le_bytes(id), after))?
            }
            false => (NO_ID, after),
        };
        entries.push(AclEntry { tag, permissions, id });
        rest = after;
    }
    Some(acl::to_bytes(entries))
}

/// Converts a list from the form that Linux shows to the on-disk form. Returns `None` if it is invalid.
pub(crate) fn acl_from_linux(shown: &[u8]) -> Option<Vec<u8>> {
    let entries = acl::parse(shown).ok()?;
    let mut stored = Vec::with_capacity(size_of_val(&VERSION_EXT4) + entries.len() * LONG_SIZE);
    stored.extend(VERSION_EXT4.to_le_bytes());
    for entry in entries {
        stored.extend((entry.tag as u16).to_le_bytes());
        stored.extend(entry.permissions.to_le_bytes());
        if entry.tag.is_named() {
            stored.extend(entry.id.to_le_bytes());
        }
    }
    Some(stored)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(tag: u16, permissions: u16, id: u32) -> Vec<u8> {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    }

    #[test]
    fn lists_survive() {
        let mut shown = acl::VERSION.to_le_bytes().to_vec();
        for (tag, id) in [(1, u32::MAX), (2, 1000), (4, u32::MAX), (8, 7), (16, u32::MAX)] {
            shown.extend(entry(tag, 6, id));
        }
        let stored = acl_from_linux(&shown).unwrap();
        assert_eq!(stored.len(), 4 + 3 * 4 + 2 * 8);
        assert_eq!(acl_to_linux(&stored), Some(shown));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(mut bytes in proptest::collection::vec(0_u8..34, 4..80)) {
            bytes[..4].copy_from_slice(&VERSION_EXT4.to_le_bytes());
            if let Some(shown) = acl_to_linux(&bytes) {
                prop_assert_eq!(acl_from_linux(&shown), Some(bytes.clone()));
            }
            bytes[0] = 2;
            let _ = acl_from_linux(&bytes);
        }
    }
}
