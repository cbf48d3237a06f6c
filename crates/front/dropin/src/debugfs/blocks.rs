//! Requests about the blocks of a file: `blocks`, `bmap`, `dump_extents`, `filefrag`, and `block_dump`.

use std::fmt::Write;

use ext4::debug::MapEntry;
use ext4::format::address::{Block, FileBlock};
use ext4::format::inode::{Inode, flags};
use vfs::Ino;

use super::hex::hex;
use super::phrases::words;
use super::request::{Request, shown};
use super::session::DebugSession;
use crate::failure::{Failure, STATUSES};
use crate::invoked::{say, say_all};

/// Names of indirect blocks by level.
const POINTERS: [&str; 4] = ["", "IND", "DIND", "TIND"];
/// The minimum number of digits in a column of block numbers.
const DIGITS_MIN: usize = 5;

/// The end of the last inner node of a level.
const END_MAX: u64 = 1 << 32;

/// Extent of a file.
struct ListedExtent {
    file: u64,
    block: u64,
    len: u64,
    is_unwritten: bool,
}

/// Block map of a file in the format of `stat`.
#[derive(Default)]
pub(super) struct MapText {
    out: String,
    run: Option<ListedExtent>,
    total: u64,
}

impl MapText {
    /// Adds an entry of the map.
    pub(super) fn add(&mut self, entry: MapEntry) {
        match entry {
            MapEntry::Index { level, node, .. } => {
                self.total += 1;
                self.flush();
                self.item(&format!("(ETB{level}):{node}"));
            }
            MapEntry::Pointers { level, block } => {
                self.total += 1;
                self.flush();
                self.item(&format!("({}):{block}", POINTERS.get(level).unwrap_or(&"")));
            }
            MapEntry::Extent { extent, .. } => {
                self.total += u64::from(extent.len);
                self.flush();
                let (file, len) = (extent.block.0.into(), extent.len.into());
                let is_unwritten = extent.unwritten;
                self.run = Some(ListedExtent { file, block: extent.start.0, len, is_unwritten });
                self.flush();
            }
            MapEntry::Pointer { file, block } => {
                self.total += 1;
                let file = u64::from(file.0);
                match &mut self.run {
                    Some(run) if run.file + run.len == file && run.block + run.len == block.0 => {
                        run.len += 1;
                    }
                    _ => {
                        self.flush();
                        let is_unwritten = false;
                        self.run =
                            Some(ListedExtent { file, block: block.0, len: 1, is_unwritten });
                    }
                }
            }
        }
    }

    fn item(&mut self, text: &str) {
        if !self.out.is_empty() {
            self.out.push_str(", ");
        }
        self.out.push_str(text);
    }

    fn flush(&mut self) {
        let Some(run) = self.run.take() else { return };
        let mark = if run.is_unwritten { "[u]" } else { "" };
        let (file, block, last) = (run.file, run.block, run.len - 1);
        let text = match last {
            0 => format!("({file}{mark}):{block}"),
            _ => format!("({file}-{}{mark}):{block}-{}", file + last, block + last),
        };
        self.item(&text);
    }

    /// Returns the text, with the number of blocks if there are any and `has_total`.
    pub(super) fn finish(mut self, has_total: bool) -> String {
        self.flush();
        if has_total && self.total > 0 {
            let _ = write!(self.out, "\nTOTAL: {}\n", self.total);
        }
        self.out
    }
}

/// Walks the map of an inode. An inode without a map has no entries.
fn walk(
    session: &mut DebugSession,
    request: &Request,
    ino: Ino,
    each: &mut dyn FnMut(MapEntry),
) -> Result<Inode, Failure> {
    let fs = session.fs()?;
    let slot = fs.inode_slot(ino).map_err(|e| request.failed(words(&e)))?;
    let inode = Inode::from_slot(&slot);
    if has_map(&inode) {
        fs.walk_map(ino, each).map_err(|e| request.failed(words(&e)))?;
    }
    Ok(inode)
}

