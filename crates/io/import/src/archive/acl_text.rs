//! POSIX ACLs: conversion from the value of Linux's `system.posix_acl_*` to the text form of archives.

use std::fmt::Write;

use vfs::acl::{self, Tag};

/// Returns an ACL as lines of text with numeric ids; `None` if the value is invalid.
pub(super) fn to_text(value: &[u8]) -> Option<String> {
    let mut text = String::new();
    for entry in acl::parse(value).ok()? {
        let who = match entry.tag {
            Tag::UserObj | Tag::User => "user",
            Tag::GroupObj | Tag::Group => "group",
            Tag::Mask => "mask",
            Tag::Other => "other",
        };
        let id = if entry.tag.is_named() { entry.id.to_string() } else { String::new() };
        let letter = |bit, letter| if entry.permissions & bit != 0 { letter } else { '-' };
        let (r, w, x) = (letter(4, 'r'), letter(2, 'w'), letter(1, 'x'));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{who}:{id}:{r}{w}{x}");
    }
    Some(text)
}
