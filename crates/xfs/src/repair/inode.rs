//! Inodes by themselves: whose slot it is, what type, which form its forks have, and fields that can be told from
//! the others.

use vfs::{FileType, Ino};

use super::map::{self, Map, Room, blocks_of, install, of_reverse_map};
use crate::check::view::{Claims, Mapping, View};
use crate::format::address::{Block, FileBlock};
use crate::format::attr::shortform;
use crate::format::btree::{ROOT_HEADER_SIZE, Shape};
use crate::format::bytes::{be16, be32, be64, put16, put32, put64};
use crate::format::dir::short::Short;
use crate::format::dir::{Layout, magic};
use crate::format::extent::{EXTENT_SIZE, Extent, LEN_MAX};
use crate::format::features::{Incompat, RoCompat};
use crate::format::geometry::Geometry;
use crate::format::inode::{self, Fork, Format, Inode, MAGIC, NEXT_UNLINKED_OFFSET, flags, flags2};
use crate::format::symlink;

/// Bytes of a data fork that is a device number.
const DEVICE_FORK: usize = 8;
/// Byte of `di_format` and of `di_aformat`.
const FORMAT_OFFSET: usize = 5;
const ATTR_FORMAT_OFFSET: usize = 83;
/// `XFS_DIFLAG_NEWRTBM`.
const NEWRTBM: u16 = 1 << 2;
/// All of `di_flags` that there are.
const FLAGS: u16 = 0x7fff;

/// What becomes of a slot.
pub(super) struct Mended {
    pub(super) slot: Vec<u8>,
    /// Blocks of its maps that are written anew.
    pub(super) blocks: Vec<(Block, Vec<u8>)>,
    /// What is done, as a sentence.
    pub(super) what: &'static str,
}

/// Mends inodes.
pub(super) struct Mender<'m, 's> {
    pub(super) view: &'m View<'s>,
    pub(super) claims: Option<&'m Claims>,
    pub(super) room: Room<'m>,
    /// Something could not be written anew, because there was no room.
    pub(super) is_full: bool,
}

/// What is known of an inode beside its slot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hints {
    /// It shares blocks.
    pub(super) shares: bool,
    /// Something is wrong with its map or counts.
    pub(super) is_map_wrong: bool,
}

impl Mender<'_, '_> {
    fn geometry(&self) -> Geometry {
        *self.view.geometry()
    }

    /// What the reverse map says that an inode has.
    fn mapped(&self, ino: Ino) -> Vec<Mapping> {
        let Some(claims) = self.claims else { return Vec::new() };
        let first = claims.mapped.partition_point(|mapping| mapping.owner < ino.0);
        claims.mapped[first..]
            .iter()
            .take_while(|mapping| mapping.owner == ino.0)
            .copied()
            .collect()
    }

    /// Mends the slot of an inode in use. `None` if nothing can be done.
    pub(super) fn mend(&mut self, ino: Ino, slot: &[u8], hints: Hints) -> Option<Mended> {
        let raw = &self.view.superblock().raw;
        if [raw.rbmino.get(), raw.rsumino.get()].contains(&ino.0) {
            // Without a realtime device they are empty.
            return Some(self.clear(ino, slot));
        }
        let mapped = self.mapped(ino);
        let is_own = signs_of_identity(&self.geometry(), ino, slot) >= 2;
        let made = is_own.then(|| self.mend_own(ino, slot, &mapped, hints)).flatten();
        let made = made.or_else(|| self.from_reverse_map(ino, &mapped));
        // What would be lost for want of room stays as it is.
        if made.is_none() && std::mem::take(&mut self.is_full) {
            return None;
        }
        Some(made.unwrap_or_else(|| self.clear(ino, slot)))
    }

