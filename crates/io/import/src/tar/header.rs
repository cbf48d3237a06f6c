//! The 512-byte tar header, as POSIX ustar and GNU define it. No I/O.

mod write;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Damage, DataRun};

/// Block size of a tar archive in bytes.
pub const BLOCK_BYTES: usize = 512;

/// A header block. Fields have the names POSIX gives them (`pax`, "ustar Interchange Format").
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    name: [u8; 100],
    mode: [u8; 8],
    uid: [u8; 8],
    gid: [u8; 8],
    size: [u8; 12],
    mtime: [u8; 12],
    chksum: [u8; 8],
    pub(super) typeflag: u8,
    linkname: [u8; 100],
    magic: [u8; 6],
    version: [u8; 2],
    uname: [u8; 32],
    gname: [u8; 32],
    devmajor: [u8; 8],
    devminor: [u8; 8],
    /// The ustar prefix (155 bytes), or GNU's fields.
    tail: Tail,
    padding: [u8; 12],
}

/// GNU's fields in the place of ustar's `prefix`.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Tail {
    atime: [u8; 12],
    ctime: [u8; 12],
    offset: [u8; 12],
    longnames: [u8; 4],
    unused: u8,
    sparse: [SparseField; 4],
    isextended: u8,
    realsize: [u8; 12],
    rest: [u8; 5],
}

/// A data range in GNU's old sparse format.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SparseField {
    offset: [u8; 12],
    numbytes: [u8; 12],
}

/// A block that continues the sparse map of a GNU header.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct SparseBlock {
    sparse: [SparseField; 21],
    isextended: u8,
    padding: [u8; 7],
}

const _: () = assert!(size_of::<Header>() == BLOCK_BYTES);
const _: () = assert!(size_of::<Tail>() == 155);
const _: () = assert!(size_of::<SparseBlock>() == BLOCK_BYTES);
/// Offset of the first range of the sparse map in GNU's documentation.
const _: () = assert!(std::mem::offset_of!(Header, tail) + 41 == 386);

/// Format of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderFormat {
    /// Older than POSIX: no magic.
    V7,
    Ustar,
    Gnu,
}

impl Header {
    /// Parses a block with a valid checksum.
    pub(crate) fn parse(block: &[u8; BLOCK_BYTES]) -> Result<&Self, Damage> {
        let header = Self::ref_from_bytes(block).map_err(|_| Damage::NotTar)?;
        let expected = unsigned(&header.chksum, "checksum")?;
        // The field itself counts as spaces. Old programs summed signed bytes.
        let (mut sum, mut signed) = (0_u64, 0_i64);
        for (i, &byte) in block.iter().enumerate() {
            let byte = if (148..156).contains(&i) { b' ' } else { byte };
            sum += u64::from(byte);
            signed += i64::from(byte as i8);
        }
        if expected == sum || u64::try_from(signed).is_ok_and(|signed| signed == expected) {
            return Ok(header);
        }
        Err(Damage::Checksum { expected, found: sum })
    }

    pub(super) fn format(&self) -> HeaderFormat {
        match (&self.magic, &self.version) {
            (b"ustar ", _) => HeaderFormat::Gnu,
            (b"ustar\0", _) => HeaderFormat::Ustar,
            _ => HeaderFormat::V7,
        }
    }

    /// Returns the path as stored.
    pub(super) fn path(&self) -> Vec<u8> {
        let name = until_nul(&self.name);
        let prefix: &[u8] = if self.format() == HeaderFormat::Ustar { self.prefix() } else { &[] };
        if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
    }

    fn prefix(&self) -> &[u8] {
        until_nul(self.tail.as_bytes())
    }

    pub(super) fn linkname(&self) -> &[u8] {
        until_nul(&self.linkname)
    }

    pub(super) fn permissions(&self) -> Result<u16, Damage> {
        // Some programs store the file type above the permissions.
        Ok((unsigned(&self.mode, "mode")? & 0o7777) as u16)
    }

    pub(super) fn uid(&self) -> Result<u32, Damage> {
        small(&self.uid, "uid")
    }

    pub(super) fn gid(&self) -> Result<u32, Damage> {
        small(&self.gid, "gid")
    }

    pub(super) fn devmajor(&self) -> Result<u32, Damage> {
        small(&self.devmajor, "devmajor")
    }

    pub(super) fn devminor(&self) -> Result<u32, Damage> {
        small(&self.devminor, "devminor")
    }

    /// Returns the number of bytes that follow the header, without padding.
    pub(super) fn size(&self) -> Result<u64, Damage> {
        unsigned(&self.size, "size")
    }

