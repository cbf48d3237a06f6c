//! Lists of owners, permissions and capabilities in the format of Android's build (`fs_config`).
//!
//! A line is `PATH UID GID MODE [capabilities=0xBITS] [selabel=CONTEXT]`. The path begins with the mount point of the
//! image, without a leading slash. For an image mounted at `/` it is empty for the root, so that the line begins with a
//! blank. Labels are ignored, because the build supplies them separately as file contexts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::rule_file::capability::{FileCapabilities, XATTR_NAME};
use crate::rule_file::fault::{RuleFault, shown_path};
use crate::rule_file::lines::{RuleFile, at_line, fields, id, path, permissions};
use crate::{Entry, EntryKind, SourceError, Xattr};

/// A parsed list.
#[derive(Debug)]
pub(super) struct FsConfig {
    name: PathBuf,
    lines: HashMap<Vec<u8>, Line>,
}

#[derive(Debug)]
struct Line {
    number: usize,
    uid: u32,
    gid: u32,
    permissions: u16,
    capabilities: Option<FileCapabilities>,
}

impl FsConfig {
    /// Reads a list.
    pub(super) fn read(file: &Path) -> Result<Self, SourceError> {
        let file = RuleFile::read(file)?;
        let mut lines = HashMap::new();
        for (index, bytes) in file.bytes.split(|&byte| byte == b'\n').enumerate() {
            let number = index + 1;
            if bytes.trim_ascii().is_empty() {
                continue;
            }
            let (name, line) = line(bytes, number).map_err(|fault| file.fault(number, fault))?;
            let is_same = |old: &Line| {
                (old.uid, old.gid, old.permissions, old.capabilities)
                    == (line.uid, line.gid, line.permissions, line.capabilities)
            };
            if let Some(old) = lines.get(&name).filter(|old| !is_same(old)) {
                let fault = RuleFault::Twice { what: shown_path(&name), line: old.number };
                return Err(file.fault(number, fault));
            }
            lines.insert(name, line);
        }
        Ok(Self { name: file.name, lines })
    }

    /// Applies the line of an entry. `whole` is its path from the root of the system that mounts the image.
    pub(super) fn apply(&self, whole: &[u8], entry: &mut Entry) -> Result<(), SourceError> {
        let Some(line) = self.lines.get(whole) else {
            let fault = RuleFault::Unlisted(shown_path(whole));
            return Err(at_line(&self.name, 0, fault));
        };
        entry.metadata.uid = line.uid;
        entry.metadata.gid = line.gid;
        if !matches!(entry.kind, EntryKind::Symlink(_)) {
            entry.metadata.permissions = line.permissions;
        }
        if let (Some(capabilities), EntryKind::File(_)) = (line.capabilities, &entry.kind) {
            Xattr::set(&mut entry.xattrs, XATTR_NAME, &capabilities.to_xattr());
        }
        Ok(())
    }
}

fn line(bytes: &[u8], number: usize) -> Result<(Vec<u8>, Line), RuleFault> {
    let is_root = bytes.first().is_some_and(|byte| byte.is_ascii_whitespace());
    let words = fields(bytes);
    let mut words = words.iter().copied();
    let mut word =
        || words.next().ok_or_else(|| RuleFault::expected("line", "PATH UID GID MODE", bytes));
    let name = if is_root { Vec::new() } else { path(word()?)? };
    let (uid, gid) = (id(word()?, "user")?, id(word()?, "group")?);
    let mut line =
        Line { number, uid, gid, permissions: permissions(word()?)?, capabilities: None };
    for word in words {
        if let Some(bits) = word.strip_prefix(b"capabilities=") {
            line.capabilities = capabilities(bits)?;
        } else if !word.starts_with(b"selabel=") {
            return Err(RuleFault::expected("word", "capabilities=0xBITS or selabel=", word));
        }
    }
    Ok((name, line))
}

/// Returns `None` if no bit is set.
fn capabilities(bits: &[u8]) -> Result<Option<FileCapabilities>, RuleFault> {
    let text = std::str::from_utf8(bits).unwrap_or_default();
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let fault = |_| RuleFault::expected("capabilities", "0x and hexadecimal digits", bits);
    let number = number.map_err(fault)?;
    Ok((number != 0).then(|| FileCapabilities::effective(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        let read = |text: &str| line(text.as_bytes(), 1);
        let (name, line) = read("system/bin/sh 0 2000 755 capabilities=0x0").unwrap();
        assert_eq!(name, b"system/bin/sh");
        assert_eq!((line.uid, line.gid, line.permissions), (0, 2000, 0o755));
        assert!(line.capabilities.is_none());
        let (name, line) = read(" 0 0 0755 selabel=u:object_r:rootfs:s0").unwrap();
        assert_eq!((name, line.permissions), (Vec::new(), 0o755));
        let (_, line) = read("/x 1 2 644 capabilities=0x20").unwrap();
        let expected = FileCapabilities::parse("cap_kill=ep").unwrap();
        assert_eq!(line.capabilities.unwrap().to_xattr(), expected.to_xattr());
        for wrong in
            ["x", "x 0 0", "x a 0 755", "x 0 0 999", "x 0 0 755 y", "x 0 0 755 capabilities=z"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
