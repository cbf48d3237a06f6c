//! Adding a name to a hashed directory: finding its leaf, splitting leaves and nodes, adding
//! levels.
//!
//! As with extent trees, each round descends from the root, and makes one structural change if the
//! leaf has no room. A leaf is split so that each half has about half of the bytes; names of equal
//! hash may end up in two leaves, which the index marks by setting bit 0 of the second one's hash.

use smallvec::SmallVec;
use transaction::{BufferId, Corruption};
use vfs::{Error, Result};

use super::insert::Entry;
use crate::format::address::FileBlock;
use crate::format::dirent;
use crate::format::hash::NameHasher;
use crate::format::htree::{
    self, Index, LEVELS_MAX, LEVELS_MAX_LARGE, Place, ROOT_INFO_RANGE, RootInfo,
};
use crate::format::inode::flags;
use crate::kind::Kind;
use crate::op::{Handle, Op};

/// Rounds of restructuring before giving up: a leaf of the smallest size splits a few times at
/// most before a name fits.
const ROUNDS_MAX: usize = 16;

/// An index block on the way down, and the entry taken in it.
#[derive(Clone, Copy)]
struct Frame {
    id: BufferId,
    place: Place,
    position: usize,
}

type Path = SmallVec<[Frame; 3]>;

/// An entry of a leaf being split.
struct Item {
    hash: u32,
    offset: usize,
    size: usize,
}

