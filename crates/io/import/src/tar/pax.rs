//! PAX extended headers: POSIX keywords, and those of GNU tar, star and libarchive. No I/O.

use super::sparse::{RUNS_MAX, parse_list};
use crate::{Damage, DataRun, Time, Xattr};

/// Values of extended headers for an entry. A later record replaces an earlier one.
#[derive(Clone, Debug, Default)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) linkpath: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) mtime: Option<Time>,
    pub(super) atime: Option<Time>,
    pub(super) ctime: Option<Time>,
    pub(super) acl_access: Option<Vec<u8>>,
    pub(super) acl_default: Option<Vec<u8>>,
    pub(super) xattrs: Vec<Xattr>,
    pub(super) sparse: Sparse,
}

/// GNU's keywords for sparse files.
#[derive(Clone, Debug, Default)]
pub(super) struct Sparse {
    /// Set in format 1.0 only.
    pub(super) major: Option<Vec<u8>>,
    pub(super) minor: Option<Vec<u8>>,
    /// The real path.
    pub(super) name: Option<Vec<u8>>,
    /// The real size.
    pub(super) size: Option<u64>,
    /// The map of formats 0.0 and 0.1.
    pub(super) runs: Vec<DataRun>,
    /// An offset of format 0.0 whose length has not been read yet.
    offset: Option<u64>,
}

impl Pax {
    /// Adds the records of an extended header.
    pub(super) fn apply(&mut self, mut records: &[u8]) -> Result<(), Damage> {
        while !records.is_empty() {
            let record = PaxRecord::split_off(&mut records)?;
            self.set(record.key, record.value)?;
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Damage> {
        // POSIX: an empty value removes the earlier value.
        let bytes = || (!value.is_empty()).then(|| value.to_vec());
        match key {
            b"path" => self.path = bytes(),
            b"linkpath" => self.linkpath = bytes(),
            b"size" => self.size = number(value, "size")?,
            b"uid" => self.uid = small(value, "uid")?,
            b"gid" => self.gid = small(value, "gid")?,
            b"mtime" => self.mtime = time(value, "mtime")?,
            b"atime" => self.atime = time(value, "atime")?,
            b"ctime" => self.ctime = time(value, "ctime")?,
            b"SCHILY.acl.access" => self.acl_access = bytes(),
            b"SCHILY.acl.default" => self.acl_default = bytes(),
            b"RHT.security.selinux" => {
                self.push_xattr(b"security.selinux".to_vec(), value.to_vec())?;
            }
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.push_xattr(decode_gnu_name(name), value.to_vec())?;
                } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
                    self.push_xattr(decode_url(name)?, decode_base64(value)?)?;
                } else if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                    self.sparse.set(key, value)?;
                }
                // Other keywords (comment, uname, …) have no representation in an image.
            }
        }
        Ok(())
    }

    fn push_xattr(&mut self, name: Vec<u8>, value: Vec<u8>) -> Result<(), Damage> {
        if name.is_empty() || name.contains(&0) {
            return Err(Damage::Path("an extended attribute's name"));
        }
        self.xattrs.push(Xattr { name, value });
        Ok(())
    }
}

impl Sparse {
    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Damage> {
        match key {
            b"major" => self.major = Some(value.to_vec()),
            b"minor" => self.minor = Some(value.to_vec()),
            b"name" => self.name = Some(value.to_vec()),
            b"size" | b"realsize" => self.size = number(value, "GNU.sparse.size")?,
            b"offset" => self.offset = number(value, "GNU.sparse.offset")?,
            b"numbytes" => {
                let offset = self.offset.take();
                let len = number(value, "GNU.sparse.numbytes")?;
                let (Some(offset), Some(len)) = (offset, len) else {
                    return Err(Damage::Sparse("an offset or a length is missing"));
                };
                if self.runs.len() == RUNS_MAX {
                    return Err(Damage::Sparse("too many runs"));
                }
                self.runs.push(DataRun { offset, len });
            }
            b"map" => self.runs = parse_list(value)?,
            _ => {}
        }
        Ok(())
    }
}

/// One record of an extended header.
struct PaxRecord<'a> {
    key: &'a [u8],
    value: &'a [u8],
}

