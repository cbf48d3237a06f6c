//! Extent maps of forks: reads all readable parts, and rewrites them completely.

use std::collections::HashSet;

use engine::Changed;
use vfs::Ino;
use vfs::check::BitSet;

use crate::btree::records::rmap_offset;
use crate::check::view::{Claims, Mapping, View};
use crate::format::address::{Block, FileBlock, FsBlock};
use crate::format::btree::{Area, LEVELS_MAX, NO_SIBLING, ROOT_HEADER_SIZE, Side, TreeShape};
use crate::format::bytes::{be16, be32, be64, put16, put64};
use crate::format::checksum;
use crate::format::extent::{EXTENT_SIZE, Extent, LEN_MAX};
use crate::format::geometry::Geometry;
use crate::format::inode::{Fork, ForkFormat, Inode};
use crate::format::realtime::Realtime;

/// Byte offset of the owner in an extent map tree block of version 5.
const OWNER_OFFSET: usize = 56;
/// Byte offset of the location in an extent map tree block.
const PLACE_OFFSET: usize = 24;
/// Maximum number of blocks examined to find those of a directory.
const DIRECTORY_BLOCKS_MAX: u64 = 1 << 22;
/// Byte range of the UUID in an extent map tree block.
const UUID: std::ops::Range<usize> = 40..56;

/// The blocks that a fork maps.
#[derive(Clone, Copy, Debug)]
pub(super) enum ExtentSpace<'g> {
    /// Blocks of the allocation groups.
    Groups(&'g Geometry),
    /// Blocks of the realtime section.
    Realtime(Realtime),
}

impl<'g> ExtentSpace<'g> {
    /// Returns the space of a fork.
    pub(super) fn of(geometry: &'g Geometry, inode: &Inode, fork: Fork) -> Self {
        let realtime = geometry.realtime.filter(|_| fork == Fork::Data && inode.is_realtime());
        realtime.map_or(Self::Groups(geometry), Self::Realtime)
    }

    /// Returns whether an extent is valid.
    pub(super) fn is_valid(&self, extent: &Extent) -> bool {
        match self {
            Self::Groups(geometry) => extent.check(geometry).is_ok(),
            Self::Realtime(realtime) => extent.check_realtime(realtime).is_ok(),
        }
    }

    /// Returns an extent without the bits of its start that no block has.
    fn within(&self, extent: Extent) -> Extent {
        match self {
            Self::Groups(geometry) => {
                let end = u64::from(geometry.ag_count).next_power_of_two() << geometry.ag_block_log;
                Extent { start: FsBlock(extent.start.0 & (end - 1)), ..extent }
            }
            Self::Realtime(_) => extent,
        }
    }
}

/// The readable part of a fork's extent map.
#[derive(Clone, Debug, Default)]
pub(super) struct Map {
    /// Valid extents, sorted and without overlap.
    pub(super) extents: Vec<Extent>,
    /// Extents from damaged blocks.
    poor: Vec<Extent>,
    /// Blocks of the tree.
    pub(super) tree: Vec<FsBlock>,
    /// True if there was no damage.
    pub(super) is_sound: bool,
}

impl Map {
    /// Returns the number of mapped blocks, including those of its tree.
    pub(super) fn blocks(&self) -> u64 {
        blocks_of(&self.extents) + self.tree.len() as u64
    }

    /// Drops extents that end after a logical block.
    pub(super) fn end_at(&mut self, end: u64) {
        let count = self.extents.len();
        self.extents.retain(|extent| extent.end().0 <= end);
        self.is_sound &= self.extents.len() == count;
    }

    /// Returns all extents, the most reliable first: its own, those of the reverse map, and those from damaged blocks.
    pub(super) fn with(&self, space: &ExtentSpace<'_>, mapped: &[Extent]) -> Vec<Extent> {
        let mut all = Extents::default();
        for extent in self.extents.iter().chain(mapped).chain(&self.poor) {
            all.add(space, extent);
        }
        all.into_joined()
    }
}

/// Returns the number of blocks of extents.
pub(super) fn blocks_of(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| extent.len).sum()
}

/// Extents of one fork without overlap, in the file or on the device.
#[derive(Default)]
struct Extents(std::collections::BTreeMap<u64, Extent>);

