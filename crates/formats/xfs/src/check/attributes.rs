//! Checks extended attributes in all forms, including parent pointers.

use engine::Corruption;
use parking_lot::Mutex;
use vfs::Ino;
use vfs::check::Finding;

use super::codes;
use super::forks;
use super::inodes::Inodes;
use super::names;
use crate::format::address::{Block, FileBlock};
use crate::format::attr::leaf::{self, Value, parent_of};
use crate::format::attr::{
    self, AttrLayout, BlockType, VALUE_LEN_MAX, acl, flags, node, remote, shortform,
};
use crate::format::bytes::be64;
use crate::format::extent::Extent;
use crate::format::features::Incompat;
use crate::format::hash::{folded_hash, name_hash};
use crate::format::inode::{Fork, ForkFormat, Inode};

/// Names of access control lists on disk.
const ACLS: [&[u8]; 2] = [b"SGI_ACL_FILE", b"SGI_ACL_DEFAULT"];
/// Byte offset of the LSN in leaves and nodes.
const LSN_OFFSET: usize = 24;
/// Maximum number of node levels.
const LEVELS_MAX: u16 = node::LEVEL_MAX;

/// Checks the attributes of an inode that has an attribute fork.
pub(super) fn check(inodes: &Inodes<'_>, number: u32, ino: Ino, inode: &Inode, extents: &[Extent]) {
    let layout = AttrLayout::new(&inodes.ctx.geometry);
    let mut attributes = Attributes {
        inodes,
        number,
        ino,
        extents,
        layout,
        used: Vec::new(),
        last: None,
        hash: 0,
        has_incomplete: false,
    };
    match inode.fork_format(Fork::Attr) {
        ForkFormat::Local => attributes.short(inode),
        ForkFormat::Extents if extents.is_empty() => {}
        _ => attributes.tree(),
    }
}

/// Returns the readable parent pointers of an inode. `quiet` reports no findings for structures that were already
/// checked.
pub(super) fn parents(quiet: &Inodes<'_>, number: u32, ino: Ino) -> Vec<(u64, u32, Vec<u8>)> {
    let Some(inode) = names::read_inode(quiet.ctx, ino) else { return Vec::new() };
    let mut extents = Vec::new();
    forks::map(quiet, ino, &inode, Fork::Attr, |extent| extents.push(extent));
    parents_in(quiet, number, ino, &inode, &extents)
}

/// Like [`parents`], given the inode and the extents of its attributes.
pub(super) fn parents_in(
    quiet: &Inodes<'_>,
    number: u32,
    ino: Ino,
    inode: &Inode,
    extents: &[Extent],
) -> Vec<(u64, u32, Vec<u8>)> {
    let found = Mutex::new(Vec::new());
    let show = |dir: u64, generation: u32, name: &[u8]| {
        found.lock().push((dir, generation, name.to_vec()));
    };
    if inode.has_attr_fork() {
        let inodes = Inodes { pointers: Some(&show), ..*quiet };
        check(&inodes, number, ino, inode, extents);
    }
    found.into_inner()
}

struct Attributes<'a> {
    inodes: &'a Inodes<'a>,
    number: u32,
    ino: Ino,
    extents: &'a [Extent],
    layout: AttrLayout,
    /// Logical blocks in use.
    used: Vec<(u32, u32)>,
    /// By level from the leaves up: the block visited last and its next sibling.
    last: Option<[(u32, u32); LEVELS_MAX as usize + 1]>,
    hash: u32,
    has_incomplete: bool,
}