    fn mend_own(
        &mut self,
        ino: Ino,
        slot: &[u8],
        mapped: &[Mapping],
        hints: Hints,
    ) -> Option<Mended> {
        let geometry = self.geometry();
        let mut inode = Inode::from_slot(slot);
        identify(&geometry, ino, inode.as_mut_bytes());
        self.flags2(&mut inode);
        let file_type = match inode.file_type() {
            _ if ino == self.view.root() => FileType::Directory,
            _ if self.view.is_special(ino) => FileType::Regular,
            Some(file_type) => file_type,
            None => self.guess_type(&inode, ino, mapped)?,
        };
        let permissions = inode.mode();
        inode.set_mode(file_type, permissions);
        self.boundary(&mut inode, file_type);
        let mut blocks = Vec::new();
        let used_before = inode.nblocks();
        self.data_form(&mut inode, file_type, mapped)?;
        if inode.format() == Format::Local && file_type == FileType::Symlink {
            let len = inode.fork(Fork::Data).iter().take_while(|byte| **byte != 0).count();
            if inode.size() == 0 || inode.size() > inode.fork(Fork::Data).len() as u64 {
                inode.set_size(len as u64);
            }
            if len == 0 {
                return None;
            }
        }
        let mut total = 0;
        let maps = [Fork::Data, Fork::Attr].map(|fork| map::read(self.view, ino, &inode, fork));
        let mapped_blocks: u64 = mapped.iter().map(|mapping| mapping.len).sum();
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
        if ino == self.view.root() && inode.nlink() == 0 {
            inode.set_nlink(2);
        }
        self.fields(&mut inode, ino, file_type);
        self.finish(ino, inode, blocks, "The inode is set right, with all that it has.")
    }

    /// Seals an inode that is right now. `None` if it is not.
    fn finish(
        &self,
        ino: Ino,
        mut inode: Inode,
        blocks: Vec<(Block, Vec<u8>)>,
        what: &'static str,
    ) -> Option<Mended> {
        let geometry = self.geometry();
        inode::seal_slot(inode.as_mut_bytes());
        inode::verify_structure(&geometry, ino, inode.as_bytes()).ok()?;
        Some(Mended { slot: inode.as_bytes().to_vec(), blocks, what })
    }

    /// What a slot becomes of which nothing can be saved: free, or for those that must be there, empty.
    pub(super) fn clear(&self, ino: Ino, slot: &[u8]) -> Mended {
        let geometry = self.geometry();
        let mut inode = Inode::from_slot(slot);
        identify(&geometry, ino, inode.as_mut_bytes());
        inode.clear();
        let allowed = flags2::BIGTIME | flags2::NREXT64;
        let flags2 = inode.flags2() & allowed & flags2_of(&geometry);
        inode.set_flags2(flags2);
        let mut what = "The inode is cleared, because nothing can be saved of it.";
        if ino == self.view.root() || self.view.is_special(ino) {
            what = "The inode is made anew, and empty.";
            self.make_special(ino, &mut inode);
            inode.set_flags2(flags2);
        }
        inode::seal_slot(inode.as_mut_bytes());
        Mended { slot: inode.as_bytes().to_vec(), blocks: Vec::new(), what }
    }

    fn make_special(&self, ino: Ino, inode: &mut Inode) {
        let generation = inode.generation();
        if ino != self.view.root() {
            inode.reset(FileType::Regular, 0, generation);
            inode.set_nlink(1);
            if ino.0 == self.view.superblock().raw.rbmino.get() {
                inode.set_flags(NEWRTBM);
            }
            return;
        }
        inode.reset(FileType::Directory, 0o755, generation);
        inode.set_nlink(2);
        inode.set_format(Fork::Data, Format::Local);
        let layout = self.view.layout();
        let bytes = crate::format::dir::short::build(layout, ino, std::iter::empty());
        inode.set_size(bytes.len() as u64);
        inode.fork_mut(Fork::Data)[..bytes.len()].copy_from_slice(&bytes);
    }

