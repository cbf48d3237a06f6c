//! Parser of mtree(5) manifests. No I/O.

use std::collections::HashMap;

use super::keywords::{FileType, Keywords};
use super::vis;
use crate::SourceError;
use crate::rule_file::fault::{RuleFault, shown_path};
use crate::rule_file::lines::{self, RuleFile};
use crate::rule_file::names::IdNames;

/// Maximum length of a path in bytes, and maximum depth of directories.
const PATH_BYTES_MAX: usize = 1 << 16;

/// A file in a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ManifestFile {
    /// In the form of `Entry::path`.
    pub(crate) path: Vec<u8>,
    pub(crate) words: Keywords,
    /// Number of its last line.
    pub(crate) line: usize,
    /// Owner, after the look-up of names.
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
}

/// A manifest in the order of its lines, every path once.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    pub(crate) listed: Vec<ManifestFile>,
    pub(crate) by_path: HashMap<Vec<u8>, usize>,
}

/// State of the parser: the current directory, and the values of `/set`.
#[derive(Default)]
struct ManifestParser {
    set: Keywords,
    /// The current directory, for names without a slash.
    directory: Vec<u8>,
    /// True if the root was entered by its name, so that `..` can leave it.
    is_in_root: bool,
    listed: Vec<ManifestFile>,
    by_path: HashMap<Vec<u8>, usize>,
}

/// Parses a manifest.
pub(crate) fn parse(file: &RuleFile, names: &IdNames) -> Result<Lines, SourceError> {
    let mut reader = ManifestParser::default();
    let mut lines = file.bytes.split(|&byte| byte == b'\n').enumerate();
    while let Some((index, first)) = lines.next() {
        let mut line = first.trim_ascii().to_vec();
        if line.starts_with(b"#") {
            continue;
        }
        while is_continued(&line) {
            line.pop();
            let Some((_, next)) = lines.next() else { break };
            line.push(b' ');
            line.extend_from_slice(next.trim_ascii());
        }
        reader.line(&line, index + 1).map_err(|fault| file.fault(index + 1, fault))?;
    }
    for listed in &mut reader.listed {
        let fault = |fault| file.fault(listed.line, fault);
        listed.uid = listed.words.owner(names).map_err(fault)?;
        listed.gid = listed.words.owner_group(names).map_err(fault)?;
    }
    Ok(Lines { listed: reader.listed, by_path: reader.by_path })
}

