//! Repairs single inodes: identity, type, fork formats, and fields that can be derived from others.

use std::cell::OnceCell;
use std::collections::HashMap;

use vfs::{FileType, Ino};

use super::fields::{NEWRTBM, flags2_of};
use super::map::{
    self, ExtentSpace, Map, Room, blocks_of, install, of_reverse_map, tree_of_reverse_map,
};
use crate::btree::records::rmap_offset;
use crate::check::view::{Claims, Mapping, View};
use crate::format::address::Block;
use crate::format::bytes::{be16, be64, put16, put64};
use crate::format::extent::{EXTENT_SIZE, Extent};
use crate::format::geometry::Geometry;
use crate::format::inode::{
    self, Fork, ForkFormat, Inode, MAGIC, NEXT_UNLINKED_OFFSET, flags, flags2,
};
use crate::format::metafile::MetafileType;
use crate::format::quota;

/// Rewritten blocks.
type Blocks = Vec<(Block, Vec<u8>)>;

/// The records of an inode in reverse maps.
#[derive(Debug, Default)]
pub(super) struct Mapped {
    /// Records of allocation groups.
    pub(super) groups: Vec<Mapping>,
    /// Records of realtime groups.
    realtime: Vec<Mapping>,
}

impl Mapped {
    pub(super) const fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.realtime.is_empty()
    }

    fn blocks(&self) -> u64 {
        self.groups.iter().chain(&self.realtime).map(|mapping| mapping.len).sum()
    }

    /// Returns whether allocation groups have records of data.
    fn has_data(&self) -> bool {
        let is_data = |mapping: &Mapping| {
            mapping.offset & (rmap_offset::ATTR_FORK | rmap_offset::BMBT_BLOCK) == 0
        };
        self.groups.iter().any(is_data)
    }

    /// Returns the extents of a fork in a space.
    pub(super) fn extents(
        &self,
        geometry: &Geometry,
        fork: Fork,
        space: ExtentSpace<'_>,
    ) -> Vec<Extent> {
        match (space, geometry.of_realtime_device()) {
            (ExtentSpace::Groups(_), _) => of_reverse_map(geometry, &self.groups, fork),
            (_, Some(device)) => of_reverse_map(&device, &self.realtime, fork),
            _ => Vec::new(),
        }
    }
}

/// The result of repairing a slot.
pub(super) struct Repaired {
    pub(super) slot: Vec<u8>,
    /// Rewritten blocks of its extent maps.
    pub(super) blocks: Blocks,
    /// Description of the repair, as a sentence.
    pub(super) what: &'static str,
}

/// Repairs inodes.
pub(super) struct Repairer<'m, 's> {
    pub(super) view: &'m View<'s>,
    pub(super) claims: Option<&'m Claims>,
    pub(super) room: Room<'m>,
    /// True if something could not be rewritten for lack of room.
    pub(super) is_full: bool,
    /// Directories in parent pointers, with their generations; collected when an inode would be cleared.
    pub(super) named: OnceCell<HashMap<u64, NamedDirectory>>,
}

/// A directory according to the parent pointers of its children.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedDirectory {
    generation: u32,
    /// True if its children belong to the metadata directory.
    is_metadata: bool,
}

/// Findings about an inode.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hints {
    /// It shares blocks.
    pub(super) shares: bool,
    /// Its extent map or counts are wrong.
    pub(super) is_map_wrong: bool,
}

impl Repairer<'_, '_> {
    pub(super) fn geometry(&self) -> Geometry {
        *self.view.geometry()
    }

    /// Returns the reverse-map records of an inode.
    fn mapped(&self, ino: Ino) -> Mapped {
        let Some(claims) = self.claims else { return Mapped::default() };
        let of_inode = |all: &[Mapping]| {
            let first = all.partition_point(|mapping| mapping.owner < ino.0);
            let all = all[first..].iter().take_while(|mapping| mapping.owner == ino.0);
            all.copied().collect()
        };
        Mapped { groups: of_inode(&claims.mapped), realtime: of_inode(&claims.realtime) }
    }

