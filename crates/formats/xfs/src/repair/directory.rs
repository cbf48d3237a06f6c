//! Repairs directories: rebuilds them from all readable entries.

use std::collections::{BTreeMap, HashMap, HashSet};

use operations::repair::Action;
use vfs::check::Finding;
use vfs::{FileType, Ino, NAME_LEN_MAX, Result};

use super::RepairJob;
use super::engine::{self, Session};
use super::map;
use crate::XfsCore;
use crate::check::codes;
use crate::check::view::{View, view};
use crate::dir::Entry;
use crate::format::address::{Block, FileBlock, FsBlock};
use crate::format::bytes::{be16, be32, be64};
use crate::format::dir::{DirLayout, data, file_type_code, file_type_of, magic};
use crate::format::extent::Extent;
use crate::format::geometry::Geometry;
use crate::format::hash::fold;
use crate::format::inode::{Fork, ForkFormat, Inode};

/// Number of entries added in one operation.
const ENTRIES_AT_ONCE: usize = 256;
/// Byte offset of the owner in a data block of version 5.
const OWNER_OFFSET: usize = 40;
/// Maximum number of other directories that are read for the blocks of one directory.
const OTHERS_MAX: usize = 16;
/// Start of an unused range of a data block.
const UNUSED: u16 = 0xffff;

/// An entry found in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundEntry {
    pub(super) name: Vec<u8>,
    pub(super) ino: Ino,
    /// The code of its type; 0 if the directory does not store types.
    pub(super) code: u8,
}

/// The readable contents of a directory.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadableDirectory {
    /// Without `.` and `..`.
    pub(super) entries: Vec<FoundEntry>,
    pub(super) parent: Option<Ino>,
}

/// Reads all readable contents of a directory in any state.
pub(super) fn read(view: &View<'_>, ino: Ino, inode: &Inode) -> ReadableDirectory {
    if inode.format() == ForkFormat::Local {
        return short(view, inode);
    }
    let extents = map::read(view, ino, inode, Fork::Data).extents;
    let (mut contents, mut others) = (ReadableDirectory::default(), Others::new(view));
    for_each_block(view, &extents, |number, block| {
        data_block(&mut others, ino, number, block, &mut contents);
    });
    contents
}

/// Calls `visit` with the number and the bytes of each readable data block.
fn for_each_block(view: &View<'_>, extents: &[Extent], mut visit: impl FnMut(u64, &[u8])) {
    let layout = *view.layout();
    let per = u64::from(layout.blocks());
    let mut last = None;
    for extent in extents.iter().filter(|extent| extent.offset < layout.leaf_first()) {
        let end = extent.end().min(layout.leaf_first());
        for number in extent.offset.0 / per..end.0.div_ceil(per) {
            if last == Some(number) {
                continue;
            }
            last = Some(number);
            if let Some(block) = read_block(view, extents, FileBlock(number * per)) {
                visit(number, &block);
            }
        }
    }
}

/// Returns the inode of a directory's `..`, from its inode or its first block.
pub(super) fn parent(view: &View<'_>, ino: Ino, inode: &Inode) -> Option<Ino> {
    if inode.format() == ForkFormat::Local {
        return short(view, inode).parent;
    }
    let extents = map::read(view, ino, inode, Fork::Data).extents;
    let mut contents = ReadableDirectory::default();
    let block = read_block(view, &extents, FileBlock(0))?;
    data_block(&mut Others::new(view), ino, 0, &block, &mut contents);
    contents.parent
}

/// Returns a directory block, with zeros in unmapped or unreadable parts.
fn read_block(view: &View<'_>, extents: &[Extent], at: FileBlock) -> Option<Vec<u8>> {
    let (layout, geometry) = (view.layout(), view.geometry());
    let mut block = vec![0; layout.size()];
    let mut is_there = false;
    for (nth, piece) in block.chunks_exact_mut(geometry.block_size()).enumerate() {
        let at = at.plus(nth as u64);
        let index = extents.partition_point(|extent| extent.end() <= at);
        let Some(extent) = extents.get(index).filter(|extent| extent.offset <= at) else {
            continue;
        };
        let place: FsBlock = extent.start.plus(at.0 - extent.offset.0);
        let place: Block = geometry.device_block(place);
        if view.read(place, piece) {
            is_there = true;
        } else {
            piece.fill(0);
        }
    }
    is_there.then_some(block)
}

