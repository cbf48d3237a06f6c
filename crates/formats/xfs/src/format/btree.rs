//! Blocks of b+trees: the header, which is short in trees of a group and long in those of forks, and the locations of
//! entries and pointers after it. Source: *XFS Filesystem Structure*, "Short Format" and "Long Format" B+trees.

mod entries;

use engine::{Changed, Corruption};

use super::address::{AgBlock, Block};
use super::bytes::{be16, be32, be64, put16, put32, put64};
use super::checksum;
use super::geometry::Geometry;
pub(crate) use entries::RecordKind;

/// `NULLFSBLOCK`, or `NULLAGBLOCK` in four bytes: no sibling.
pub(crate) const NO_SIBLING: u64 = u64::MAX;
/// Maximum number of levels of any tree. Blocks of 1 KiB have at least 11 entries, so 2^32 records of a group take 10
/// levels, as do 2^48 records of a fork, with 29 entries.
pub(crate) const LEVELS_MAX: usize = 12;
/// Maximum size of a record of any tree, in bytes.
pub(crate) const RECORD_SIZE_MAX: usize = 24;
/// Maximum size of a node entry without the pointer, in bytes.
pub(crate) const KEY_SIZE_MAX: usize = 40;
/// Byte offset of `bb_level` in all headers.
const LEVEL_OFFSET: usize = 4;
/// Byte offset of `bb_numrecs` in all headers.
const NUMRECS_OFFSET: usize = 6;
/// Byte offset of `bb_leftsib` in all headers.
const LEFT_OFFSET: usize = 8;

/// The properties that distinguish a tree's blocks from those of others.
#[derive(Clone, Copy, Debug)]
pub struct TreeShape {
    /// Name in messages.
    pub name: &'static str,
    /// `bb_magic` in version 4, if that has the tree, and in version 5.
    pub magics: [u32; 2],
    /// True if the header is long: pointers have 64 bits.
    pub long: bool,
    /// Size of a record in bytes.
    pub record_size: usize,
    /// Size of a node entry without the pointer, in bytes.
    pub key_size: usize,
    /// The kind of records and keys.
    pub entries: RecordKind,
    /// True if a root in an inode may be a leaf.
    pub has_leaf_roots: bool,
}

impl TreeShape {
    const fn group(
        name: &'static str,
        magics: [&[u8; 4]; 2],
        (record_size, key_size): (usize, usize),
        entries: RecordKind,
    ) -> Self {
        let magics = [u32::from_be_bytes(*magics[0]), u32::from_be_bytes(*magics[1])];
        let (long, has_leaf_roots) = (false, false);
        Self { name, magics, long, record_size, key_size, entries, has_leaf_roots }
    }

    /// Free space by block.
    pub(crate) const BNO: Self =
        Self::group("bnobt", [b"ABTB", b"AB3B"], (8, 8), RecordKind::FreeByBlock);
    /// Free space by length.
    pub(crate) const CNT: Self =
        Self::group("cntbt", [b"ABTC", b"AB3C"], (8, 8), RecordKind::FreeByLength);
    /// Inode chunks.
    pub(crate) const INO: Self =
        Self::group("inobt", [b"IABT", b"IAB3"], (16, 4), RecordKind::Chunks);
    /// Inode chunks with free inodes.
    pub(crate) const FINO: Self =
        Self::group("finobt", [b"FIBT", b"FIB3"], (16, 4), RecordKind::Chunks);
    /// Reverse map: nodes have two keys per child.
    pub(crate) const RMAP: Self =
        Self::group("rmapbt", [b"RMB3", b"RMB3"], (24, 40), RecordKind::ReverseMaps);
    /// Reference counts.
    pub(crate) const REFCOUNT: Self =
        Self::group("refcountbt", [b"R3FC", b"R3FC"], (12, 4), RecordKind::References);
    /// The extent map of a fork.
    pub const BMBT: Self = Self {
        long: true,
        ..Self::group("bmbt", [b"BMAP", b"BMA3"], (16, 8), RecordKind::Extents)
    };
    /// Reverse map of a realtime group.
    pub(crate) const RTRMAP: Self = Self {
        name: "rtrmapbt",
        magics: [u32::from_be_bytes(*b"MAPR"); 2],
        long: true,
        has_leaf_roots: true,
        ..Self::RMAP
    };
    /// Reference counts of a realtime group.
    pub(crate) const RTREFCOUNT: Self = Self {
        name: "rtrefcountbt",
        magics: [u32::from_be_bytes(*b"RCNT"); 2],
        long: true,
        has_leaf_roots: true,
        ..Self::REFCOUNT
    };