    /// Repairs the slot of an inode in use. `None` if nothing can be done.
    pub(super) fn repair(&mut self, ino: Ino, slot: &[u8], hints: Hints) -> Option<Repaired> {
        let geometry = self.geometry();
        let is_of_section = self.view.superblock().raw.realtime_inodes().contains(&ino.0);
        if is_of_section && geometry.realtime.is_none() {
            // Without a realtime device they are empty.
            return Some(self.clear(ino, slot));
        }
        let mapped = self.mapped(ino);
        let signs = signs_of_identity(&geometry, ino, slot);
        let is_own =
            (signs >= 2 || signs == 1 && self.is_plausible(ino, slot)) && !self.is_copy(ino, slot);
        let made = is_own.then(|| self.repair_own(ino, slot, &mapped, hints)).flatten();
        // The root of a map may be wrong although all blocks below it are readable.
        let again = Hints { is_map_wrong: true, ..hints };
        let can_retry = made.is_none() && is_own && !hints.is_map_wrong && !self.is_full;
        let made = match can_retry {
            true => self.repair_own(ino, slot, &mapped, again),
            false => made,
        };
        let made = made.or_else(|| self.made_of_reverse_map(ino, &mapped));
        // An inode that would be lost for lack of room is not changed.
        if made.is_none() && std::mem::take(&mut self.is_full) {
            return None;
        }
        Some(made.unwrap_or_else(|| self.clear(ino, slot)))
    }

    /// Returns whether a slot contains a copy of another inode, which is also in its own slot.
    fn is_copy(&self, ino: Ino, slot: &[u8]) -> bool {
        let other = Ino(be64(slot, 152));
        if !self.geometry().features.crc() || other == ino {
            return false;
        }
        // The checksum may be outdated, and everything after the fork offset is compared as a whole.
        let is_same = |original: &Vec<u8>| {
            original[..NEXT_UNLINKED_OFFSET] == slot[..NEXT_UNLINKED_OFFSET]
                && original[152..] == slot[152..]
        };
        self.view.slot(other).is_some_and(|original| is_same(&original))
    }

    fn repair_own(
        &mut self,
        ino: Ino,
        slot: &[u8],
        mapped: &Mapped,
        hints: Hints,
    ) -> Option<Repaired> {
        let geometry = self.geometry();
        let mut inode = Inode::from_slot(slot);
        identify(&geometry, ino, inode.as_mut_bytes());
        self.choose_space(ino, &mut inode, mapped);
        self.flags2(&mut inode);
        let file_type = match inode.file_type() {
            Some(other) if self.is_other_inode(ino, &inode, other) => return None,
            _ if self.view.is_root(ino) => FileType::Directory,
            _ if self.view.is_special(ino) => FileType::Regular,
            Some(file_type) => file_type,
            None => self.guess_type(&inode, ino, mapped)?,
        };
        let permissions = inode.mode();
        inode.set_mode(file_type, permissions);
        self.metadata(&mut inode, ino, file_type);
        self.boundary(&mut inode, file_type);
        let mut blocks = Vec::new();
        let used_before = inode.nblocks();
        self.data_form(&mut inode, file_type, mapped)?;
        if file_type == FileType::Symlink && !has_target(&mut inode) {
            return None;
        }
        let mut total = 0;
        let maps = self.maps(ino, &inode, file_type, mapped);
        let mapped_blocks = mapped.blocks();
        // The reverse map accounts for all blocks that the inode counts, but the extent maps do not.
        let is_short = !mapped.is_empty()
            && used_before == mapped_blocks
            && maps.iter().map(Map::blocks).sum::<u64>() != mapped_blocks;
        for (fork, map) in [Fork::Data, Fork::Attr].into_iter().zip(&maps) {
            let (new, used) = self.fork(ino, &mut inode, fork, map, mapped, (hints, is_short))?;
            total += used;
            blocks.extend(new);
        }
        inode.set_nblocks(total);
        if hints.shares && file_type == FileType::Regular {
            inode.set_flags2(inode.flags2() | flags2::REFLINK);
        }
        if self.view.is_root(ino) && inode.nlink() == 0 {
            inode.set_nlink(2);
        }
        if self.view.is_metadir_root(ino) {
            inode.set_metadata(MetafileType::Directory);
        }
        self.fields(&mut inode, ino, file_type);
        self.finish(ino, inode, blocks, "The inode and its forks are corrected.")
    }