/// Returns the owner of a valid data block of version 5.
fn owner(layout: &DirLayout, block: &[u8]) -> Option<Ino> {
    let kind = be32(block, 0);
    let is_data = magic::BLOCK.contains(&kind) || magic::DATA.contains(&kind);
    (layout.crc && is_data && map::is_sealed(block, 4)).then(|| Ino(be64(block, OWNER_OFFSET)))
}

fn data_block(
    others: &mut Others<'_, '_>,
    ino: Ino,
    number: u64,
    block: &[u8],
    contents: &mut ReadableDirectory,
) {
    let pieces = entries(others.view.layout(), others.view.geometry(), number, block);
    let owner = owner(others.view.layout(), block).filter(|owner| *owner != ino);
    if owner.is_some_and(|owner| others.own(owner, &pieces)) {
        return;
    }
    contents.parent = contents.parent.or(pieces.parent);
    contents.entries.extend(pieces.entries);
}

/// The readable entries of a data block.
#[derive(Default)]
struct Pieces {
    /// Without `.` and `..`.
    entries: Vec<FoundEntry>,
    /// The target of `.`.
    own: Option<Ino>,
    parent: Option<Ino>,
}

/// Returns the inodes that the readable entries of a data block name. If it is the first block of a directory, the first
/// result is its `.`.
pub(super) fn named_in(
    layout: &DirLayout,
    geometry: &Geometry,
    block: &[u8],
) -> (Option<Ino>, impl Iterator<Item = Ino>) {
    let pieces = entries(layout, geometry, 0, block);
    (pieces.own, pieces.entries.into_iter().map(|found| found.ino))
}

/// Returns all readable entries of data block `number`.
fn entries(layout: &DirLayout, geometry: &Geometry, number: u64, block: &[u8]) -> Pieces {
    let mut pieces = Pieces::default();
    // The hashes at the end of block form are not entries: their tags would be wrong.
    let end = layout.size();
    let mut at = layout.header();
    while at + 16 <= end {
        let len = usize::from(be16(block, at + 2));
        let is_unused = be16(block, at) == UNUSED
            && len >= 8
            && len.is_multiple_of(8)
            && at + len <= end
            && usize::from(be16(block, at + len - 2)) == at;
        if is_unused {
            at += len;
            continue;
        }
        let entry = data::entry_at(layout, &block[..end], at)
            .filter(|entry| geometry.split_ino(entry.ino).is_some());
        let Some(entry) = entry else {
            at += 8;
            continue;
        };
        let code = if layout.ftype { block[at + 9 + entry.name.len()] } else { 0 };
        let is_first = number == 0 && at <= layout.dot_dot();
        match entry.name {
            b"." if is_first => pieces.own = Some(entry.ino),
            b".." if is_first => pieces.parent = Some(entry.ino),
            name => pieces.entries.push(FoundEntry { name: name.to_vec(), ino: entry.ino, code }),
        }
        at += entry.size;
    }
    pieces
}

/// Names of a directory with their inodes.
type Entries = HashSet<(Vec<u8>, Ino)>;

/// Other directories that are named as owners of the blocks of a directory.
///
/// A map may lead to a block of another directory, in use or freed when that directory became smaller. The owner in a
/// header may be wrong, too. In the first two cases, the other directory has entries of the block.
struct Others<'o, 'v> {
    view: &'o View<'v>,
    /// The directory that was read last, with its entries.
    last: Option<(Ino, Entries)>,
    /// Number of directories that were read.
    read: usize,
}

impl<'o, 'v> Others<'o, 'v> {
    fn new(view: &'o View<'v>) -> Self {
        Self { view, last: None, read: 0 }
    }

