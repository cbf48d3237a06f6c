//! SELinux file contexts: the label of a path according to the rules of libselinux (`file_contexts(5)`).
//!
//! A line is `EXPRESSION [-TYPE] CONTEXT`. The expression must match the whole path. Among the lines that match a path
//! and its type, one without special characters has precedence, otherwise the last one. `<<none>>` means no label. The
//! additional files `.subs_dist` and `.subs` contain trees that are labelled like others, `.homedirs` and `.local`
//! further lines.

mod expression;
mod substitute;

use std::collections::HashMap;
use std::path::Path;
use std::sync::OnceLock;

use regex::bytes::Regex;

use crate::rule_file::fault::{RuleFault, text};
use crate::rule_file::lines::{RuleFile, fields};
use crate::{EntryKind, SourceError};
use substitute::Substitutions;

/// The extended attribute with a file's label.
pub(crate) const XATTR_NAME: &[u8] = b"security.selinux";

/// A set of file contexts.
#[derive(Debug, Default)]
pub struct FileContexts {
    specs: Vec<Spec>,
    /// Lines for a single path, in the order of the file.
    exact: HashMap<Vec<u8>, Vec<usize>>,
    /// Lines with expressions, by the common directory of the matching paths, in the order of the file.
    below: HashMap<Vec<u8>, Vec<usize>>,
    local: Substitutions,
    distributed: Substitutions,
}

/// A parsed line.
#[derive(Debug)]
struct Spec {
    expression: String,
    /// Prefixes, one of which every matching path has.
    prefixes: Vec<Vec<u8>>,
    kind: Option<FileKind>,
    context: Option<Vec<u8>>,
    line: usize,
    regex: OnceLock<Result<Regex, String>>,
}

/// A type of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    Regular,
    Directory,
    CharDevice,
    BlockDevice,
    Symlink,
    Fifo,
    Socket,
}

/// Label of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label<'a> {
    /// This context.
    Context(&'a [u8]),
    /// No label, according to a line.
    None,
    /// No line matches.
    Unknown,
}

impl FileContexts {
    /// Reads a file and its additional files.
    ///
    /// # Errors
    /// If one cannot be read, or a line is malformed or has an unsupported expression.
    pub fn read(path: &Path) -> Result<Self, SourceError> {
        let beside = |more: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(more);
            RuleFile::read_if_there(Path::new(&name))
        };
        let mut files = vec![RuleFile::read(path)?];
        files.extend(beside(".homedirs")?);
        files.extend(beside(".local")?);
        let mut contexts = Self::of(&files)?;
        contexts.distributed = Substitutions::of(beside(".subs_dist")?.as_ref())?;
        contexts.local = Substitutions::of(beside(".subs")?.as_ref())?;
        Ok(contexts)
    }

    /// Parses the bytes of a single file that were read from `name`.
    ///
    /// # Errors
    /// Returns the errors of [`Self::read`].
    pub fn parse(name: &Path, bytes: &[u8]) -> Result<Self, SourceError> {
        Self::of(&[RuleFile { name: name.to_owned(), bytes: bytes.to_vec() }])
    }

    fn of(files: &[RuleFile]) -> Result<Self, SourceError> {
        let mut contexts = Self::default();
        for file in files {
            for (line, bytes) in file.lines() {
                let mut spec = spec(bytes).map_err(|fault| file.fault(line, fault))?;
                spec.line = line;
                contexts.add(spec);
            }
        }
        Ok(contexts)
    }

    fn add(&mut self, spec: Spec) {
        let index = self.specs.len();
        if let Some(path) = expression::path(spec.expression.as_bytes()) {
            self.exact.entry(path).or_default().push(index);
        } else {
            let mut directories: Vec<&[u8]> = spec.prefixes.iter().map(|p| directory(p)).collect();
            directories.sort_unstable();
            directories.dedup();
            for directory in directories {
                self.below.entry(directory.to_vec()).or_default().push(index);
            }
        }
        self.specs.push(spec);
    }

    /// Returns the number of lines.
    pub fn lines(&self) -> usize {
        self.specs.len()
    }

    /// Returns the label of a file at `path`, in the form of `Entry::path`.
    ///
    /// # Errors
    /// A sentence, if an expression takes too much memory.
    pub fn label(&self, path: &[u8], kind: &EntryKind) -> Result<Label<'_>, RuleFault> {
        let Some(kind) = FileKind::of(kind) else { return Ok(Label::Unknown) };
        let mut whole = Vec::with_capacity(path.len() + 1);
        whole.push(b'/');
        whole.extend_from_slice(path);
        if let Some(other) = self.local.apply(&whole) {
            whole = other;
        }
        if let Some(other) = self.distributed.apply(&whole) {
            whole = other;
        }
        let found = match self.exact_line(&whole, kind) {
            Some(index) => Some(index),
            None => self.last_line(&whole, kind)?,
        };
        Ok(match found.map(|index| &self.specs[index].context) {
            None => Label::Unknown,
            Some(None) => Label::None,
            Some(Some(context)) => Label::Context(context),
        })
    }

    fn exact_line(&self, path: &[u8], kind: FileKind) -> Option<usize> {
        let lines = self.exact.get(path)?;
        lines.iter().rev().copied().find(|index| self.specs[*index].is_about(kind))
    }

    /// Returns the last line whose expression matches the path. Examines only lines whose matching paths are all in one
    /// of the directories above the path.
    fn last_line(&self, path: &[u8], kind: FileKind) -> Result<Option<usize>, RuleFault> {
        let mut best = None;
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        // An empty prefix and a leading slash both mean the root.
        for (end, _) in slashes {
            let Some(lines) = self.below.get(&path[..end]) else { continue };
            let newer = lines.iter().rev().copied().take_while(|index| Some(*index) > best);
            for index in newer {
                if self.specs[index].is_for(path, kind)? {
                    best = Some(index);
                    break;
                }
            }
        }
        Ok(best)
    }
}