    /// Makes an inode whose slot is lost from what the reverse map says that it has. `None` if it has nothing.
    fn from_reverse_map(&mut self, ino: Ino, mapped: &[Mapping]) -> Option<Mended> {
        let geometry = self.geometry();
        let mut slot = vec![0; geometry.inode_size()];
        identify(&geometry, ino, &mut slot);
        let mut inode = Inode::from_slot(&slot);
        let data = of_reverse_map(&geometry, mapped, Fork::Data);
        let attr = of_reverse_map(&geometry, mapped, Fork::Attr);
        if data.is_empty() || !geometry.features.crc() {
            return None;
        }
        let file_type = self.type_of(ino, &data);
        inode.reset(file_type, 0o600, 0);
        inode.set_flags2(flags2_of(&geometry) & (flags2::BIGTIME | flags2::NREXT64));
        inode.set_nlink(1);
        inode.set_size(self.size_of(file_type, &data));
        if !attr.is_empty() {
            inode.set_forkoff_bytes(inode.literal_size() / 2 / 8 * 8);
        }
        let (mut blocks, mut total) = (Vec::new(), 0);
        for (fork, extents) in [(Fork::Data, data), (Fork::Attr, attr)] {
            let new = install(&geometry, (ino, &mut inode, fork), &extents, &[], &mut self.room);
            self.is_full |= new.is_none();
            let new = new?;
            total += blocks_of(&extents) + new.len() as u64;
            blocks.extend(new);
            if !inode.set_extents(fork, extents.len() as u64) {
                return None;
            }
        }
        inode.set_nblocks(total);
        let what = "The inode is made anew from what the reverse map says that it has.";
        self.finish(ino, inode, blocks, what)
    }

    /// The type of an inode that has blocks, by the first of them.
    fn type_of(&self, ino: Ino, extents: &[Extent]) -> FileType {
        let geometry = self.geometry();
        let Some(first) = extents.first() else { return FileType::Regular };
        let mut data = vec![0; geometry.block_size()];
        if !self.view.read(geometry.device_block(first.start), &mut data) {
            return FileType::Regular;
        }
        let kind = be32(&data, 0);
        let is_own = |at: usize| !geometry.features.crc() || be64(&data, at) == ino.0;
        if (magic::BLOCK.contains(&kind) || magic::DATA.contains(&kind)) && is_own(40) {
            FileType::Directory
        } else if kind == symlink::MAGIC && is_own(32) {
            FileType::Symlink
        } else {
            FileType::Regular
        }
    }

    /// The size of a file with these extents.
    fn size_of(&self, file_type: FileType, extents: &[Extent]) -> u64 {
        let geometry = self.geometry();
        let end = match file_type {
            FileType::Directory => {
                let leaves = self.view.layout().leaf_first();
                let data = extents.iter().filter(|extent| extent.offset < leaves);
                data.map(|extent| extent.end().0.min(leaves.0)).max()
            }
            _ => extents.last().map(|extent| extent.end().0),
        };
        let size = end.unwrap_or_default() << geometry.block_log;
        match file_type {
            FileType::Symlink => size.min(symlink::TARGET_LEN_MAX as u64),
            _ => size.min(i64::MAX as u64),
        }
    }

    /// The type of an inode whose mode has none, where its data fork tells.
    fn guess_type(&self, inode: &Inode, ino: Ino, mapped: &[Mapping]) -> Option<FileType> {
        let geometry = self.geometry();
        let bytes = inode.as_bytes();
        let size = usize::try_from(inode.size()).ok();
        match bytes[FORMAT_OFFSET] {
            1 => {
                let contents = inode.fork(Fork::Data).get(..size?)?;
                if Short::parse(self.view.layout(), &geometry, contents).is_ok() {
                    return Some(FileType::Directory);
                }
                (!contents.is_empty() && !contents.contains(&0)).then_some(FileType::Symlink)
            }
            2 | 3 => {
                let mut extents = of_reverse_map(&geometry, mapped, Fork::Data);
                if extents.is_empty() {
                    // Read as that of a file, which may have anything.
                    let mut as_file = inode.clone();
                    as_file.set_mode(FileType::Regular, 0);
                    extents = map::read(self.view, ino, &as_file, Fork::Data).extents;
                }
                let is_in_use = inode.nlink() > 0 || !extents.is_empty() || inode.size() > 0;
                is_in_use.then(|| self.type_of(ino, &extents))
            }
            _ => None,
        }
    }