    /// Reads the extent maps of both forks. They end where the contents of the inode's type end.
    fn maps(&self, ino: Ino, inode: &Inode, file_type: FileType, mapped: &Mapped) -> [Map; 2] {
        let mut maps = [Fork::Data, Fork::Attr].map(|fork| map::read(self.view, ino, inode, fork));
        if self.is_quota_file(ino, inode) {
            let per_block = u64::from(quota::per_block(self.geometry().block_size()));
            maps[0].end_at(u64::from(u32::MAX) / per_block.max(1) + 1);
        }
        if file_type == FileType::Directory && mapped.is_empty() {
            let counted = inode.nblocks().saturating_sub(maps[1].blocks());
            if let Some(own) = map::of_directory(self.view, ino, &maps[0], counted) {
                maps[0] = own;
            }
        }
        maps
    }

    /// Corrects the flag for realtime data, if reverse maps know the blocks of an inode in the other space only.
    fn choose_space(&self, ino: Ino, inode: &mut Inode, mapped: &Mapped) {
        let realtime = flags::REALTIME;
        if !self.may_be_realtime(ino, inode) {
            return inode.set_flags(inode.flags() & !realtime);
        }
        match (mapped.has_data(), mapped.realtime.is_empty()) {
            (true, true) => inode.set_flags(inode.flags() & !realtime),
            (false, false) => inode.set_flags(inode.flags() | realtime),
            _ => {}
        }
    }

    /// Returns whether the root's slot contains another inode of version 4: neither its type nor its contents are a
    /// directory's.
    fn is_other_inode(&self, ino: Ino, inode: &Inode, file_type: FileType) -> bool {
        !self.geometry().features.crc()
            && self.view.is_root(ino)
            && file_type != FileType::Directory
            && self.guess_type(inode, ino, &Mapped::default()) != Some(FileType::Directory)
    }

    /// Returns whether a slot of version 4, which has only two identifying fields, is a valid inode with corrected ones.
    fn is_plausible(&self, ino: Ino, slot: &[u8]) -> bool {
        let geometry = self.geometry();
        let mut slot = slot.to_vec();
        identify(&geometry, ino, &mut slot);
        !geometry.features.crc()
            && Inode::parse(&geometry, ino, &slot)
                .is_ok_and(|inode| inode.nlink() > 0 && self.view.are_fields_right(ino, &inode))
    }

    fn is_quota_file(&self, ino: Ino, inode: &Inode) -> bool {
        let raw = &self.view.superblock().raw;
        let own = [raw.uquotino, raw.gquotino, raw.pquotino];
        inode.metafile_type().is_quota() || own.iter().any(|own| own.get() == ino.0)
    }

    /// Seals a repaired inode. `None` if it is not valid.
    fn finish(
        &self,
        ino: Ino,
        mut inode: Inode,
        blocks: Blocks,
        what: &'static str,
    ) -> Option<Repaired> {
        let geometry = self.geometry();
        inode::seal_slot(inode.as_mut_bytes());
        inode::verify_structure(&geometry, ino, inode.as_bytes()).ok()?;
        Some(Repaired { slot: inode.as_bytes().to_vec(), blocks, what })
    }

    /// Clears a slot that cannot be saved: it becomes free, or an empty inode if it must exist.
    pub(super) fn clear(&self, ino: Ino, slot: &[u8]) -> Repaired {
        let geometry = self.geometry();
        let mut inode = Inode::from_slot(slot);
        identify(&geometry, ino, inode.as_mut_bytes());
        inode.clear();
        let allowed = flags2::BIGTIME | flags2::NREXT64;
        let flags2 = inode.flags2() & allowed & flags2_of(&geometry);
        inode.set_flags2(flags2);
        let mut what = "The inode is cleared, because none of it is readable.";
        if let Some(named) = self.named_directory(ino) {
            what = "An empty directory is recreated, because parent pointers refer to it.";
            self.make_directory(&mut inode, named.generation, self.view.root());
            inode.set_flags2(flags2);
            if named.is_metadata {
                inode.set_metadata(MetafileType::Directory);
            }
        } else if self.view.is_root(ino) || self.view.is_special(ino) {
            what = "The inode is recreated without contents.";
            self.make_special(ino, &mut inode);
            inode.set_flags2(flags2);
            if self.view.is_metadir_root(ino) {
                inode.set_metadata(MetafileType::Directory);
            }
        }
        inode::seal_slot(inode.as_mut_bytes());
        Repaired { slot: inode.as_bytes().to_vec(), blocks: Vec::new(), what }
    }

    fn make_special(&self, ino: Ino, inode: &mut Inode) {
        let generation = inode.generation();
        if !self.view.is_root(ino) {
            inode.reset(FileType::Regular, 0, generation);
            inode.set_nlink(1);
            if ino.0 == self.view.superblock().raw.rbmino.get() {
                inode.set_flags(NEWRTBM);
            }
            return;
        }
        self.make_directory(inode, generation, ino);
    }