impl Spec {
    fn is_about(&self, kind: FileKind) -> bool {
        self.kind.is_none_or(|own| own == kind)
    }

    fn has_prefix_of(&self, path: &[u8]) -> bool {
        self.prefixes.iter().any(|prefix| path.starts_with(prefix))
    }

    fn is_for(&self, path: &[u8], kind: FileKind) -> Result<bool, RuleFault> {
        if !self.is_about(kind) || !self.has_prefix_of(path) {
            return Ok(false);
        }
        let regex = self.regex.get_or_init(|| expression::compile(&self.expression));
        let broken = |problem: &String| RuleFault::Expression {
            expression: self.expression.clone(),
            problem: format!("in line {}: {problem}", self.line),
        };
        regex.as_ref().map(|regex| regex.is_match(path)).map_err(broken)
    }
}

impl FileKind {
    fn of(kind: &EntryKind) -> Option<Self> {
        Some(match kind {
            EntryKind::File(_) => Self::Regular,
            EntryKind::Directory => Self::Directory,
            EntryKind::CharDevice { .. } => Self::CharDevice,
            EntryKind::BlockDevice { .. } => Self::BlockDevice,
            EntryKind::Symlink(_) => Self::Symlink,
            EntryKind::Fifo => Self::Fifo,
            EntryKind::Socket => Self::Socket,
            EntryKind::Hardlink(_) => return None,
        })
    }

    fn parse(field: &[u8]) -> Result<Self, RuleFault> {
        Ok(match field {
            b"--" => Self::Regular,
            b"-d" => Self::Directory,
            b"-c" => Self::CharDevice,
            b"-b" => Self::BlockDevice,
            b"-l" => Self::Symlink,
            b"-p" => Self::Fifo,
            b"-s" => Self::Socket,
            _ => {
                let expected = "one of -- -d -c -b -l -p -s";
                return Err(RuleFault::expected("file type", expected, field));
            }
        })
    }
}

/// Returns the directory of paths with this prefix, or one above it.
fn directory(prefix: &[u8]) -> &[u8] {
    &prefix[..prefix.iter().rposition(|&byte| byte == b'/').unwrap_or_default()]
}

fn spec(bytes: &[u8]) -> Result<Spec, RuleFault> {
    let (expression, kind, context) = match fields(bytes)[..] {
        [expression, context] => (expression, None, context),
        [expression, kind, context] => (expression, Some(FileKind::parse(kind)?), context),
        _ => {
            let expected = "EXPRESSION [-TYPE] CONTEXT";
            return Err(RuleFault::expected("line", expected, bytes));
        }
    };
    let broken = |problem: String| RuleFault::Expression { expression: text(expression), problem };
    let expression = std::str::from_utf8(expression);
    let expression = expression.map_err(|_| broken("it is not UTF-8".into()))?;
    let prefixes = expression::prefixes(expression).map_err(broken)?;
    let context = match context {
        b"<<none>>" => None,
        // user:role:type, and a level that may contain further colons.
        context
            if context.splitn(4, |&b| b == b':').filter(|part| !part.is_empty()).count() >= 3 =>
        {
            Some(context.to_vec())
        }
        context => {
            let expected = "USER:ROLE:TYPE[:LEVEL] or <<none>>";
            return Err(RuleFault::expected("context", expected, context));
        }
    };
    Ok(Spec {
        expression: expression.to_owned(),
        prefixes,
        kind,
        context,
        line: 0,
        regex: OnceLock::new(),
    })
}