impl Extents {
    /// Adds the parts of an extent that do not overlap existing ones.
    fn add(&mut self, space: &ExtentSpace<'_>, extent: &Extent) {
        if !space.is_valid(extent) {
            return;
        }
        let mut at = extent.offset;
        while at < extent.end() {
            let before = self.0.range(..=at.0).next_back().map(|(_, before)| *before);
            if let Some(before) = before.filter(|before| before.end() > at) {
                at = before.end();
                continue;
            }
            let next = self.0.range(at.0..).next().map_or(u64::MAX, |(start, _)| *start);
            let end = FileBlock(next).min(extent.end());
            if let Some(part) = extent.part(at, end) {
                self.0.insert(part.offset.0, part);
            }
            at = end;
        }
    }

    fn into_joined(self) -> Vec<Extent> {
        let mut joined: Vec<Extent> = Vec::new();
        let mut all: Vec<Extent> = self.0.into_values().collect();
        // Blocks mapped twice keep the mapping that is first in the file.
        let mut by_start: Vec<(u64, u64, usize)> =
            (all.iter().enumerate()).map(|(at, extent)| (extent.start.0, extent.len, at)).collect();
        by_start.sort_unstable();
        let mut end = 0;
        let mut dropped = HashSet::new();
        for (start, len, at) in by_start {
            if start < end {
                dropped.insert(at);
            } else {
                end = start + len;
            }
        }
        let mut at = 0;
        all.retain(|_| {
            at += 1;
            !dropped.contains(&(at - 1))
        });
        for extent in all {
            match (joined.last().and_then(|last| last.joined(&extent)), joined.last_mut()) {
                (Some(whole), Some(last)) => *last = whole,
                _ => joined.push(extent),
            }
        }
        joined
    }
}

/// Reads the extent map of a fork.
pub(super) fn read(view: &View<'_>, ino: Ino, inode: &Inode, fork: Fork) -> Map {
    let bytes = inode.fork(fork);
    let may_be_unwritten = fork == Fork::Data && view.is_user_file(ino, inode);
    let space = ExtentSpace::of(view.geometry(), inode, fork);
    let mut reader = Reader {
        view,
        space,
        ino,
        visited: HashSet::new(),
        good: Vec::new(),
        map: Map { is_sound: true, ..Map::default() },
    };
    match inode.fork_format(fork) {
        ForkFormat::Extents => {
            let count = usize::try_from(inode.extents(fork)).unwrap_or(usize::MAX);
            reader.map.is_sound = count <= bytes.len() / EXTENT_SIZE;
            let records = bytes.chunks_exact(EXTENT_SIZE).take(count);
            reader.good.extend(records.map(Extent::parse));
        }
        ForkFormat::Btree => reader.tree(bytes),
        _ => {}
    }
    let mut map = reader.map;
    let mut end = FileBlock(0);
    let mut all = Extents::default();
    for mut extent in reader.good {
        let is_right = space.is_valid(&extent) && extent.offset >= end;
        map.is_sound &= is_right && (may_be_unwritten || !extent.unwritten);
        end = extent.end();
        extent.unwritten &= may_be_unwritten;
        all.add(&space, &extent);
    }
    map.extents = if map.is_sound { all.0.into_values().collect() } else { all.into_joined() };
    map.poor.iter_mut().for_each(|extent| extent.unwritten &= may_be_unwritten);
    map
}

/// Returns a directory's extent map without foreign blocks, if the remaining ones match the directory's block count.
pub(super) fn of_directory(view: &View<'_>, ino: Ino, map: &Map, counted: u64) -> Option<Map> {
    let (geometry, per) = (view.geometry(), u64::from(view.layout().blocks()));
    let tree = map.tree.len() as u64;
    let is_longer =
        map.blocks() > counted && counted > tree && map.blocks() <= DIRECTORY_BLOCKS_MAX;
    if !geometry.features.crc() || !is_longer {
        return None;
    }
    let mut bytes = vec![0; geometry.block_size()];
    let (space, mut own) = (ExtentSpace::Groups(geometry), Extents::default());
    let mut is_own = false;
    for extent in &map.extents {
        for nth in 0..extent.len {
            let (at, start) = (extent.offset.plus(nth), extent.start.plus(nth));
            // Only the first file-system block of a directory block has a header.
            if nth == 0 || at.0.is_multiple_of(per) {
                is_own = view.read(geometry.device_block(start), &mut bytes)
                    && directory_owner(&bytes) == Some(ino);
            }
            if is_own {
                own.add(&space, &Extent { offset: at, start, len: 1, unwritten: false });
            }
        }
    }
    let extents = own.into_joined();
    (blocks_of(&extents) + tree == counted).then(|| Map {
        extents,
        tree: map.tree.clone(),
        ..Map::default()
    })
}