    /// Finds the boundary between the forks and the form of the attributes, if what the inode says cannot be.
    fn boundary(&self, inode: &mut Inode, file_type: FileType) {
        let geometry = self.geometry();
        let literal = inode.literal_size();
        let said = (inode.forkoff_bytes(), inode.as_bytes()[ATTR_FORMAT_OFFSET]);
        let is_special = is_special(file_type);
        let can_be = |at: usize| at < literal && (!is_special || at == DEVICE_FORK);
        let has_none = said.0 == 0 && said.1 == 2 && inode.extents(Fork::Attr) == 0;
        if has_none || said.0 > 0 && can_be(said.0) && makes_sense(&geometry, inode) {
            return;
        }
        let places = std::iter::once(said.0).chain((8..literal).step_by(8));
        for at in places.filter(|at| *at > 0 && can_be(*at)) {
            for format in [said.1, 1, 2, 3] {
                let mut other = inode.clone();
                other.set_forkoff_bytes(at);
                other.as_mut_bytes()[ATTR_FORMAT_OFFSET] = format;
                let has_some = format == 1 || other.extents(Fork::Attr) > 0;
                if has_some && makes_sense(&geometry, &other) {
                    *inode = other;
                    return;
                }
            }
        }
        // Where the boundary can be right, as much of what is behind it as possible is read later on.
        if said.0 > 0 && can_be(said.0) && said.1 == 1 {
            return;
        }
        let bytes = inode.as_mut_bytes();
        bytes[82] = 0;
        bytes[ATTR_FORMAT_OFFSET] = Format::Extents as u8;
        let _ = inode.set_extents(Fork::Attr, 0);
    }

    /// Gives the data fork a form that fits the type.
    fn data_form(&self, inode: &mut Inode, file_type: FileType, mapped: &[Mapping]) -> Option<()> {
        let geometry = self.geometry();
        if is_special(file_type) {
            inode.set_format(Fork::Data, Format::Device);
            inode.set_size(0);
            return inode.set_extents(Fork::Data, 0).then_some(());
        }
        let said = inode.as_bytes()[FORMAT_OFFSET];
        let fitting: &[Format] = match file_type {
            FileType::Regular => &[Format::Extents, Format::Btree],
            FileType::Directory => &[Format::Local, Format::Extents, Format::Btree],
            _ => &[Format::Local, Format::Extents],
        };
        let fits = fitting.iter().any(|format| *format as u8 == said);
        if !(fits && self.is_data_right(inode, file_type, &geometry)) {
            let right = fitting.iter().find(|format| {
                let mut other = inode.clone();
                other.set_format(Fork::Data, **format);
                // An empty list is no sign of one.
                let is_empty = **format == Format::Extents && other.extents(Fork::Data) == 0;
                !is_empty && self.is_data_right(&other, file_type, &geometry)
            });
            match right {
                Some(format) => inode.set_format(Fork::Data, *format),
                None if fits => {}
                None if file_type == FileType::Regular || !mapped.is_empty() => {
                    inode.set_format(Fork::Data, Format::Extents);
                    let _ = inode.set_extents(Fork::Data, 0);
                }
                None => return None,
            }
        }
        let room = inode.fork(Fork::Data).len() as u64;
        if inode.format() == Format::Local {
            if file_type == FileType::Directory {
                let size = inode.size();
                if size > room || size == 0 {
                    inode.set_size(short_end(self.view.layout(), inode.fork(Fork::Data)));
                }
            }
            return inode.set_extents(Fork::Data, 0).then_some(());
        }
        if file_type != FileType::Regular && inode.size() == 0 || inode.size() > i64::MAX as u64 {
            let extents = of_reverse_map(&geometry, mapped, Fork::Data);
            let size = self.size_of(file_type, &extents);
            inode.set_size(size.max(geometry.block_size() as u64));
        }
        Some(())
    }

