//! Archive output: members in the PAX format (POSIX.1-2001 `pax`), as GNU tar reads them.
//!
//! A header contains the values that fit into the old fields. All others, and those that must be exact, are in PAX
//! records before it. The output does not depend on the time or place of writing.

mod acl_text;

use std::fmt::Write as _;
use std::io::{self, Write};

use vfs::runs::Run;
use vfs::{Timestamp, acl};

use crate::{TAR_BLOCK_BYTES, TarHeader};

/// Block size of an archive in bytes.
const BLOCK_BYTES: u64 = TAR_BLOCK_BYTES as u64;

/// A member of an archive, without its contents.
#[derive(Default)]
pub struct Member<'a> {
    /// POSIX type flag: `0` for a regular file.
    pub typeflag: u8,
    /// Path, which ends in `/` for a directory.
    pub path: &'a [u8],
    /// Target of a link.
    pub link: &'a [u8],
    /// Permission bits.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of bytes that follow in the archive.
    pub stored_bytes: u64,
    /// Size of a sparse file, whose map precedes its data.
    pub sparse_size: Option<u64>,
    /// Timestamps.
    pub times: Times,
    /// Device number.
    pub device: vfs::DeviceNumber,
    /// Names and values, sorted.
    pub xattrs: &'a [(Vec<u8>, Vec<u8>)],
}

/// Timestamps of a member.
#[derive(Clone, Copy, Default)]
pub struct Times {
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
}

impl Member<'_> {
    /// Writes the PAX records and the header.
    ///
    /// # Errors
    /// Returns the errors of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let records = self.records();
        let mut name = [&b"PaxHeaders/"[..], last_name(self.path)].concat();
        name.truncate(TarHeader::NAME_BYTES_MAX);
        let len = records.len() as u64;
        out.write_all(TarHeader::new(b'x', &name, len).finish())?;
        out.write_all(&records)?;
        pad(out, len)?;
        self.write_header(out)
    }

    fn write_header(&self, out: &mut dyn Write) -> io::Result<()> {
        let sparse_name = [&b"GNUSparseFile.0/"[..], last_name(self.path)].concat();
        let name = if self.sparse_size.is_some() { &sparse_name } else { self.path };
        let mut header = TarHeader::new(self.typeflag, name, self.stored_bytes);
        header.set_permissions(self.permissions);
        header.set_owner(self.uid, self.gid);
        header.set_mtime(self.times.mtime.sec);
        header.set_device(self.device.major, self.device.minor);
        header.set_linkname(self.link);
        out.write_all(header.finish())
    }

    fn records(&self) -> Vec<u8> {
        let mut records = Vec::new();
        let mut add = |key: &[u8], value: &[u8]| add_record(&mut records, key, value);
        // Names are written as raw bytes, as in GNU tar, which does not support `hdrcharset`.
        if self.sparse_size.is_none() && !fits(self.path) {
            add(b"path", self.path);
        }
        if !fits(self.link) {
            add(b"linkpath", self.link);
        }
        let times = self.times;
        for (key, time) in [("mtime", times.mtime), ("atime", times.atime), ("ctime", times.ctime)]
        {
            add(key.as_bytes(), decimal(time).as_bytes());
        }
        for (key, id) in [("uid", self.uid), ("gid", self.gid)] {
            if id > TarHeader::ID_MAX {
                add(key.as_bytes(), id.to_string().as_bytes());
            }
        }
        if self.stored_bytes > TarHeader::SIZE_MAX {
            add(b"size", self.stored_bytes.to_string().as_bytes());
        }
        if let Some(size) = self.sparse_size {
            add(b"GNU.sparse.major", b"1");
            add(b"GNU.sparse.minor", b"0");
            add(b"GNU.sparse.name", self.path);
            add(b"GNU.sparse.realsize", size.to_string().as_bytes());
        }
        for (name, value) in self.xattrs {
            let acl = match name.as_slice() {
                acl::ACCESS => Some("SCHILY.acl.access"),
                acl::DEFAULT => Some("SCHILY.acl.default"),
                _ => None,
            };
            // Readers with ACL support use the text, others the attribute.
            if let (Some(key), Some(text)) = (acl, acl_text::to_text(value)) {
                add(key.as_bytes(), text.as_bytes());
            }
            add(&xattr_key(name), value);
        }
        records
    }
}

/// Pads `len` bytes of contents to the next block.
///
/// # Errors
/// Returns the errors of `out`.
pub fn pad(out: &mut dyn Write, len: u64) -> io::Result<()> {
    let missing = len.next_multiple_of(BLOCK_BYTES) - len;
    out.write_all(&[0; BLOCK_BYTES as usize][..missing as usize])
}

/// Writes the end of the archive.
///
/// # Errors
/// Returns the errors of `out`.
pub fn end(out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&[0; 2 * BLOCK_BYTES as usize])
}

/// Returns the map of a sparse file in GNU's format 1.0: decimal numbers, padded to a block. An empty run at the end
/// represents a hole there.
pub fn sparse_map(runs: &[Run], size: u64) -> Vec<u8> {
    let end = runs.last().map_or(0, |run| run.offset + run.len);
    let last = (end < size).then_some(Run { offset: size, len: 0 });
    let mut map = format!("{}\n", runs.len() + usize::from(last.is_some()));
    for run in runs.iter().chain(&last) {
        // Writing to a string cannot fail.
        let _ = write!(map, "{}\n{}\n", run.offset, run.len);
    }
    let mut map = map.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK_BYTES as usize), 0);
    map
}

/// The length of a record includes the digits of the length.
fn add_record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + " =\n".len();
    let mut len = rest + 1;
    while rest + len.to_string().len() != len {
        len = rest + len.to_string().len();
    }
    records.extend_from_slice(format!("{len} ").as_bytes());
    records.extend_from_slice(key);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

/// `=` ends a keyword, so GNU tar percent-encodes it and `%`.
fn xattr_key(name: &[u8]) -> Vec<u8> {
    let mut key = b"SCHILY.xattr.".to_vec();
    for &byte in name {
        match byte {
            b'=' => key.extend_from_slice(b"%3D"),
            b'%' => key.extend_from_slice(b"%25"),
            _ => key.push(byte),
        }
    }
    key
}

/// Formats a time as seconds with nine decimals. The sign applies to seconds and fraction together.
fn decimal(time: Timestamp) -> String {
    let nsec = i128::from(time.nsec.min(999_999_999));
    let total = i128::from(time.sec) * 1_000_000_000 + nsec;
    let (sign, total) = (if total < 0 { "-" } else { "" }, total.unsigned_abs());
    format!("{sign}{}.{:09}", total / 1_000_000_000, total % 1_000_000_000)
}

fn fits(name: &[u8]) -> bool {
    name.len() <= TarHeader::NAME_BYTES_MAX && name.is_ascii()
}

fn last_name(path: &[u8]) -> &[u8] {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    path.rsplit(|&b| b == b'/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_its_own_length() {
        for len in 0..2000 {
            let mut record = Vec::new();
            add_record(&mut record, b"key", &vec![b'x'; len]);
            let space = record.iter().position(|&b| b == b' ').unwrap();
            let told: usize = std::str::from_utf8(&record[..space]).unwrap().parse().unwrap();
            assert_eq!(told, record.len());
        }
    }

    #[test]
    fn times_before_1970_count_down() {
        let text = |sec, nsec| decimal(Timestamp { sec, nsec });
        assert_eq!(text(1, 5), "1.000000005");
        assert_eq!(text(-1, 250_000_000), "-0.750000000");
        assert_eq!(text(-2, 0), "-2.000000000");
    }
}
