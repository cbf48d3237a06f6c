//! `stat`, `inode_dump` and `imap`: show one inode.

use std::fmt::Write;

use ext4::debug::MapEntry;
use ext4::format::checksum::inode_seed;
use ext4::format::inode::{Inode, flags, slot_checksums, stored_extra_isize};
use vfs::{FileSystem, FileType, Ino};

use super::blocks::MapText;
use super::hex::hex;
use super::phrases::words;
use super::request::Request;
use super::session::DebugSession;
use super::xattrs;
use crate::dumpe2fs::local;
use crate::failure::Failure;
use crate::invoked::{say, say_all, say_bytes};

/// Size of an inode without extra fields, in bytes.
const SMALL: usize = 128;

/// End offset of the upper half of the version in an inode.
const VERSION_END: usize = 156;
/// End offset of the project ID in an inode.
const PROJECT_END: usize = 160;
/// End offset of the extra time fields in an inode.
const TIMES_END: usize = 152;

/// Returns whether the fixed fields of an inode extend to `end`.
fn has_extra(slot: &[u8], end: usize) -> bool {
    SMALL + usize::from(stored_extra_isize(slot)) >= end
}

/// Symbolic links shorter than this are stored in the inode.
const FAST_LINK: u64 = 60;

/// Returns the 32-bit field at an offset of an inode, or 0 past its end.
pub(super) fn word(slot: &[u8], at: usize) -> u32 {
    let bytes = slot.get(at..at + 4).and_then(<[u8]>::first_chunk::<4>);
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Returns the original's name of an inode's file type.
fn kind(inode: &Inode) -> &'static str {
    match inode.file_type() {
        Some(FileType::Regular) => "regular",
        Some(FileType::Directory) => "directory",
        Some(FileType::CharDevice) => "character special",
        Some(FileType::BlockDevice) => "block special",
        Some(FileType::Fifo) => "FIFO",
        Some(FileType::Socket) => "socket",
        Some(FileType::Symlink) => "symlink",
        None => "bad type",
    }
}

/// `stat FILE`.
pub(super) fn stat(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [path] = request.exactly()?;
    let ino = session.ino(path)?;
    let fs = session.fs()?;
    let slot = fs.inode_slot(ino).map_err(|e| request.failed(words(&e)))?;
    let inode = Inode::from_slot(&slot);
    let mut out = String::new();
    head(&mut out, ino, &inode, &slot, fs.geometry().block_size());
    times(&mut out, &inode, &slot);
    if slot.len() > SMALL {
        let _ = writeln!(out, "Size of extra inode fields: {}", stored_extra_isize(&slot));
    }
    say_all(&out);
    if let Ok(attributes) = xattrs::all(fs, ino)
        && !attributes.is_empty()
    {
        say(format_args!("Extended attributes:"));
        attributes.iter().for_each(|(name, value)| say_bytes(&xattrs::line(name, value)));
    }
    if fs.superblock().features.metadata_csum() {
        let seed = inode_seed(fs.superblock().checksum_seed, ino, inode.generation());
        say(format_args!("Inode checksum: {:#010x}", slot_checksums(seed, &slot).1));
    }
    contents(fs, ino, &inode).map_err(|e| request.failed(words(&e)))
}

fn head(out: &mut String, ino: Ino, inode: &Inode, slot: &[u8], block_size: u32) {
    let _ = writeln!(
        out,
        "Inode: {ino}   Type: {}    Mode:  {:04o}   Flags: {:#x}",
        kind(inode),
        inode.permissions(),
        inode.flags()
    );
    let (version, high) = (inode.version(), word(slot, 152));
    let version = match has_extra(slot, VERSION_END) {
        true => format!("{high:#010x}:{version:08x}"),
        false => format!("{version:#010x}"),
    };
    let _ = writeln!(out, "Generation: {}    Version: {version}", inode.generation());
    let project = match has_extra(slot, PROJECT_END) {
        true => format!("   Project: {:5}", inode.projid()),
        false => String::new(),
    };
    let (uid, gid, size) = (inode.uid(), inode.gid(), inode.size());
    let _ = writeln!(out, "User: {uid:5}   Group: {gid:5}{project}   Size: {size}");
    let _ = writeln!(out, "File ACL: {}", inode.file_acl());
    let (links, blocks) = (inode.links_count(), inode.blocks_512(block_size));
    let _ = writeln!(out, "Links: {links}   Blockcount: {blocks}");
    let _ = writeln!(out, "Fragment:  Address: {}    Number: 0    Size: 0", word(slot, 112));
}

