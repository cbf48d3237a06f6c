//! Keywords of a manifest entry. No I/O.

use super::digest::Digest;
use super::vis;
use crate::rule_file::fault::RuleFault;
use crate::rule_file::lines::{id, number, permissions};
use crate::rule_file::names::IdNames;
use crate::{Time, Xattr};

/// File type in a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileType {
    Block,
    Char,
    Directory,
    Fifo,
    File,
    Link,
    Socket,
}

/// Keywords of an entry, merged with those of `/set` before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Keywords {
    pub(crate) file_type: Option<FileType>,
    pub(crate) permissions: Option<u16>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) user: Option<Vec<u8>>,
    pub(crate) group: Option<Vec<u8>>,
    pub(crate) time: Option<Time>,
    pub(crate) size: Option<u64>,
    pub(crate) link: Option<Vec<u8>>,
    pub(crate) links: Option<u64>,
    /// Major and minor number.
    pub(crate) device: Option<(u32, u32)>,
    pub(crate) contents: Option<Vec<u8>>,
    pub(crate) digests: Vec<Digest>,
    pub(crate) xattrs: Vec<Xattr>,
    pub(crate) is_optional: bool,
    pub(crate) keeps_attributes: bool,
    /// True if it has BSD file flags other than none, which Linux cannot store.
    pub(crate) has_flags: bool,
}

/// Operating systems whose device number formats may occur in a manifest.
const DEVICE_FORMATS: [&[u8]; 16] = [
    b"native", b"386bsd", b"4bsd", b"bsdos", b"freebsd", b"hpux", b"isc", b"linux", b"netbsd",
    b"osf1", b"sco", b"solaris", b"sunos", b"svr3", b"svr4", b"ultrix",
];

/// Keywords about the original file that do not apply to the new one.
const FOREIGN: [&[u8]; 5] = [b"inode", b"resdevice", b"tags", b"ignore", b"cookie"];

impl Keywords {
    /// Parses a word, `KEYWORD` or `KEYWORD=VALUE`.
    pub(super) fn take(&mut self, word: &[u8]) -> Result<(), RuleFault> {
        let (keyword, value) = match word.iter().position(|&byte| byte == b'=') {
            Some(at) => (&word[..at], Some(&word[at + 1..])),
            None => (word, None),
        };
        match keyword {
            b"optional" => self.is_optional = true,
            b"nochange" => self.keeps_attributes = true,
            keyword if FOREIGN.contains(&keyword) => {}
            keyword => {
                let value = value.ok_or_else(|| {
                    RuleFault::expected("keyword", "a keyword of mtree(5) with its value", word)
                })?;
                self.take_value(keyword, value)?;
            }
        }
        Ok(())
    }

    fn take_value(&mut self, keyword: &[u8], value: &[u8]) -> Result<(), RuleFault> {
        let decimal = "a decimal number";
        match keyword {
            b"type" => self.file_type = Some(FileType::parse(value)?),
            b"mode" => self.permissions = Some(permissions(value)?),
            b"uid" => self.uid = Some(id(value, "uid")?),
            b"gid" => self.gid = Some(id(value, "gid")?),
            b"uname" => self.user = Some(vis::decode(value)?),
            b"gname" => self.group = Some(vis::decode(value)?),
            b"time" | b"tar_time" => self.time = Some(time(value)?),
            b"size" => self.size = Some(number(value, "size", decimal)?),
            b"link" => self.link = Some(target(value)?),
            b"nlink" => self.links = Some(number(value, "nlink", decimal)?),
            b"device" => self.device = Some(device(value)?),
            b"contents" | b"content" => self.contents = Some(target(value)?),
            b"flags" => self.has_flags = !matches!(value, b"none" | b""),
            keyword => {
                if let Some(name) = keyword.strip_prefix(b"xattr.").filter(|name| !name.is_empty())
                {
                    return self.take_xattr(vis::decode(name)?, value);
                }
                let Some(digest) = Digest::parse(keyword, value)? else {
                    return Err(RuleFault::expected("keyword", "a keyword of mtree(5)", keyword));
                };
                self.digests.retain(|old| !old.is_same_kind(&digest));
                self.digests.push(digest);
            }
        }
        Ok(())
    }