    /// Turns an inode into an empty directory. Its `..` leads to `parent`, the root until its name is known.
    fn make_directory(&self, inode: &mut Inode, generation: u32, parent: Ino) {
        inode.reset(FileType::Directory, 0o755, generation);
        inode.set_nlink(2);
        inode.set_format(Fork::Data, ForkFormat::Local);
        let layout = self.view.layout();
        let bytes = crate::format::dir::short::build(layout, parent, std::iter::empty());
        inode.set_size(bytes.len() as u64);
        inode.fork_mut(Fork::Data)[..bytes.len()].copy_from_slice(&bytes);
    }

    /// Returns the directory of an inode with a lost slot, if parent pointers name it as one: its children are
    /// reconnected to a directory of that generation.
    fn named_directory(&self, ino: Ino) -> Option<NamedDirectory> {
        if self.view.is_root(ino) || self.view.is_special(ino) {
            return None;
        }
        let named = self.named.get_or_init(|| directories_named(self.view));
        named.get(&ino.0).copied()
    }

    fn generation_of_directory(&self, ino: Ino) -> Option<u32> {
        self.named_directory(ino).map(|named| named.generation)
    }

    /// Rebuilds an inode with a lost slot from its reverse-map records. `None` if there are none.
    fn made_of_reverse_map(&mut self, ino: Ino, mapped: &Mapped) -> Option<Repaired> {
        let geometry = self.geometry();
        let mut slot = vec![0; geometry.inode_size()];
        identify(&geometry, ino, &mut slot);
        let mut inode = Inode::from_slot(&slot);
        self.choose_space(ino, &mut inode, mapped);
        let is_realtime = inode.flags() & flags::REALTIME != 0;
        // Realtime blocks are those of regular files.
        inode.set_mode(FileType::Regular, 0o600);
        // Records of a damaged reverse map may overlap.
        let [data, attr] = [Fork::Data, Fork::Attr].map(|fork| {
            let space = ExtentSpace::of(&geometry, &inode, fork);
            Map::default().with(&space, &mapped.extents(&geometry, fork, space))
        });
        if data.is_empty() || !geometry.features.crc() {
            return None;
        }
        let file_type = if is_realtime { FileType::Regular } else { self.type_of(ino, &data) };
        let is_dir = file_type == FileType::Directory;
        let generation = is_dir.then(|| self.generation_of_directory(ino)).flatten();
        inode.reset(file_type, 0o600, generation.unwrap_or(0));
        if is_realtime {
            inode.set_flags(flags::REALTIME);
        }
        inode.set_flags2(flags2_of(&geometry) & (flags2::BIGTIME | flags2::NREXT64));
        inode.set_nlink(if is_dir { 2 } else { 1 });
        inode.set_size(self.size_of(file_type, &data));
        if !attr.is_empty() {
            inode.set_forkoff_bytes(inode.literal_size() / 2 / 8 * 8);
        }
        let (mut blocks, mut total) = (Vec::new(), 0);
        for (fork, extents) in [(Fork::Data, data), (Fork::Attr, attr)] {
            let old = tree_of_reverse_map(&geometry, &mapped.groups, fork);
            let new = install(&geometry, (ino, &mut inode, fork), &extents, &old, &mut self.room);
            self.is_full |= new.is_none();
            let new = new?;
            total += blocks_of(&extents) + new.len() as u64;
            blocks.extend(new);
            if !inode.set_extents(fork, extents.len() as u64) {
                return None;
            }
        }
        inode.set_nblocks(total);
        let what = "The inode is recreated from its blocks in the reverse map.";
        self.finish(ino, inode, blocks, what)
    }

