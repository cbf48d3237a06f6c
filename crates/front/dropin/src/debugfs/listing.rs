//! `ls`.

use ext4::debug::DirectoryPart;
use ext4::format::dirent::{self, DirRecord};
use ext4::format::inode::{Inode, Time};
use vfs::Ino;

use super::phrases::words;
use super::request::{Request, shown};
use super::session::DebugSession;
use crate::dumpe2fs::local;
use crate::failure::{Failure, STATUSES};
use crate::invoked::say_bytes;

/// Line width of the short listing.
const COLUMNS: usize = 80;
/// Size of the checksum record of a block.
const TAIL: usize = dirent::TAIL_SIZE;
/// File type in that record.
const TAIL_TYPE: u8 = 0xde;

#[derive(Clone, Copy, PartialEq, Eq)]
enum ListingStyle {
    Short,
    Long,
    Parsed,
}

/// Listed entry.
struct ListedDirent {
    ino: u32,
    rec_len: usize,
    name: Vec<u8>,
    file_type: u8,
    is_deleted: bool,
}

/// `ls [-cdlpr] [DIR]`.
pub(super) fn list(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let (options, rest) = request.options("cdlpr", "")?;
    let has = |wanted| options.iter().any(|(letter, _)| *letter == wanted);
    let path = match *rest {
        [] => None,
        [path] => Some(path),
        _ => return Err(request.wrong_words()),
    };
    let style = match (has('p'), has('l')) {
        (true, _) => ListingStyle::Parsed,
        (false, true) => ListingStyle::Long,
        (false, false) => ListingStyle::Short,
    };
    let dir = match path {
        Some(path) => session.ino(path)?,
        None => session.current.ino,
    };
    let fs = session.fs()?;
    let has_tail = fs.superblock().features.metadata_csum();
    let mut entries = Vec::new();
    let listed = fs.directory_parts(dir, &mut |part| match part {
        DirectoryPart::InlineParent(parent) => {
            for (ino, name, rec_len) in [(dir, &b"."[..], 0), (parent, b"..", 4)] {
                let (ino, name) = (ino.0 as u32, name.to_vec());
                entries.push(ListedDirent { ino, rec_len, name, file_type: 2, is_deleted: false });
            }
        }
        DirectoryPart::Inline(bytes) => collect(bytes, has('d'), &mut entries),
        DirectoryPart::Block(_, _, bytes) => {
            collect(bytes, has('d'), &mut entries);
            if has('c') && has_tail {
                entries.extend(checksum(bytes));
            }
        }
    });
    let mut out = Vec::new();
    let mut column = 0;
    for entry in &entries {
        match style {
            ListingStyle::Short => short(&mut out, &mut column, entry),
            ListingStyle::Long | ListingStyle::Parsed => {
                let slot = fs.inode_slot(Ino(entry.ino.into())).unwrap_or_else(|_| vec![0; 256]);
                long(&mut out, entry, &Inode::from_slot(&slot), style);
            }
        }
    }
    if listed.is_ok() || !out.is_empty() {
        out.push(b'\n');
    }
    say_bytes(&out);
    let at = path.map_or_else(|| ".".into(), shown);
    listed.map_err(|e| STATUSES.failed(format_args!("{at}: {}", words(&e))))
}

/// Collects the entries of a block, with `has_deleted` also removed ones.
fn collect(block: &[u8], has_deleted: bool, entries: &mut Vec<ListedDirent>) {
    for record in dirent::records(block) {
        if record.inode != 0 {
            entries.push(ListedDirent::of(&record, false));
        } else if has_deleted && !record.name.is_empty() {
            entries.push(ListedDirent::of(&record, true));
        }
        let end = record.offset + record.rec_len;
        let mut at = record.offset + dirent::record_size(record.name.len());
        while has_deleted && at + dirent::HEADER_SIZE <= end {
            let found = dirent::record_at(block, at);
            let Some(old) = found.filter(|old| !old.name.is_empty() && at + old.rec_len <= end)
            else {
                break;
            };
            entries.push(ListedDirent::of(&old, true));
            at += dirent::record_size(old.name.len());
        }
    }
}

/// Returns the entry that shows the checksum at the end of a block.
fn checksum(block: &[u8]) -> Option<ListedDirent> {
    let tail = block.get(block.len().checked_sub(TAIL)?..)?;
    let record = dirent::record_at(tail, 0)?;
    let is_tail = (record.inode, record.rec_len, record.file_type) == (0, TAIL, TAIL_TYPE);
    if !is_tail {
        // The root of an index has no checksum record.
        return None;
    }
    let stored = u32::from_le_bytes(*tail.get(8..)?.first_chunk()?);
    let name = format!("(dirblock checksum: {stored:#010x})").into_bytes();
    Some(ListedDirent { ino: 0, rec_len: 0, name, file_type: 0, is_deleted: false })
}

impl ListedDirent {
    fn of(record: &DirRecord<'_>, is_deleted: bool) -> Self {
        let (ino, rec_len, name) = (record.inode, record.rec_len, record.name.to_vec());
        Self { ino, rec_len, name, file_type: record.file_type, is_deleted }
    }

    /// The characters around the number.
    fn brackets(&self) -> (char, char) {
        if self.is_deleted { ('<', '>') } else { (' ', ' ') }
    }
}

fn short(out: &mut Vec<u8>, column: &mut usize, entry: &ListedDirent) {
    let (left, right) = entry.brackets();
    let text = match entry.rec_len {
        0 if entry.ino == 0 => format!(" 0  {}   ", String::from_utf8_lossy(&entry.name)),
        rec_len => format!("{left}{}{right} ({rec_len}) {}   ", entry.ino, printable(&entry.name)),
    };
    if *column + text.len() > COLUMNS {
        out.push(b'\n');
        *column = 0;
    }
    *column += text.len();
    out.extend_from_slice(text.as_bytes());
}

fn long(out: &mut Vec<u8>, entry: &ListedDirent, inode: &Inode, style: ListingStyle) {
    let (mode, uid, gid, size) = (inode.mode(), inode.uid(), inode.gid(), inode.size());
    let ino = entry.ino;
    if style == ListingStyle::Parsed {
        out.extend_from_slice(format!("/{ino}/{mode:06o}/{uid}/{gid}/").as_bytes());
        out.extend_from_slice(&one_line(&entry.name));
        // The original prints no size for directories here.
        let size = if inode.is_dir() { String::new() } else { size.to_string() };
        out.extend_from_slice(format!("/{size}/\n").as_bytes());
        return;
    }
    let (left, right) = entry.brackets();
    // The column has seven digits, with two blanks in front of larger sizes.
    let size = if size < 100_000 { format!("{size:7}") } else { format!("  {size:5}") };
    let time = local(inode.time(Time::Modify).sec, "%e-%b-%Y %H:%M");
    let kind = entry.file_type;
    let line = format!(
        "{left}{ino:6}{right} {mode:6o} ({kind}) {uid:6} {gid:6} {size} {time} {}\n",
        printable(&entry.name)
    );
    out.extend_from_slice(line.as_bytes());
}

/// Returns a name for the parseable listing. Control characters, which would end the line, are replaced.
fn one_line(name: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(name.len());
    for &byte in name {
        match byte {
            0..b' ' | 0x7f => line.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
            _ => line.push(byte),
        }
    }
    line
}

/// Returns a name with backslashes and bytes outside of printable ASCII as `\xNN`.
pub(super) fn printable(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'\\' => text.push_str("\\x5c"),
            b' '..=b'~' => text.push(byte.into()),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}
