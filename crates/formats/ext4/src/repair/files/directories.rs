//! Repairs directories by rewriting each with all readable entries.

use std::collections::{BTreeMap, HashMap};

use operations::repair::Action;
use vfs::Result;
use vfs::check::Finding;

use super::attributes;
use super::draft::Draft;
use super::inode_draft::InodeDraft;
use super::inodes::{ROOT, set_blocks};
use super::layout::{Filling, Form, fill};
use super::map::{self, Map};
use super::names_in::{self, DirectoryNames, FoundName};
use super::repair_context::{RepairContext, by_inode};
use crate::check::codes::*;
use crate::dir::compare::NameEncoding;
use crate::format::address::Block;
use crate::format::dirent::{self, INLINE_PARENT_SIZE};
use crate::format::htree;
use crate::format::inode::{I_BLOCK_SIZE, flags};
use crate::repair::RepairJob;

/// Repairs directories.
pub(super) fn repair(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let of_directories: Vec<_> = by_inode(findings);
    let Some(mut context) = RepairContext::surveyed(job)? else { return Ok(()) };
    for (ino, findings) in of_directories {
        let actions =
            || findings.iter().map(|finding| Action::about(finding, sentence(finding))).collect();
        let Some(mut directory) = DirectoryDraft::read(&context, ino) else { continue };
        let is_foreign = |name: &FoundName| {
            let is_it = |finding: &&&Finding| {
                finding.code == DIR_POLICY && finding.place.name.as_ref() == Some(&name.name)
            };
            findings.iter().any(|finding| is_it(&finding))
        };
        directory.entries_mut().retain(|name| !is_foreign(name));
        let Some(draft) = directory.write(&mut context) else { continue };
        context.end(draft, actions())?;
    }
    Ok(())
}

fn sentence(finding: &Finding) -> &'static str {
    let sentences = [
        (DIR_HOLE, "The directory is rewritten without the hole."),
        (DIR_BLOCK, "The directory is rewritten with the readable entries."),
        (DIR_CHECKSUM, "Plausible entries are kept, and the checksum is recomputed."),
        (DIR_DOTS, "The entries \".\" and \"..\" are recreated."),
        (DIR_NAME, "The entry gets a valid name."),
        (DIR_DUPLICATE, "The second entry is renamed."),
        (DIR_INODE, "The entry is removed."),
        (DIR_TYPE, "The file type is corrected."),
        (DIR_POLICY, "The entry is removed."),
        (INODE_SIZE, "A block is allocated for the directory."),
    ];
    let found = sentences.iter().find(|(code, _)| *code == finding.code);
    found.map_or("The directory index is rebuilt.", |(_, sentence)| sentence)
}

/// The hash version of an index, and the hash of each entry.
type Hashes = (u8, Vec<u32>);

/// A directory as it can be read, to be changed and written.
pub(super) struct DirectoryDraft {
    subject: InodeDraft,
    map: Map,
    names: DirectoryNames,
}

impl DirectoryDraft {
    /// Returns `None` if it is not a directory, or if the device cannot read all of it.
    pub(super) fn read(context: &RepairContext<'_>, ino: u32) -> Option<Self> {
        let subject = context.subject(ino).filter(|subject| subject.inode.is_dir())?;
        let map = Map::read(&context.checked, &subject);
        let names = names_in::read(&context.checked, &subject, &map);
        (!names.is_unreadable).then_some(Self { subject, map, names })
    }

    /// Returns a new, empty directory in an existing slot.
    pub(super) fn new(subject: InodeDraft, dot_dot: u32) -> Self {
        let names = DirectoryNames { dot_dot, ..DirectoryNames::default() };
        Self { subject, map: Map::default(), names }
    }

    pub(super) fn entries(&self) -> &[FoundName] {
        &self.names.entries
    }

    pub(super) fn entries_mut(&mut self) -> &mut Vec<FoundName> {
        &mut self.names.entries
    }

    pub(super) fn set_dot_dot(&mut self, parent: u32) {
        self.names.dot_dot = parent;
    }

    /// Returns whether names are encrypted, so that no name can be created without the key.
    pub(super) fn is_encrypted(&self) -> bool {
        self.subject.has(flags::ENCRYPT)
    }

    /// Writes the directory. Returns `None` if there is no room for it.
    pub(super) fn write(mut self, context: &mut RepairContext<'_>) -> Option<Draft> {
        let mut draft = Draft::default();
        let hashes = self.put_misplaced_last(context);
        let strict = context.checked.params().strict_names;
        let is_settled = names_in::settle(&self.subject, strict, &mut self.names.entries);
        let hashes = hashes.filter(|_| is_settled);
        let parent = self.names.dot_dot;
        let is_dir = context.checked.known(parent).is_some_and(|known| known.is_dir);
        if !is_dir {
            self.names.dot_dot = ROOT;
        }
        let is_inline = self.subject.has(flags::INLINE_DATA);
        if is_inline && self.write_inline() {
            self.subject.store(&mut draft);
            return Some(draft);
        }
        if is_inline {
            attributes::set_inline_rest(&mut self.subject, None);
            self.subject.inode.set_flag(flags::INLINE_DATA, false);
            map::write_empty(&context.checked, &mut self.subject);
        }
        let blocks = self.layout(context, hashes);
        self.place(context, &blocks, &mut draft)?;
        for (number, bytes) in (0..).zip(blocks) {
            let place = self.map.place(number)?;
            draft.write(context.byte_of(place), bytes);
        }
        self.subject.store(&mut draft);
        Some(draft)
    }