    /// Repairs the extent map and extent count of a fork. Returns the blocks to write, and the number of its blocks.
    fn fork(
        &mut self,
        ino: Ino,
        inode: &mut Inode,
        fork: Fork,
        map: &Map,
        mapped: &Mapped,
        (hints, is_short): (Hints, bool),
    ) -> Option<(Blocks, u64)> {
        let geometry = self.geometry();
        if !matches!(inode.fork_format(fork), ForkFormat::Extents | ForkFormat::Btree)
            || fork == Fork::Attr && !inode.has_attr_fork()
        {
            let set = inode.set_extents(fork, 0);
            return set.then(|| (Vec::new(), 0));
        }
        let is_list = inode.fork_format(fork) == ForkFormat::Extents;
        // A tree of few extents is damaged.
        let has_form = is_list
            || !hints.is_map_wrong && map.extents.len() * EXTENT_SIZE > inode.fork(fork).len();
        if map.is_sound && !is_short && has_form {
            let set = inode.set_extents(fork, map.extents.len() as u64);
            return set.then(|| (Vec::new(), map.blocks()));
        }
        let space = ExtentSpace::of(&geometry, inode, fork);
        let said = mapped.extents(&geometry, fork, space);
        let mut extents = match is_short && !said.is_empty() {
            true => Map::default().with(&space, &said),
            false => map.with(&space, &said),
        };
        if fork == Fork::Attr || !self.view.is_user_file(ino, inode) {
            extents.iter_mut().for_each(|extent| extent.unwritten = false);
        }
        let mut old = map.tree.clone();
        old.extend(tree_of_reverse_map(&geometry, &mapped.groups, fork));
        old.sort_unstable_by(|a, b| b.cmp(a));
        old.dedup();
        let blocks = install(&geometry, (ino, inode, fork), &extents, &old, &mut self.room);
        self.is_full |= blocks.is_none();
        let blocks = blocks?;
        let used = blocks_of(&extents) + blocks.len() as u64;
        let set = inode.set_extents(fork, extents.len() as u64);
        set.then_some((blocks, used))
    }
}

/// Returns how many of the identifying fields of a slot are right: 0 to 4.
fn signs_of_identity(geometry: &Geometry, ino: Ino, slot: &[u8]) -> u32 {
    let versions = if geometry.features.crc() { 3..=3 } else { 1..=2 };
    let start = [be16(slot, 0) == MAGIC, versions.contains(&slot[4])];
    let mut signs: u32 = start.into_iter().map(u32::from).sum();
    if geometry.features.crc() {
        signs += u32::from(be64(slot, 152) == ino.0);
        signs += u32::from(slot[160..176] == geometry.meta_uuid);
    }
    signs
}

/// Sets the identifying fields of a slot.
fn identify(geometry: &Geometry, ino: Ino, slot: &mut [u8]) {
    put16(slot, 0, MAGIC);
    if !geometry.features.crc() {
        if !(1..=2).contains(&slot[4]) {
            slot[4] = 2;
        }
        return;
    }
    slot[4] = 3;
    put64(slot, 152, ino.0);
    slot[160..176].copy_from_slice(&geometry.meta_uuid);
}

/// Returns the directories in parent pointers, with their generations.
fn directories_named(view: &View<'_>) -> HashMap<u64, NamedDirectory> {
    let parents = view.each_used(|ino, inode| {
        (!inode.fork(Fork::Attr).is_empty()).then(|| {
            let extents = map::read(view, ino, inode, Fork::Attr).extents;
            let parents = view.parents(ino, inode, &extents);
            let is_metadata = inode.is_metadata();
            let named = |(dir, generation, _)| (dir, NamedDirectory { generation, is_metadata });
            parents.into_iter().map(named).collect::<Vec<_>>()
        })
    });
    let mut named = HashMap::new();
    for (dir, found) in parents.flatten() {
        named.entry(dir).or_insert(found);
    }
    named
}

/// Corrects the size of a symbolic link in the inode. Returns whether the link has a target, or one in blocks.
fn has_target(inode: &mut Inode) -> bool {
    if inode.format() != ForkFormat::Local {
        return true;
    }
    let fork = inode.fork(Fork::Data);
    let (len, fork_len) = (fork.iter().take_while(|byte| **byte != 0).count(), fork.len());
    if inode.size() == 0 || inode.size() > fork_len as u64 {
        inode.set_size(len as u64);
    }
    len > 0
}

/// Returns a valid free slot for one that is only partly free.
pub(super) fn free_slot(geometry: &Geometry, ino: Ino, slot: &[u8]) -> Vec<u8> {
    let mut inode = Inode::from_slot(slot);
    identify(geometry, ino, inode.as_mut_bytes());
    inode.clear();
    let allowed = (flags2::BIGTIME | flags2::NREXT64) & flags2_of(geometry);
    if geometry.features.crc() {
        inode.set_flags2(inode.flags2() & allowed);
    }
    inode::seal_slot(inode.as_mut_bytes());
    inode.as_bytes().to_vec()
}