    /// Returns the modification time in seconds since the epoch.
    pub(super) fn mtime(&self) -> Result<i64, Damage> {
        let mtime = number(&self.mtime).and_then(|n| i64::try_from(n).ok());
        mtime.ok_or(Damage::Number { field: "mtime" })
    }

    /// Returns the size of a GNU sparse file including holes.
    pub(super) fn realsize(&self) -> Result<u64, Damage> {
        unsigned(&self.tail.realsize, "realsize")
    }

    /// Adds the header's part of the sparse map. Returns true if a [`SparseBlock`] follows.
    pub(super) fn sparse_runs(&self, runs: &mut Vec<DataRun>) -> Result<bool, Damage> {
        add_runs(&self.tail.sparse, runs)?;
        Ok(self.tail.isextended != 0)
    }
}

impl SparseBlock {
    /// Adds the block's part of the sparse map. Returns true if another block follows.
    pub(super) fn sparse_runs(
        block: &[u8; BLOCK_BYTES],
        runs: &mut Vec<DataRun>,
    ) -> Result<bool, Damage> {
        let block = Self::ref_from_bytes(block).map_err(|_| Damage::Sparse("short block"))?;
        add_runs(&block.sparse, runs)?;
        Ok(block.isextended != 0)
    }
}

fn add_runs(fields: &[SparseField], runs: &mut Vec<DataRun>) -> Result<(), Damage> {
    for field in fields {
        if field.offset[0] == 0 && field.numbytes[0] == 0 {
            break;
        }
        let offset = unsigned(&field.offset, "sparse offset")?;
        runs.push(DataRun { offset, len: unsigned(&field.numbytes, "sparse numbytes")? });
    }
    Ok(())
}

fn until_nul(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    &field[..end]
}

/// Parses a numeric field: octal digits among spaces and NULs (empty is 0), or, with the first bit set, a big-endian
/// two's complement number, which GNU calls base-256.
fn number(field: &[u8]) -> Option<i128> {
    let first = *field.first()?;
    if first & 0x80 != 0 {
        // Bit 6 is the sign. 12 bytes contain 95 bits, which fit into an i128.
        let sign = if first & 0x40 != 0 { -1 } else { 0 };
        let start = sign << 6 | i128::from(first & 0x3f);
        return Some(field[1..].iter().fold(start, |n, &b| n << 8 | i128::from(b)));
    }
    let is_blank = |b: &u8| matches!(b, b' ' | 0);
    let start = field.iter().position(|b| !is_blank(b)).unwrap_or(field.len());
    let digits = &field[start..];
    let end = digits.iter().position(is_blank).unwrap_or(digits.len());
    let rest_is_blank = digits[end..].iter().all(is_blank);
    let octal =
        |n: i128, &b: &u8| (b'0'..=b'7').contains(&b).then(|| n << 3 | i128::from(b - b'0'));
    if rest_is_blank { digits[..end].iter().try_fold(0, octal) } else { None }
}

/// Sizes and offsets must be below 2^63, like file offsets, so that the sum of two does not overflow.
fn unsigned(bytes: &[u8], field: &'static str) -> Result<u64, Damage> {
    let n = number(bytes).and_then(|n| i64::try_from(n).ok());
    n.and_then(|n| u64::try_from(n).ok()).ok_or(Damage::Number { field })
}

fn small(bytes: &[u8], field: &'static str) -> Result<u32, Damage> {
    number(bytes).and_then(|n| u32::try_from(n).ok()).ok_or(Damage::Number { field })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_base_256() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"   644 \0"), Some(0o644));
        assert_eq!(number(b"77777777"), Some(0o77_777_777));
        assert_eq!(number(b"\0\0\0\0\0\0\0\0"), Some(0));
        assert_eq!(number(b"00006x4\0"), None);
        assert_eq!(number(b"0644\0 8\0"), None);
        assert_eq!(number(b"\x80\0\0\0\0\0\x01\0"), Some(256));
        assert_eq!(number(b"\xff\xff\xff\xff\xff\xff\xff\xfe"), Some(-2));
        assert_eq!(unsigned(b"\xff\xff\xff\xff\xff\xff\xff\xfe", "x").ok(), None);
        assert_eq!(unsigned(b"\x80\0\0\0\x80\0\0\0\0\0\0\0", "x").ok(), None);
        assert_eq!(small(b"\x80\0\0\x01\0\0\0\0", "x").ok(), None);
        assert_eq!(small(b"\x80\0\0\0\xff\xff\xff\xff", "x").ok(), Some(u32::MAX));
    }
}
