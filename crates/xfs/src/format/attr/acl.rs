//! POSIX access control lists: XFS stores them in a form of its own.
//!
//! On disk, big-endian: the number of entries u32, then of each tag u32, id u32, permissions u16 and
//! two zero bytes. In Linux's extended attributes, little-endian: version 2 u32, then of each entry
//! tag u16, permissions u16, id u32.

use super::super::bytes::{be16, be32};
use super::VALUE_LEN_MAX;

const VERSION_LINUX: u32 = 2;
const SHOWN_SIZE: usize = 8;
const STORED_SIZE: usize = 12;
/// Most entries of a list (`XFS_ACL_MAX_ENTRIES` of version 5).
const ENTRIES_MAX: usize = (VALUE_LEN_MAX - 4) / STORED_SIZE;

/// The id of entries that name nobody, as Linux shows them. On disk it is 0.
const NO_ID: u32 = u32::MAX;

const TAG_USER_OBJ: u16 = 0x01;
const TAG_USER: u16 = 0x02;
const TAG_GROUP_OBJ: u16 = 0x04;
const TAG_GROUP: u16 = 0x08;
const TAG_MASK: u16 = 0x10;
const TAG_OTHER: u16 = 0x20;
const PERMISSIONS: u16 = 7;

/// Whether entries of a tag name a user or group. `None` if there is no such tag.
const fn has_id(tag: u16) -> Option<bool> {
    match tag {
        TAG_USER | TAG_GROUP => Some(true),
        TAG_USER_OBJ | TAG_GROUP_OBJ | TAG_MASK | TAG_OTHER => Some(false),
        _ => None,
    }
}

/// The list as Linux shows it, from the form on disk. `None` if it is damaged.
pub fn acl_to_linux(stored: &[u8]) -> Option<Vec<u8>> {
    let (count, entries) = stored.split_at_checked(4)?;
    let (entries, rest) = entries.as_chunks::<STORED_SIZE>();
    let is_whole = rest.is_empty() && be32(count, 0) as usize == entries.len();
    if !is_whole || entries.len() > ENTRIES_MAX {
        return None;
    }
    let mut shown = Vec::with_capacity(4 + entries.len() * SHOWN_SIZE);
    shown.extend(VERSION_LINUX.to_le_bytes());
    for entry in entries {
        let tag = u16::try_from(be32(entry, 0)).ok()?;
        let id = if has_id(tag)? { be32(entry, 4) } else { NO_ID };
        shown.extend(tag.to_le_bytes());
        shown.extend(be16(entry, 8).to_le_bytes());
        shown.extend(id.to_le_bytes());
    }
    Some(shown)
}

/// The form on disk of a list as Linux shows it. `None` if it is not one, or too long.
pub fn acl_from_linux(shown: &[u8]) -> Option<Vec<u8>> {
    let body = shown.strip_prefix(&VERSION_LINUX.to_le_bytes())?;
    let (entries, rest) = body.as_chunks::<SHOWN_SIZE>();
    if !rest.is_empty() || entries.len() > ENTRIES_MAX {
        return None;
    }
    let mut stored = Vec::with_capacity(4 + entries.len() * STORED_SIZE);
    stored.extend((entries.len() as u32).to_be_bytes());
    for &[tag0, tag1, perm0, perm1, id @ ..] in entries {
        let tag = u16::from_le_bytes([tag0, tag1]);
        let permissions = u16::from_le_bytes([perm0, perm1]);
        if permissions & !PERMISSIONS != 0 {
            return None;
        }
        let id = if has_id(tag)? { u32::from_le_bytes(id) } else { 0 };
        stored.extend(u32::from(tag).to_be_bytes());
        stored.extend(id.to_be_bytes());
        stored.extend(permissions.to_be_bytes());
        stored.extend([0; 2]);
    }
    Some(stored)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_survive() {
        let mut shown = VERSION_LINUX.to_le_bytes().to_vec();
        for (tag, id) in [(1_u16, NO_ID), (2, 1000), (4, NO_ID), (8, 7), (16, NO_ID), (32, NO_ID)] {
            shown.extend([&tag.to_le_bytes()[..], &[6, 0], &id.to_le_bytes()].concat());
        }
        let stored = acl_from_linux(&shown).unwrap();
        assert_eq!(stored.len(), 4 + 6 * STORED_SIZE);
        assert_eq!(stored[..16], [0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0, 0, 0, 6, 0, 0]);
        assert_eq!(acl_to_linux(&stored), Some(shown));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        assert_eq!(acl_from_linux(b""), None);
        assert_eq!(acl_from_linux(&[2, 0, 0, 0, 3, 0, 6, 0, 0, 0, 0, 0]), None);
        assert_eq!(acl_from_linux(&[2, 0, 0, 0, 1, 0, 8, 0, 0, 0, 0, 0]), None);
        assert_eq!(acl_to_linux(&[0, 0, 0, 1]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(0_u8..34, 0..80)) {
            if let Some(shown) = acl_to_linux(&bytes) {
                prop_assert_eq!(shown.len(), 4 + (bytes.len() - 4) / STORED_SIZE * SHOWN_SIZE);
            }
            let _ = acl_from_linux(&bytes);
        }
    }
}