    fn take_xattr(&mut self, name: Vec<u8>, value: &[u8]) -> Result<(), RuleFault> {
        let expected = "a value in base64";
        let value = base64(value).ok_or_else(|| RuleFault::expected("xattr", expected, value))?;
        self.xattrs.retain(|old| old.name != name);
        self.xattrs.push(Xattr { name, value });
        Ok(())
    }

    /// Removes a keyword, for `/unset`.
    pub(super) fn forget(&mut self, keyword: &[u8]) -> Result<(), RuleFault> {
        match keyword {
            b"all" => *self = Self::default(),
            b"type" => self.file_type = None,
            b"mode" => self.permissions = None,
            b"uid" => self.uid = None,
            b"gid" => self.gid = None,
            b"uname" => self.user = None,
            b"gname" => self.group = None,
            b"time" | b"tar_time" => self.time = None,
            b"size" => self.size = None,
            b"link" => self.link = None,
            b"nlink" => self.links = None,
            b"device" => self.device = None,
            b"contents" | b"content" => self.contents = None,
            b"flags" => self.has_flags = false,
            b"optional" => self.is_optional = false,
            b"nochange" => self.keeps_attributes = false,
            keyword if FOREIGN.contains(&keyword) => {}
            keyword => {
                if let Some(name) = keyword.strip_prefix(b"xattr.") {
                    let name = vis::decode(name)?;
                    self.xattrs.retain(|old| old.name != name);
                } else if Digest::is_keyword(keyword) {
                    self.digests.retain(|old| !old.has_keyword(keyword));
                } else {
                    return Err(RuleFault::expected("keyword", "a keyword of mtree(5)", keyword));
                }
            }
        }
        Ok(())
    }

    /// Merges a later entry of the same file.
    pub(super) fn merge(&mut self, later: Self) {
        let later_or = |new: Option<u32>, old: Option<u32>| new.or(old);
        self.file_type = later.file_type.or(self.file_type);
        self.permissions = later.permissions.or(self.permissions);
        self.uid = later_or(later.uid, self.uid);
        self.gid = later_or(later.gid, self.gid);
        self.user = later.user.or(self.user.take());
        self.group = later.group.or(self.group.take());
        self.time = later.time.or(self.time);
        self.size = later.size.or(self.size);
        self.link = later.link.or(self.link.take());
        self.links = later.links.or(self.links);
        self.device = later.device.or(self.device);
        self.contents = later.contents.or(self.contents.take());
        for digest in later.digests {
            self.digests.retain(|old| !old.is_same_kind(&digest));
            self.digests.push(digest);
        }
        for xattr in later.xattrs {
            self.xattrs.retain(|old| old.name != xattr.name);
            self.xattrs.push(xattr);
        }
        self.is_optional |= later.is_optional;
        self.keeps_attributes |= later.keeps_attributes;
        self.has_flags |= later.has_flags;
    }

    /// Returns the user, by ID or by name.
    pub(super) fn owner(&self, names: &IdNames) -> Result<Option<u32>, RuleFault> {
        match (self.uid, &self.user) {
            (None, Some(name)) => names.user(name).map(Some),
            (uid, _) => Ok(uid),
        }
    }

    /// Returns the group, by ID or by name.
    pub(super) fn owner_group(&self, names: &IdNames) -> Result<Option<u32>, RuleFault> {
        match (self.gid, &self.group) {
            (None, Some(name)) => names.group(name).map(Some),
            (gid, _) => Ok(gid),
        }
    }
}

impl FileType {
    fn parse(value: &[u8]) -> Result<Self, RuleFault> {
        Ok(match value {
            b"block" => Self::Block,
            b"char" => Self::Char,
            b"dir" => Self::Directory,
            b"fifo" => Self::Fifo,
            b"file" => Self::File,
            b"link" => Self::Link,
            b"socket" => Self::Socket,
            _ => {
                let expected = "block, char, dir, fifo, file, link or socket";
                return Err(RuleFault::expected("type", expected, value));
            }
        })
    }

    /// Returns the name of the type for messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Block => "block device",
            Self::Char => "character device",
            Self::Directory => "directory",
            Self::Fifo => "named pipe",
            Self::File => "regular file",
            Self::Link => "symbolic link",
            Self::Socket => "socket",
        }
    }
}

