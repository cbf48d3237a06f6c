//! POSIX access control lists, for which XFS has its own encoding.
//!
//! On disk, big-endian: the number of entries u32, then for each entry tag u32, id u32, permissions u16 and two zero
//! bytes. The id of entries without a user or group is 0.

use vfs::acl::{self, AclEntry, PERMISSIONS, Tag};

use super::super::bytes::{be16, be32};
use super::VALUE_LEN_MAX;

const STORED_SIZE: usize = 12;
/// Maximum number of entries of a list (`XFS_ACL_MAX_ENTRIES` of version 5).
const ENTRIES_MAX: usize = (VALUE_LEN_MAX - 4) / STORED_SIZE;

/// Converts a list from its form on disk to Linux's encoding. Returns `None` if it is damaged.
pub(crate) fn acl_to_linux(stored: &[u8]) -> Option<Vec<u8>> {
    let (count, entries) = stored.split_at_checked(4)?;
    let (entries, rest) = entries.as_chunks::<STORED_SIZE>();
    let is_whole = rest.is_empty() && be32(count, 0) as usize == entries.len();
    if !is_whole || entries.len() > ENTRIES_MAX {
        return None;
    }
    let entry = |stored: &[u8; STORED_SIZE]| {
        let tag = Tag::from_number(u16::try_from(be32(stored, 0)).ok()?)?;
        Some(AclEntry::new(tag, be16(stored, 8), be32(stored, 4)))
    };
    let entries: Option<Vec<_>> = entries.iter().map(entry).collect();
    Some(acl::to_bytes(entries?))
}

/// Converts a list from Linux's encoding to its form on disk. Returns `None` if it is invalid or too long.
pub(crate) fn acl_from_linux(shown: &[u8]) -> Option<Vec<u8>> {
    let entries = acl::parse(shown).ok()?;
    if entries.len() > ENTRIES_MAX {
        return None;
    }
    let mut stored = Vec::with_capacity(4 + entries.len() * STORED_SIZE);
    stored.extend((entries.len() as u32).to_be_bytes());
    for entry in entries {
        if entry.permissions & !PERMISSIONS != 0 {
            return None;
        }
        let id = if entry.tag.is_named() { entry.id } else { 0 };
        stored.extend(u32::from(entry.tag as u16).to_be_bytes());
        stored.extend(id.to_be_bytes());
        stored.extend(entry.permissions.to_be_bytes());
        stored.extend([0; 2]);
    }
    Some(stored)
}

#[cfg(test)]
mod tests {
    use acl::{ENTRY_SIZE, NO_ID};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_survive() {
        let mut shown = acl::VERSION.to_le_bytes().to_vec();
        for (tag, id) in [(1_u16, NO_ID), (2, 1000), (4, NO_ID), (8, 7), (16, NO_ID), (32, NO_ID)] {
            shown.extend([&tag.to_le_bytes()[..], &[6, 0], &id.to_le_bytes()].concat());
        }
        let stored = acl_from_linux(&shown).unwrap();
        assert_eq!(stored.len(), 4 + 6 * STORED_SIZE);
        assert_eq!(stored[..16], [0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0, 0, 0, 6, 0, 0]);
        assert_eq!(acl_to_linux(&stored), Some(shown));
    }

    #[test]
    fn invalid_lists_are_refused() {
        assert_eq!(acl_from_linux(b""), None);
        assert_eq!(acl_from_linux(&[2, 0, 0, 0, 3, 0, 6, 0, 0, 0, 0, 0]), None);
        assert_eq!(acl_from_linux(&[2, 0, 0, 0, 1, 0, 8, 0, 0, 0, 0, 0]), None);
        assert_eq!(acl_to_linux(&[0, 0, 0, 1]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(0_u8..34, 0..80)) {
            if let Some(shown) = acl_to_linux(&bytes) {
                prop_assert_eq!(shown.len(), 4 + (bytes.len() - 4) / STORED_SIZE * ENTRY_SIZE);
            }
            let _ = acl_from_linux(&bytes);
        }
    }
}