    fn is_data_right(&self, inode: &Inode, file_type: FileType, geometry: &Geometry) -> bool {
        let (fork, size) = (inode.fork(Fork::Data), inode.size());
        match inode.format() {
            Format::Local => {
                let Some(contents) = fork.get(..usize::try_from(size).unwrap_or(usize::MAX)) else {
                    return false;
                };
                match file_type {
                    FileType::Directory => {
                        Short::parse(self.view.layout(), geometry, contents).is_ok()
                    }
                    _ => !contents.is_empty() && !contents.contains(&0),
                }
            }
            Format::Extents => is_list(geometry, fork, inode.extents(Fork::Data)),
            Format::Btree => is_root(geometry, fork),
            Format::Device => false,
        }
    }

    /// Sets a fork's map and count of extents right. The blocks to write, and how many it has.
    fn fork(
        &mut self,
        ino: Ino,
        inode: &mut Inode,
        fork: Fork,
        map: &Map,
        mapped: &[Mapping],
        (hints, is_short): (Hints, bool),
    ) -> Option<(Vec<(Block, Vec<u8>)>, u64)> {
        let geometry = self.geometry();
        if !matches!(inode.fork_format(fork), Format::Extents | Format::Btree)
            || fork == Fork::Attr && !inode.has_attr_fork()
        {
            let set = inode.set_extents(fork, 0);
            return set.then(|| (Vec::new(), 0));
        }
        let is_list = inode.fork_format(fork) == Format::Extents;
        if map.is_sound && !is_short && (is_list || !hints.is_map_wrong) {
            let set = inode.set_extents(fork, map.extents.len() as u64);
            return set.then(|| (Vec::new(), map.blocks()));
        }
        let said = of_reverse_map(&geometry, mapped, fork);
        let mut extents = match is_short && !said.is_empty() {
            true => Map::default().with(&geometry, &said),
            false => map.with(&geometry, &said),
        };
        if fork == Fork::Attr || inode.file_type() != Some(FileType::Regular) {
            extents.iter_mut().for_each(|extent| extent.unwritten = false);
        }
        let mut old = map.tree.clone();
        for mapping in mapped.iter().filter(|mapping| mapping.is_of_tree()) {
            let is_attr = mapping.offset & crate::btree::records::rmap_offset::ATTR_FORK != 0;
            if is_attr == (fork == Fork::Attr) {
                for nth in 0..mapping.len {
                    let (ag, start) = geometry.locate(Block(mapping.block.0 + nth));
                    old.push(geometry.fs_block(ag, start));
                }
            }
        }
        old.sort_unstable_by(|a, b| b.cmp(a));
        old.dedup();
        let blocks = install(&geometry, (ino, inode, fork), &extents, &old, &mut self.room);
        self.is_full |= blocks.is_none();
        let blocks = blocks?;
        let used = blocks_of(&extents) + blocks.len() as u64;
        let set = inode.set_extents(fork, extents.len() as u64);
        set.then_some((blocks, used))
    }

