//! POSIX access control lists: ext4 stores them in a form of its own.
//!
//! On disk: version 1, then entries {tag u16, permissions u16}, with an id u32 behind those of named
//! users and groups. In Linux's extended attributes: version 2, and every entry has an id.

const VERSION_EXT4: u32 = 1;
const VERSION_LINUX: u32 = 2;
const VERSION_SIZE: usize = 4;
const SHORT_SIZE: usize = 4;
const LONG_SIZE: usize = 8;

/// The id of entries that name nobody.
const NO_ID: [u8; 4] = [0xff; 4];

const TAG_USER_OBJ: u16 = 0x01;
const TAG_USER: u16 = 0x02;
const TAG_GROUP_OBJ: u16 = 0x04;
const TAG_GROUP: u16 = 0x08;
const TAG_MASK: u16 = 0x10;
const TAG_OTHER: u16 = 0x20;

/// Whether entries of a tag name a user or group. `None` if there is no such tag.
fn has_id(entry: &[u8]) -> Option<bool> {
    match u16::from_le_bytes([*entry.first()?, *entry.get(1)?]) {
        TAG_USER | TAG_GROUP => Some(true),
        TAG_USER_OBJ | TAG_GROUP_OBJ | TAG_MASK | TAG_OTHER => Some(false),
        _ => None,
    }
}

/// What is behind the version, if that is `version`.
fn body(value: &[u8], version: u32) -> Option<&[u8]> {
    value.strip_prefix(&version.to_le_bytes())
}

/// The list as Linux shows it, from the form on disk. `None` if it is damaged.
pub fn acl_to_linux(stored: &[u8]) -> Option<Vec<u8>> {
    let mut rest = body(stored, VERSION_EXT4)?;
    let mut shown = Vec::with_capacity(VERSION_SIZE + rest.len() / SHORT_SIZE * LONG_SIZE);
    shown.extend(VERSION_LINUX.to_le_bytes());
    while !rest.is_empty() {
        let size = if has_id(rest)? { LONG_SIZE } else { SHORT_SIZE };
        let (entry, after) = rest.split_at_checked(size)?;
        shown.extend(entry);
        if size == SHORT_SIZE {
            shown.extend(NO_ID);
        }
        rest = after;
    }
    Some(shown)
}

/// The form on disk of a list as Linux shows it. `None` if it is not one.
pub fn acl_from_linux(shown: &[u8]) -> Option<Vec<u8>> {
    let (entries, rest) = body(shown, VERSION_LINUX)?.as_chunks::<LONG_SIZE>();
    let mut stored = Vec::with_capacity(shown.len());
    stored.extend(VERSION_EXT4.to_le_bytes());
    for entry in entries {
        let size = if has_id(entry)? { LONG_SIZE } else { SHORT_SIZE };
        stored.extend(&entry[..size]);
    }
    rest.is_empty().then_some(stored)
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
        let mut shown = VERSION_LINUX.to_le_bytes().to_vec();
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
