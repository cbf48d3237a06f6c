//! POSIX ACLs: conversion from the text form of archives to the value of Linux's `system.posix_acl_*`.
//!
//! GNU tar, star and libarchive write the same text (`acl(5)`, long or short form) with differences: a numeric ID may
//! follow as a fourth field, and a name may occur without one. Names are then looked up among this host's users and
//! groups, as GNU tar does.

use std::cell::OnceCell;
use std::fs;

use vfs::acl::{self, AclEntry, Tag};

use crate::Damage;

/// The host's users and groups, read on demand.
#[derive(Default)]
pub(super) struct Accounts {
    users: OnceCell<Vec<u8>>,
    groups: OnceCell<Vec<u8>>,
}

impl Accounts {
    fn id(&self, tag: Tag, name: &[u8]) -> Option<u32> {
        let (cell, file) = match tag {
            Tag::User => (&self.users, "/etc/passwd"),
            _ => (&self.groups, "/etc/group"),
        };
        // A host without the file has no names.
        let accounts = cell.get_or_init(|| fs::read(file).unwrap_or_default());
        accounts.split(|&b| b == b'\n').find_map(|line| {
            let mut fields = line.split(|&b| b == b':');
            if fields.next() != Some(name) { None } else { decimal(fields.nth(1)?) }
        })
    }
}

/// Returns the attribute value of an ACL in text form; `None` if it is equivalent to permission bits.
pub(super) fn to_xattr(text: &[u8], accounts: &Accounts) -> Result<Option<Vec<u8>>, Damage> {
    let text = str::from_utf8(text).map_err(|_| Damage::Acl("it is not UTF-8".to_owned()))?;
    let mut entries = Vec::new();
    for entry in text.split(['\n', ',']) {
        let entry = entry.split('#').next().unwrap_or_default().trim();
        if !entry.is_empty() {
            let parsed = parse_entry(entry, accounts)
                .map_err(|problem| Damage::Acl(format!("{problem} in {entry:?}")))?;
            entries.push(parsed);
        }
    }
    if !entries.iter().any(|entry| entry.tag.is_named() || entry.tag == Tag::Mask) {
        return Ok(None);
    }
    let who = |entry: &AclEntry| (entry.tag, entry.id);
    entries.sort_by_key(who);
    if entries.windows(2).any(|pair| who(&pair[0]) == who(&pair[1])) {
        return Err(Damage::Acl("an entry occurs twice".to_owned()));
    }
    Ok(Some(acl::to_bytes(entries)))
}

fn parse_entry(entry: &str, accounts: &Accounts) -> Result<AclEntry, &'static str> {
    let entry = entry.strip_prefix("default:").unwrap_or(entry);
    let mut fields = entry.split(':');
    let (tag, name) = (fields.next().unwrap_or_default(), fields.next().ok_or("no name field")?);
    let permissions = permission_bits(fields.next().ok_or("no permissions")?)?;
    let tag = match (tag, name.is_empty()) {
        ("user" | "u", true) => Tag::UserObj,
        ("user" | "u", false) => Tag::User,
        ("group" | "g", true) => Tag::GroupObj,
        ("group" | "g", false) => Tag::Group,
        ("mask" | "m", true) => Tag::Mask,
        ("other" | "o", true) => Tag::Other,
        _ => return Err("unknown kind"),
    };
    if !tag.is_named() {
        return Ok(AclEntry::new(tag, permissions, acl::NO_ID));
    }
    let id = match fields.next() {
        Some(id) => decimal(id.as_bytes()).ok_or("malformed id")?,
        None => decimal(name.as_bytes())
            .or_else(|| accounts.id(tag, name.as_bytes()))
            .ok_or("a name unknown to this host, without numeric id,")?,
    };
    Ok(AclEntry::new(tag, permissions, id))
}

fn permission_bits(text: &str) -> Result<u16, &'static str> {
    text.chars().try_fold(0, |bits, c| match c {
        'r' => Ok(bits | 4),
        'w' => Ok(bits | 2),
        'x' => Ok(bits | 1),
        '-' => Ok(bits),
        _ => Err("malformed permissions"),
    })
}

fn decimal(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use acl::NO_ID;

    use super::*;

    fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = vec![2, 0, 0, 0];
        for (tag, permissions, id) in entries {
            value.extend(tag.to_le_bytes());
            value.extend(permissions.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    #[test]
    fn texts_of_all_writers_are_understood() {
        let expected = value(&[
            (1, 6, NO_ID),
            (2, 7, 7),
            (2, 5, 502),
            (4, 4, NO_ID),
            (8, 1, 0),
            (16, 7, NO_ID),
            (32, 0, NO_ID),
        ]);
        let text: &[&str] = &[
            "user::rw-\nuser:502:r-x\nuser:7:rwx\ngroup::r--\ngroup:root:--x\nmask::rwx\nother::---\n",
            "u::rw-,u:lisa:r-x:502,u:x:rwx:7,g::r--,g:root:--x:0,m::rwx,o::---",
            "default:user::rw\nuser:7:rwx #effective:r\nuser:502:rx\ngroup::r\n\ngroup:0:x\nmask::rwx\nother::",
        ];
        for text in text {
            let accounts = Accounts::default();
            assert_eq!(to_xattr(text.as_bytes(), &accounts).unwrap(), Some(expected.clone()));
        }
    }

    #[test]
    fn minimal_acls_are_permission_bits_and_bad_ones_errors() {
        let parse = |text: &str| to_xattr(text.as_bytes(), &Accounts::default());
        assert_eq!(parse("user::rw-,group::r--,other::r--").unwrap(), None);
        for bad in [
            "user:no such user:rwx",
            "user::rwz",
            "mask:5:r",
            "user",
            "user:5",
            "fish::r",
            "user:5:r,user:5:w",
            "user:5:r:99999999999",
        ] {
            assert!(matches!(parse(bad), Err(Damage::Acl(_))), "{bad}");
        }
    }
}