    /// Takes away flags of version 3 that cannot be.
    fn flags2(&self, inode: &mut Inode) {
        let geometry = self.geometry();
        if !geometry.features.crc() {
            return;
        }
        let mut found = inode.flags2() & flags2_of(&geometry);
        // Where large counts are kept there is nothing in an inode without them.
        if geometry.features.incompat(Incompat::NREXT64) && found & flags2::NREXT64 == 0 {
            let is_large = be16(inode.as_bytes(), 80) == 0
                && be64(inode.as_bytes(), 24) != 0
                && be64(inode.as_bytes(), 24) < 1 << 48;
            if is_large {
                found |= flags2::NREXT64;
            }
        }
        if inode.file_type().is_some_and(|t| t != FileType::Regular) {
            found &= !flags2::REFLINK;
        }
        if inode.file_type().is_some_and(|t| !may_have_hints(t)) {
            found &= !(flags2::COWEXTSIZE | flags2::DAX);
        }
        inode.set_flags2(found);
    }

    /// Sets fields right that can be told from the others.
    fn fields(&self, inode: &mut Inode, ino: Ino, file_type: FileType) {
        let (geometry, raw) = (self.geometry(), &self.view.superblock().raw);
        let is_dir = file_type == FileType::Directory;
        let dir_only =
            flags::RTINHERIT | flags::PROJINHERIT | flags::NOSYMLINKS | flags::EXTSZINHERIT;
        let mut allowed =
            FLAGS & !flags::REALTIME & if is_dir { !flags::EXTSIZE } else { !dir_only };
        if !may_have_hints(file_type) {
            allowed &= !flags::EXTSIZE;
        }
        if ino.0 != raw.rbmino.get() {
            allowed &= !NEWRTBM;
        }
        let mut found = inode.flags() & allowed;
        let most = u64::from(geometry.ag_blocks / 2).min(LEN_MAX);
        let is_hint = |blocks: u32| blocks > 0 && u64::from(blocks) <= most;
        let hint_flags = flags::EXTSIZE | flags::EXTSZINHERIT;
        if !is_hint(inode.extent_size_hint()) || found & hint_flags == 0 {
            found &= !hint_flags;
            inode.set_extent_size_hint(0);
        }
        inode.set_flags(found);
        let bytes = inode.as_mut_bytes();
        if bytes[4] >= 2 {
            put16(bytes, 6, 0);
        }
        if geometry.features.crc() {
            self.flags2(inode);
            let mut found = inode.flags2();
            if !is_hint(inode.cow_extent_size_hint()) || found & flags2::COWEXTSIZE == 0 {
                found &= !flags2::COWEXTSIZE;
                inode.set_cow_extent_size_hint(0);
            }
            inode.set_flags2(found);
            let bytes = inode.as_mut_bytes();
            match found & flags2::NREXT64 != 0 {
                true => put16(bytes, 80, 0),
                false => put64(bytes, 24, 0),
            }
        }
        times(inode);
        if inode.nlink() > 0 && geometry.features.crc() {
            put32(inode.as_mut_bytes(), NEXT_UNLINKED_OFFSET, u32::MAX);
        }
        let is_realtime = [raw.rbmino.get(), raw.rsumino.get()].contains(&ino.0);
        if is_realtime {
            inode.set_size(0);
        }
        if !inode.has_attr_fork() {
            inode.set_format(Fork::Attr, Format::Extents);
        }
    }
}

/// How much of what says whose slot it is, is right: 0 to 4.
fn signs_of_identity(geometry: &Geometry, ino: Ino, slot: &[u8]) -> u32 {
    let start = [be16(slot, 0) == MAGIC, slot[4] == if geometry.features.crc() { 3 } else { 2 }];
    let mut signs: u32 = start.into_iter().map(u32::from).sum();
    if geometry.features.crc() {
        signs += u32::from(be64(slot, 152) == ino.0);
        signs += u32::from(slot[160..176] == geometry.meta_uuid);
    }
    signs
}

/// Makes a slot that of an inode.
fn identify(geometry: &Geometry, ino: Ino, slot: &mut [u8]) {
    put16(slot, 0, MAGIC);
    if !geometry.features.crc() {
        slot[4] = slot[4].clamp(1, 2);
        return;
    }
    slot[4] = 3;
    put64(slot, 152, ino.0);
    slot[160..176].copy_from_slice(&geometry.meta_uuid);
}

