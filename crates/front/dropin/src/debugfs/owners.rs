//! `ncheck` and `icheck`: find names of inodes and owners of blocks.

use std::collections::BTreeMap;

use ext4::Ext4;
use ext4::format::inode::Inode;
use vfs::Ino;

use super::blocks::{blocks_of, has_map};
use super::request::Request;
use super::session::DebugSession;
use crate::failure::Failure;
use crate::invoked::{say, say_bytes};

/// `ncheck [-c] INODE…`: prints all names of the inodes. File types are always those of the inodes.
pub(super) fn ncheck(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let (_, rest) = request.options("c", "")?;
    if rest.is_empty() {
        return Err(request.wrong_words());
    }
    let mut wanted = Vec::new();
    for word in rest {
        let number = request.text(word)?;
        let parsed = crate::fields::number(number);
        let why = format_args!("Invalid inode number - '{number}'");
        wanted.push(Ino(parsed.ok_or_else(|| request.failed(why))?));
    }
    let fs = session.fs()?;
    say(format_args!("Inode\tPathname"));
    for ino in wanted {
        let Ok(found) = vfs::path::paths_of(fs, ino) else { continue };
        // The root directory has no name.
        for path in found.paths.iter().filter(|path| *path != b"/") {
            // The original prints names in the root directory with two slashes.
            let is_top = path.iter().filter(|&&byte| byte == b'/').count() == 1;
            let slash = if is_top { "/" } else { "" };
            say_bytes(&[format!("{ino}\t{slash}").as_bytes(), path, b"\n"].concat());
        }
    }
    Ok(())
}

/// `icheck BLOCK…`: prints the owner of each block.
pub(super) fn icheck(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    if request.words.is_empty() {
        return Err(request.wrong_words());
    }
    let mut wanted = Vec::new();
    let mut owners = BTreeMap::new();
    for word in &request.words {
        let number = request.number("block number", word)?;
        wanted.push(number);
        owners.insert(number, None);
    }
    find_owners(session.fs()?, &mut owners);
    say(format_args!("Block\tInode number"));
    for number in wanted {
        match owners.get(&number).copied().flatten() {
            Some(ino) => say(format_args!("{number}\t{ino}")),
            None => say(format_args!("{number}\t<block not found>")),
        }
    }
    Ok(())
}

/// Finds the first inode that uses each of the blocks. For damaged inodes, only readable block maps count.
fn find_owners(fs: &Ext4, owners: &mut BTreeMap<u64, Option<Ino>>) {
    for number in 1..=fs.superblock().inodes_count {
        let ino = Ino(number.into());
        let Ok(slot) = fs.inode_slot(ino) else { continue };
        let inode = Inode::from_slot(&slot);
        if inode.links_count() == 0 && number >= fs.superblock().first_ino {
            continue;
        }
        let mut claim = |start: u64, len: u64| {
            for (_, owner) in owners.range_mut(start..start.saturating_add(len)) {
                owner.get_or_insert(ino);
            }
        };
        if inode.file_acl() != 0 {
            claim(inode.file_acl(), 1);
        }
        if has_map(&inode) {
            let _ = fs.walk_map(ino, &mut |entry| {
                let (start, len) = blocks_of(&entry);
                claim(start, len);
            });
        }
    }
}
