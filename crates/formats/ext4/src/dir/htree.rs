//! Adding a name to a hashed directory: finding its leaf, splitting leaves and nodes, adding levels.
//!
//! As with extent trees, each round descends from the root and makes one structural change if the leaf has no room. A
//! leaf is split so that each half has about half of the bytes. If this separates names of equal hash, the index marks
//! the second leaf by setting bit 0 of its hash.

use engine::{BufferId, Corruption};
use operations::Outcome;
use operations::names::Entry;
use smallvec::SmallVec;
use vfs::Error;

use crate::dir::compare::{NameEncoding, Wanted};
use crate::dir::find_by_hash;
use crate::dir::index::{self, Cursor};
use crate::format::address::FileBlock;
use crate::format::dirent;
use crate::format::hash::NameHasher;
use crate::format::htree::{
    self, Index, IndexKind, LEVELS_MAX, LEVELS_MAX_LARGE, ROOT_INFO_RANGE, RootInfo,
};
use crate::format::inode::flags;
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::op::Op;

/// Maximum number of restructuring rounds. Even a leaf of the smallest block size is split only a few times before a
/// name fits.
const ROUNDS_MAX: usize = 16;

/// A held index block on the path to a leaf, and the position of the entry taken in it.
#[derive(Clone, Copy)]
struct Frame {
    id: BufferId,
    place: IndexKind,
    position: usize,
}

type IndexPath = SmallVec<[Frame; 3]>;

fn damage(dir: &Handle, problem: &'static str) -> Error {
    dir.corrupt("directory index", problem)
}

/// An entry of a leaf that is being split.
struct LeafEntry {
    hash: u32,
    offset: usize,
    size: usize,
}

/// A held leaf and the first hash of the next leaf, if that is known.
type Leaf = (BufferId, Option<u32>);