    /// Returns the size of a block's header in bytes.
    pub(crate) const fn header_size(&self, crc: bool) -> usize {
        match (self.long, crc) {
            (false, false) => 16,
            (false, true) => 56,
            (true, false) => 24,
            (true, true) => 72,
        }
    }

    /// Returns the size of a pointer in bytes.
    pub(crate) const fn pointer_size(&self) -> usize {
        if self.long { 8 } else { 4 }
    }

    /// Returns the byte offset of the checksum in a version 5 block.
    pub const fn crc_offset(&self) -> usize {
        if self.long { 64 } else { 52 }
    }

    /// Returns the layout of a leaf of the tree.
    pub(crate) const fn leaf_area(&self, geometry: &Geometry) -> Area {
        let header = self.header_size(geometry.features.crc());
        self.leaf_area_in(geometry.block_size(), header, LEVEL_OFFSET)
    }

    /// Returns the layout of a root in a fork of `size` bytes that is a leaf.
    pub(crate) const fn root_leaf_area(&self, size: usize) -> Area {
        self.leaf_area_in(size, ROOT_HEADER_SIZE, 0)
    }

    /// Returns the layout of the root in a fork, which may be a leaf.
    pub(crate) fn root_area_of(&self, fork: &[u8]) -> Area {
        let area = self.root_area(fork.len());
        let is_leaf =
            self.has_leaf_roots && fork.len() >= ROOT_HEADER_SIZE && area.level(fork) == 0;
        if is_leaf { self.root_leaf_area(fork.len()) } else { area }
    }

    /// Returns the layout of a node of the tree.
    pub const fn node_area(&self, geometry: &Geometry) -> Area {
        let header = self.header_size(geometry.features.crc());
        self.node_area_in(geometry.block_size(), header, LEVEL_OFFSET)
    }

    /// Returns the layout of a root in a fork of `size` bytes (`xfs_bmdr_block`).
    pub const fn root_area(&self, size: usize) -> Area {
        let mut area = self.node_area_in(size, ROOT_HEADER_SIZE, 0);
        if self.has_leaf_roots && matches!(self.entries, RecordKind::References) {
            // The root of this tree has room for two keys per child, as in a reverse map.
            area.max = size.saturating_sub(ROOT_HEADER_SIZE) / (2 * self.key_size + 8);
            area.pointers = ROOT_HEADER_SIZE + area.max * self.key_size;
        }
        area
    }

    /// Writes a logged root, which has the header and layout of a block of `logged.len()` bytes, into a fork. Returns
    /// false without a change if it is invalid or does not fit.
    #[must_use]
    pub(crate) fn write_logged_root(&self, logged: &[u8], fork: &mut [u8]) -> bool {
        if logged.len() < self.header_size(true) || fork.len() < ROOT_HEADER_SIZE {
            return false;
        }
        let is_leaf = self.has_leaf_roots && be16(logged, LEVEL_OFFSET) == 0;
        let (from, to) = if is_leaf {
            let from = self.leaf_area_in(logged.len(), self.header_size(true), LEVEL_OFFSET);
            (from, self.root_leaf_area(fork.len()))
        } else {
            let from = self.node_area_in(logged.len(), self.header_size(true), LEVEL_OFFSET);
            (from, self.root_area(fork.len()))
        };
        if from.max == 0 && !is_leaf || from.count(logged) > from.max.min(to.max) {
            return false;
        }
        let count = from.count(logged);
        fork[to.level_range()].copy_from_slice(&logged[from.level_range()]);
        fork[to.count_range()].copy_from_slice(&logged[from.count_range()]);
        fork[to.entry_range(0, count)].copy_from_slice(&logged[from.entry_range(0, count)]);
        fork[to.pointer_range(0, count)].copy_from_slice(&logged[from.pointer_range(0, count)]);
        true
    }

