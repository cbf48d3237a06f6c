//! Differences in the form of a container image layer: applied to the first tree, it gives the second.
//!
//! The layer contains each changed file completely, with its attributes, and the directories above it. It contains all
//! names of a file with several names, because a hard link in a layer must refer to a file in the same layer. Removed
//! names get a whiteout; if nothing of a directory remains, it is marked opaque. Entries are in path order, and the
//! layer does not depend on time or place of writing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use import::archive::{self, Member, Times, sparse_map};
use serde::Serialize;
use vfs::{FileType, Timestamp};

use super::change::{Change, ChangeKind, Difference};
use super::compare::{Compared, Comparison, DiffOptions, DiffReport, order};
use super::compress::{Compression, Encoder};
use super::tree::{ComparedTree, Id, VisitedFile};
use super::{Observer, Side};
use crate::list::join;
use crate::replace::{Replace, Replacement};
use crate::text::escaped;
use crate::{Error, Result};

/// Prefix of whiteout names.
const WHITEOUT_PREFIX: &[u8] = b".wh.";

/// Name that marks a directory as opaque.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// Bytes read or written at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// Result of writing a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LayerReport {
    /// Result of the comparison.
    #[serde(flatten)]
    pub compared: DiffReport,
    /// Number of entries, whiteouts included.
    pub entries: u64,
    /// Number of whiteouts and opaque directories.
    pub whiteouts: u64,
    /// Bytes of contents, without holes.
    pub bytes: u64,
    /// Number of omitted files and properties that layers do not support: sockets, flags, and names with the prefix of
    /// whiteouts.
    pub left_out: u64,
}

/// Compares two trees and writes a layer that changes the first into the second.
///
/// # Errors
/// If something cannot be read or written.
pub fn diff_to_layer(
    (a, b): (Side<'_>, Side<'_>),
    options: &DiffOptions,
    out: &mut dyn Write,
    compression: Compression,
    observer: &mut dyn Observer,
) -> Result<LayerReport> {
    let (a, b) = (a.tree()?, b.tree()?);
    let mut changes = Vec::new();
    let mut take = |change: Change, node: Option<VisitedFile>| {
        changes.push((change, node));
        Ok(())
    };
    let comparison = Comparison::new((&*a, &*b), options, observer, &mut take);
    let compared = comparison.keeping_linked().run()?;
    let mut plan = LayerPlan::new(&*a, &*b, compared);
    for (change, node) in changes {
        plan.add(change, node, observer);
    }
    let (items, mut report) = plan.finish(observer)?;
    let encoder = Encoder::new(out, compression);
    let mut writer =
        Writer { tree: &*b, out: encoder, written: HashMap::new(), buffer: Vec::new() };
    for item in items {
        report.entries += 1;
        report.bytes += writer.write(&item, observer)?;
    }
    archive::end(&mut writer.out).and_then(|()| writer.out.finish()).map_err(Error::Output)?;
    Ok(report)
}

/// Same as [`diff_to_layer`], to a file that is renamed into place when complete. With `force` it replaces an existing
/// file.
///
/// # Errors
/// Same as [`diff_to_layer`], and if the existing file is in use.
pub fn diff_to_layer_file(
    sides: (Side<'_>, Side<'_>),
    options: &DiffOptions,
    (layer, force): (&Path, bool),
    compression: Compression,
    observer: &mut dyn Observer,
) -> Result<LayerReport> {
    let replace = if force { Replace::Anything } else { Replace::Nothing };
    let new = Replacement::create(layer, replace).map_err(|e| e.at("make", layer))?;
    let failed = |e: io::Error| Error::host("write", layer, e);
    let mut out = BufWriter::with_capacity(CHUNK_BYTES as usize, new.file());
    let written = diff_to_layer(sides, options, &mut out, compression, observer);
    let flush = |mut out: BufWriter<&File>| out.flush().map_err(Error::Output);
    let report = match written.and_then(|report| flush(out).map(|()| report)) {
        Err(Error::Output(source)) => return Err(failed(source)),
        other => other?,
    };
    new.keep().map_err(|e| e.at("make", layer))?;
    Ok(report)
}

/// Entry of a layer.
enum LayerEntry {
    File(VisitedFile),
    /// Whiteout entry, with its own path.
    Whiteout(Vec<u8>),
}

