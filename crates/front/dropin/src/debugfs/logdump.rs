//! `logdump`: prints the journal blocks that need replay, with `-a` including their contents.

use std::fmt::Write;
use std::fs;

use ext4::format::jbd2::{BlockType, JournalLayout, JournalSuperblock, header, revokes, tags};
use ext4::log::JournalMap;

use super::phrases::words;
use super::request::{Request, host_path, shown};
use super::session::DebugSession;
use crate::dumpe2fs;
use crate::failure::Failure;
use crate::invoked::say_all;

/// `logdump [-acsS] [FILE]`. `-c` and `-s` select other journals and are not supported.
pub(super) fn dump(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let (options, rest) = request.options("acsSO", "nbif")?;
    let has = |wanted| options.iter().any(|(letter, _)| *letter == wanted);
    for (letter, why) in [
        ('c', "use diskwright diff to compare contents"),
        ('O', "use diskwright dump IMAGE journal to show replayed transactions"),
        ('n', "all transactions are always shown"),
        ('b', "-a lists all blocks"),
        ('i', "-a lists all blocks"),
        ('f', "only internal journals can be read"),
    ] {
        if has(letter) {
            return Err(request.refused(&format!("-{letter}"), why));
        }
    }
    let device = session.unrecovered_device()?;
    let failed = |e: vfs::Error| request.failed(words(&e));
    let superblock = dumpe2fs::read_superblock(&*device).map_err(failed)?;
    let map = JournalMap::read(&*device, &superblock).map_err(failed)?;
    let map = map.ok_or_else(|| request.failed("the file system has no journal"))?;
    let read = |block: u32| map.read_block(&*device, block);
    let mut out = String::new();
    if has('S') {
        out += &dumpe2fs::journal_lines(&device, &superblock);
        out.push('\n');
    }
    let walked = walk(&mut out, (map.blocks(), map.superblock()), &read, has('a'));
    match *rest {
        [] => say_all(&out),
        [path] => {
            let file = host_path(path);
            fs::write(file, &out)
                .map_err(|e| request.failed(format_args!("{}: {e}", shown(path))))?;
        }
        _ => return Err(request.wrong_words()),
    }
    walked.map_err(failed)
}

/// Reads a block of the journal.
type Read<'r> = &'r dyn Fn(u32) -> vfs::Result<Vec<u8>>;

/// Lists the log of a journal with `blocks` blocks, whose superblock is in block `at`.
fn walk(
    out: &mut String,
    (blocks, at): (u32, u32),
    read: Read<'_>,
    shows_all: bool,
) -> vfs::Result<()> {
    let superblock = JournalSuperblock::parse(&read(at)?, blocks)?;
    let (raw, layout) = (&superblock.raw, &superblock.layout);
    let (start, mut tid) = (raw.start.get(), raw.sequence.get());
    let _ = writeln!(out, "Journal starts at block {start}, transaction {tid}");
    if start == 0 {
        return Ok(());
    }
    let (begin, end) = (superblock.log.start, superblock.log.end);
    let length = end.saturating_sub(begin).max(1);
    let behind = |block: u32, blocks: u32| {
        let at = u64::from(block.saturating_sub(begin)) + u64::from(blocks);
        begin + (at % u64::from(length)) as u32
    };
    let mut block = start;
    // At most one iteration per block of the log.
    for _ in 0..length {
        let bytes = read(block)?;
        let Some((kind, found)) = header(&bytes) else {
            let _ = writeln!(out, "No magic number at block {block}: end of journal.");
            return Ok(());
        };
        if found.0 != tid {
            let found = found.0;
            let _ = writeln!(
                out,
                "Found sequence {found} (not {tid}) at block {block}: end of journal."
            );
            return Ok(());
        }
        let (number, name) = (kind as u32, type_name(kind));
        let _ =
            writeln!(out, "Found expected sequence {tid}, type {number} ({name}) at block {block}");
        let step = match kind {
            BlockType::Descriptor => {
                1 + descriptor(out, &bytes, layout, (tid, block), shows_all, &behind)
            }
            BlockType::Revoke if shows_all => {
                let _ = writeln!(out, "Dumping revoke block, sequence {tid}, at block {block}:");
                for revoked in revokes(&bytes, layout)? {
                    let _ = writeln!(out, "  Revoke FS block {revoked}");
                }
                1
            }
            BlockType::Commit => {
                tid = tid.wrapping_add(1);
                1
            }
            _ => 1,
        };
        block = behind(block, step);
    }
    Ok(())
}

/// Adds the blocks listed in a descriptor. Returns their number.
fn descriptor(
    out: &mut String,
    bytes: &[u8],
    layout: &JournalLayout,
    (tid, block): (u32, u32),
    shows_all: bool,
    behind: &dyn Fn(u32, u32) -> u32,
) -> u32 {
    const ESCAPED: u32 = 1;
    const SAME_UUID: u32 = 2;
    const LAST: u32 = 8;
    let tags = tags(bytes, layout).collect::<Vec<_>>();
    if shows_all {
        let _ = writeln!(out, "Dumping descriptor block, sequence {tid}, at block {block}:");
        for (at, tag) in tags.iter().enumerate() {
            let escaped = if tag.escaped { ESCAPED } else { 0 };
            let follows = if at > 0 { SAME_UUID } else { 0 };
            let last = if at + 1 == tags.len() { LAST } else { 0 };
            let (flags, place) = (escaped | follows | last, behind(block, at as u32 + 1));
            let _ = writeln!(
                out,
                "  FS block {} logged at journal block {place} (flags {flags:#x})",
                tag.block
            );
        }
    }
    tags.len() as u32
}

fn type_name(kind: BlockType) -> &'static str {
    match kind {
        BlockType::Descriptor => "descriptor block",
        BlockType::Commit => "commit block",
        BlockType::Revoke => "revoke table",
        BlockType::SuperblockV1 => "V1 superblock",
        BlockType::SuperblockV2 => "V2 superblock",
    }
}
