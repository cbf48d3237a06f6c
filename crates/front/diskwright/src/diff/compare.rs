//! Comparison of two trees by a simultaneous walk.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;

use serde::Serialize;
use vfs::FileType;

use super::attributes;
use super::change::{Change, ChangeKind, Difference, Ignored};
use super::contents::compare_all;
use super::links::{LinkedFiles, Pairing};
use super::tree::{ComparedTree, Id, Steps, VisitedFile};
use super::{Observer, Side};
use crate::Result;

/// Number of files whose contents are compared in one batch, and maximum number of pending changes.
const BATCH_FILES: usize = 256;
const BATCH_CHANGES: usize = 4096;

/// Directory that ext4 reserves for e2fsck. Its time, and its absence while empty, are ignored.
const LOST_FOUND: &[u8] = b"lost+found";

/// Options of a comparison.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DiffOptions {
    /// Properties to ignore.
    pub ignored: Ignored,
    /// Number of threads that compare contents, at least 1.
    pub threads: usize,
}

impl Default for DiffOptions {
    /// Returns the defaults: ignore nothing, one thread.
    fn default() -> Self {
        Self { ignored: Ignored::default(), threads: 1 }
    }
}

setters!(DiffOptions { ignored: Ignored, threads: usize });

/// Result of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiffReport {
    /// Paths that exist only in the second tree.
    pub added: u64,
    /// Paths that exist only in the first tree, without those below them.
    pub removed: u64,
    /// Paths that exist in both trees with differences.
    pub modified: u64,
    /// Bytes read to compare contents.
    pub bytes_read: u64,
}

impl DiffReport {
    /// Returns whether there are no differences.
    pub fn is_equal(&self) -> bool {
        self.added + self.removed + self.modified == 0
    }
}

/// Compares two trees. Passes differences to `each` in path order: parents before children, names sorted by bytes.
///
/// Compared properties are types, permissions, owners, modification times (with the lower precision of both trees),
/// contents (ignoring holes), link targets, device numbers, extended attributes, flags (if both trees have them) and
/// hard links. The time of `lost+found` at the top is ignored, and so is its absence from one tree if it is empty.
///
/// # Errors
/// If something cannot be read, or the error returned by `each`.
pub fn diff(
    a: Side<'_>,
    b: Side<'_>,
    options: &DiffOptions,
    observer: &mut dyn Observer,
    each: &mut dyn FnMut(&Change) -> Result<()>,
) -> Result<DiffReport> {
    let (a, b) = (a.tree()?, b.tree()?);
    let mut take = |change: Change, _: Option<VisitedFile>| each(&change);
    let compared = Comparison::new((&*a, &*b), options, observer, &mut take).run()?;
    Ok(compared.report)
}

/// Receiver of a change and of the file in the second tree.
pub(super) type Take<'a> = &'a mut dyn FnMut(Change, Option<VisitedFile>) -> Result<()>;

/// Results of a comparison.
#[derive(Default)]
pub(super) struct Compared {
    pub(super) report: DiffReport,
    /// Names in the second tree of files with several names, if requested.
    pub(super) linked: HashMap<Id, Vec<VisitedFile>>,
}

/// Comparison of two trees.
pub(super) struct Comparison<'a> {
    a: &'a dyn ComparedTree,
    b: &'a dyn ComparedTree,
    options: &'a DiffOptions,
    observer: &'a mut dyn Observer,
    take: Take<'a>,
    links: LinkedFiles,
    waiting: Vec<Waiting>,
    /// Number of pending changes whose contents are to be compared.
    to_compare: usize,
    keeps_linked: bool,
    compared: Compared,
}

/// Pending path, reported after the contents before it are compared.
struct Waiting {
    change: Change,
    b: Option<VisitedFile>,
    /// File in the first tree, if contents are to be compared.
    a: Option<VisitedFile>,
}

/// Compares two paths in walk order: the contents of a directory directly follow it.
pub(super) fn order(a: &[u8], b: &[u8]) -> Ordering {
    // Names contain no NUL byte.
    let first = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    a.iter().map(first).cmp(b.iter().map(first))
}

impl<'a> Comparison<'a> {
    pub(super) fn new(
        (a, b): (&'a dyn ComparedTree, &'a dyn ComparedTree),
        options: &'a DiffOptions,
        observer: &'a mut dyn Observer,
        take: Take<'a>,
    ) -> Self {
        let (links, compared) = (LinkedFiles::default(), Compared::default());
        let (waiting, to_compare, keeps_linked) = (Vec::new(), 0, false);
        Self { a, b, options, observer, take, links, waiting, to_compare, keeps_linked, compared }
    }

    /// Requests [`Compared::linked`].
    pub(super) fn keeping_linked(self) -> Self {
        Self { keeps_linked: true, ..self }
    }

