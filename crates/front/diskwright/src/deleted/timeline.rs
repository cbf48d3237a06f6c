//! Timelines in the body format of The Sleuth Kit, version 3, which `mactime` reads.
//!
//! Each line has eleven fields: `MD5|name|inode|mode|UID|GID|size|atime|mtime|ctime|crtime`. No digest is computed, so the
//! first field is 0. Times are seconds; an unknown time is 0.

use std::io::Write;

use vfs::path::Order;
use vfs::{Attributes, FileSystem, FileType, Paths, Timestamp};

use super::{DeletedFile, Found};
use crate::fs::join;
use crate::{Error, Result, text};
use vfs::deleted::InodeState;

/// Writes a line for each name in an image, parents first. Memory is proportional to the number of directories. Returns
/// messages about files that could not be read.
///
/// # Errors
/// If the output cannot be written.
pub fn timeline(paths: Paths<'_>, out: &mut dyn Write) -> Result<Vec<String>> {
    let fs = paths.file_system();
    let mut remarks = Vec::new();
    let mut walk = paths.walk(fs.root(), Order::Physical);
    while let Some(visited) = walk.advance() {
        let path = join(b"/", walk.path());
        match visited {
            Ok(visit) => write_line(&line_of(fs, &path, &visit.attributes), out)?,
            Err(error) => remarks.push(format!("{}: {error}", text::escaped(&path))),
        }
    }
    Ok(remarks)
}

/// Writes a line for each deleted file and each of its names.
///
/// # Errors
/// If the output cannot be written.
pub fn write_deleted_lines(found: &Found, out: &mut dyn Write) -> Result<()> {
    for file in &found.files {
        if file.names.is_empty() {
            let number = file.ino().map_or(0, |ino| ino.0);
            write_line(&line_of_deleted(file, format!("/$OrphanFiles/OrphanFile-{number}")), out)?;
        }
        for name in &file.names {
            let path = match &name.path {
                Some(path) => field(path),
                None => field(&join(b"/$OrphanFiles", &name.entry.name)),
            };
            write_line(&line_of_deleted(file, path), out)?;
        }
    }
    Ok(())
}

/// The fields of a line.
struct BodyLine {
    name: String,
    ino: u64,
    mode: String,
    uid: u32,
    gid: u32,
    size: u64,
    times: [i64; 4],
}

fn write_line(line: &BodyLine, out: &mut dyn Write) -> Result<()> {
    let BodyLine { name, ino, mode, uid, gid, size, times: [atime, mtime, ctime, crtime] } = line;
    writeln!(out, "0|{name}|{ino}|{mode}|{uid}|{gid}|{size}|{atime}|{mtime}|{ctime}|{crtime}")
        .map_err(Error::Output)
}

fn line_of(fs: &dyn FileSystem, path: &[u8], found: &Attributes) -> BodyLine {
    let mut name = field(path);
    if found.file_type == FileType::Symlink
        && let Ok(target) = fs.readlink(found.ino)
    {
        name.push_str(" -> ");
        name.push_str(&field(&target));
    }
    let times = [Some(found.atime), Some(found.mtime), Some(found.ctime), found.crtime];
    BodyLine {
        name,
        ino: found.ino.0,
        mode: mode(Some(found.file_type), Some(found.file_type), Some(found.permissions)),
        uid: found.uid,
        gid: found.gid,
        size: found.size,
        times: times.map(seconds),
    }
}

fn line_of_deleted(file: &DeletedFile, mut name: String) -> BodyLine {
    let named = file.names.first().and_then(|name| name.entry.file_type);
    let ino = file.ino().map_or(0, |ino| ino.0);
    let Some(inode) = &file.inode else {
        name.push_str(" (deleted)");
        let mode = mode(named, None, None);
        return BodyLine { name, ino, mode, uid: 0, gid: 0, size: 0, times: [0; 4] };
    };
    name.push_str(match inode.state {
        InodeState::Reused => " (deleted-realloc)",
        InodeState::Free | InodeState::Orphan => " (deleted)",
    });
    let times = [Some(inode.atime), Some(inode.mtime), Some(inode.ctime), inode.crtime];
    BodyLine {
        name,
        ino,
        mode: mode(named.or(inode.file_type), inode.file_type, inode.permissions),
        uid: inode.uid,
        gid: inode.gid,
        size: inode.size.unwrap_or(0),
        times: times.map(seconds),
    }
}

fn seconds(time: Option<Timestamp>) -> i64 {
    time.map_or(0, |time| time.sec)
}

/// Returns bytes as a field: escaped, also the separator of fields.
fn field(bytes: &[u8]) -> String {
    text::escaped(bytes).to_string().replace('|', "\\x7c")
}

/// Returns the type in the entry, the type of the inode and its permissions: `r/rrw-r--r--`.
fn mode(named: Option<FileType>, own: Option<FileType>, permissions: Option<u16>) -> String {
    let letter = |found: Option<FileType>| match found {
        Some(FileType::Regular) => 'r',
        Some(found) => found.letter(),
        None => '-',
    };
    let bits = permissions.unwrap_or(0);
    let mut text = format!("{}/{}", letter(named), letter(own));
    for (shift, special, set, unset) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let of = |bit: u16| bits >> shift & bit != 0;
        text.push(if of(4) { 'r' } else { '-' });
        text.push(if of(2) { 'w' } else { '-' });
        text.push(match (bits & special != 0, of(1)) {
            (true, true) => set,
            (true, false) => unset,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_the_sleuth_kit() {
        let of = |found, bits| mode(Some(found), Some(found), Some(bits));
        assert_eq!(of(FileType::Regular, 0o644), "r/rrw-r--r--");
        assert_eq!(of(FileType::Directory, 0o1777), "d/drwxrwxrwt");
        assert_eq!(of(FileType::Regular, 0o6755), "r/rrwsr-sr-x");
        assert_eq!(of(FileType::Symlink, 0o777), "l/lrwxrwxrwx");
        assert_eq!(mode(Some(FileType::Regular), None, None), "r/----------");
    }

    #[test]
    fn names_stay_in_their_field() {
        assert_eq!(field(b"/a|b\nc"), "/a\\x7cb\\nc");
    }
}