/// Offsets of the seconds of a time and of its extra field.
const TIMES: [(&str, usize, usize); 4] =
    [(" ctime", 12, 132), (" atime", 8, 140), (" mtime", 16, 136), ("crtime", 144, 148)];
/// Offset of the deletion time.
const DTIME: usize = 20;

fn times(out: &mut String, inode: &Inode, slot: &[u8]) {
    let is_large = has_extra(slot, TIMES_END);
    for (name, at, extra) in TIMES {
        let seconds = word(slot, at);
        if is_large {
            let extra = word(slot, extra);
            let shown = date(seconds, extra);
            let _ = writeln!(out, "{name}: {seconds:#010x}:{extra:08x} -- {shown}");
        } else if at < SMALL {
            let _ = writeln!(out, "{}: {seconds:#010x} -- {}", name.trim(), date(seconds, 0));
        }
    }
    let deleted = word(slot, DTIME);
    if inode.dtime() != 0 && is_large {
        let extra = word(slot, 132);
        let shown = date(deleted, extra);
        let _ = writeln!(out, " dtime: {deleted:#010x}:({extra:08x}) -- {shown}");
    } else if inode.dtime() != 0 {
        let _ = writeln!(out, "dtime: {deleted:#010x} -- {}", date(deleted, 0));
    }
}

fn date(seconds: u32, extra: u32) -> String {
    let seconds = i64::from(seconds.cast_signed()) + (i64::from(extra & 3) << 32);
    local(seconds, "%a %b %e %H:%M:%S %Y")
}

/// Prints the location of the contents.
fn contents(fs: &ext4::Ext4, ino: Ino, inode: &Inode) -> vfs::Result<()> {
    let has_inline = inode.has_flag(flags::INLINE_DATA);
    match inode.file_type() {
        Some(FileType::Symlink) if inode.size() < FAST_LINK || has_inline => {
            let target = fs.readlink(ino)?;
            say_bytes(&[b"Fast link dest: \"", &*target, b"\"\n"].concat());
        }
        Some(FileType::CharDevice | FileType::BlockDevice) => {
            let device = inode.device();
            let (major, minor) = (device.major, device.minor);
            if word(inode.i_block(), 0) != 0 {
                say(format_args!(
                    "Device major/minor number: {major:02}:{minor:02} (hex {major:02x}:{minor:02x})"
                ));
            } else {
                say(format_args!(
                    "(New-style) Device major/minor number: {major:02}:{minor:02} (hex {major:02x}:{minor:02x})"
                ));
            }
        }
        _ if has_inline => say(format_args!("Size of inline data: {}", inode.size().max(60))),
        Some(FileType::Fifo | FileType::Socket) | None => say(format_args!("BLOCKS:\n")),
        _ => {
            let mut text = MapText::default();
            let walked = fs.walk_map(ino, &mut |entry: MapEntry| text.add(entry));
            let has_extents = inode.has_flag(flags::EXTENTS);
            say(format_args!("{}:", if has_extents { "EXTENTS" } else { "BLOCKS" }));
            say(format_args!("{}", text.finish(!has_extents)));
            walked?;
        }
    }
    Ok(())
}

/// `inode_dump FILE`: prints the raw bytes of an inode.
pub(super) fn dump(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let (options, rest) = request.options("bex", "")?;
    let &[path] = &*rest else { return Err(request.wrong_words()) };
    if let Some((letter, _)) = options.iter().find(|(letter, _)| *letter != 'b') {
        let why = "the whole inode is shown without it";
        return Err(request.refused(&format!("-{letter}"), why));
    }
    let ino = session.ino(path)?;
    let slot = session.fs()?.inode_slot(ino).map_err(|e| request.failed(words(&e)))?;
    let bytes = if options.is_empty() { &slot[..] } else { &slot[40..100] };
    say(format_args!("{}", hex(bytes)));
    Ok(())
}

/// `imap FILE`.
pub(super) fn place(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [path] = request.exactly()?;
    let ino = session.ino(path)?;
    let place = session.fs()?.inode_place(ino).map_err(|e| request.failed(words(&e)))?;
    let (group, block, offset) = place;
    say(format_args!("Inode {ino} is part of block group {group}"));
    say(format_args!("\tlocated at block {block}, offset 0x{offset:04x}"));
    Ok(())
}