impl<'a> PaxRecord<'a> {
    /// Splits off `LENGTH KEY=VALUE\n`, where the length includes all of it.
    fn split_off(records: &mut &'a [u8]) -> Result<Self, Damage> {
        let space = records.iter().take(20).position(|&b| b == b' ');
        let space = space.ok_or(Damage::Pax("no length"))?;
        let len = decimal(&records[..space]).and_then(|len| usize::try_from(len).ok());
        let len = len.ok_or(Damage::Pax("malformed length"))?;
        if len <= space + 1 || len > records.len() {
            return Err(Damage::Pax("its length is out of range"));
        }
        let (record, rest) = records.split_at(len);
        *records = rest;
        let record = record[space + 1..].strip_suffix(b"\n").ok_or(Damage::Pax("no newline"))?;
        let equals = record.iter().position(|&b| b == b'=').ok_or(Damage::Pax("no equals sign"))?;
        Ok(Self { key: &record[..equals], value: &record[equals + 1..] })
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(digits).ok()?.parse().ok()
}

fn number(value: &[u8], field: &'static str) -> Result<Option<u64>, Damage> {
    if value.is_empty() {
        return Ok(None);
    }
    // Below 2^63, like file offsets, so that the sum of two does not overflow.
    let number = decimal(value).filter(|&n| i64::try_from(n).is_ok());
    number.map(Some).ok_or(Damage::Number { field })
}

fn small(value: &[u8], field: &'static str) -> Result<Option<u32>, Damage> {
    let number = number(value, field)?;
    number.map(|n| u32::try_from(n).map_err(|_| Damage::Number { field })).transpose()
}

/// Parses `[-]SECONDS[.FRACTION]`; rounds down to nanoseconds.
fn time(value: &[u8], field: &'static str) -> Result<Option<Time>, Damage> {
    if value.is_empty() {
        return Ok(None);
    }
    parse_time(value).map(Some).ok_or(Damage::Number { field })
}

fn parse_time(value: &[u8]) -> Option<Time> {
    let (is_negative, value) = match value.strip_prefix(b"-") {
        Some(value) => (true, value),
        None => (false, value),
    };
    let point = value.iter().position(|&b| b == b'.');
    let (whole, fraction) = value.split_at(point.unwrap_or(value.len()));
    let fraction = fraction.get(1..).unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let sec = i64::try_from(decimal(whole)?).ok()?;
    let digit = |i| fraction.get(i).map_or(0, |&b: &u8| u32::from(b - b'0'));
    let nsec = (0..9).fold(0, |nsec, i| nsec * 10 + digit(i));
    if !is_negative {
        return Some(Time { sec, nsec });
    }
    let has_more = fraction.iter().skip(9).any(|&b| b != b'0');
    let nsec = nsec + u32::from(has_more);
    match nsec {
        0 => Some(Time { sec: -sec, nsec: 0 }),
        _ => Some(Time { sec: -sec - 1, nsec: 1_000_000_000 - nsec }),
    }
}

/// GNU tar writes `=` and `%` in a keyword as `%3D` and `%25`.
fn decode_gnu_name(name: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, tail)) = rest.split_first() {
        let (byte, tail) = match rest {
            [b'%', b'3', b'D', tail @ ..] => (b'=', tail),
            [b'%', b'2', b'5', tail @ ..] => (b'%', tail),
            _ => (first, tail),
        };
        decoded.push(byte);
        rest = tail;
    }
    decoded
}

fn decode_url(name: &[u8]) -> Result<Vec<u8>, Damage> {
    let hex = |b: u8| char::from(b).to_digit(16).map(|digit| digit as u8);
    let mut decoded = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            decoded.push(first);
            continue;
        }
        let (&[high, low], tail) =
            tail.split_first_chunk().ok_or(Damage::Pax("malformed URL encoding"))?;
        let (Some(high), Some(low)) = (hex(high), hex(low)) else {
            return Err(Damage::Pax("malformed URL encoding"));
        };
        decoded.push(high << 4 | low);
        rest = tail;
    }
    Ok(decoded)
}