/// Returns whether the line ends with an unescaped backslash.
fn is_continued(line: &[u8]) -> bool {
    line.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

impl ManifestParser {
    fn line(&mut self, line: &[u8], number: usize) -> Result<(), RuleFault> {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let Some(first) = words.next() else { return Ok(()) };
        match first {
            b"/set" => words.try_for_each(|word| self.set.take(word)),
            b"/unset" => words.try_for_each(|word| self.set.forget(word)),
            b".." => self.leave(words.next()),
            name => {
                let mut keywords = self.set.clone();
                words.try_for_each(|word| keywords.take(word))?;
                self.entry(name, keywords, number)
            }
        }
    }

    fn leave(&mut self, more: Option<&[u8]>) -> Result<(), RuleFault> {
        if let Some(word) = more {
            return Err(RuleFault::expected("line", "nothing after ..", word));
        }
        if let Some(slash) = self.directory.iter().rposition(|&byte| byte == b'/') {
            self.directory.truncate(slash);
        } else if !self.directory.is_empty() {
            self.directory.clear();
        } else if !std::mem::take(&mut self.is_in_root) {
            return Err(RuleFault::expected("line", "no .. above the root", b".."));
        }
        Ok(())
    }

    fn entry(&mut self, name: &[u8], words: Keywords, line: usize) -> Result<(), RuleFault> {
        let decoded = vis::decode(name)?;
        let slashes = |path: &[u8]| path.iter().filter(|byte| **byte == b'/').count();
        if slashes(&decoded) != slashes(name) {
            return Err(RuleFault::expected("name", "unescaped slashes", name));
        }
        let is_whole = decoded.contains(&b'/');
        let mut path = lines::path(&decoded)?;
        if !is_whole {
            if decoded == b"." {
                self.is_in_root |= self.directory.is_empty();
                path = self.directory.clone();
            } else if !self.directory.is_empty() {
                path = [&self.directory[..], b"/", &path].concat();
            }
            if words.file_type == Some(FileType::Directory) {
                self.directory.clone_from(&path);
            }
        }
        if path.len() > PATH_BYTES_MAX {
            let limit = PATH_BYTES_MAX as u64;
            return Err(RuleFault::TooLarge { what: "the path's length in bytes", limit });
        }
        self.add(path, words, line)
    }

    fn add(&mut self, path: Vec<u8>, words: Keywords, line: usize) -> Result<(), RuleFault> {
        let Some(&index) = self.by_path.get(&path) else {
            self.by_path.insert(path.clone(), self.listed.len());
            self.listed.push(ManifestFile { path, words, line, uid: None, gid: None });
            return Ok(());
        };
        let old = &mut self.listed[index];
        if old.words.file_type != words.file_type {
            let what = format!("another type of {:?}", shown_path(&path));
            return Err(RuleFault::Twice { what, line: old.line });
        }
        old.words.merge(words);
        old.line = line;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn manifest(text: &str) -> Result<Vec<ManifestFile>, String> {
        let file = RuleFile { name: Path::new("list").into(), bytes: text.as_bytes().to_vec() };
        let lines = parse(&file, &IdNames::default());
        lines.map(|lines| lines.listed).map_err(|e| e.to_string())
    }

    fn paths(text: &str) -> Vec<String> {
        let listed = manifest(text).unwrap();
        listed.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect()
    }

    #[test]
    fn both_forms_lead_to_paths() {
        let relative = "#mtree\n/set type=file uid=0\n.  type=dir\n  f size=1\nsub type=dir\n  x\n\
                        deep type=dir\n y\n..\n..\n  z\n..\n";
        assert_eq!(paths(relative), ["", "f", "sub", "sub/x", "sub/deep", "sub/deep/y", "z"]);
        let whole = "./a type=dir\n./a/b\\040c mode=644 \\\n   uid=7\n/d/e\n";
        assert_eq!(paths(whole), ["a", "a/b c", "d/e"]);
        let listed = manifest(whole).unwrap();
        assert_eq!((listed[1].uid, listed[1].words.permissions), (Some(7), Some(0o644)));
    }

    #[test]
    fn set_holds_until_unset() {
        let listed =
            manifest("/set mode=600 uname=root\n./a\n/unset mode\n./b mode=1\n./c\n").unwrap();
        let modes: Vec<_> = listed.iter().map(|entry| entry.words.permissions).collect();
        assert_eq!(modes, [Some(0o600), Some(1), None]);
        assert_eq!(listed[2].uid, Some(0));
    }

    #[test]
    fn repeated_paths_add_keywords() {
        let listed =
            manifest("./a type=dir mode=700\n./b type=file\n./a type=dir uid=3\n").unwrap();
        assert_eq!((listed.len(), listed[0].uid, listed[0].line), (2, Some(3), 3));
        assert_eq!(listed[0].words.permissions, Some(0o700));
        let said = manifest("./a type=dir\n./a type=file\n").unwrap_err();
        assert!(said.contains("line 2") && said.contains("is already set in line 1"), "{said}");
    }

    #[test]
    fn errors_name_line_and_part() {
        let said = |text: &str| manifest(text).unwrap_err();
        assert!(said("./a\n..\n").contains("line 2: line: expected no .. above the root"));
        assert!(said("./../a\n").contains("without .."));
        assert!(said("a\\057b\n").contains("unescaped slashes"));
        assert!(said("#\n\n./a \\\n mode=8\n").contains("line 3: mode: expected octal"));
        assert!(said("./a uname=nobody\n").contains("user \"nobody\""));
        assert!(said("./a colour=1\n").contains("keyword of mtree(5)"));
        assert!(said("/set mode=x\n").contains("line 1"));
    }
}