    /// Returns whether a block belongs to the directory `owner`.
    fn own(&mut self, owner: Ino, pieces: &Pieces) -> bool {
        if pieces.own == Some(owner) {
            return true;
        }
        if self.last.as_ref().is_none_or(|(last, _)| *last != owner) {
            let Some(inode) = self.view.inode(owner).filter(Inode::is_dir) else { return false };
            // Further owners are unlikely to be single faults, and reading all of them could take very long.
            self.read += 1;
            if self.read > OTHERS_MAX {
                return true;
            }
            self.last = Some((owner, own_entries(self.view, owner, &inode)));
        }
        let Some((_, names)) = &self.last else { return false };
        pieces.entries.iter().any(|found| names.contains(&(found.name.clone(), found.ino)))
    }
}

/// Returns the entries of a directory that are in its inode or in blocks that name it as the owner.
fn own_entries(view: &View<'_>, ino: Ino, inode: &Inode) -> Entries {
    let of = |all: Vec<FoundEntry>| all.into_iter().map(|found| (found.name, found.ino));
    if inode.format() == ForkFormat::Local {
        return of(short(view, inode).entries).collect();
    }
    let layout = view.layout();
    let mut names = HashSet::new();
    for_each_block(view, &map::read(view, ino, inode, Fork::Data).extents, |number, block| {
        if owner(layout, block) == Some(ino) {
            names.extend(of(entries(layout, view.geometry(), number, block).entries));
        }
    });
    names
}

/// Reads a shortform directory.
fn short(view: &View<'_>, inode: &Inode) -> ReadableDirectory {
    let fork = inode.fork(Fork::Data);
    let Some(&wide) = fork.get(1) else { return ReadableDirectory::default() };
    let size = usize::try_from(inode.size()).unwrap_or(usize::MAX).min(fork.len());
    let said = if wide > 0 { 8 } else { 4 };
    let as_said = short_with(view, &fork[..size], said);
    let other = short_with(view, &fork[..size], 12 - said);
    // The wrong size yields few entries that refer to inodes in use, so the size with more entries wins.
    if other.entries.len() > as_said.entries.len() { other } else { as_said }
}

/// Scores of the pieces into which the bytes of a directory are divided: an entry that leads to an inode in use, one
/// with an invalid name, one that leads nowhere, and a byte outside of entries.
const LEADS: i64 = 1000;
const LEADS_MISNAMED: i64 = 500;
const LEADS_NOWHERE: i64 = -1;
const SKIPPED: i64 = -10;

/// Reads entries with inode numbers of one size. Finds the division of the bytes into entries with the highest score,
/// so that an invalid entry does not hide the start of the next one.
fn short_with(view: &View<'_>, bytes: &[u8], ino_size: usize) -> ReadableDirectory {
    let ino_at = |at: usize| match ino_size {
        8 => Ino(be64(bytes, at)),
        _ => Ino(be32(bytes, at).into()),
    };
    let start = 2 + ino_size;
    if bytes.len() < start {
        return ReadableDirectory::default();
    }
    let ftype = usize::from(view.layout().ftype);
    let entry_at = |at: usize| {
        let len = usize::from(*bytes.get(at)?);
        let (name_end, end) = (at + 3 + len, at + 3 + len + ftype + ino_size);
        if len == 0 || end > bytes.len() {
            return None;
        }
        let ino = ino_at(name_end + ftype);
        let code = if ftype > 0 { bytes[name_end] } else { 0 };
        let name = &bytes[at + 3..name_end];
        let is_named = !name.iter().any(|byte| matches!(byte, 0 | b'/'));
        let value = match (view.is_used(ino) != Some(false), is_named) {
            (true, true) => LEADS,
            (true, false) => LEADS_MISNAMED,
            (false, true) => LEADS_NOWHERE,
            (false, false) => return None,
        };
        Some((FoundEntry { name: name.to_vec(), ino, code }, end, value))
    };
    // For each byte: the best score of the rest from there on, and whether an entry starts there.
    let mut rest = vec![(0, false); bytes.len() + 1];
    for at in (start..bytes.len()).rev() {
        let skipped = rest[at + 1].0 + SKIPPED;
        let taken = entry_at(at).map(|(_, end, value)| rest[end].0 + value);
        rest[at] = taken.filter(|taken| *taken >= skipped).map_or((skipped, false), |v| (v, true));
    }
    let parent = Some(ino_at(2)).filter(|parent| view.is_used(*parent) == Some(true));
    let (mut entries, mut at) = (Vec::new(), start);
    while at < bytes.len() {
        match entry_at(at).filter(|_| rest[at].1) {
            Some((entry, end, value)) => {
                if value > 0 {
                    entries.push(entry);
                }
                at = end;
            }
            None => at += 1,
        }
    }
    ReadableDirectory { entries, parent }
}