/// Returns the owner of a directory block of version 5.
fn directory_owner(block: &[u8]) -> Option<Ino> {
    if [b"XDB3", b"XDD3", b"XDF3"].iter().any(|magic| block.starts_with(*magic)) {
        return Some(Ino(be64(block, 40)));
    }
    let is_index = [0x3df1, 0x3dff, 0x3ebe].contains(&be16(block, 8));
    is_index.then(|| Ino(be64(block, 48)))
}

struct Reader<'r, 's> {
    view: &'r View<'s>,
    space: ExtentSpace<'r>,
    ino: Ino,
    visited: HashSet<u64>,
    good: Vec<Extent>,
    map: Map,
}

impl Reader<'_, '_> {
    fn tree(&mut self, fork: &[u8]) {
        if fork.len() < ROOT_HEADER_SIZE {
            self.map.is_sound = false;
            return;
        }
        let area = TreeShape::BMBT.root_area(fork.len());
        let (level, count) = (usize::from(area.level(fork)), area.count(fork));
        let is_root = (1..LEVELS_MAX).contains(&level) && (1..=area.max).contains(&count);
        self.map.is_sound = is_root;
        // From left to right: the item pushed last is visited first.
        let pointers = (0..count.min(area.max)).rev().map(|at| area.pointer(fork, at));
        let mut ways: Vec<(u64, Option<usize>)> =
            pointers.map(|pointer| (pointer, is_root.then(|| level - 1))).collect();
        let mut siblings = Vec::new();
        loop {
            while let Some((pointer, level)) = ways.pop() {
                self.block(pointer, level, &mut ways, &mut siblings);
            }
            if self.map.is_sound || siblings.is_empty() {
                return;
            }
            ways = std::mem::take(&mut siblings);
            ways.retain(|(pointer, _)| !self.visited.contains(pointer));
        }
    }

    /// Reads a block that should be at `level`, if that is known.
    fn block(
        &mut self,
        pointer: u64,
        level: Option<usize>,
        ways: &mut Vec<(u64, Option<usize>)>,
        siblings: &mut Vec<(u64, Option<usize>)>,
    ) {
        let geometry = *self.view.geometry();
        if !geometry.contains(FsBlock(pointer), 1) || !self.visited.insert(pointer) {
            self.map.is_sound = false;
            return;
        }
        let (shape, block) = (TreeShape::BMBT, geometry.device_block(FsBlock(pointer)));
        let mut data = vec![0; geometry.block_size()];
        if !self.view.read(block, &mut data) {
            self.map.is_sound = false;
            return;
        }
        let whole = Changed::whole(data.len());
        let is_sealed = shape.verify(&geometry, block, self.ino.0, &data).is_ok();
        let is_right = is_sealed
            && shape.verify_structure(&geometry, (block, self.ino.0), whole, &data).is_ok();
        self.map.is_sound &= is_right;
        if !is_right && !self.is_likely(&geometry, block, &data) {
            return;
        }
        self.map.tree.push(FsBlock(pointer));
        let found = usize::from(shape.leaf_area(&geometry).level(&data));
        let level = level.unwrap_or(found);
        self.map.is_sound &= level == found;
        for side in [Side::Left, Side::Right] {
            let sibling = shape.sibling(&data, side);
            if sibling != NO_SIBLING {
                siblings.push((sibling, Some(level)));
            }
        }
        if level > 0 {
            let area = shape.node_area(&geometry);
            let count = area.count(&data).min(area.max);
            ways.extend((0..count).rev().map(|at| (area.pointer(&data, at), Some(level - 1))));
            return;
        }
        let area = shape.leaf_area(&geometry);
        let records = (0..area.count(&data).min(area.max)).map(|at| area.entry(&data, at));
        let extents = records.map(Extent::parse);
        match is_right {
            true => self.good.extend(extents),
            false => self.map.poor.extend(extents.map(|extent| self.space.within(extent))),
        }
    }