    /// Moves entries with a duplicate name to the end, the one farthest from the hashes of its block last. Blocks of an
    /// index contain a range of hashes each, so that entry has the damaged name. Returns the hashes of a directory with
    /// an index, unless the order of entries changes.
    fn put_misplaced_last(&mut self, context: &RepairContext<'_>) -> Option<Hashes> {
        if !self.subject.has(flags::INDEX) {
            return None;
        }
        let (version, hashes) = self.hashes(context)?;
        let mut counts: HashMap<u32, u32> = HashMap::with_capacity(hashes.len());
        hashes.iter().for_each(|hash| *counts.entry(*hash).or_default() += 1);
        if counts.len() == hashes.len() {
            return Some((version, hashes));
        }
        let is_unique = |hash: &u32| counts.get(hash) == Some(&1);
        let mut ranges: HashMap<u32, (u32, u32)> = HashMap::new();
        for (entry, hash) in self.names.entries.iter().zip(&hashes) {
            if is_unique(hash) {
                let range = ranges.entry(entry.block).or_insert((*hash, *hash));
                *range = (range.0.min(*hash), range.1.max(*hash));
            }
        }
        let distance = |entry: &FoundName, hash: &u32| match ranges.get(&entry.block) {
            _ if is_unique(hash) => 0,
            Some((least, most)) => least.saturating_sub(*hash).max(hash.saturating_sub(*most)),
            None => 0,
        };
        let entries = std::mem::take(&mut self.names.entries);
        let mut placed: Vec<(u32, FoundName)> = entries
            .into_iter()
            .zip(&hashes)
            .map(|(entry, hash)| (distance(&entry, hash), entry))
            .collect();
        placed.sort_by_key(|(distance, _)| *distance);
        self.names.entries = placed.into_iter().map(|(_, entry)| entry).collect();
        None
    }

    /// Returns the contents of its blocks. Sets or clears the index flag. `hashes` are those of its names, if they are
    /// known.
    fn layout(&mut self, context: &mut RepairContext<'_>, hashes: Option<Hashes>) -> Vec<Vec<u8>> {
        let params = context.checked.params();
        let form = Form {
            block_size: context.block_size(),
            seed: self.subject.block_seed(),
            ino: self.subject.ino,
            dot_dot: self.names.dot_dot,
            directory_code: names_in::directory_code(&context.checked),
            is_large: params.large_dir,
        };
        let entries = &self.names.entries;
        let size = self.subject.inode.size() >> context.checked.geometry().block_size_log;
        let had: u64 = self.map.runs.iter().map(|run| u64::from(run.len)).sum();
        let had = had.min(size).min(context.checked.geometry().blocks_count) as usize;
        let was_indexed = self.subject.has(flags::INDEX);
        self.subject.inode.set_flag(flags::INDEX, false);
        // lost+found keeps its blocks, so that there is room the next time.
        let list = form.list(entries, 1);
        let is_wanted = params.dir_index && list.len() > 1 && (was_indexed || list.len() > had);
        if is_wanted && let Some((version, hashes)) = hashes.or_else(|| self.hashes(context)) {
            let indexed = [Filling::Roomy, Filling::Tight]
                .into_iter()
                .filter_map(|filling| form.indexed(entries, version, &hashes, filling))
                .find(|blocks| self.has_room_for(context, blocks.len()));
            if let Some(blocks) = indexed {
                self.subject.inode.set_flag(flags::INDEX, true);
                return blocks;
            }
        }
        let is_whole = self.map.end() == had as u64;
        if was_indexed || had <= list.len() || !is_whole { list } else { form.list(entries, had) }
    }

    /// Returns the hash version of an index and the hash of each name. Returns `None` if the hashes are unknown.
    fn hashes(&self, context: &RepairContext<'_>) -> Option<Hashes> {
        let entries = &self.names.entries;
        let style = match (self.subject.has(flags::ENCRYPT), self.subject.has(flags::CASEFOLD)) {
            // The hash depends on a key, but is stored after each name.
            (true, true) => {
                let stored =
                    entries.iter().map(FoundName::stored_hash).collect::<Option<Vec<_>>>()?;
                return Some((htree::SIPHASH, stored));
            }
            (true, false) => NameEncoding::Encrypted,
            (false, true) => NameEncoding::Folded,
            (false, false) => NameEncoding::Plain,
        };
        // Implementations fold names that are not UTF-8 in different ways.
        let is_text = |entry: &FoundName| std::str::from_utf8(&entry.name).is_ok();
        if style == NameEncoding::Folded && !entries.iter().all(is_text) {
            return None;
        }
        let params = context.checked.params();
        let version = self.names.hash_version.filter(|version| *version <= 2);
        let version = version.unwrap_or(params.default_hash_version());
        let hasher = params.hasher(version)?;
        let mut folded = Vec::new();
        let hash = |entry: &FoundName| style.hash(&hasher, &entry.name, &mut folded).major;
        Some((version, entries.iter().map(hash).collect()))
    }