/// Computes the contents of a layer.
struct LayerPlan<'a> {
    a: &'a dyn ComparedTree,
    b: &'a dyn ComparedTree,
    linked: HashMap<Id, Vec<VisitedFile>>,
    files: BTreeMap<Vec<u8>, VisitedFile>,
    /// Removed names by directory.
    gone: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    report: LayerReport,
}

impl<'a> LayerPlan<'a> {
    fn new(a: &'a dyn ComparedTree, b: &'a dyn ComparedTree, compared: Compared) -> Self {
        let Compared { report, linked } = compared;
        let report = LayerReport { compared: report, ..LayerReport::default() };
        Self { a, b, linked, files: BTreeMap::new(), gone: BTreeMap::new(), report }
    }

    fn leave_out(&mut self, path: &[u8], what: &str, observer: &mut dyn Observer) {
        self.report.left_out += 1;
        observer.warning(&format!("{}: {what}", escaped(&join(b"/", path))));
    }

    fn add(&mut self, change: Change, node: Option<VisitedFile>, observer: &mut dyn Observer) {
        if change.kind == ChangeKind::Removed {
            let (parent, name) = split(&change.path);
            self.gone.entry(parent.to_vec()).or_default().push(name.to_vec());
            return;
        }
        let is_flags = |difference: &Difference| matches!(difference, Difference::Flags(..));
        if change.differences.iter().any(is_flags) {
            self.leave_out(&change.path, "a layer cannot contain its flags", observer);
            if change.differences.iter().all(is_flags) {
                return;
            }
        }
        let Some(node) = node else { return };
        if node.is_linked()
            && let Some(group) = self.linked.remove(&node.id())
        {
            for member in group {
                self.add_file(member, observer);
            }
        }
        self.add_file(node, observer);
    }

    fn add_file(&mut self, node: VisitedFile, observer: &mut dyn Observer) {
        if self.files.contains_key(&node.path) {
            return;
        }
        if node.attributes.file_type == FileType::Socket {
            return self.leave_out(&node.path, "a layer cannot contain a socket", observer);
        }
        if node.path.split(|&b| b == b'/').any(|name| name.starts_with(WHITEOUT_PREFIX)) {
            let problem = "a layer cannot contain this name, because it is reserved for whiteouts";
            return self.leave_out(&node.path, problem, observer);
        }
        self.files.insert(node.path.clone(), node);
    }

    /// Returns all entries in order.
    fn finish(mut self, observer: &mut dyn Observer) -> Result<(Vec<LayerEntry>, LayerReport)> {
        let mut items: Vec<(Vec<u8>, LayerEntry)> = Vec::new();
        for (parent, names) in std::mem::take(&mut self.gone) {
            let is_opaque =
                names.len() > 1 && self.a.count(&self.a.find(&parent)?)? == names.len() as u64;
            if is_opaque {
                // Directly after the directory and before its entries in the layer.
                let entry = below(&parent, OPAQUE);
                items.push(([&parent[..], b"/"].concat(), LayerEntry::Whiteout(entry)));
                continue;
            }
            for name in names {
                let path = below(&parent, &name);
                if path.split(|&b| b == b'/').any(|name| name.starts_with(WHITEOUT_PREFIX)) {
                    let problem = "a layer cannot hide this name, because it is reserved for \
                                   whiteouts";
                    self.leave_out(&path, problem, observer);
                    continue;
                }
                let entry = below(&parent, &[WHITEOUT_PREFIX, &name].concat());
                items.push((entry.clone(), LayerEntry::Whiteout(entry)));
            }
        }
        self.report.whiteouts = items.len() as u64;
        let mut above = HashSet::new();
        for (_, item) in &items {
            note_above(item.path(), &mut above);
        }
        for path in self.files.keys() {
            note_above(path, &mut above);
        }
        let mut missing = Vec::new();
        for path in above.into_iter().filter(|&path| !self.files.contains_key(path)) {
            missing.push(self.b.find(path)?);
        }
        for node in missing.into_iter().chain(self.files.into_values()) {
            items.push((node.path.clone(), LayerEntry::File(node)));
        }
        items.sort_by(|(a, _), (b, _)| order(a, b));
        Ok((items.into_iter().map(|(_, item)| item).collect(), self.report))
    }
}

impl LayerEntry {
    fn path(&self) -> &[u8] {
        match self {
            Self::File(node) => &node.path,
            Self::Whiteout(path) => path,
        }
    }
}