    /// Returns whether a damaged block probably belongs to the tree: most of its identifying fields are right.
    fn is_likely(&self, geometry: &Geometry, block: Block, data: &[u8]) -> bool {
        if !geometry.features.crc() {
            return be32(data, 0) == TreeShape::BMBT.magics[0];
        }
        let signs = [
            be32(data, 0) == TreeShape::BMBT.magics[1],
            be64(data, OWNER_OFFSET) == self.ino.0,
            be64(data, PLACE_OFFSET) == geometry.daddr(block),
            data[UUID] == geometry.meta_uuid,
        ];
        signs.iter().filter(|sign| **sign).count() >= 3 && be64(data, OWNER_OFFSET) == self.ino.0
    }
}

/// Returns the extents of a fork according to the reverse map.
pub(super) fn of_reverse_map(geometry: &Geometry, mapped: &[Mapping], fork: Fork) -> Vec<Extent> {
    let flag = if fork == Fork::Attr { rmap_offset::ATTR_FORK } else { 0 };
    let mut extents = Vec::new();
    let of_fork = mapped
        .iter()
        .filter(|mapping| !mapping.is_of_tree() && mapping.offset & rmap_offset::ATTR_FORK == flag);
    for mapping in of_fork {
        let (ag, start) = geometry.locate(mapping.block);
        let start = geometry.fs_block(ag, start);
        let offset = FileBlock(mapping.offset & rmap_offset::MASK);
        let unwritten = mapping.offset & rmap_offset::UNWRITTEN != 0;
        // Records of the reverse map may be longer than an extent.
        let mut done = 0;
        while done < mapping.len {
            let len = (mapping.len - done).min(LEN_MAX);
            let (offset, start) = (offset.plus(done), start.plus(done));
            extents.push(Extent { offset, start, len, unwritten });
            done += len;
        }
    }
    extents.sort_by_key(|extent| extent.offset);
    extents
}

/// Returns the blocks of a fork's extent tree according to the reverse map.
pub(super) fn tree_of_reverse_map(
    geometry: &Geometry,
    mapped: &[Mapping],
    fork: Fork,
) -> Vec<FsBlock> {
    let flag = if fork == Fork::Attr { rmap_offset::ATTR_FORK } else { 0 };
    let of_fork = mapped
        .iter()
        .filter(|mapping| mapping.is_of_tree() && mapping.offset & rmap_offset::ATTR_FORK == flag);
    let blocks = of_fork.flat_map(|mapping| mapping.block.0..mapping.block.0 + mapping.len);
    let place = |block: u64| {
        let (ag, start) = geometry.locate(Block(block));
        geometry.fs_block(ag, start)
    };
    blocks.map(place).collect()
}

/// Unused blocks, for structures rebuilt before the trees of space are right.
pub(super) struct Room<'r> {
    geometry: Geometry,
    claims: Option<&'r Claims>,
    at: u64,
}

impl<'r> Room<'r> {
    /// Returns the free blocks, if they are known.
    pub(super) const fn new(geometry: Geometry, claims: Option<&'r Claims>) -> Self {
        Self { geometry, claims, at: 0 }
    }

    /// Marks the blocks of extents used.
    fn note(&self, extents: &[Extent]) {
        let Some(claims) = self.claims else { return };
        for extent in extents.iter().filter(|extent| extent.check(&self.geometry).is_ok()) {
            let first = self.geometry.device_block(extent.start).0;
            claims.taken.insert_range(first..first + extent.len, |_| {});
        }
    }

    /// Takes a block.
    pub(super) fn take(&mut self) -> Option<FsBlock> {
        let claims = self.claims?;
        let is_free = |block: &u64| claims.free.contains(*block) && is_new(&claims.taken, *block);
        let block = (self.at..self.geometry.blocks).find(is_free)?;
        self.at = block + 1;
        let (ag, start) = self.geometry.locate(Block(block));
        Some(self.geometry.fs_block(ag, start))
    }
}

fn is_new(taken: &BitSet, block: u64) -> bool {
    !taken.contains(block) && taken.insert(block)
}