    /// Returns whether it can have this many blocks.
    fn has_room_for(&self, context: &mut RepairContext<'_>, blocks: usize) -> bool {
        /// Maximum number of additional map blocks.
        const MAP_MAX: u64 = 4;
        let had: u64 = self.map.runs.iter().map(|run| u64::from(run.len)).sum();
        let more = (blocks as u64).saturating_sub(had);
        more == 0 || context.has_free(more + MAP_MAX)
    }

    /// Gives it as many blocks as there are contents, and writes its map if that changes.
    fn place(
        &mut self,
        context: &mut RepairContext<'_>,
        blocks: &[Vec<u8>],
        draft: &mut Draft,
    ) -> Option<()> {
        let before = self.map.runs.clone();
        let mut spare = self.spare(context, blocks.len() as u64);
        self.map.truncate(blocks.len() as u64);
        self.map.runs.iter_mut().for_each(|run| run.unwritten = false);
        let mut added = BTreeMap::new();
        for number in 0..blocks.len() as u32 {
            if self.map.place(number).is_none() {
                let place = new_place(context, &self.map, &added, &mut spare, number)?;
                added.insert(number, Some(place));
            }
        }
        self.map.replace(&added);
        let is_mapped = self.subject.has(flags::EXTENTS) || !before.is_empty();
        if before != self.map.runs || self.map.is_damaged || !is_mapped {
            let is_written = map::write(context, &mut self.subject, &mut self.map, draft);
            is_written.then_some(())?;
        }
        let size = blocks.len() as u64 * context.block_size() as u64;
        self.subject.inode.set_size(size);
        let clusters = self.map.clusters(&context.checked);
        set_blocks(context, &mut self.subject, clusters, true);
        Some(())
    }

    /// Returns the clusters that a directory with `blocks` blocks no longer needs at their positions.
    fn spare(&self, context: &RepairContext<'_>, blocks: u64) -> Vec<Block> {
        let geometry = context.checked.geometry();
        let end = blocks.next_multiple_of(geometry.cluster_blocks().into());
        let mut spare = Vec::new();
        for run in self.map.runs.iter().rev() {
            let behind = (0..run.len).rev().take_while(|at| u64::from(run.first + at) >= end);
            for place in behind.map(|at| run.start.plus(at.into())) {
                let start = geometry.cluster_start(place);
                if spare.last() != Some(&start) {
                    spare.push(start);
                }
            }
        }
        spare
    }

    /// Writes the entries to the inode, if they fit.
    fn write_inline(&mut self) -> bool {
        let mut rest = attributes::inline_rest(&self.subject).unwrap_or_default();
        let mut parts = [Vec::new(), Vec::new()];
        let rooms = [I_BLOCK_SIZE - INLINE_PARENT_SIZE, rest.len()];
        let mut left = rooms;
        for entry in &self.names.entries {
            let Some(part) = left.iter().position(|left| *left >= entry.size()) else {
                return false;
            };
            left[part] -= entry.size();
            parts[part].push(entry);
        }
        let root = self.subject.inode.i_block_mut();
        root.fill(0);
        root[..INLINE_PARENT_SIZE].copy_from_slice(&self.names.dot_dot.to_le_bytes());
        rest.fill(0);
        for (bytes, entries) in
            [(&mut root[INLINE_PARENT_SIZE..], &parts[0]), (&mut rest[..], &parts[1])]
        {
            if entries.is_empty() && bytes.len() >= dirent::HEADER_SIZE {
                let len = bytes.len();
                dirent::write_record(bytes, len, 0, 0, &[]);
            }
            fill(bytes, 0, entries);
        }
        self.subject.inode.set_size((I_BLOCK_SIZE + rest.len()) as u64);
        attributes::set_inline_rest(&mut self.subject, Some(&rest))
    }
}

/// Returns a position for a file block: in the cluster that the file already has for it, or in a new one.
fn new_place(
    context: &mut RepairContext<'_>,
    map: &Map,
    added: &BTreeMap<u32, Option<Block>>,
    spare: &mut Vec<Block>,
    number: u32,
) -> Option<Block> {
    let geometry = *context.checked.geometry();
    let within = number & (geometry.cluster_blocks() - 1);
    let first = number - within;
    for other in first..first.saturating_add(geometry.cluster_blocks()) {
        let place = map.place(other).or_else(|| added.get(&other).copied().flatten());
        if let Some(place) = place {
            return Some(geometry.cluster_start(place).plus(within.into()));
        }
    }
    let cluster = match spare.pop() {
        Some(cluster) => cluster,
        None => context.take_cluster()?,
    };
    Some(cluster.plus(within.into()))
}