    /// Returns the size of the smallest fork whose root has room for `entries` entries, in bytes.
    pub(crate) const fn root_size(&self, entries: usize) -> usize {
        ROOT_HEADER_SIZE + entries * (self.key_size + self.pointer_size())
    }

    /// Moves the root that fills the fork `old` into one of another size, where its pointers have other offsets.
    /// Returns false without a change if it is invalid or does not fit.
    #[must_use]
    pub(crate) fn move_root(&self, old: &[u8], new: &mut [u8]) -> bool {
        let (from, to) = (self.root_area(old.len()), self.root_area(new.len()));
        if from.max == 0 || from.count(old) > from.max.min(to.max) {
            return false;
        }
        let count = from.count(old);
        new.fill(0);
        new[..ROOT_HEADER_SIZE].copy_from_slice(&old[..ROOT_HEADER_SIZE]);
        new[to.entry_range(0, count)].copy_from_slice(&old[from.entry_range(0, count)]);
        new[to.pointer_range(0, count)].copy_from_slice(&old[from.pointer_range(0, count)]);
        true
    }

    const fn leaf_area_in(&self, size: usize, header: usize, level_offset: usize) -> Area {
        Area {
            entries: header,
            entry_size: self.record_size,
            pointers: header,
            pointer_size: 0,
            max: size.saturating_sub(header) / self.record_size,
            level_offset,
        }
    }

    const fn node_area_in(&self, size: usize, header: usize, level_offset: usize) -> Area {
        let max = size.saturating_sub(header) / (self.key_size + self.pointer_size());
        Area {
            entries: header,
            entry_size: self.key_size,
            pointers: header + max * self.key_size,
            pointer_size: self.pointer_size(),
            max,
            level_offset,
        }
    }
}

/// Size of the header of a root in a fork: level and number of entries.
pub(crate) const ROOT_HEADER_SIZE: usize = 4;

/// Layout of the contents of a node or leaf.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    /// Byte offset of records or keys.
    pub entries: usize,
    /// Size of each record or key in bytes.
    pub entry_size: usize,
    /// Byte offset of pointers; unused in leaves.
    pub pointers: usize,
    /// Size of a pointer in bytes; 0 in leaves.
    pub pointer_size: usize,
    /// Maximum number of entries.
    pub max: usize,
    /// Byte offset of the level; the number of entries follows.
    level_offset: usize,
}

impl Area {
    /// Returns the minimum number of entries of a block other than a root.
    pub(crate) const fn min(&self) -> usize {
        self.max / 2
    }

    /// Returns the level: 0 for leaves.
    pub fn level(&self, data: &[u8]) -> u16 {
        be16(data, self.level_offset)
    }

    /// Returns the number of entries.
    pub fn count(&self, data: &[u8]) -> usize {
        be16(data, self.level_offset + 2).into()
    }

    /// Returns the byte range of the number of entries.
    pub(crate) const fn count_range(&self) -> std::ops::Range<usize> {
        self.level_offset + 2..self.level_offset + 4
    }

    /// Returns the byte range of the level.
    pub(crate) const fn level_range(&self) -> std::ops::Range<usize> {
        self.level_offset..self.level_offset + 2
    }

    /// Returns the byte range of some entries.
    pub(crate) const fn entry_range(&self, from: usize, to: usize) -> std::ops::Range<usize> {
        self.entries + from * self.entry_size..self.entries + to * self.entry_size
    }

    /// Returns the byte range of some pointers.
    pub(crate) const fn pointer_range(&self, from: usize, to: usize) -> std::ops::Range<usize> {
        self.pointers + from * self.pointer_size..self.pointers + to * self.pointer_size
    }

    /// Returns an entry.
    pub(crate) fn entry<'d>(&self, data: &'d [u8], at: usize) -> &'d [u8] {
        &data[self.entry_range(at, at + 1)]
    }

    /// Returns the pointer of entry `at` of a node.
    pub fn pointer(&self, data: &[u8], at: usize) -> u64 {
        read_pointer(data, self.pointers + at * self.pointer_size, self.pointer_size == 8)
    }
}