/// Rebuilds damaged directories.
pub(super) fn repair(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let mut dirs: BTreeMap<u64, Vec<&Finding>> = BTreeMap::new();
    let mut children = HashSet::new();
    for finding in findings {
        let Some(ino) = finding.place.inode else { continue };
        // A wrong entry type is reported for the inode that the entry leads to.
        if finding.code == codes::DIR_FTYPE && finding.detail.as_deref() != Some(IN_ITSELF) {
            children.insert(ino);
        } else {
            dirs.entry(ino).or_default().push(finding);
        }
    }
    let plans = view(job.staging.clone(), |view| plan(view, &dirs, &children));
    let Ok(plans) = plans else { return Ok(()) };
    let Some(mut session) = Session::open(job) else { return Ok(()) };
    for plan in plans {
        let what = match plan.entries.len() {
            1 => "The directory is rebuilt with the one readable entry.".to_owned(),
            count => format!("The directory is rebuilt with {count} entries."),
        };
        let mut actions = Vec::new();
        for finding in dirs.get(&plan.dir.0).into_iter().flatten().take(1) {
            actions.push(Action::about(finding, what.clone()));
        }
        if actions.is_empty() {
            let mut action = Action::new(what);
            action.code = Some(codes::DIR_FTYPE);
            action.place.inode = Some(plan.dir.0);
            actions.push(action);
        }
        actions.extend(plan.remarks.iter().map(|remark| {
            let mut action = Action::new(remark.clone());
            action.place.inode = Some(plan.dir.0);
            action
        }));
        session.step(actions, |fs| make(fs, &plan));
    }
    Ok(())
}

/// Detail of findings about `.` and `..`.
const IN_ITSELF: &str = "in the directory itself";

/// The planned contents of a directory.
struct DirectoryPlan {
    dir: Ino,
    parent: Ino,
    entries: Vec<(Vec<u8>, Ino, FileType)>,
    /// Descriptions of changes to entries.
    remarks: Vec<String>,
}

fn plan(
    view: &View<'_>,
    dirs: &BTreeMap<u64, Vec<&Finding>>,
    children: &HashSet<u64>,
) -> Vec<DirectoryPlan> {
    let mut plans = Vec::new();
    let mut add = |ino: Ino, contents: ReadableDirectory| plans.push(plan_one(view, ino, contents));
    for ino in dirs.keys().copied().map(Ino) {
        if let Some(inode) = view.inode(ino).filter(Inode::is_dir) {
            add(ino, read(view, ino, &inode));
        }
    }
    if children.is_empty() {
        return plans;
    }
    let is_wrong = |entry: &FoundEntry| {
        children.contains(&entry.ino.0)
            && view.inode(entry.ino).and_then(|inode| inode.file_type()).map(file_type_code)
                != Some(entry.code)
    };
    let wrong = view.each_used(|ino, inode| {
        (inode.is_dir() && !dirs.contains_key(&ino.0))
            .then(|| (ino, read(view, ino, inode)))
            .filter(|(_, contents)| contents.entries.iter().any(is_wrong))
    });
    wrong.for_each(|(ino, contents)| add(ino, contents));
    plans
}

/// Returns whether the target of an entry is valid.
fn leads_somewhere(view: &View<'_>, dir: Ino, entry: &FoundEntry) -> bool {
    view.is_used(entry.ino) != Some(false)
        && entry.ino != dir
        && entry.ino != view.root()
        && !view.is_special(entry.ino)
}