/// Decodes base64, with or without padding.
fn decode_base64(text: &[u8]) -> Result<Vec<u8>, Damage> {
    let end = text.iter().rposition(|&b| b != b'=' && b != b'\n').map_or(0, |i| i + 1);
    let mut decoded = Vec::with_capacity(end / 4 * 3 + 2);
    let (mut bits, mut bit_count) = (0_u32, 0);
    for &byte in &text[..end] {
        let sextet = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return Err(Damage::Pax("malformed base64")),
        };
        bits = bits << 6 | u32::from(sextet);
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            decoded.push((bits >> bit_count) as u8);
            bits &= (1 << bit_count) - 1;
        }
    }
    if bit_count == 6 { Err(Damage::Pax("malformed base64")) } else { Ok(decoded) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(key: &str, value: &[u8]) -> Vec<u8> {
        let payload = key.len() + value.len() + 3;
        let mut len = payload + 1;
        while payload + len.to_string().len() != len {
            len += 1;
        }
        [format!("{len} {key}=").as_bytes(), value, b"\n"].concat()
    }

    fn parse(records: &[(&str, &[u8])]) -> Result<Pax, Damage> {
        let mut pax = Pax::default();
        let bytes: Vec<u8> = records.iter().flat_map(|(k, v)| record(k, v)).collect();
        pax.apply(&bytes).map(|()| pax)
    }

    #[test]
    fn keywords_of_all_writers_are_understood() {
        let pax = parse(&[
            ("path", b"a\nb=c"),
            ("uid", b"4294967295"),
            ("mtime", b"-1.25"),
            ("atime", b"12.0000000019"),
            ("ctime", b"-0.0000000001"),
            ("SCHILY.xattr.user.a%3Db%25", b"\0\n=x"),
            ("LIBARCHIVE.xattr.user.%c3%A4", b"AP8x"),
            ("LIBARCHIVE.xattr.user.b", b"AP8"),
            ("comment", b"nothing"),
        ])
        .unwrap();
        assert_eq!(pax.path.unwrap(), b"a\nb=c");
        assert_eq!(pax.uid, Some(u32::MAX));
        assert_eq!(pax.mtime, Some(Time { sec: -2, nsec: 750_000_000 }));
        assert_eq!(pax.atime, Some(Time { sec: 12, nsec: 1 }));
        assert_eq!(pax.ctime, Some(Time { sec: -1, nsec: 999_999_999 }));
        let xattr = |name: &[u8], value: &[u8]| Xattr { name: name.into(), value: value.into() };
        let expected = [
            xattr(b"user.a=b%", b"\0\n=x"),
            xattr("user.ä".as_bytes(), b"\0\xff1"),
            xattr(b"user.b", b"\0\xff"),
        ];
        assert_eq!(pax.xattrs, expected);
    }

    #[test]
    fn malformed_records_are_errors() {
        for bad in
            [&b"5 a=b\n"[..], b"x a=b\n", b"99 a=b\n", b"6 a=b\nx", b"6 a=bb", b"6 abb\n", b"2 "]
        {
            assert!(Pax::default().apply(bad).is_err(), "{bad:?}");
        }
        for (key, value) in [
            ("size", "-1"),
            ("uid", "4294967296"),
            ("mtime", "1.x"),
            ("mtime", "."),
            ("LIBARCHIVE.xattr.user.a", "!"),
            ("LIBARCHIVE.xattr.user.a", "A"),
            ("LIBARCHIVE.xattr.user.%4", "AAAA"),
            ("SCHILY.xattr.", "x"),
            ("GNU.sparse.numbytes", "5"),
        ] {
            assert!(parse(&[(key, value.as_bytes())]).is_err(), "{key}={value}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_accepted_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Pax::default().apply(&bytes);
            let _ = decode_base64(&bytes);
            let _ = decode_url(&bytes);
            let _ = parse_time(&bytes);
        }

        #[test]
        fn values_may_hold_anything(value in prop::collection::vec(any::<u8>(), 1..2000)) {
            let pax = parse(&[("SCHILY.xattr.user.x", &value), ("path", &value)]).unwrap();
            prop_assert_eq!(&pax.xattrs[0].value, &value);
            prop_assert_eq!(pax.path.unwrap(), value);
        }
    }
}