/// Writes sorted extents into a fork: as a list if they fit, otherwise as a tree in its old blocks or in free ones.
/// Returns the blocks to write, or `None` without a change if there is no room.
pub(super) fn install(
    geometry: &Geometry,
    (ino, inode, fork): (Ino, &mut Inode, Fork),
    extents: &[Extent],
    old: &[FsBlock],
    room: &mut Room<'_>,
) -> Option<Vec<(Block, Vec<u8>)>> {
    let len = inode.fork(fork).len();
    if extents.len() * EXTENT_SIZE <= len {
        let bytes = inode.fork_mut(fork);
        bytes.fill(0);
        for (extent, record) in extents.iter().zip(bytes.chunks_exact_mut(EXTENT_SIZE)) {
            extent.put(record);
        }
        inode.set_format(fork, ForkFormat::Extents);
        return Some(Vec::new());
    }
    let root = TreeShape::BMBT.root_area(len);
    let is_in_groups = matches!(ExtentSpace::of(geometry, inode, fork), ExtentSpace::Groups(_));
    let in_groups = if is_in_groups { extents } else { &[] };
    room.note(in_groups);
    // Mapped blocks are not reused for its tree, regardless of other evidence.
    let mut mapped: Vec<(u64, u64)> =
        in_groups.iter().map(|extent| (extent.start.0, extent.start.0 + extent.len)).collect();
    mapped.sort_unstable();
    let is_mapped = |block: &FsBlock| {
        let at = mapped.partition_point(|(start, _)| *start <= block.0);
        at.checked_sub(1).is_some_and(|at| block.0 < mapped[at].1)
    };
    let mut old: Vec<FsBlock> = old.iter().filter(|block| !is_mapped(block)).copied().collect();
    let mut take = || old.pop().or_else(|| room.take());
    let mut blocks = Vec::new();
    let records: Vec<MapItem> = extents.iter().copied().map(MapItem::Record).collect();
    let mut below = write_level(geometry, (ino, 0), &records, &mut take, &mut blocks)?;
    let mut level = 1;
    while below.len() > root.max {
        below = write_level(geometry, (ino, level), &below, &mut take, &mut blocks)?;
        level += 1;
    }
    let bytes = inode.fork_mut(fork);
    bytes.fill(0);
    put16(bytes, root.level_range().start, level);
    put16(bytes, root.count_range().start, below.len() as u16);
    for (at, item) in below.iter().enumerate() {
        item.put(&root, bytes, at);
    }
    inode.set_format(fork, ForkFormat::Btree);
    Some(blocks)
}

/// An item of an extent map tree block.
enum MapItem {
    Record(Extent),
    /// First logical block and location of a child block.
    Child(u64, FsBlock),
}

impl MapItem {
    const fn key(&self) -> u64 {
        match self {
            Self::Record(extent) => extent.offset.0,
            Self::Child(key, _) => *key,
        }
    }

    fn put(&self, area: &Area, data: &mut [u8], at: usize) {
        let entry = area.entry_range(at, at + 1);
        match self {
            Self::Record(extent) => extent.put(&mut data[entry]),
            Self::Child(key, place) => {
                put64(data, entry.start, *key);
                put64(data, area.pointer_range(at, at + 1).start, place.0);
            }
        }
    }
}

/// Writes all blocks of a level, evenly filled. Returns the items for the level above.
fn write_level(
    geometry: &Geometry,
    (ino, level): (Ino, u16),
    items: &[MapItem],
    take: &mut impl FnMut() -> Option<FsBlock>,
    blocks: &mut Vec<(Block, Vec<u8>)>,
) -> Option<Vec<MapItem>> {
    let shape = TreeShape::BMBT;
    let area = if level == 0 { shape.leaf_area(geometry) } else { shape.node_area(geometry) };
    let (count, pieces) = (items.len(), items.len().div_ceil(area.max));
    let places: Vec<FsBlock> = (0..pieces).map(|_| take()).collect::<Option<_>>()?;
    let mut above = Vec::new();
    for nth in 0..pieces {
        let items = &items[count * nth / pieces..count * (nth + 1) / pieces];
        let block = geometry.device_block(places[nth]);
        let mut data = vec![0; geometry.block_size()];
        shape.init(geometry, block, ino.0, level, &mut data);
        for (side, neighbour) in [(Side::Left, nth.wrapping_sub(1)), (Side::Right, nth + 1)] {
            if let Some(place) = places.get(neighbour) {
                put64(&mut data, shape.sibling_range(side).start, place.0);
            }
        }
        put16(&mut data, area.count_range().start, items.len() as u16);
        items.iter().enumerate().for_each(|(at, item)| item.put(&area, &mut data, at));
        shape.seal(geometry, &mut data);
        above.push(MapItem::Child(items.first().map_or(0, MapItem::key), places[nth]));
        blocks.push((block, data));
    }
    Some(above)
}

/// Returns whether the checksum at offset `at` of a block matches.
pub(super) fn is_sealed(data: &[u8], at: usize) -> bool {
    checksum::check("block", data, at).is_ok()
}