fn plan_one(view: &View<'_>, dir: Ino, contents: ReadableDirectory) -> DirectoryPlan {
    let (mut entries, mut remarks) = (Vec::new(), Vec::new());
    let mut names = Taken::new(view.layout());
    let mut subdirectories = HashSet::new();
    for entry in contents.entries {
        let shown = entry.name.escape_ascii().to_string();
        if !leads_somewhere(view, dir, &entry) {
            remarks.push(format!(
                "The entry {shown} is removed, because it refers to an unused inode."
            ));
            continue;
        }
        let known = view.inode(entry.ino).and_then(|inode| inode.file_type());
        let file_type = known.or_else(|| file_type_of(entry.code)).unwrap_or(FileType::Regular);
        if file_type == FileType::Directory && !subdirectories.insert(entry.ino) {
            remarks.push(format!("The second entry {shown} of a directory is removed."));
            continue;
        }
        let name = names.take(&entry.name);
        if name != entry.name {
            remarks.push(format!("The entry {shown} is renamed to {}.", name.escape_ascii()));
        }
        entries.push((name, entry.ino, file_type));
    }
    let is_dir =
        |ino: &Ino| view.inode(*ino).is_some_and(|inode| inode.is_dir() && inode.nlink() > 0);
    let parent = contents.parent.filter(is_dir).unwrap_or_else(|| view.root());
    let parent = if dir == view.root() { dir } else { parent };
    DirectoryPlan { dir, parent, entries, remarks }
}

/// Names in use in a directory.
pub(super) struct Taken<'t> {
    layout: &'t DirLayout,
    /// Folded as in lookups of the directory.
    names: HashSet<Vec<u8>>,
    /// The last number appended to a name.
    numbers: HashMap<Vec<u8>, u64>,
}

impl<'t> Taken<'t> {
    pub(super) fn new(layout: &'t DirLayout) -> Self {
        Self { layout, names: HashSet::new(), numbers: HashMap::new() }
    }

    /// Returns the name itself if it is valid and unused, otherwise a similar one, and marks it used.
    pub(super) fn take(&mut self, name: &[u8]) -> Vec<u8> {
        let name = possible_name(name);
        if self.names.insert(self.folded(&name)) {
            return name;
        }
        loop {
            let number = self.numbers.entry(name.clone()).or_default();
            *number += 1;
            let other = numbered(&name, *number);
            if self.names.insert(self.folded(&other)) {
                return other;
            }
        }
    }

    fn folded(&self, name: &[u8]) -> Vec<u8> {
        match self.layout.folds_case {
            true => name.iter().map(|byte| fold(*byte)).collect(),
            false => name.to_vec(),
        }
    }
}

/// Returns a valid name similar to the given one.
pub(super) fn possible_name(name: &[u8]) -> Vec<u8> {
    let mut name: Vec<u8> =
        name.iter().map(|byte| if matches!(byte, b'/' | 0) { b'_' } else { *byte }).collect();
    if matches!(name.as_slice(), b"" | b"." | b"..") {
        name.push(b'_');
    }
    name.truncate(NAME_LEN_MAX);
    name
}

/// Returns the name with a number appended.
pub(super) fn numbered(name: &[u8], number: u64) -> Vec<u8> {
    let suffix = format!("~{number}");
    let mut other = name[..name.len().min(NAME_LEN_MAX - suffix.len())].to_vec();
    other.extend_from_slice(suffix.as_bytes());
    other
}

/// Rebuilds a directory.
fn make(fs: &XfsCore, plan: &DirectoryPlan) -> Result<()> {
    engine::change(fs, plan.dir, |op, handle| {
        let mut budget = u32::MAX;
        op.drop_data(handle, &mut budget)?;
        op.init_dir(handle, plan.parent)
    })?;
    for entries in plan.entries.chunks(ENTRIES_AT_ONCE) {
        engine::change(fs, plan.dir, |op, handle| {
            for (name, ino, file_type) in entries {
                op.add_entry(handle, Entry { name, ino: *ino, file_type: *file_type })?;
            }
            Ok(())
        })?;
    }
    Ok(())
}