/// Reads a pointer of four or eight bytes; [`NO_SIBLING`] for all ones.
fn read_pointer(data: &[u8], at: usize, long: bool) -> u64 {
    if long {
        return be64(data, at);
    }
    match be32(data, at) {
        u32::MAX => NO_SIBLING,
        block => block.into(),
    }
}

/// Returns a pointer as it is written. Short pointers use the last four bytes.
pub(crate) fn pointer_bytes(pointer: u64) -> [u8; 8] {
    pointer.to_be_bytes()
}

/// A neighbour of a block on its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The one with lower keys.
    Left,
    /// The one with higher keys.
    Right,
}

impl TreeShape {
    /// Returns the byte range of a sibling pointer.
    pub(crate) const fn sibling_range(&self, side: Side) -> std::ops::Range<usize> {
        let size = self.pointer_size();
        let start = LEFT_OFFSET + if matches!(side, Side::Right) { size } else { 0 };
        start..start + size
    }

    /// Returns a sibling; `NO_SIBLING` at the end of a level.
    pub(crate) fn sibling(&self, data: &[u8], side: Side) -> u64 {
        read_pointer(data, self.sibling_range(side).start, self.long)
    }

    /// Writes the header of a new block of `level` without siblings. `data` must be zeros.
    pub(crate) fn init(
        &self,
        geometry: &Geometry,
        block: Block,
        owner: u64,
        level: u16,
        data: &mut [u8],
    ) {
        let crc = geometry.features.crc();
        put32(data, 0, self.magics[usize::from(crc)]);
        put16(data, LEVEL_OFFSET, level);
        put16(data, NUMRECS_OFFSET, 0);
        for side in [Side::Left, Side::Right] {
            data[self.sibling_range(side)].fill(0xff);
        }
        if !crc {
            return;
        }
        let at = self.sibling_range(Side::Right).end;
        put64(data, at, geometry.daddr(block));
        data[at + 16..at + 32].copy_from_slice(&geometry.meta_uuid);
        if self.long {
            put64(data, at + 32, owner);
        } else {
            put32(data, at + 32, owner as u32);
        }
    }

    /// Checks the header of a block that was read: tree, location, owner, level, number of entries and checksum.
    /// Records are checked when they are used.
    pub(crate) fn verify(
        &self,
        geometry: &Geometry,
        block: Block,
        owner: u64,
        data: &[u8],
    ) -> Result<(), Corruption> {
        self.verify_magic(geometry, data)?;
        if geometry.features.crc() {
            checksum::check(self.name, data, self.crc_offset())?;
        }
        self.verify_header(geometry, block, owner, data).map(drop)
    }

    /// Checks a block except for its checksum, including the changed entries, before it is sealed.
    pub(crate) fn verify_structure(
        &self,
        geometry: &Geometry,
        (block, owner): (Block, u64),
        changed: Changed,
        data: &[u8],
    ) -> Result<(), Corruption> {
        self.verify_magic(geometry, data)?;
        let area = self.verify_header(geometry, block, owner, data)?;
        self.verify_entries(geometry, block, &area, changed, data)
    }

    fn verify_magic(&self, geometry: &Geometry, data: &[u8]) -> Result<(), Corruption> {
        let (magic, found) = (self.magics[usize::from(geometry.features.crc())], be32(data, 0));
        if found == magic {
            return Ok(());
        }
        Err(Corruption::new(self.name, "wrong magic number")
            .mismatch(format_args!("{magic:#010x}"), format_args!("{found:#010x}")))
    }