/// Parses a path: not empty and without NUL.
fn target(value: &[u8]) -> Result<Vec<u8>, RuleFault> {
    let path = vis::decode(value)?;
    let is_path = !path.is_empty() && !path.contains(&0);
    if is_path { Ok(path) } else { Err(RuleFault::expected("path", "a path", value)) }
}

/// Parses `SECONDS[.NANOSECONDS]`, where the part after the dot is a number of nanoseconds.
fn time(value: &[u8]) -> Result<Time, RuleFault> {
    let bad = || RuleFault::expected("time", "SECONDS.NANOSECONDS since 1970", value);
    let text = std::str::from_utf8(value).map_err(|_| bad())?;
    let (seconds, nanoseconds) = text.split_once('.').unwrap_or((text, "0"));
    let nsec = nanoseconds.parse().ok().filter(|nsec| *nsec < 1_000_000_000);
    let digits = nanoseconds.bytes().all(|byte| byte.is_ascii_digit());
    match (seconds.parse(), nsec.filter(|_| digits)) {
        (Ok(sec), Some(nsec)) => Ok(Time { sec, nsec }),
        _ => Err(bad()),
    }
}

/// Parses a device number: `FORMAT,MAJOR,MINOR`, or one number in Linux's encoding.
fn device(value: &[u8]) -> Result<(u32, u32), RuleFault> {
    let bad = || RuleFault::expected("device", "FORMAT,MAJOR,MINOR or one number", value);
    let part = |field: &[u8]| {
        let text = std::str::from_utf8(field).ok()?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None if text.starts_with(|first: char| !first.is_ascii_digit()) => None,
            None => text.parse().ok(),
        }
    };
    let fields: Vec<&[u8]> = value.split(|&byte| byte == b',').collect();
    match fields[..] {
        [packed] => {
            let packed = part(packed).filter(|packed| *packed <= u64::from(u32::MAX));
            let packed = packed.ok_or_else(bad)? as u32;
            Ok((packed >> 8 & 0xfff, packed & 0xff | packed >> 12 & 0xf_ff00))
        }
        [format, major, minor] if DEVICE_FORMATS.contains(&format) => {
            let number = |field| part(field).and_then(|number| u32::try_from(number).ok());
            number(major).zip(number(minor)).ok_or_else(bad)
        }
        _ => Err(bad()),
    }
}

/// Decodes base64 with or without padding.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().rposition(|&byte| byte != b'=').map_or(0, |last| last + 1);
    let (mut bytes, mut held, mut bits) = (Vec::with_capacity(end * 3 / 4), 0_u32, 0);
    for byte in &text[..end] {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        held = held << 6 | u32::from(digit);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
            held &= (1 << bits) - 1;
        }
    }
    (bits < 6 && held == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read() {
        let mut words = Keywords::default();
        for word in [
            "type=char",
            "mode=0640",
            "uid=7",
            "time=1.5",
            "device=native,1,3",
            "nlink=1",
            "inode=5",
            "xattr.user.a=aGk=",
            "flags=none",
            "optional",
        ] {
            words.take(word.as_bytes()).unwrap();
        }
        assert_eq!(words.time, Some(Time { sec: 1, nsec: 5 }));
        assert_eq!(
            (words.device, words.permissions, words.uid),
            (Some((1, 3)), Some(0o640), Some(7))
        );
        assert_eq!(words.xattrs, [Xattr { name: b"user.a".to_vec(), value: b"hi".to_vec() }]);
        assert!(words.is_optional && !words.has_flags);
        words.forget(b"mode").unwrap();
        assert_eq!(words.permissions, None);
        assert_eq!(device(b"0x103").unwrap(), (1, 3));
        assert_eq!(time(b"-5.0").unwrap(), Time { sec: -5, nsec: 0 });
    }

    #[test]
    fn other_values_are_refused() {
        for word in [
            "type=door",
            "mode=9",
            "mode=u+x",
            "uid=-1",
            "uid=4294967295",
            "time=1.1000000000",
            "time=x",
            "device=1,2",
            "device=vms,1,2",
            "device=99999999999",
            "size=-1",
            "colour=red",
            "mode",
            "link=",
            "xattr.a=*",
            "md5=12",
            "time=1.+5",
        ] {
            assert!(Keywords::default().take(word.as_bytes()).is_err(), "{word}");
        }
    }
}
