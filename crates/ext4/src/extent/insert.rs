//! Adding an extent to a tree.
//!
//! Each round descends from the root. If the leaf has room, the extent goes in; if not, one
//! structural change is made (a node is split, or the root grows a level) and the next round
//! descends again. The number of rounds is bounded by the depth of the tree.

use smallvec::SmallVec;
use transaction::{BufferId, Corruption};
use vfs::{Error, Result};

use crate::format::address::{Block, FileBlock};
use crate::format::extent::{
    self, DEPTH_MAX, ENTRY_SIZE, Extent, IndexEntry, Node, UNWRITTEN_LEN_MAX, WRITTEN_LEN_MAX,
};
use crate::kind::Kind;
use crate::op::{Handle, Op};

/// A node on the way down, and the entry taken in it.
#[derive(Clone, Copy)]
struct Frame {
    /// `None` for the root in the inode.
    buffer: Option<BufferId>,
    depth: u16,
    /// The last entry at or before the block looked for.
    position: Option<usize>,
}

type Path = SmallVec<[Frame; 4]>;

impl Op<'_> {
    /// Adds an extent over file blocks that none covers yet.
    pub(crate) fn insert_extent(&mut self, file: &mut Handle, extent: Extent) -> Result<()> {
        for _ in 0..=2 * DEPTH_MAX {
            let path = self.path_to(file, extent.block)?;
            if self.merge(file, &path, extent) {
                return Ok(());
            }
            let leaf = path.len() - 1;
            let at = path[leaf].position.map_or(0, |p| p + 1);
            if self.insert_entry(file, &path, leaf, at, extent.block, extent.encode())? {
                return Ok(());
            }
            self.make_room(file, &path)?;
        }
        Err(Corruption::new("extent tree", "splits make no room").of_inode(file.ino().0).into())
    }

    fn path_to(&mut self, file: &Handle, block: FileBlock) -> Result<Path> {
        let damage = |c: Corruption| c.of_inode(file.ino().0);
        let root = Node::parse(file.inode.i_block(), None).map_err(damage)?;
        let mut depth = root.depth();
        let mut path = Path::new();
        let mut frame = Frame { buffer: None, depth, position: root.position(block) };
        let mut child = (depth > 0).then(|| root.index(frame.position.unwrap_or(0)).leaf);
        path.push(frame);
        while let Some(at) = child {
            depth -= 1;
            self.fs.volume.check_blocks(at, 1).map_err(damage)?;
            let id = self.buffer(at, Kind::ExtentNode.of(file.owner))?;
            let node = Node::trusted(self.txn.data(id), depth)
                .map_err(|c| self.corrupt(id, c, file.owner))?;
            frame = Frame { buffer: Some(id), depth, position: node.position(block) };
            child = (depth > 0).then(|| node.index(frame.position.unwrap_or(0)).leaf);
            path.push(frame);
        }
        Ok(path)
    }

    /// The bytes of a node.
    fn node_bytes<'n>(&'n self, file: &'n Handle, frame: &Frame) -> &'n [u8] {
        match frame.buffer {
            Some(id) => self.txn.data(id),
            None => file.inode.i_block(),
        }
    }

    fn edit_node<'n>(
        &'n mut self,
        file: &'n mut Handle,
        frame: &Frame,
        range: std::ops::Range<usize>,
    ) -> &'n mut [u8] {
        match frame.buffer {
            Some(id) => self.txn.edit(id, range),
            None => &mut file.inode.i_block_mut()[range],
        }
    }

    fn node<'n>(&'n self, file: &'n Handle, frame: &Frame) -> Result<Node<'n>> {
        Node::trusted(self.node_bytes(file, frame), frame.depth)
            .map_err(|c| c.of_inode(file.ino().0).into())
    }

    /// Joins the extent to the one before it, if they are one run.
    fn merge(&mut self, file: &mut Handle, path: &Path, extent: Extent) -> bool {
        let leaf = path[path.len() - 1];
        let Some(at) = leaf.position else { return false };
        let Ok(node) = self.node(file, &leaf) else { return false };
        let before = node.extent(at);
        let len = before.len + extent.len;
        let len_max = if extent.unwritten { UNWRITTEN_LEN_MAX } else { WRITTEN_LEN_MAX };
        let adjoins = before.unwritten == extent.unwritten
            && before.end() == u64::from(extent.block.0)
            && before.start.plus(u64::from(before.len)) == extent.start
            && len <= len_max;
        if adjoins {
            let joined = Extent { len, ..before }.encode();
            self.edit_node(file, &leaf, extent::entry_range(at)).copy_from_slice(&joined);
        }
        adjoins
    }

    /// Puts entry `at` into the node `path[level]`. False if the node is full.
    fn insert_entry(
        &mut self,
        file: &mut Handle,
        path: &Path,
        level: usize,
        at: usize,
        block: FileBlock,
        entry: [u8; ENTRY_SIZE],
    ) -> Result<bool> {
        let frame = path[level];
        let node = self.node(file, &frame)?;
        if node.is_full() {
            return Ok(false);
        }
        let count = node.len();
        let moved = extent::entry_range(at).start..extent::entry_range(count).end;
        let bytes = self.edit_node(file, &frame, moved);
        let end = bytes.len() - ENTRY_SIZE;
        bytes.copy_within(..end, ENTRY_SIZE);
        bytes[..ENTRY_SIZE].copy_from_slice(&entry);
        self.set_entries(file, &frame, count + 1);
        if at == 0 {
            self.lower_keys(file, path, level, block)?;
        }
        Ok(true)
    }

    /// The first entry of `path[level]` now starts at `block`: so must the entries above it.
    fn lower_keys(
        &mut self,
        file: &mut Handle,
        path: &Path,
        level: usize,
        block: FileBlock,
    ) -> Result<()> {
        for frame in path[..level].iter().rev() {
            let at = frame.position.unwrap_or(0);
            if self.node(file, frame)?.index(at).block <= block {
                return Ok(());
            }
            let key = extent::entry_range(at).start..extent::entry_range(at).start + 4;
            self.edit_node(file, frame, key).copy_from_slice(&block.0.to_le_bytes());
            if at > 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    fn set_entries(&mut self, file: &mut Handle, frame: &Frame, count: usize) {
        self.edit_node(file, frame, 2..4).copy_from_slice(&(count as u16).to_le_bytes());
    }

    /// Splits the lowest node under a parent with room, or adds a level if there is none.
    fn make_room(&mut self, file: &mut Handle, path: &Path) -> Result<()> {
        let mut level = path.len() - 1;
        while level > 0 {
            if !self.node(file, &path[level - 1])?.is_full() {
                return self.split(file, path, level);
            }
            level -= 1;
        }
        self.grow(file, path)
    }

    /// Moves the upper part of a node into a new one beside it. At the right edge of the tree
    /// nothing is moved but the last entry, so that files written in order fill their nodes.
    fn split(&mut self, file: &mut Handle, path: &Path, level: usize) -> Result<()> {
        let frame = path[level];
        let node = self.node(file, &frame)?;
        let count = node.len();
        let at_edge = frame.position == Some(count - 1);
        let keep = if at_edge { count - 1 } else { count / 2 };
        let start = extent::entry_range(keep).start;
        let first = FileBlock(u32::from_le_bytes(
            self.node_bytes(file, &frame)[start..start + 4].try_into().unwrap_or_default(),
        ));
        let (leaf, id) = self.new_node(file)?;
        let moved =
            self.node_bytes(file, &frame)[start..extent::entry_range(count - 1).end].to_vec();
        self.txn.edit(id, ENTRY_SIZE..ENTRY_SIZE + moved.len()).copy_from_slice(&moved);
        let max = extent::capacity(self.fs.volume.block_size());
        let header = self.txn.edit(id, 0..ENTRY_SIZE);
        extent::write_header(header, (count - keep) as u16, max, frame.depth);
        self.set_entries(file, &frame, keep);
        let entry = IndexEntry { block: first, leaf }.encode();
        let at = path[level - 1].position.unwrap_or(0) + 1;
        self.insert_entry(file, path, level - 1, at, first, entry)?;
        Ok(())
    }

    /// Moves the root's entries into a new block, which becomes the root's only child.
    fn grow(&mut self, file: &mut Handle, path: &Path) -> Result<()> {
        let depth = path[0].depth;
        if depth >= DEPTH_MAX {
            return Err(Error::FileTooLarge);
        }
        let (leaf, id) = self.new_node(file)?;
        let root = *file.inode.i_block();
        self.txn.edit(id, 0..root.len()).copy_from_slice(&root);
        let count = Node::parse(&root, None)?.len();
        let max = extent::capacity(self.fs.volume.block_size());
        extent::write_header(self.txn.edit(id, 0..ENTRY_SIZE), count as u16, max, depth);
        let first = root[ENTRY_SIZE..ENTRY_SIZE + 4].try_into().unwrap_or_default();
        let entry = IndexEntry { block: FileBlock(u32::from_le_bytes(first)), leaf }.encode();
        let root = file.inode.i_block_mut();
        extent::write_header(&mut root[..ENTRY_SIZE], 1, 4, depth + 1);
        root[extent::entry_range(0)].copy_from_slice(&entry);
        root[extent::entry_range(1).start..].fill(0);
        Ok(())
    }

    fn new_node(&mut self, file: &mut Handle) -> Result<(Block, BufferId)> {
        let goal = self.metadata_goal(file);
        let (block, _) = self.allocate_blocks(goal, 1)?;
        self.add_blocks(file, 1)?;
        let id = self.txn.create(block.0, Kind::ExtentNode.of(file.owner))?;
        Ok((block, id))
    }
}
