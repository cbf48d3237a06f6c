//! A corrected source.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::choice::{Chooser, parent};
use super::{CorrectionReport, Corrections};
use crate::file_contexts::{self, Label};
use crate::rule_file::fault::{RuleFault, shown_path};
use crate::rule_file::lines::at_line;
use crate::{Body, Entry, EntryKind, Metadata, Progress, Source, SourceError, Xattr};

/// Permissions of directories that a source never lists but that occur in paths.
const IMPLIED_PERMISSIONS: u16 = 0o755;

/// A source with [`Corrections`] applied.
pub struct Corrected {
    inner: Box<dyn Source>,
    corrections: Arc<Corrections>,
    /// Entries to be returned next.
    ready: VecDeque<Entry>,
    /// True if the last entry was read from the inner source, so that its contents can be read there.
    has_stream: bool,
    is_over: bool,
    chooser: Chooser,
    /// Directories returned so far.
    directories: HashSet<Vec<u8>>,
    /// Excluded directories. They are returned if an entry below them is included.
    left_out: HashMap<Vec<u8>, Entry>,
    /// Excluded files, because a hard link to one may be included.
    hidden: HashMap<Vec<u8>, Hidden>,
    seen: Seen,
    /// True if the owner of the current entry has already been mapped.
    is_mapped: bool,
    report: CorrectionReport,
}

/// An excluded file.
enum Hidden {
    /// It can still be created.
    There(Box<Entry>),
    /// Its sequential contents have been skipped.
    Gone,
    /// It was created under this name.
    Moved(Vec<u8>),
}

/// Usage of rules.
struct Seen {
    choices: Vec<u64>,
    rules: Vec<u64>,
    /// Rules that matched additional names of files, with the first such name.
    links: Vec<Option<Vec<u8>>>,
    rows: Vec<bool>,
    manifests: Vec<Vec<bool>>,
}

impl Corrected {
    /// Applies corrections to a source.
    pub fn new(inner: Box<dyn Source>, corrections: Arc<Corrections>) -> Self {
        let seen = Seen {
            choices: vec![0; corrections.choices.len()],
            rules: vec![0; corrections.rules.len()],
            links: vec![None; corrections.rules.len()],
            rows: vec![false; corrections.tables.len()],
            manifests: corrections.manifests.iter().map(|list| vec![false; list.len()]).collect(),
        };
        Self {
            inner,
            corrections,
            ready: VecDeque::new(),
            has_stream: false,
            is_over: false,
            chooser: Chooser::default(),
            directories: HashSet::new(),
            left_out: HashMap::new(),
            hidden: HashMap::new(),
            seen,
            is_mapped: false,
            report: CorrectionReport::default(),
        }
    }