impl Op<'_> {
    /// Adds an entry to a directory with an index.
    pub(super) fn add_indexed(&mut self, dir: &mut Handle, entry: Entry<'_>) -> Result<()> {
        for _ in 0..ROUNDS_MAX {
            let (path, hasher, hash) = self.index_path(dir, entry.name)?;
            let leaf = self.leaf_of(dir, &path)?;
            self.check_later_leaves(dir, &path, hash, entry.name)?;
            if self.add_to_leaf(leaf, entry)? {
                return Ok(());
            }
            let last = path[path.len() - 1];
            if self.index(&last).is_full() {
                self.make_index_room(dir, &path)?;
            } else {
                self.split_leaf(dir, &last, leaf, &hasher)?;
            }
        }
        Err(Corruption::new("directory index", "splits make no room").of_inode(dir.ino().0).into())
    }

    fn index(&self, frame: &Frame) -> Index<'_> {
        Index::new(self.txn.data(frame.id), frame.place)
    }

    /// Descends to the index entry that covers a name; also how names are hashed here, and the
    /// hash of this one.
    fn index_path(&mut self, dir: &Handle, name: &[u8]) -> Result<(Path, NameHasher, u32)> {
        let damage =
            |problem: &str| Corruption::new("directory index", problem).of_inode(dir.ino().0);
        let at = self.dir_block(dir, FileBlock(0))?;
        let root = self.buffer(at, Kind::HtreeRoot.of(dir.owner))?;
        let RootInfo { hash_version, indirect_levels } = htree::root_info(self.txn.data(root));
        let hasher = self.fs.volume.hasher(hash_version);
        let hasher = hasher.ok_or_else(|| damage("unknown hash version"))?;
        if indirect_levels > LEVELS_MAX_LARGE {
            return Err(damage("more levels than there can be").into());
        }
        let hash = hasher.hash(name).major;
        let mut path = Path::new();
        let mut frame = Frame { id: root, place: Place::Root, position: 0 };
        for level in 0..=indirect_levels {
            frame.position = self.index(&frame).position(hash);
            path.push(frame);
            if level < indirect_levels {
                let child = self.index(&frame).block(frame.position);
                let at = self.dir_block(dir, child)?;
                let id = self.buffer(at, Kind::HtreeNode.of(dir.owner))?;
                frame = Frame { id, place: Place::Node, position: 0 };
            }
        }
        Ok((path, hasher, hash))
    }

    fn leaf_of(&mut self, dir: &Handle, path: &Path) -> Result<BufferId> {
        let last = path[path.len() - 1];
        let block = self.index(&last).block(last.position);
        let at = self.dir_block(dir, block)?;
        self.buffer(at, Kind::DirectoryLeaf.of(dir.owner))
    }

    /// Looks for `name` in the leaves after the one found that go on with the same hash.
    fn check_later_leaves(
        &mut self,
        dir: &Handle,
        path: &Path,
        hash: u32,
        name: &[u8],
    ) -> Result<()> {
        let last = &path[path.len() - 1];
        let index = self.index(last);
        let next = last.position + 1;
        if next < index.count() && index.hash(next) != hash | 1 {
            // Nearly always: the next leaf of the same node starts with another hash.
            return Ok(());
        }
        let mut path = path.clone();
        while self.advance(dir, &mut path)? == Some(hash | 1) {
            let leaf = self.leaf_of(dir, &path)?;
            if dirent::find(self.txn.data(leaf), name).is_some() {
                return Err(Error::Exists);
            }
        }
        Ok(())
    }

    /// Moves a path to the next leaf; the hash that the index gives for it, if there is one.
    fn advance(&mut self, dir: &Handle, path: &mut Path) -> Result<Option<u32>> {
        let Some(level) =
            (0..path.len()).rev().find(|&l| path[l].position + 1 < self.index(&path[l]).count())
        else {
            return Ok(None);
        };
        path[level].position += 1;
        let hash = self.index(&path[level]).hash(path[level].position);
        for below in level + 1..path.len() {
            let child = self.index(&path[below - 1]).block(path[below - 1].position);
            let at = self.dir_block(dir, child)?;
            path[below].id = self.buffer(at, Kind::HtreeNode.of(dir.owner))?;
            path[below].position = 0;
        }
        Ok(Some(hash))
    }

    /// Turns a directory of one full block into one with an index of one leaf.
    pub(super) fn make_index(&mut self, dir: &mut Handle) -> Result<()> {
        let at = self.dir_block(dir, FileBlock(0))?;
        let root = self.buffer(at, Kind::DirectoryLeaf.of(dir.owner))?;
        let old = self.txn.data(root).to_vec();
        let mut records = dirent::records(&old);
        let (Some(dot), Some(dot_dot)) = (records.next(), records.next()) else {
            return Err(Corruption::new("directory block", "no '.' and '..'")
                .of_inode(dir.ino().0)
                .into());
        };
        if dot.name != b"." || dot_dot.name != b".." || dot.rec_len != dirent::record_size(1) {
            return Err(Corruption::new("directory block", "'.' and '..' do not come first")
                .of_inode(dir.ino().0)
                .into());
        }
        let (number, leaf) = self.append_leaf(dir)?;
        let rest: Vec<_> =
            records.filter(|r| r.inode != 0).map(|r| &old[r.offset..r.offset + r.used()]).collect();
        self.pack_leaf(leaf, &rest);

        let size = self.fs.volume.block_size();
        let version = self.fs.volume.default_hash_version();
        let limit = Place::Root.limit(size, self.fs.volume.checksums);
        self.txn.retag(root, Kind::HtreeRoot.of(dir.owner));
        let bytes = self.txn.edit(root, dot_dot.offset..size);
        let keep = dirent::record_size(2);
        bytes[keep..].fill(0);
        dirent::write_rec_len(&mut bytes[4..6], size - dot_dot.offset);
        let info = RootInfo { hash_version: version, indirect_levels: 0 };
        htree::write_root_info(self.txn.edit(root, ROOT_INFO_RANGE), info);
        let counts = self.txn.edit(root, htree::count_range(Place::Root));
        htree::write_counts(counts, limit, 1, number);
        dir.inode.set_flag(flags::INDEX, true);
        Ok(())
    }

    /// Writes entries (as they stand in a block, without slack) one after the other over a leaf;
    /// the last one takes the rest of it.
    fn pack_leaf(&mut self, leaf: BufferId, entries: &[&[u8]]) {
        self.clear_leaf(leaf);
        let end = self.fs.volume.block_size() - self.fs.volume.dir_tail_size();
        let bytes = self.txn.edit(leaf, 0..end);
        let mut at = 0;
        for (n, entry) in entries.iter().enumerate() {
            let len = if n + 1 == entries.len() { end - at } else { entry.len() };
            bytes[at..at + entry.len()].copy_from_slice(entry);
            dirent::write_rec_len(&mut bytes[at + 4..at + 6], len);
            at += len;
        }
    }

    /// Moves the upper half of a leaf, by hash, into a new leaf.
    fn split_leaf(
        &mut self,
        dir: &mut Handle,
        parent: &Frame,
        leaf: BufferId,
        hasher: &NameHasher,
    ) -> Result<()> {
        let old = self.txn.data(leaf).to_vec();
        let mut items: Vec<_> = dirent::entries(&old)
            .map(|r| Item { hash: hasher.hash(r.name).major, offset: r.offset, size: r.used() })
            .collect();
        items.sort_by_key(|i| i.hash);
        let half = items.iter().map(|i| i.size).sum::<usize>() / 2;
        let mut below = 0;
        let split = items.iter().position(|i| {
            below += i.size;
            below > half
        });
        // Both halves must have an entry, or nothing is gained.
        let split = split.unwrap_or(0).clamp(1, items.len().saturating_sub(1).max(1));
        if split >= items.len() {
            return Err(Error::NoSpace);
        }
        let (number, new_leaf) = self.append_leaf(dir)?;
        let bytes = |items: &[Item]| -> Vec<&[u8]> {
            items.iter().map(|i| &old[i.offset..i.offset + i.size]).collect()
        };
        self.pack_leaf(leaf, &bytes(&items[..split]));
        self.pack_leaf(new_leaf, &bytes(&items[split..]));
        let continued = items[split - 1].hash == items[split].hash;
        self.insert_index(
            parent,
            parent.position + 1,
            items[split].hash | u32::from(continued),
            number,
        );
        Ok(())
    }

    /// Puts an entry into an index block that has room.
    fn insert_index(&mut self, frame: &Frame, at: usize, hash: u32, block: FileBlock) {
        let index = self.index(frame);
        let (count, first) = (index.count(), index.block(0));
        let limit = frame.place.limit(self.fs.volume.block_size(), self.fs.volume.checksums);
        htree::insert(
            self.txn.edit(frame.id, htree::insert_range(frame.place, at, count)),
            hash,
            block,
        );
        let counts = self.txn.edit(frame.id, htree::count_range(frame.place));
        htree::write_counts(counts, limit, count as u16 + 1, first);
    }

    /// Splits the lowest full node under a parent with room, or adds a level.
    fn make_index_room(&mut self, dir: &mut Handle, path: &Path) -> Result<()> {
        let mut level = path.len() - 1;
        while level > 0 {
            if !self.index(&path[level - 1]).is_full() {
                return self.split_node(dir, path, level);
            }
            level -= 1;
        }
        let levels_max = if self.fs.volume.large_dir { LEVELS_MAX_LARGE } else { LEVELS_MAX };
        if path.len() > usize::from(levels_max) {
            // No larger image would help.
            return Err(Error::unsupported(
                "a directory of so many names",
                "turn large_dir on, or use larger blocks",
            ));
        }
        self.add_level(dir, &path[0], path.len() as u8)
    }

    fn new_index_node(&mut self, dir: &mut Handle) -> Result<(FileBlock, BufferId)> {
        let (number, block) = self.append_dir_block(dir)?;
        let id = self.txn.create(block.0, Kind::HtreeNode.of(dir.owner))?;
        let size = self.fs.volume.block_size();
        dirent::write_record(self.txn.edit(id, 0..dirent::HEADER_SIZE), size, 0, 0, &[]);
        Ok((number, id))
    }

    /// Fills a new node with entries taken from another; the first one's hash goes to the parent.
    fn fill_node(&mut self, id: BufferId, entries: &[u8]) {
        let limit = Place::Node.limit(self.fs.volume.block_size(), self.fs.volume.checksums);
        let start = htree::count_range(Place::Node).start;
        self.txn.edit(id, start..start + entries.len()).copy_from_slice(entries);
        let first = FileBlock(u32::from_le_bytes(entries[4..8].try_into().unwrap_or_default()));
        let count = (entries.len() / 8) as u16;
        htree::write_counts(
            self.txn.edit(id, htree::count_range(Place::Node)),
            limit,
            count,
            first,
        );
    }

    fn split_node(&mut self, dir: &mut Handle, path: &Path, level: usize) -> Result<()> {
        let frame = path[level];
        let count = self.index(&frame).count();
        let keep = count / 2;
        let hash = self.index(&frame).hash(keep);
        let moved = htree::entry_bytes(self.txn.data(frame.id), frame.place, keep..count).to_vec();
        let (number, id) = self.new_index_node(dir)?;
        self.fill_node(id, &moved);
        let first = self.index(&frame).block(0);
        let limit = frame.place.limit(self.fs.volume.block_size(), self.fs.volume.checksums);
        let counts = self.txn.edit(frame.id, htree::count_range(frame.place));
        htree::write_counts(counts, limit, keep as u16, first);
        let parent = path[level - 1];
        self.insert_index(&parent, parent.position + 1, hash, number);
        Ok(())
    }

    /// Moves the root's entries into a new node, which becomes the root's only entry.
    fn add_level(&mut self, dir: &mut Handle, root: &Frame, levels: u8) -> Result<()> {
        let count = self.index(root).count();
        let entries = htree::entry_bytes(self.txn.data(root.id), Place::Root, 0..count).to_vec();
        let (number, id) = self.new_index_node(dir)?;
        self.fill_node(id, &entries);
        let RootInfo { hash_version, .. } = htree::root_info(self.txn.data(root.id));
        let info = RootInfo { hash_version, indirect_levels: levels };
        htree::write_root_info(self.txn.edit(root.id, ROOT_INFO_RANGE), info);
        let limit = Place::Root.limit(self.fs.volume.block_size(), self.fs.volume.checksums);
        let counts = self.txn.edit(root.id, htree::count_range(Place::Root));
        htree::write_counts(counts, limit, 1, number);
        Ok(())
    }
}
