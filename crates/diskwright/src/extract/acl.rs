//! POSIX ACLs: from the value of Linux's `system.posix_acl_*` to the text that archives hold.

use std::fmt::Write;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Version at the start of the value (Linux `POSIX_ACL_XATTR_VERSION`).
const XATTR_VERSION: u32 = 2;

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    tag: U16,
    permissions: U16,
    id: U32,
}

const _: () = assert!(size_of::<RawEntry>() == 8);

/// An ACL as lines of text with numeric ids; `None` if the value is no ACL.
pub(super) fn to_text(value: &[u8]) -> Option<String> {
    let (version, entries) = U32::ref_from_prefix(value).ok()?;
    if version.get() != XATTR_VERSION {
        return None;
    }
    let mut text = String::new();
    for entry in <[RawEntry]>::ref_from_bytes(entries).ok()? {
        let (tag, has_id) = match entry.tag.get() {
            0x01 => ("user", false),
            0x02 => ("user", true),
            0x04 => ("group", false),
            0x08 => ("group", true),
            0x10 => ("mask", false),
            0x20 => ("other", false),
            _ => return None,
        };
        let id = if has_id { entry.id.get().to_string() } else { String::new() };
        let bits = entry.permissions.get();
        let letter = |bit, letter| if bits & bit != 0 { letter } else { '-' };
        let (r, w, x) = (letter(4, 'r'), letter(2, 'w'), letter(1, 'x'));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{tag}:{id}:{r}{w}{x}");
    }
    Some(text)
}