    /// Checks the fields after the magic number. Returns the layout of the entries.
    fn verify_header(
        &self,
        geometry: &Geometry,
        block: Block,
        owner: u64,
        data: &[u8],
    ) -> Result<Area, Corruption> {
        let fault = |problem: &'static str| Corruption::new(self.name, problem);
        if geometry.features.crc() {
            self.verify_identity(geometry, block, owner, data)?;
        }
        let level = usize::from(be16(data, LEVEL_OFFSET));
        if level >= LEVELS_MAX {
            return Err(fault("level").mismatch(format_args!("below {LEVELS_MAX}"), level));
        }
        let area = if level == 0 { self.leaf_area(geometry) } else { self.node_area(geometry) };
        let count = area.count(data);
        if count > area.max {
            return Err(fault("numrecs").mismatch(format_args!("at most {}", area.max), count));
        }
        for side in [Side::Left, Side::Right] {
            let sibling = self.sibling(data, side);
            if sibling != NO_SIBLING && !self.is_address(geometry, block, sibling) {
                return Err(fault("sibling").mismatch("a block of the group", sibling));
            }
        }
        Ok(area)
    }

    fn verify_identity(
        &self,
        geometry: &Geometry,
        block: Block,
        owner: u64,
        data: &[u8],
    ) -> Result<(), Corruption> {
        let fault = |problem: &'static str| Corruption::new(self.name, problem);
        let at = self.sibling_range(Side::Right).end;
        let (blkno, place) = (be64(data, at), geometry.daddr(block));
        if blkno != place {
            return Err(fault("blkno").mismatch(place, blkno));
        }
        if data[at + 16..at + 32] != geometry.meta_uuid {
            return Err(fault("it belongs to another file system"));
        }
        let found = if self.long { be64(data, at + 32) } else { be32(data, at + 32).into() };
        if found != owner {
            return Err(fault("owner").mismatch(owner, found));
        }
        Ok(())
    }

    /// Returns whether a pointer in `block` is a valid block number; in short trees, of the same group.
    fn is_address(&self, geometry: &Geometry, block: Block, pointer: u64) -> bool {
        if self.long {
            return geometry.contains(super::address::FsBlock(pointer), 1);
        }
        let (ag, _) = geometry.locate(block);
        pointer > 0 && pointer < u64::from(geometry.ag_len(ag))
    }

    /// Updates a block's checksum.
    pub(crate) fn seal(&self, geometry: &Geometry, data: &mut [u8]) {
        if geometry.features.crc() {
            checksum::seal(data, self.crc_offset());
        }
    }
}