/// A free slot in place of one that is not quite free.
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

fn times(inode: &mut Inode) {
    if inode.flags2() & flags2::BIGTIME != 0 {
        return;
    }
    let bytes = inode.as_mut_bytes();
    let places: &[usize] = if bytes[4] == 3 { &[32, 40, 48, 144] } else { &[32, 40, 48] };
    for at in places {
        if be32(bytes, at + 4) >= 1_000_000_000 {
            put32(bytes, at + 4, 0);
        }
    }
}

const fn is_special(file_type: FileType) -> bool {
    !matches!(file_type, FileType::Regular | FileType::Directory | FileType::Symlink)
}

const fn may_have_hints(file_type: FileType) -> bool {
    matches!(file_type, FileType::Regular | FileType::Directory)
}

/// Flags of version 3 that an inode of the image can have.
fn flags2_of(geometry: &Geometry) -> u64 {
    let features = &geometry.features;
    let mut allowed = flags2::DAX;
    if features.incompat(Incompat::BIGTIME) {
        allowed |= flags2::BIGTIME;
    }
    if features.incompat(Incompat::NREXT64) {
        allowed |= flags2::NREXT64;
    }
    if features.ro_compat(RoCompat::REFLINK) {
        allowed |= flags2::REFLINK | flags2::COWEXTSIZE;
    }
    allowed
}

/// Whether what is behind the boundary can be attributes of the form that the inode says.
fn makes_sense(geometry: &Geometry, inode: &Inode) -> bool {
    let fork = inode.fork(Fork::Attr);
    match inode.as_bytes()[ATTR_FORMAT_OFFSET] {
        1 => {
            let Ok(mut entries) = shortform::entries(fork) else { return false };
            let mut end = shortform::HEADER_SIZE;
            let are_right = entries.all(|entry| entry.map(|entry| end += entry.size()).is_ok());
            are_right && shortform::total(fork).is_ok_and(|total| total == end)
        }
        2 => is_list(geometry, fork, inode.extents(Fork::Attr)),
        3 => is_root(geometry, fork),
        _ => false,
    }
}

/// Whether a fork can be a list of so many extents.
fn is_list(geometry: &Geometry, fork: &[u8], count: u64) -> bool {
    let mut end = FileBlock(0);
    count <= (fork.len() / EXTENT_SIZE) as u64
        && fork.chunks_exact(EXTENT_SIZE).take(count as usize).all(|record| {
            let extent = Extent::parse(record);
            let is_right = extent.check(geometry).is_ok() && extent.offset >= end;
            end = extent.end();
            is_right
        })
}

/// Whether a fork can be the root of a tree.
fn is_root(geometry: &Geometry, fork: &[u8]) -> bool {
    if fork.len() < ROOT_HEADER_SIZE {
        return false;
    }
    let area = Shape::BMBT.root_area(fork.len());
    let count = area.count(fork);
    (1..crate::format::btree::LEVELS_MAX).contains(&usize::from(area.level(fork)))
        && (1..=area.max).contains(&count)
        && (0..count)
            .all(|at| geometry.contains(crate::format::address::FsBlock(area.pointer(fork, at)), 1))
}

/// Where the entries of a directory in its inode end.
fn short_end(layout: &Layout, fork: &[u8]) -> u64 {
    let (Some(&count), Some(&wide)) = (fork.first(), fork.get(1)) else { return 0 };
    let ino_size = if wide > 0 { 8 } else { 4 };
    let mut at = 2 + ino_size;
    for _ in 0..count {
        let Some(&len) = fork.get(at) else { break };
        let end = at + 3 + usize::from(len) + usize::from(layout.ftype) + ino_size;
        if len == 0 || end > fork.len() {
            break;
        }
        at = end;
    }
    at.min(fork.len()) as u64
}