/// Writer of layer entries.
struct Writer<'a, W: Write> {
    tree: &'a dyn ComparedTree,
    out: Encoder<W>,
    /// First path of each file with several names.
    written: HashMap<Id, Vec<u8>>,
    buffer: Vec<u8>,
}

impl<W: Write> Writer<'_, W> {
    /// Writes an entry. Returns the size of its contents.
    fn write(&mut self, item: &LayerEntry, observer: &mut dyn Observer) -> Result<u64> {
        match item {
            LayerEntry::Whiteout(path) => {
                let member = Member { path, typeflag: b'0', ..Member::default() };
                member.write(&mut self.out).map_err(Error::Output)?;
                Ok(0)
            }
            LayerEntry::File(node) => self.file(node, observer),
        }
    }

    fn file(&mut self, node: &VisitedFile, observer: &mut dyn Observer) -> Result<u64> {
        let attributes = &node.attributes;
        let mut path = if node.path.is_empty() { b".".to_vec() } else { node.path.clone() };
        if node.is_directory() {
            path.push(b'/');
        }
        let first = self.written.get(&node.id()).filter(|_| node.is_linked()).cloned();
        let mut member = Member {
            path: &path,
            permissions: attributes.permissions,
            uid: attributes.uid,
            gid: attributes.gid,
            times: all_times(attributes.mtime),
            ..Member::default()
        };
        if let Some(first) = &first {
            member.typeflag = b'1';
            member.link = first;
            return member.write(&mut self.out).map(|()| 0).map_err(Error::Output);
        }
        let xattrs = self.tree.xattrs(node)?;
        member.xattrs = &xattrs;
        let target;
        member.typeflag = match attributes.file_type {
            FileType::Regular => b'0',
            FileType::Directory => b'5',
            FileType::Symlink => {
                target = self.tree.target(node)?;
                member.link = &target;
                b'2'
            }
            FileType::CharDevice => b'3',
            FileType::BlockDevice => b'4',
            // Sockets were omitted before.
            FileType::Fifo | FileType::Socket => b'6',
        };
        if matches!(member.typeflag, b'3' | b'4') {
            member.device = attributes.device;
        }
        let bytes = match member.typeflag {
            b'0' => self.regular(node, member, observer)?,
            _ => member.write(&mut self.out).map(|()| 0).map_err(Error::Output)?,
        };
        if node.is_linked() {
            self.written.insert(node.id(), node.path.clone());
        }
        Ok(bytes)
    }

    fn regular(
        &mut self,
        node: &VisitedFile,
        mut member: Member<'_>,
        observer: &mut dyn Observer,
    ) -> Result<u64> {
        let size = node.attributes.size;
        let data = self.tree.open(node)?;
        let runs = data.runs()?;
        let bytes: u64 = runs.iter().map(|run| run.len).sum();
        let map = (bytes < size).then(|| sparse_map(&runs, size));
        member.stored_bytes = bytes + map.as_ref().map_or(0, |map| map.len() as u64);
        member.sparse_size = map.as_ref().map(|_| size);
        let written = member.write(&mut self.out);
        let written = written.and_then(|()| self.out.write_all(&map.unwrap_or_default()));
        written.map_err(Error::Output)?;
        for run in runs {
            let mut done = 0;
            while done < run.len {
                let len = (run.len - done).min(CHUNK_BYTES) as usize;
                if self.buffer.len() < len {
                    self.buffer.resize(len, 0);
                }
                data.read(run.offset + done, &mut self.buffer[..len])?;
                self.out.write_all(&self.buffer[..len]).map_err(Error::Output)?;
                observer.copied(len as u64);
                done += len as u64;
            }
        }
        archive::pad(&mut self.out, member.stored_bytes).map_err(Error::Output)?;
        Ok(bytes)
    }
}

/// Returns the modification time for all times, because access and change times are not part of a file's contents.
fn all_times(time: Timestamp) -> Times {
    Times { atime: time, mtime: time, ctime: time }
}

/// Adds the parents of a path, except the root.
fn note_above<'p>(path: &'p [u8], above: &mut HashSet<&'p [u8]>) {
    let mut path = path;
    while let Some(slash) = path.iter().rposition(|&b| b == b'/') {
        path = &path[..slash];
        if !above.insert(path) {
            return;
        }
    }
}

/// Splits a path into directory and name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&b| b == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}

fn below(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, name].join(&b'/') }
}