impl Attributes<'_> {
    fn fault(&self, detail: impl Into<String>) -> Finding {
        Finding::new(codes::ATTR).of_inode(self.ino.0).detail(detail)
    }

    fn found(&self, finding: Finding) {
        self.inodes.ctx.found(finding);
    }

    fn short(&mut self, inode: &Inode) {
        let fork = inode.fork(Fork::Attr);
        let entries = match shortform::entries(fork) {
            Ok(entries) => entries,
            Err(damage) => return self.damage(&damage, None),
        };
        let mut end = shortform::HEADER_SIZE;
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(damage) => return self.damage(&damage, None),
            };
            end += entry.size();
            let known = flags::NAMESPACE;
            if entry.flags & !known != 0 || (entry.flags & known).count_ones() > 1 {
                let finding = self.fault("flags").named(entry.name);
                self.found(finding.mismatch("one namespace", format_args!("{:#x}", entry.flags)));
            }
            self.entry(entry.flags, entry.name, Some(entry.value), None);
        }
        match shortform::total(fork) {
            Ok(total) if total != end => {
                self.found(self.fault("size of all in the inode").mismatch(end, total));
            }
            _ => {}
        }
    }

    fn damage(&self, damage: &Corruption, block: Option<Block>) {
        self.inodes.ctx.damage(codes::ATTR, &damage.clone().of_inode(self.ino.0), block);
    }

    /// Checks one entry.
    fn entry(&self, entry_flags: u8, name: &[u8], value: Option<&[u8]>, hash: Option<u32>) {
        let mut expected = name_hash(name);
        if entry_flags & flags::NAMESPACE == flags::PARENT {
            let features = &self.inodes.ctx.geometry.features;
            let parent = value.and_then(parent_of);
            let is_known = features.incompat(Incompat::PARENT);
            match parent.filter(|_| is_known && !name.contains(&b'/') && !name.contains(&0)) {
                Some((dir, generation)) => {
                    let name_hash = if features.ascii_ci() { folded_hash(name) } else { expected };
                    expected = name_hash ^ (dir >> 32) as u32 ^ dir as u32;
                    match self.inodes.pointers {
                        Some(show) => show(dir, generation, name),
                        None => {
                            let links = self.inodes.links;
                            links.parent_pointer(self.number, dir, generation, name);
                        }
                    }
                }
                None => {
                    let finding = Finding::new(codes::PARENT).of_inode(self.ino.0).named(name);
                    self.found(finding.detail("not a parent pointer"));
                }
            }
        }
        if name.contains(&0) {
            self.found(self.fault("NUL in a name").named(name));
        }
        if let Some(hash) = hash.filter(|hash| *hash != expected) {
            let finding = Finding::new(codes::ATTR_HASH).of_inode(self.ino.0).named(name);
            let (expected, hash) = (format!("{expected:#010x}"), format!("{hash:#010x}"));
            self.found(finding.mismatch(expected, hash));
        }
        let is_acl = entry_flags & flags::NAMESPACE == flags::ROOT && ACLS.contains(&name);
        if is_acl && value.is_some_and(|value| acl::acl_to_linux(value).is_none()) {
            self.found(Finding::new(codes::ATTR_ACL).of_inode(self.ino.0).named(name));
        }
    }

    fn locate(&self, at: u32) -> Option<Block> {
        let at = FileBlock(at.into());
        let index = self.extents.partition_point(|extent| extent.end() <= at);
        let extent = self.extents.get(index).filter(|extent| extent.offset <= at)?;
        let start = extent.start.plus(at.0 - extent.offset.0);
        Some(self.inodes.ctx.geometry.device_block(start))
    }

    fn tree(&mut self) {
        let is_sound = self.block(0, None, None);
        if !is_sound {
            return;
        }
        if let Some(last) = self.last {
            for (_, next) in last.iter().filter(|(_, next)| *next != 0) {
                self.found(self.fault("forw of the last block of a level").mismatch(0, next));
            }
        }
        self.used.sort_unstable();
        let overlaps = self.used.windows(2).any(|two| two[0].0 + two[0].1 > two[1].0);
        let used: u64 = self.used.iter().map(|(_, len)| u64::from(*len)).sum();
        let mapped: u64 = self.extents.iter().map(|extent| extent.len).sum();
        // An incomplete entry may not have its blocks yet.
        if overlaps || used > mapped || (used < mapped && !self.has_incomplete) {
            let finding = self.fault("blocks of the fork that attributes use");
            self.found(finding.mismatch(mapped, used));
        }
    }

    /// Checks a block and all below it. Returns false if it is invalid.
    fn block(&mut self, at: u32, level: Option<u16>, hash: Option<u32>) -> bool {
        let ctx = self.inodes.ctx;
        let Some(place) = self.locate(at) else {
            self.found(self.fault("a block that is not mapped").mismatch("a block", at));
            return false;
        };
        // A block that is referenced twice is detected here, so no block is visited twice.
        if self.used.iter().any(|(used, _)| *used == at) && self.used.len() < 1 << 12
            || self.used.len() as u64 > self.extents.iter().map(|extent| extent.len).sum()
        {
            self.found(self.fault("a block with two pointers").mismatch("one pointer", at));
            return false;
        }
        self.used.push((at, 1));
        let mut data = vec![0; self.layout.block_size];
        if !ctx.read(place, &mut data) {
            return false;
        }
        let outcome = match attr::verify(&ctx.geometry, self.ino.0, place, &data) {
            Err(damage) if damage.is_checksum() => {
                ctx.damage(codes::ATTR_CHECKSUM, &damage, Some(place));
                attr::verify_structure(&ctx.geometry, self.ino.0, place, &data)
            }
            outcome => outcome,
        };
        if let Err(damage) = outcome {
            self.damage(&damage, Some(place));
            return false;
        }
        let kind = self.layout.block_type(&data);
        if let Some(found) =
            kind.filter(|_| self.layout.crc).and_then(|kind| attr::padding(kind, &data))
        {
            let finding = Finding::new(codes::ATTR).of_inode(self.ino.0).at_block(place.0);
            self.found(finding.field("pad").mismatch(0, found));
        }
        if kind == Some(BlockType::Leaf) && leaf::has_lost_entries(self.layout, &data) {
            self.found(self.fault("names without an entry").at_block(place.0));
        }
        if self.layout.crc {
            let finding = || Finding::new(codes::LSN).of_inode(self.ino.0).at_block(place.0);
            ctx.check_lsn(be64(&data, LSN_OFFSET), finding);
        }
        match kind {
            Some(BlockType::Node) => self.node(at, level, hash, &data),
            _ => self.leaf(at, level, hash, &data),
        }
    }

    fn siblings(&mut self, at: u32, level: u16, data: &[u8]) {
        let last = self.last.get_or_insert_default();
        let (before, next) = last[usize::from(level)];
        let is_first = before == 0 && next == 0;
        let (back, forward) = (attr::back(data), attr::forward(data));
        last[usize::from(level)] = (at, forward);
        if back != before || (!is_first && next != at) {
            let finding = self.fault(format!("siblings of block {at}"));
            self.found(
                finding.mismatch(format_args!("{before}, {at}"), format_args!("{back}, {next}")),
            );
        }
    }

    fn last_hash(&self, at: u32, above: Option<u32>, found: Option<u32>) {
        if let (Some(above), Some(found)) = (above, found)
            && above != found
        {
            let finding = self.fault(format!("hash that the node above has for block {at}"));
            self.found(finding.mismatch(format_args!("{found:#x}"), format_args!("{above:#x}")));
        }
    }

    fn node(&mut self, at: u32, level: Option<u16>, hash: Option<u32>, data: &[u8]) -> bool {
        let found = node::level(self.layout, data);
        if level.is_some_and(|level| level != found) {
            self.found(self.fault("level of a node").mismatch(level.unwrap_or_default(), found));
            return false;
        }
        self.siblings(at, found, data);
        self.last_hash(at, hash, node::last_hash(self.layout, data));
        node::children(self.layout, data)
            .into_iter()
            .all(|child| self.block(child.block, Some(found - 1), Some(child.hash)))
    }

    fn leaf(&mut self, at: u32, level: Option<u16>, hash: Option<u32>, data: &[u8]) -> bool {
        if level.is_some_and(|level| level != 0) {
            self.found(self.fault("level of a node").mismatch(level.unwrap_or_default(), 0));
            return false;
        }
        self.siblings(at, 0, data);
        self.last_hash(at, hash, leaf::last_hash(self.layout, data));
        let entries: Vec<_> = leaf::entries(self.layout, data).collect();
        if entries.is_empty() && level.is_some() {
            self.found(self.fault(format!("leaf {at} is empty, but is not the only leaf")));
        }
        for entry in entries {
            if entry.hash < self.hash {
                self.found(self.fault(format!("hashes of leaf {at} are less than those before")));
            }
            self.hash = entry.hash;
            let known = flags::LOCAL | flags::NAMESPACE | flags::INCOMPLETE;
            if entry.flags & !known != 0 {
                let found = format!("{:#x}", entry.flags);
                self.found(self.fault("flags").named(entry.name).mismatch("known flags", found));
            }
            // Incomplete attributes left by a crash stay until the kernel finds them, and are not damage. Parent
            // pointers must be complete.
            self.has_incomplete |= !entry.is_complete();
            if !entry.is_complete() && entry.flags & flags::PARENT != 0 {
                let finding = Finding::new(codes::PARENT).of_inode(self.ino.0).named(entry.name);
                self.found(finding.detail("incomplete"));
            }
            match entry.value {
                Value::Local(value) => {
                    self.entry(entry.flags, entry.name, Some(value), Some(entry.hash));
                }
                Value::Remote(place) => {
                    let value = self.remote(&entry, place);
                    self.entry(entry.flags, entry.name, value.as_deref(), Some(entry.hash));
                }
            }
        }
        true
    }

    /// Reads a remote value.
    fn remote(
        &mut self,
        entry: &leaf::AttrLeafEntry<'_>,
        place: remote::ValueLocation,
    ) -> Option<Vec<u8>> {
        let (ctx, layout) = (self.inodes.ctx, self.layout);
        let len = place.len as usize;
        if place.block == 0 || len > VALUE_LEN_MAX || len == 0 {
            if entry.is_complete() {
                self.found(self.fault("length of a remote value").named(entry.name));
            }
            return None;
        }
        let count = remote::blocks(layout, len);
        let mut value = Vec::new();
        let mut data = vec![0; layout.block_size];
        for index in 0..count {
            let at = place.block.saturating_add(index);
            let Some(block) = self.locate(at) else {
                if entry.is_complete() {
                    self.found(self.fault("a value without blocks").named(entry.name));
                }
                return None;
            };
            self.used.push((at, 1));
            if !ctx.read(block, &mut data) {
                return None;
            }
            let verdict = match remote::verify(&ctx.geometry, self.ino.0, block, &data) {
                Err(damage) if damage.is_checksum() => {
                    ctx.damage(codes::ATTR_CHECKSUM, &damage, Some(block));
                    remote::verify_structure(&ctx.geometry, self.ino.0, block, &data)
                }
                outcome => outcome,
            };
            let part = (len - value.len()).min(remote::bytes_per_block(layout));
            let part = verdict.and_then(|()| remote::part(layout, &data, value.len(), part));
            match part {
                Ok(part) => value.extend_from_slice(part),
                Err(damage) if entry.is_complete() => {
                    self.damage(&damage, Some(block));
                    return None;
                }
                Err(_) => return None,
            }
        }
        Some(value)
    }
}