    pub(super) fn run(mut self) -> Result<Compared> {
        let (mut a_steps, mut b_steps) = (self.a.steps(), self.b.steps());
        let (mut a, mut b) = (a_steps.advance()?, b_steps.advance()?);
        loop {
            let order = match (&a, &b) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => order(&a.path, &b.path),
            };
            let old = if order.is_le() { a.take() } else { None };
            let new = if order.is_ge() { b.take() } else { None };
            let (has_old, has_new) = (old.is_some(), new.is_some());
            match (old, new) {
                (Some(old), Some(new)) => self.both(old, new, &mut *a_steps)?,
                (Some(old), None) => {
                    a_steps.skip_children();
                    self.removed(&old)?;
                }
                (None, Some(new)) => self.added(new)?,
                (None, None) => {}
            }
            if has_old {
                a = a_steps.advance()?;
            }
            if has_new {
                b = b_steps.advance()?;
            }
        }
        self.settle()?;
        Ok(self.compared)
    }

    fn both(&mut self, a: VisitedFile, b: VisitedFile, a_steps: &mut dyn Steps) -> Result<()> {
        self.observer.file(&b.path);
        self.note_linked(&b);
        let (old, new) = (a.attributes.file_type, b.attributes.file_type);
        if old != new {
            a_steps.skip_children();
            return self.modified(None, b, vec![Difference::Type(old, new)]);
        }
        let ignores_links = self.options.ignored.links;
        let pairing = if ignores_links { Pairing::New } else { self.links.pair(&a, &b) };
        if pairing == Pairing::Same {
            return Ok(());
        }
        let mut ignored = self.options.ignored;
        // Its time, like that of an implied directory of an archive, is the creation time of the image.
        ignored.times |= b.path == LOST_FOUND || !self.a.knows(&a) || !self.b.knows(&b);
        let mut found = attributes::compare((self.a, &a), (self.b, &b), ignored)?;
        if pairing == Pairing::Different {
            found.push(Difference::Links);
        }
        let size = a.attributes.size;
        let compares = new == FileType::Regular && size == b.attributes.size && size > 0;
        if compares || !found.is_empty() {
            return self.modified(compares.then_some(a), b, found);
        }
        Ok(())
    }

    fn added(&mut self, b: VisitedFile) -> Result<()> {
        self.observer.file(&b.path);
        self.note_linked(&b);
        if is_empty_lost_found(self.b, &b)? {
            return Ok(());
        }
        let (path, file_type) = (b.path.clone(), b.attributes.file_type);
        let change = Change { path, kind: ChangeKind::Added, file_type, differences: Vec::new() };
        self.wait(Waiting { change, b: Some(b), a: None })
    }

    fn removed(&mut self, a: &VisitedFile) -> Result<()> {
        self.observer.file(&a.path);
        if is_empty_lost_found(self.a, a)? {
            return Ok(());
        }
        let (path, file_type) = (a.path.clone(), a.attributes.file_type);
        let change = Change { path, kind: ChangeKind::Removed, file_type, differences: Vec::new() };
        self.wait(Waiting { change, b: None, a: None })
    }

    /// Adds a path of both trees that differs, or whose contents are to be compared with those of `a`.
    fn modified(
        &mut self,
        a: Option<VisitedFile>,
        b: VisitedFile,
        differences: Vec<Difference>,
    ) -> Result<()> {
        let (path, file_type) = (b.path.clone(), b.attributes.file_type);
        let change = Change { path, kind: ChangeKind::Modified, file_type, differences };
        self.to_compare += usize::from(a.is_some());
        self.wait(Waiting { change, b: Some(b), a })
    }

    fn note_linked(&mut self, b: &VisitedFile) {
        if self.keeps_linked && b.is_linked() {
            self.compared.linked.entry(b.id()).or_default().push(b.clone());
        }
    }

    fn wait(&mut self, waiting: Waiting) -> Result<()> {
        self.waiting.push(waiting);
        if self.to_compare >= BATCH_FILES || self.waiting.len() >= BATCH_CHANGES {
            return self.settle();
        }
        Ok(())
    }

    /// Compares the pending contents and reports all pending paths.
    fn settle(&mut self) -> Result<()> {
        let pairs = self.waiting.iter();
        let pairs = pairs.filter_map(|waiting| waiting.a.as_ref().zip(waiting.b.as_ref()));
        let pairs: Vec<(&VisitedFile, &VisitedFile)> = pairs.collect();
        let read = AtomicU64::new(0);
        let results = compare_all((self.a, self.b), &pairs, self.options.threads, &read);
        let read = read.into_inner();
        self.observer.copied(read);
        self.compared.report.bytes_read += read;
        self.to_compare = 0;
        let mut results = results.into_iter();
        for Waiting { mut change, a, b } in std::mem::take(&mut self.waiting) {
            if a.is_some()
                && let Some(is_same) = results.next()
                && !is_same?
            {
                change.differences.push(Difference::Contents);
            }
            let report = &mut self.compared.report;
            match change.kind {
                ChangeKind::Modified if change.differences.is_empty() => continue,
                ChangeKind::Modified => report.modified += 1,
                ChangeKind::Added => report.added += 1,
                ChangeKind::Removed => report.removed += 1,
            }
            (self.take)(change, b)?;
        }
        Ok(())
    }
}

/// Returns whether a node is an empty `lost+found` at the top. ext4 has it from the start, XFS does not.
fn is_empty_lost_found(tree: &dyn ComparedTree, node: &VisitedFile) -> Result<bool> {
    Ok(node.path == LOST_FOUND && node.is_directory() && tree.count(node)? == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_of_a_directory_precede_names_with_the_same_prefix() {
        let mut paths = ["a.b", "a/x", "a", "a-b", "", "a/x/y", "a/x.y", "b"];
        paths.sort_by(|a, b| order(a.as_bytes(), b.as_bytes()));
        assert_eq!(paths, ["", "a", "a/x", "a/x/y", "a/x.y", "a-b", "a.b", "b"]);
    }
}