/// Returns whether an inode has a map of blocks.
pub(super) fn has_map(inode: &Inode) -> bool {
    use vfs::FileType::{Directory, Regular, Symlink};
    let has_contents = match inode.file_type() {
        Some(Regular | Directory) => true,
        Some(Symlink) => inode.has_flag(flags::EXTENTS) || inode.size() >= 60,
        _ => false,
    };
    has_contents && !inode.has_flag(flags::INLINE_DATA)
}

/// `blocks FILE`.
pub(super) fn list(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [path] = request.exactly()?;
    let ino = session.ino(path)?;
    let mut out = String::new();
    walk(session, request, ino, &mut |entry| {
        let (start, len) = blocks_of(&entry);
        (start..start + len).for_each(|block| {
            let _ = write!(out, "{block} ");
        });
    })?;
    say(format_args!("{out}"));
    Ok(())
}

/// Returns the device blocks of an entry: first block and number.
pub(super) fn blocks_of(entry: &MapEntry) -> (u64, u64) {
    match *entry {
        MapEntry::Index { node, .. } => (node.0, 1),
        MapEntry::Extent { extent, .. } => (extent.start.0, extent.len.into()),
        MapEntry::Pointers { block, .. } | MapEntry::Pointer { block, .. } => (block.0, 1),
    }
}

/// `bmap FILE BLOCK`: prints the device block of a file block; 0 for a hole.
pub(super) fn map(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let (options, rest) = request.options("a", "")?;
    let (path, block) = match *rest {
        [path, block] => (path, block),
        [_, _, _] => {
            let why = "use write, punch or fallocate to change maps";
            return Err(request.refused("a physical block", why));
        }
        _ => return Err(request.wrong_words()),
    };
    let ino = session.ino(path)?;
    let number = request.number("logical block", block)?;
    let file = u32::try_from(number).map_err(|_| request.failed("Bad logical block"))?;
    let found = session.fs()?.block_run(ino, FileBlock(file));
    let run = found.map_err(|e| request.failed(words(&e)))?;
    if run.start.is_none() && !options.is_empty() {
        return Err(request.refused("-a", "use fallocate to allocate blocks"));
    }
    let flag = if run.unwritten { " (uninit)" } else { "" };
    say(format_args!("{}{flag}", run.start.map_or(0, |block| block.0)));
    Ok(())
}

/// Column widths of `dump_extents`.
struct Columns {
    file: usize,
    device: usize,
}

fn digits(number: u64) -> usize {
    number.to_string().len().max(DIGITS_MIN)
}

/// `dump_extents [-n] [-l] FILE`: prints the nodes, the leaves, or both.
pub(super) fn extents(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let (options, rest) = request.options("nl", "")?;
    let &[path] = &*rest else { return Err(request.wrong_words()) };
    let has = |wanted| options.iter().any(|(letter, _)| *letter == wanted);
    let (has_nodes, has_leaves) = (!has('l') || has('n'), !has('n') || has('l'));
    let ino = session.ino(path)?;
    let fs = session.fs()?;
    let slot = fs.inode_slot(ino).map_err(|e| request.failed(words(&e)))?;
    let inode = Inode::from_slot(&slot);
    if !inode.has_flag(flags::EXTENTS) {
        return Err(
            STATUSES.failed(format_args!("{}: does not uses extent block maps", shown(path)))
        );
    }
    let size = inode.size().div_ceil(fs.geometry().block_size().into());
    let columns = Columns { file: digits(size), device: digits(fs.geometry().blocks_count) };
    let mut out = String::new();
    let (file, device) = (columns.file * 2 + 3, columns.device * 2 + 3);
    let _ =
        writeln!(out, "Level Entries {:>file$} {:>device$} Length Flags", "Logical", "Physical");
    let walked = fs.walk_map(ino, &mut |entry| match entry {
        MapEntry::Index { .. } if has_nodes => columns.index(&mut out, &entry, size),
        MapEntry::Extent { .. } if has_leaves => columns.leaf(&mut out, &entry),
        _ => {}
    });
    say_all(&out);
    walked.map_err(|e| request.failed(words(&e)))
}