/// Converts a checked pointer of a short tree to a block of the group.
pub(crate) const fn ag_block(pointer: u64) -> AgBlock {
    AgBlock(pointer as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::features::{Features, Features2, Incompat, LogIncompat, RoCompat, Version};

    #[test]
    fn a_root_moves_to_forks_that_have_room() {
        let shape = TreeShape::BMBT;
        let mut old = [0; 176];
        let area = shape.root_area(old.len());
        assert_eq!(area.max, 10);
        old[area.level_range()].copy_from_slice(&[0, 2]);
        old[area.count_range()].copy_from_slice(&[0, 3]);
        for at in 0..3 {
            old[area.entry_range(at, at + 1)].fill(at as u8 + 1);
            old[area.pointer_range(at, at + 1)].fill(at as u8 + 11);
        }
        let mut new = vec![0xee; shape.root_size(3)];
        assert!(shape.move_root(&old, &mut new));
        let small = shape.root_area(new.len());
        assert_eq!((small.max, small.level(&new), small.count(&new)), (3, 2, 3));
        for at in 0..3 {
            assert_eq!(small.entry(&new, at), area.entry(&old, at));
            assert_eq!(small.pointer(&new, at), area.pointer(&old, at));
        }
        let mut back = [0xee; 176];
        assert!(shape.move_root(&new, &mut back));
        assert_eq!(back, old);
        assert!(!shape.move_root(&old, &mut vec![0; shape.root_size(3) - 1]));
        old[area.count_range()].copy_from_slice(&[0, 11]);
        assert!(!shape.move_root(&old, &mut [0; 512]));
    }

    /// Returns a geometry with two groups of 1000 blocks of 1 KiB.
    fn geometry(version: u8) -> Geometry {
        let features = Features {
            version,
            version_bits: Version::empty(),
            features2: Features2::empty(),
            compat: 0,
            ro_compat: RoCompat::empty(),
            incompat: Incompat::empty(),
            log_incompat: LogIncompat::empty(),
        };
        Geometry {
            features,
            meta_uuid: [3; 16],
            block_log: 10,
            sector_log: 9,
            inode_log: 9,
            dir_block_log: 12,
            ag_block_log: 10,
            ag_blocks: 1000,
            ag_count: 2,
            blocks: 2000,
            inode_align: 0,
            sparse_align: 0,
            realtime: None,
        }
    }

    /// Returns the result of verifying a new block of group 1 after `harm`.
    fn verdict(shape: TreeShape, version: u8, owner: u64, harm: impl Fn(&mut [u8])) -> String {
        let (geometry, place) = (geometry(version), Block(1010));
        let mut data = vec![0; 1024];
        shape.init(&geometry, place, owner, 0, &mut data);
        harm(&mut data);
        shape.seal(&geometry, &mut data);
        let verdict = shape.verify(&geometry, place, owner, &data);
        verdict.map_or_else(|damage| damage.to_string(), |()| "sound".to_owned())
    }

    #[test]
    fn headers_are_checked_field_by_field() {
        let group = |harm: &dyn Fn(&mut [u8])| verdict(TreeShape::BNO, 5, 1, harm);
        assert_eq!(group(&|_| {}), "sound");
        assert!(group(&|b| b[0] = 0).contains("magic"));
        assert!(group(&|b| b[5] = 12).contains("level (expected below 12, found 12)"));
        assert!(group(&|b| b[7] = 122).contains("numrecs (expected at most 121, found 122)"));
        assert!(group(&|b| put32(b, 8, 1000)).contains("sibling"));
        assert_eq!(group(&|b| put32(b, 12, 999)), "sound");
        assert!(group(&|b| put64(b, 16, 7)).contains("blkno (expected 2020, found 7)"));
        assert!(group(&|b| b[40] = 0).contains("another file system"));
        assert!(group(&|b| put32(b, 48, 0)).contains("owner (expected 1, found 0)"));
        let fork = |harm: &dyn Fn(&mut [u8])| verdict(TreeShape::BMBT, 5, 133, harm);
        assert_eq!(fork(&|_| {}), "sound");
        assert_eq!(fork(&|b| put64(b, 8, 1 << 10 | 999)), "sound");
        assert!(fork(&|b| put64(b, 16, 1 << 10 | 1000)).contains("sibling"));
        assert!(fork(&|b| put64(b, 56, 134)).contains("owner"));
        let old = |harm: &dyn Fn(&mut [u8])| verdict(TreeShape::CNT, 4, 1, harm);
        assert_eq!(old(&|_| {}), "sound");
        assert!(old(&|b| b[7] = 127).contains("at most 126"));
    }

    #[test]
    fn a_wrong_checksum_is_found() {
        let (geometry, place) = (geometry(5), Block(1010));
        let mut data = vec![0; 1024];
        TreeShape::RMAP.init(&geometry, place, 1, 0, &mut data);
        TreeShape::RMAP.seal(&geometry, &mut data);
        data[1023] = 1;
        let damage = TreeShape::RMAP.verify(&geometry, place, 1, &data).unwrap_err();
        assert!(damage.to_string().contains("checksum"), "{damage}");
    }

    #[test]
    fn blocks_hold_what_the_format_says() {
        // Leaf and node capacities of version 5, computed by hand from the sizes of headers, records and keys.
        let capacity = |shape: TreeShape, size: usize| {
            let header = shape.header_size(true);
            let node = shape.node_area_in(size, header, LEVEL_OFFSET).max;
            ((size - header) / shape.record_size, node)
        };
        assert_eq!(capacity(TreeShape::BNO, 4096), (505, 336));
        assert_eq!(capacity(TreeShape::INO, 4096), (252, 505));
        assert_eq!(capacity(TreeShape::RMAP, 4096), (168, 91));
        assert_eq!(capacity(TreeShape::REFCOUNT, 4096), (336, 505));
        assert_eq!(capacity(TreeShape::BMBT, 4096), (251, 251));
        assert_eq!(capacity(TreeShape::BMBT, 1024), (59, 59));
        assert_eq!(capacity(TreeShape::RMAP, 1024), (40, 22));
    }
}