    fn advance(&mut self) -> Result<Option<Entry>, SourceError> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Ok(Some(entry));
            }
            if self.is_over {
                return Ok(None);
            }
            match self.inner.next_entry()? {
                Some(entry) => self.take(entry)?,
                None => {
                    self.is_over = true;
                    self.end()?;
                }
            }
        }
    }

    /// Includes or excludes an entry of the source.
    fn take(&mut self, entry: Entry) -> Result<(), SourceError> {
        let is_directory = matches!(entry.kind, EntryKind::Directory);
        let corrections = Arc::clone(&self.corrections);
        let used = &mut self.seen.choices;
        if !self.chooser.takes(&corrections.choices, &entry.path, is_directory, used) {
            self.leave_out(entry);
            return Ok(());
        }
        self.add_parents(&entry.path)?;
        let mut entry = entry;
        if let EntryKind::Hardlink(target) = &entry.kind {
            match self.hidden.get_mut(target) {
                None => {}
                Some(Hidden::Moved(name)) => entry.kind = EntryKind::Hardlink(name.clone()),
                Some(Hidden::Gone) => {
                    let (path, target) = (shown_path(&entry.path), shown_path(target));
                    let fault = RuleFault::LinkToExcluded { path, target };
                    return Err(at_line("--exclude".as_ref(), 0, fault));
                }
                Some(hidden) => {
                    let moved = Hidden::Moved(entry.path.clone());
                    if let Hidden::There(file) = std::mem::replace(hidden, moved) {
                        entry = Entry { path: entry.path, ..*file };
                    }
                }
            }
        }
        self.map_owner(&mut entry.metadata);
        self.push(entry)
    }

    fn leave_out(&mut self, entry: Entry) {
        self.report.excluded += 1;
        for (list, seen) in self.corrections.manifests.iter().zip(&mut self.seen.manifests) {
            if let Some(index) = list.index(&entry.path) {
                seen[index] = true;
            }
        }
        match &entry.kind {
            EntryKind::Directory => {
                self.left_out.insert(entry.path.clone(), entry);
            }
            EntryKind::Hardlink(_) => {}
            EntryKind::File(content) if matches!(content.body(), Body::Stream) => {
                self.hidden.insert(entry.path, Hidden::Gone);
            }
            _ => {
                self.hidden.insert(entry.path.clone(), Hidden::There(Box::new(entry)));
            }
        }
    }

    /// Adds the missing directories on the way to a path, including the root.
    fn add_parents(&mut self, path: &[u8]) -> Result<(), SourceError> {
        if path.is_empty() || self.directories.contains(parent(path)) {
            return Ok(());
        }
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in std::iter::once(0).chain(slashes) {
            let directory = &path[..end];
            if self.directories.contains(directory) {
                continue;
            }
            let entry = match self.left_out.remove(directory) {
                Some(mut entry) => {
                    self.report.excluded -= 1;
                    self.map_owner(&mut entry.metadata);
                    entry
                }
                None => self.implied(directory),
            };
            self.push(entry)?;
        }
        Ok(())
    }

    /// Returns an entry for a directory that the source never lists.
    fn implied(&self, path: &[u8]) -> Entry {
        let (uid, gid) = self.corrections.owner.unwrap_or((0, 0));
        let (permissions, mtime) = (IMPLIED_PERMISSIONS, self.corrections.time);
        let metadata = Metadata { permissions, uid, gid, mtime, atime: None, ctime: None };
        let (kind, xattrs) = (EntryKind::Directory, Vec::new());
        Entry { path: path.to_vec(), kind, metadata, xattrs, inode: None }
    }

    fn map_owner(&mut self, metadata: &mut Metadata) {
        let before = (metadata.uid, metadata.gid);
        if let Some(map) = &self.corrections.owner_map {
            (metadata.uid, metadata.gid) = (map.user(metadata.uid), map.group(metadata.gid));
        }
        if let Some(owner) = self.corrections.owner {
            (metadata.uid, metadata.gid) = owner;
        }
        self.is_mapped = before != (metadata.uid, metadata.gid);
    }

    /// Corrects an included entry and queues it.
    fn push(&mut self, mut entry: Entry) -> Result<(), SourceError> {
        if matches!(entry.kind, EntryKind::Directory) {
            self.directories.insert(entry.path.clone());
        }
        if let EntryKind::Hardlink(target) = &entry.kind {
            self.link(&entry.path, target)?;
        } else {
            self.correct(&mut entry)?;
        }
        self.ready.push_back(entry);
        Ok(())
    }

    /// Handles an additional name of a file. A rule for it is an error, has no effect, or concerns the file.
    fn link(&mut self, path: &[u8], first: &[u8]) -> Result<(), SourceError> {
        let corrections = &self.corrections;
        corrections.tables.check_link(path, first)?;
        for (list, seen) in corrections.manifests.iter().zip(&mut self.seen.manifests) {
            list.check_link(path, first)?;
            if let Some(index) = list.index(path) {
                seen[index] = true;
            }
        }
        for (rule, seen) in corrections.rules.iter().zip(&mut self.seen.links) {
            let is_news = seen.is_none()
                && rule.glob.is_match(path, false)
                && !rule.glob.is_match(first, false);
            if is_news {
                *seen = Some(path.to_vec());
            }
        }
        Ok(())
    }

    fn correct(&mut self, entry: &mut Entry) -> Result<(), SourceError> {
        let corrections = Arc::clone(&self.corrections);
        let owner = |entry: &Entry| (entry.metadata.uid, entry.metadata.gid);
        let (before, permissions) = (owner(entry), entry.metadata.permissions);
        corrections.tables.apply(entry, &mut self.seen.rows)?;
        for (list, seen) in corrections.manifests.iter().zip(&mut self.seen.manifests) {
            if let Some(index) = list.index(&entry.path) {
                seen[index] = true;
                self.report.listed += u64::from(list.apply(index, entry)?);
            }
        }
        if let Some(list) = &corrections.fs_config {
            list.apply(&corrections.whole(&entry.path), entry)?;
        }
        self.label(entry)?;
        for (rule, seen) in corrections.rules.iter().zip(&mut self.seen.rules) {
            if rule.is_about(&entry.path, &entry.kind) {
                *seen += 1;
                self.report.xattrs += rule.apply(entry);
            }
        }
        let is_mapped = std::mem::take(&mut self.is_mapped);
        self.report.owners += u64::from(is_mapped || owner(entry) != before);
        self.report.permissions += u64::from(entry.metadata.permissions != permissions);
        Ok(())
    }

    fn label(&mut self, entry: &mut Entry) -> Result<(), SourceError> {
        let Some((file, contexts)) = &self.corrections.contexts else { return Ok(()) };
        let label = contexts.label(&self.corrections.whole(&entry.path), &entry.kind);
        match label.map_err(|fault| at_line(file, 0, fault))? {
            Label::Context(context) => {
                // The kernel and setfiles include the terminating NUL.
                let value = [context, b"\0"].concat();
                Xattr::set(&mut entry.xattrs, file_contexts::XATTR_NAME, &value);
                self.report.labels += 1;
            }
            Label::None | Label::Unknown => self.report.unlabelled += 1,
        }
        Ok(())
    }

    /// Adds the files of device tables, and reports unused rules.
    fn end(&mut self) -> Result<(), SourceError> {
        let corrections = Arc::clone(&self.corrections);
        if self.directories.is_empty() {
            self.push(self.implied(b""))?;
        }
        // A table lists directories before their entries; otherwise the entries create them.
        for entry in corrections.tables.missing(&self.seen.rows, corrections.time)? {
            self.add_parents(&entry.path)?;
            // An entry added before may have created it.
            if !self.directories.contains(&entry.path) {
                self.push(entry)?;
            }
            self.report.made += 1;
        }
        for (list, seen) in corrections.manifests.iter().zip(&self.seen.manifests) {
            list.check_all(seen)?;
        }
        self.report.warnings = self.warnings();
        *corrections.report.lock() = std::mem::take(&mut self.report);
        Ok(())
    }

    fn warnings(&self) -> Vec<String> {
        let corrections = &self.corrections;
        let mut warnings = Vec::new();
        for (choice, count) in corrections.choices.iter().zip(&self.seen.choices) {
            if *count == 0 {
                let option = if choice.is_included { "--include" } else { "--exclude" };
                warnings.push(format!(
                    "{option} {}: the pattern has no effect on any file",
                    choice.glob.text()
                ));
            }
        }
        let rules = corrections.rules.iter().zip(&self.seen.rules).zip(&self.seen.links);
        for ((rule, count), link) in rules {
            let (option, glob) = (rule.option(), rule.glob.text());
            match link {
                Some(link) => warnings.push(format!(
                    "{option} {glob}: {} is another name of a file, which is matched by its first \
                     name",
                    shown_path(link)
                )),
                None if *count == 0 => {
                    warnings.push(format!(
                        "{option} {glob}: the pattern matches no file that supports it"
                    ));
                }
                None => {}
            }
        }
        let flagged: u64 = corrections.manifests.iter().map(|list| list.flagged()).sum();
        if flagged > 0 {
            warnings.push(format!(
                "flags= of {flagged} files are ignored, because Linux does not support them"
            ));
        }
        warnings
    }
}

impl Source for Corrected {
    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        let next = self.advance();
        if next.is_err() {
            self.is_over = true;
            self.ready.clear();
        }
        self.has_stream = match &next {
            Ok(Some(Entry { kind: EntryKind::File(content), .. })) => {
                matches!(content.body(), Body::Stream)
            }
            _ => false,
        };
        next
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize, SourceError> {
        // Only the last entry from the inner source has contents there.
        if self.has_stream { self.inner.read(buf) } else { Ok(0) }
    }

    fn entries_min(&mut self) -> u64 {
        if self.corrections.choices.is_empty() { self.inner.entries_min() } else { 0 }
    }

    fn progress(&self) -> Progress {
        self.inner.progress()
    }
}