impl Columns {
    fn start(out: &mut String, level: u16, depth: u16, (at, count): (usize, usize)) {
        let _ = write!(out, "{level:2}/{depth:2} {at:3}/{count:3} ");
    }

    /// Adds an entry of an inner node. The last entry ends at the file size of `size` blocks.
    fn index(&self, out: &mut String, entry: &MapEntry, size: u64) {
        let &MapEntry::Index { level, depth, place, first, end, node } = entry else { return };
        Self::start(out, level, depth, place);
        let first = u64::from(first.0);
        let end = match end {
            END_MAX if size > first => size,
            // The original prints this end for blocks past the size.
            END_MAX => END_MAX + 1,
            end => end,
        };
        let (file, device) = (self.file, self.device);
        let (last, len) = (end.saturating_sub(1), end.saturating_sub(first));
        let gap = device + 3;
        let _ = writeln!(
            out,
            "{first:file$} - {last:file$} {node:device$}{:gap$} {len:6}",
            "",
            node = node.0
        );
    }

    fn leaf(&self, out: &mut String, entry: &MapEntry) {
        let &MapEntry::Extent { level, depth, place, extent } = entry else { return };
        Self::start(out, level, depth, place);
        let (file, device) = (self.file, self.device);
        let (first, start, len) =
            (u64::from(extent.block.0), extent.start.0, u64::from(extent.len));
        let (last, end) = (first + len - 1, start + len - 1);
        let flags = if extent.unwritten { "Uninit" } else { "" };
        let _ = writeln!(
            out,
            "{first:file$} - {last:file$} {start:device$} - {end:device$} {len:6} {flags}"
        );
    }
}

/// `filefrag FILE`: prints the number of extents.
pub(super) fn fragments(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let (options, rest) = request.options("dvr", "")?;
    if let Some((letter, _)) = options.iter().find(|(letter, _)| *letter != 'd') {
        let why = "use dump_extents to list the extents of a file";
        return Err(request.refused(&format!("-{letter}"), why));
    }
    let &[path] = &*rest else { return Err(request.wrong_words()) };
    let ino = session.ino(path)?;
    // File block and device block after the last extent.
    let (mut runs, mut end) = (0, None);
    let inode = walk(session, request, ino, &mut |entry| {
        let file = match entry {
            MapEntry::Extent { extent, .. } => u64::from(extent.block.0),
            MapEntry::Pointer { file, .. } => u64::from(file.0),
            MapEntry::Index { .. } | MapEntry::Pointers { .. } => return,
        };
        let (start, len) = blocks_of(&entry);
        runs += u64::from(end != Some((file, start)));
        end = Some((file + len, start + len));
    })?;
    let mark = if inode.is_dir() { " (dir)" } else { "" };
    say(format_args!("{}: {runs} contiguous extents{mark}\n", shown(path)));
    Ok(())
}

/// `block_dump [-f FILE] BLOCK`: prints the bytes of a device block or file block.
pub(super) fn dump(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let (options, rest) = request.options("", "f")?;
    let &[block] = &*rest else { return Err(request.wrong_words()) };
    let mut number = request.number("block number", block)?;
    if let Some((_, path)) = options.first() {
        let ino = session.ino(path)?;
        let file = u32::try_from(number).map_err(|_| request.failed("Bad block number"))?;
        let run = session.fs()?.block_run(ino, FileBlock(file));
        let start = run.map_err(|e| request.failed(words(&e)))?.start;
        number = start.ok_or_else(|| request.failed("the block is a hole"))?.0;
    }
    let device = session.device()?;
    let geometry = session.fs()?.geometry();
    if number >= geometry.blocks_count {
        return Err(request.failed(format_args!("block {number} is outside the file system")));
    }
    let mut bytes = vec![0; geometry.block_size() as usize];
    let at = geometry.byte_of(Block(number));
    device.read_at(at, &mut bytes).map_err(|e| request.failed(e))?;
    say(format_args!("{}", hex(&bytes)));
    Ok(())
}