impl Op<'_> {
    /// Adds many entries to an indexed directory, given with the major hashes of their names in ascending order. The
    /// index is searched once per leaf. Not for case-insensitive or encrypted directories.
    pub(crate) fn add_in_order<'e>(
        &mut self,
        dir: &mut Handle,
        entries: impl Iterator<Item = (u32, Entry<'e>)>,
    ) -> Outcome<()> {
        let mut leaf: Option<Leaf> = None;
        for (hash, entry) in entries {
            let mut wanted = Wanted::new(NameEncoding::Plain, entry.name);
            if let Some((id, Some(end))) = leaf
                && hash < end & !1
                && let Some(room) = self.room_in_leaf(id, entry.name, &mut wanted)?
            {
                self.write_entry(room, entry);
                continue;
            }
            leaf = Some(self.add_indexed(dir, entry, &mut wanted)?);
        }
        Ok(())
    }

    /// Adds an entry to an indexed directory. Returns the leaf that received it.
    pub(super) fn add_indexed(
        &mut self,
        dir: &mut Handle,
        entry: Entry<'_>,
        wanted: &mut Wanted<'_>,
    ) -> Outcome<Leaf> {
        for _ in 0..ROUNDS_MAX {
            let volume = &self.fs.volume;
            let (info, found) = Cursor::seek_root(self, dir, |info| {
                wanted.major(&volume.hash_parameters(), info.hash_version)
            })?;
            let hasher = volume.hasher(info.hash_version);
            let hasher = hasher.ok_or_else(|| damage(dir, "unknown hash version"))?;
            let (cursor, hash) = found.ok_or_else(Error::encrypted_read_only)?;
            let at = index::place_of(self, dir, cursor.leaf())?;
            let leaf = self.buffer(at, BlockKind::DirectoryLeaf.of(dir.owner))?;
            let room = self.room_in_leaf(leaf, entry.name, wanted)?;
            // Nearly always the next leaf of the same node starts with another hash.
            if cursor.may_go_on_with(hash)
                && find_by_hash(self, dir, cursor, hash, wanted)?.is_some()
            {
                return Err(Error::Exists.into());
            }
            if let Some(room) = room {
                self.write_entry(room, entry);
                return Ok((leaf, cursor.next_hash()));
            }
            if self.pack_if_sparse(leaf, entry.name) {
                continue;
            }
            let path = self.frames(dir, &cursor)?;
            let last = path[path.len() - 1];
            if self.index(&last).is_full() {
                self.make_index_room(dir, &path)?;
            } else {
                self.split_leaf(dir, &last, leaf, &hasher)?;
            }
        }
        Err(damage(dir, "no space after splitting").into())
    }

    fn index(&self, frame: &Frame) -> Index<'_> {
        Index::new(self.txn.data(frame.id), frame.place)
    }

    /// Holds the index blocks on the path to a leaf.
    fn frames(&mut self, dir: &Handle, cursor: &Cursor) -> Outcome<IndexPath> {
        let mut path = IndexPath::new();
        for step in cursor.steps() {
            let is_root = path.is_empty();
            let kind = if is_root { BlockKind::HtreeRoot } else { BlockKind::HtreeNode };
            let at = index::place_of(self, dir, step.block)?;
            let id = self.buffer(at, kind.of(dir.owner))?;
            let place = if is_root { IndexKind::Root } else { IndexKind::Node };
            path.push(Frame { id, place, position: step.at });
        }
        Ok(path)
    }

    /// Compacts the entries of a leaf if that frees enough of the space that removed names have fragmented. Returns
    /// whether it did.
    fn pack_if_sparse(&mut self, leaf: BufferId, name: &[u8]) -> bool {
        let old = self.txn.data(leaf);
        let whole = old.len() - self.fs.volume.dir_tail_size();
        let used: usize = dirent::entries(old).map(|r| r.used()).sum();
        if used + dirent::record_size(name.len()) > whole - whole / 8 {
            return false;
        }
        let old = old.to_vec();
        let entries: Vec<_> =
            dirent::entries(&old).map(|r| &old[r.offset..r.offset + r.used()]).collect();
        self.pack_leaf(leaf, &entries);
        true
    }

    /// Converts a directory of one full block to an index with one leaf.
    pub(super) fn make_index(&mut self, dir: &mut Handle) -> Outcome<()> {
        let at = self.dir_block(dir, FileBlock(0))?;
        let root = self.buffer(at, BlockKind::DirectoryLeaf.of(dir.owner))?;
        let old = self.txn.data(root).to_vec();
        let mut records = dirent::records(&old);
        let (Some(dot), Some(dot_dot)) = (records.next(), records.next()) else {
            return Err(Corruption::new("directory block", "'.' and '..' are missing")
                .of_inode(dir.ino().0)
                .into());
        };
        if dot.name != b"." || dot_dot.name != b".." || dot.rec_len != dirent::record_size(1) {
            return Err(Corruption::new(
                "directory block",
                "'.' and '..' are not the first entries",
            )
            .of_inode(dir.ino().0)
            .into());
        }
        let (number, leaf) = self.append_leaf(dir)?;
        let rest: Vec<_> =
            records.filter(|r| r.inode != 0).map(|r| &old[r.offset..r.offset + r.used()]).collect();
        self.pack_leaf(leaf, &rest);

        let size = self.fs.volume.block_size();
        let version = self.fs.volume.default_hash_version();
        let limit = IndexKind::Root.limit(size, self.fs.volume.checksums);
        self.txn.retag(root, BlockKind::HtreeRoot.of(dir.owner));
        let bytes = self.txn.edit(root, dot_dot.offset..size);
        let keep = dirent::record_size(2);
        bytes[keep..].fill(0);
        dirent::write_rec_len(&mut bytes[4..6], size - dot_dot.offset);
        let info = RootInfo { hash_version: version, indirect_levels: 0 };
        htree::write_root_info(self.txn.edit(root, ROOT_INFO_RANGE), info);
        let counts = self.txn.edit(root, htree::count_range(IndexKind::Root));
        htree::write_counts(counts, limit, 1, number);
        dir.inode.set_flag(flags::INDEX, true);
        Ok(())
    }

    /// Fills a leaf with entries, given as records without slack, in sequence. The last record takes the remaining
    /// space.
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

    /// Moves the upper half of a leaf, by hash, to a new leaf.
    fn split_leaf(
        &mut self,
        dir: &mut Handle,
        parent: &Frame,
        leaf: BufferId,
        hasher: &NameHasher,
    ) -> Outcome<()> {
        let old = self.txn.data(leaf).to_vec();
        let (style, mut folded) = (NameEncoding::of(dir), Vec::new());
        let mut hash = |name: &[u8]| style.hash(hasher, name, &mut folded).major;
        let mut items: Vec<_> = dirent::entries(&old)
            .map(|r| LeafEntry { hash: hash(r.name), offset: r.offset, size: r.used() })
            .collect();
        items.sort_by_key(|i| i.hash);
        let half = items.iter().map(|i| i.size).sum::<usize>() / 2;
        let mut below = 0;
        let split = items.iter().position(|i| {
            below += i.size;
            below > half
        });
        // Both halves must get an entry; otherwise the split frees no space.
        let split = split.unwrap_or(0).clamp(1, items.len().saturating_sub(1).max(1));
        if split >= items.len() {
            return Err(Error::NoSpace.into());
        }
        let (number, new_leaf) = self.append_leaf(dir)?;
        let bytes = |items: &[LeafEntry]| -> Vec<&[u8]> {
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

    /// Inserts an entry into an index block that has room.
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

    /// Splits the lowest full node whose parent has room, or adds a level.
    fn make_index_room(&mut self, dir: &mut Handle, path: &IndexPath) -> Outcome<()> {
        let mut level = path.len() - 1;
        while level > 0 {
            if !self.index(&path[level - 1]).is_full() {
                return self.split_node(dir, path, level);
            }
            level -= 1;
        }
        let levels_max = if self.fs.volume.large_dir { LEVELS_MAX_LARGE } else { LEVELS_MAX };
        if path.len() > usize::from(levels_max) {
            // A larger image would not help.
            return Err(Error::unsupported(
                "a directory with that many names",
                "turn the feature large_dir on, or use larger blocks",
            )
            .into());
        }
        self.add_level(dir, &path[0], path.len() as u8)
    }

    fn new_index_node(&mut self, dir: &mut Handle) -> Outcome<(FileBlock, BufferId)> {
        let (number, block) = self.append_dir_block(dir)?;
        let id = self.txn.create(block.0, BlockKind::HtreeNode.of(dir.owner))?;
        let size = self.fs.volume.block_size();
        dirent::write_record(self.txn.edit(id, 0..dirent::HEADER_SIZE), size, 0, 0, &[]);
        Ok((number, id))
    }

    /// Fills a new node with entries of another one. The caller stores the hash of the first entry in the parent.
    fn fill_node(&mut self, id: BufferId, entries: &[u8]) {
        let limit = IndexKind::Node.limit(self.fs.volume.block_size(), self.fs.volume.checksums);
        let start = htree::count_range(IndexKind::Node).start;
        self.txn.edit(id, start..start + entries.len()).copy_from_slice(entries);
        let first = FileBlock(u32::from_le_bytes(entries[4..8].try_into().unwrap_or_default()));
        let count = (entries.len() / 8) as u16;
        htree::write_counts(
            self.txn.edit(id, htree::count_range(IndexKind::Node)),
            limit,
            count,
            first,
        );
    }

    fn split_node(&mut self, dir: &mut Handle, path: &IndexPath, level: usize) -> Outcome<()> {
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

    /// Moves the root's entries to a new node, which becomes the only entry of the root.
    fn add_level(&mut self, dir: &mut Handle, root: &Frame, levels: u8) -> Outcome<()> {
        let count = self.index(root).count();
        let entries =
            htree::entry_bytes(self.txn.data(root.id), IndexKind::Root, 0..count).to_vec();
        let (number, id) = self.new_index_node(dir)?;
        self.fill_node(id, &entries);
        let RootInfo { hash_version, .. } = htree::root_info(self.txn.data(root.id));
        let info = RootInfo { hash_version, indirect_levels: levels };
        htree::write_root_info(self.txn.edit(root.id, ROOT_INFO_RANGE), info);
        let limit = IndexKind::Root.limit(self.fs.volume.block_size(), self.fs.volume.checksums);
        let counts = self.txn.edit(root.id, htree::count_range(IndexKind::Root));
        htree::write_counts(counts, limit, 1, number);
        Ok(())
    }
}
