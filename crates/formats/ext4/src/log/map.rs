//! Location of the journal's blocks.
//!
//! The map is read directly from the device, because recovery runs before anything else is reliable. It needs only the
//! superblock, one group descriptor and the journal's inode. The superblock also contains a copy of the inode's block
//! map, in case a crash tore the other two.

use std::collections::HashSet;

use disk::{BlockDevice, DeviceRole};
use vfs::{Corruption, Error, Ino, Result};

use super::JOURNAL_INO;
use crate::format::address::{Block, FileBlock};
use crate::format::checksum::inode_seed;
use crate::format::extent::{self, ExtentNode};
use crate::format::features::Compat;
use crate::format::geometry::Geometry;
use crate::format::group::GroupDescriptor;
use crate::format::indirect;
use crate::format::inode::{self, I_BLOCK_SIZE, Inode, flags};
use crate::format::journal_device::JournalDevice;
use crate::format::superblock::Superblock;

/// Maximum number of blocks of a journal, as in mke2fs.
const BLOCKS_MAX: u64 = 10_240_000;
/// `s_jnl_backup_type`: the superblock contains the journal's block map and size.
const BACKUP_BLOCKS: u8 = 1;
const STRUCTURE: &str = "journal inode";

/// A contiguous run of journal blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct JournalExtent {
    first: u32,
    start: Block,
    len: u32,
}

/// Device blocks of the journal.
#[derive(Clone, Debug)]
pub struct JournalMap {
    /// Runs in journal order, without gaps.
    runs: Vec<JournalExtent>,
    /// The same runs in device order: first block and length. Empty for a journal on another device.
    on_device: Vec<(Block, u32)>,
    blocks: u32,
    block_size_log: u32,
    /// Address of the first byte of the device that contains the journal.
    base: u64,
    /// Journal block that contains the journal superblock.
    superblock: u32,
}

impl JournalMap {
    /// Finds the journal of a file system. Returns `None` if there is none.
    ///
    /// # Errors
    /// `Unsupported` if the journal is on another device, and that device is missing or contains another journal.
    /// `Unsupported` if a journal device is given for an image with an internal journal. `Corrupt` if the journal's
    /// inode or block map is invalid or does not map all of it.
    pub fn read(device: &dyn BlockDevice, sb: &Superblock) -> Result<Option<Self>> {
        if !sb.features.compat(Compat::HAS_JOURNAL) {
            return Ok(None);
        }
        if sb.has_external_journal() {
            return Ok(Some(Self::of_device(&super::device::find(device, sb)?)));
        }
        let ino = sb.raw.journal_inum.get();
        if ino == 0 {
            return Err(Error::unsupported(
                "a superblock that names no journal, although the image has one",
                "run diskwright repair",
            ));
        }
        let walk = JournalMapWalk::new(device, sb);
        let ino = Ino(ino.into());
        // Among the reserved inodes, only the journal's can be one.
        let is_reserved = ino.0 < u64::from(sb.first_ino) && ino.0 != u64::from(JOURNAL_INO);
        if is_reserved || walk.geometry.place_of(ino).is_none() {
            return Err(Corruption::new("superblock", "journal inode").of_inode(ino.0).into());
        }
        let inode = walk.inode(ino);
        let primary = inode.and_then(|(root, seed)| walk.map(&root, seed));
        let map = match primary {
            Err(Error::Corrupt(damage)) => match MapRoot::from_backup(sb) {
                Some(root) => walk.map(&root, None).map_err(|_| Error::Corrupt(damage))?,
                None => return Err(damage.into()),
            },
            other => other?,
        };
        Ok(Some(map))
    }

    /// Returns the map that starts in an inode. Ignores its other fields and all checksums.
    ///
    /// # Errors
    /// Like [`Self::read`].
    pub(crate) fn of_inode(
        device: &dyn BlockDevice,
        sb: &Superblock,
        i_block: &[u8; I_BLOCK_SIZE],
        size: u64,
    ) -> Result<Self> {
        let is_extents = ExtentNode::parse(i_block, None).is_ok();
        let walk = JournalMapWalk::new(device, sb);
        walk.map(&MapRoot { i_block: *i_block, size, is_extents }, None)
    }

    /// Returns the journal inode's `i_block` and size from the superblock's copy, and whether `i_block` is an extent
    /// tree. Returns `None` if there is no copy, or if its map is invalid.
    pub(crate) fn backup(
        device: &dyn BlockDevice,
        sb: &Superblock,
    ) -> Option<([u8; I_BLOCK_SIZE], u64, bool)> {
        let root = MapRoot::from_backup(sb)?;
        let walk = JournalMapWalk::new(device, sb);
        let map = walk.map(&root, None).ok()?;
        (map.blocks() > 0).then_some((root.i_block, root.size, root.is_extents))
    }

    /// Returns the map of a journal that takes its whole device.
    pub(super) fn of_device(device: &JournalDevice) -> Self {
        let run = JournalExtent { first: 0, start: Block(0), len: device.blocks };
        Self {
            runs: vec![run],
            on_device: Vec::new(),
            blocks: device.blocks,
            block_size_log: device.block_size_log,
            base: DeviceRole::Log.start(),
            superblock: device.journal_block(),
        }
    }

    /// Returns whether the journal is on another device.
    #[must_use]
    pub(crate) fn is_external(&self) -> bool {
        self.base != 0
    }

    /// Returns the journal block that contains the journal superblock.
    #[must_use]
    pub fn superblock(&self) -> u32 {
        self.superblock
    }

    /// Returns the number of journal blocks.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns the block size in bytes.
    #[must_use]
    pub fn block_size(&self) -> usize {
        1 << self.block_size_log
    }

    /// Returns the byte offset of a journal block on the device, and the number of contiguous blocks from there on.
    /// Returns `None` past the end.
    #[must_use]
    pub fn place_of(&self, block: u32) -> Option<(u64, u32)> {
        let at = self.runs.partition_point(|run| run.first <= block).checked_sub(1)?;
        let run = self.runs[at];
        let within = block - run.first;
        let left = run.len.checked_sub(within).filter(|&left| left > 0)?;
        Some((self.base + (run.start.plus(within.into()).0 << self.block_size_log), left))
    }

    /// Returns whether a block belongs to the journal, or is on its device.
    #[must_use]
    pub(crate) fn contains(&self, block: Block) -> bool {
        if self.is_external() {
            return block.0 >= self.base >> self.block_size_log;
        }
        let at = self.on_device.partition_point(|&(start, _)| start <= block);
        at.checked_sub(1).is_some_and(|at| {
            let (start, len) = self.on_device[at];
            block < start.plus(len.into())
        })
    }

    /// Builds the map from the runs of a walk.
    fn new(runs: Vec<JournalExtent>, blocks: u32, block_size_log: u32) -> Result<Self> {
        let mut on_device: Vec<_> = runs.iter().map(|run| (run.start, run.len)).collect();
        on_device.sort_unstable();
        let shared = on_device.windows(2).find(|pair| pair[0].0.plus(pair[0].1.into()) > pair[1].0);
        if let Some(pair) = shared {
            return Err(repeated(pair[1].0));
        }
        Ok(Self { runs, on_device, blocks, block_size_log, base: 0, superblock: 0 })
    }
}

/// Start of a block map.
struct MapRoot {
    i_block: [u8; I_BLOCK_SIZE],
    size: u64,
    is_extents: bool,
}

impl MapRoot {
    /// Returns the copy in the superblock, if there is one.
    fn from_backup(sb: &Superblock) -> Option<Self> {
        if sb.raw.jnl_backup_type != BACKUP_BLOCKS {
            return None;
        }
        let words = &sb.raw.jnl_blocks;
        let mut i_block = [0; I_BLOCK_SIZE];
        for (bytes, word) in i_block.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.get().to_le_bytes());
        }
        Some(Self {
            is_extents: ExtentNode::parse(&i_block, None).is_ok(),
            i_block,
            size: u64::from(words[15].get()) << 32 | u64::from(words[16].get()),
        })
    }
}

/// Traversal of the journal's block map.
struct JournalMapWalk<'d> {
    device: &'d dyn BlockDevice,
    sb: &'d Superblock,
    geometry: Geometry,
    runs: Vec<JournalExtent>,
    /// Number of blocks mapped so far, which is the next expected file block.
    next: u64,
    /// Pointer blocks read so far. Each may occur once, so that a small map cannot use much memory.
    met: HashSet<Block>,
}

impl<'d> JournalMapWalk<'d> {
    fn new(device: &'d dyn BlockDevice, sb: &'d Superblock) -> Self {
        let geometry = Geometry::new(sb);
        Self { device, sb, geometry, runs: Vec::new(), next: 0, met: HashSet::new() }
    }
}

impl JournalMapWalk<'_> {
    fn read(&self, block: Block) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.geometry.block_size() as usize];
        let offset = self.geometry.byte_of(block);
        self.device.read_at(offset, &mut bytes).map_err(Error::Device)?;
        Ok(bytes)
    }

    /// Returns the block map of the journal's inode, and the seed of its checksums if there are checksums.
    fn inode(&self, ino: Ino) -> Result<(MapRoot, Option<u32>)> {
        let damage = |problem| Corruption::new(STRUCTURE, problem).of_inode(ino.0);
        let place = self.geometry.place_of(ino);
        let (group, index) = place.ok_or_else(|| damage("invalid inode number"))?;
        let (block, offset) = self.geometry.descriptor_position(group);
        let table = self.read(block)?;
        let descriptor = table.get(offset..offset + usize::from(self.sb.desc_size));
        let descriptor = GroupDescriptor::parse(descriptor.unwrap_or(&[]), self.sb, group)?;
        let (block, offset) = self.geometry.inode_position(descriptor.inode_table, index);
        let table = self.read(block)?;
        let slot = table.get(offset..offset + usize::from(self.sb.inode_size));
        let slot = slot.ok_or_else(|| damage("outside the inode table"))?;
        let inode = Inode::from_slot(slot);
        let seed = inode_seed(self.sb.checksum_seed, ino, inode.generation());
        let seed = self.sb.features.metadata_csum().then_some(seed);
        if let Some(seed) = seed {
            let (computed, stored) = inode::slot_checksums(seed, slot);
            if computed != stored {
                let damage = Corruption::checksum(STRUCTURE, computed, stored);
                return Err(damage.of_inode(ino.0).at_block(block.0).into());
            }
        }
        if inode.file_type() != Some(vfs::FileType::Regular) || inode.links_count() == 0 {
            return Err(damage("not a regular file in use").at_block(block.0).into());
        }
        if inode.has_flag(flags::INLINE_DATA | flags::ENCRYPT) {
            return Err(damage("invalid flags").at_block(block.0).into());
        }
        let root = MapRoot {
            i_block: *inode.i_block(),
            size: inode.size(),
            is_extents: inode.has_flag(flags::EXTENTS),
        };
        Ok((root, seed))
    }

    /// Traverses the whole map.
    fn map(&self, root: &MapRoot, seed: Option<u32>) -> Result<JournalMap> {
        let Self { device, sb, geometry, .. } = *self;
        let blocks = root.size >> geometry.block_size_log;
        let blocks_max = BLOCKS_MAX.min(geometry.blocks_count);
        if blocks > blocks_max {
            let damage = Corruption::new(STRUCTURE, "blocks");
            return Err(damage.mismatch(format_args!("at most {blocks_max}"), blocks).into());
        }
        let mut walk =
            JournalMapWalk { device, sb, geometry, runs: Vec::new(), next: 0, met: HashSet::new() };
        if root.is_extents {
            let node = ExtentNode::parse(&root.i_block, None)?;
            walk.extents(&node, seed, 1 << 32)?;
        } else {
            walk.pointers(&root.i_block[..4 * indirect::DIRECT_COUNT as usize], 0, blocks)?;
            for levels in 1..=indirect::LEVELS_MAX {
                let at = 4 * (indirect::DIRECT_COUNT as usize + levels - 1);
                walk.pointers(&root.i_block[at..at + 4], levels, blocks)?;
            }
        }
        if walk.next < blocks {
            return Err(hole(walk.next));
        }
        JournalMap::new(walk.runs, blocks as u32, geometry.block_size_log)
    }

    /// Traverses a node of an extent tree whose range ends at `end`.
    fn extents(&mut self, node: &ExtentNode<'_>, seed: Option<u32>, end: u64) -> Result<()> {
        for at in 0..node.len() {
            if node.depth() == 0 {
                let extent = node.extent(at);
                if extent.unwritten || u64::from(extent.block.0) != self.next {
                    return Err(hole(self.next));
                }
                self.add(extent.start, extent.len)?;
                continue;
            }
            let entry = node.index(at);
            let end = node.first_block(at + 1).map_or(end, |next: FileBlock| next.0.into());
            self.check(entry.leaf, 1)?;
            let bytes = self.read(entry.leaf)?;
            let at_leaf = |c: Corruption| c.at_block(entry.leaf.0);
            extent::verify(&bytes, seed).map_err(at_leaf)?;
            let child = ExtentNode::parse(&bytes, Some(node.depth() - 1)).map_err(at_leaf)?;
            // Ensures that no node occurs twice, which bounds the work by the number of nodes.
            child.check_range(entry.block, end).map_err(at_leaf)?;
            self.extents(&child, seed, end)?;
        }
        Ok(())
    }

    /// Traverses pointers with `levels` levels of pointer blocks below, up to `blocks` blocks.
    fn pointers(&mut self, pointers: &[u8], levels: usize, blocks: u64) -> Result<()> {
        for index in 0..(pointers.len() / 4) as u16 {
            if self.next >= blocks {
                return Ok(());
            }
            let Some(block) = indirect::pointer(pointers, index) else {
                return Err(hole(self.next));
            };
            if levels == 0 {
                self.add(block, 1)?;
                continue;
            }
            self.check(block, 1)?;
            if !self.met.insert(block) {
                return Err(repeated(block));
            }
            let below = self.read(block)?;
            self.pointers(&below, levels - 1, blocks)?;
        }
        Ok(())
    }

    fn check(&self, start: Block, len: u32) -> Result<()> {
        if self.geometry.contains(start, len.into()) {
            return Ok(());
        }
        let damage = Corruption::new(STRUCTURE, "blocks outside the file system");
        let expected = format_args!("below {}", self.geometry.blocks_count).to_string();
        Err(damage.mismatch(expected, start).into())
    }

    /// Adds the next blocks of the journal.
    fn add(&mut self, start: Block, len: u32) -> Result<()> {
        self.check(start, len)?;
        // At most as many as the file system has, so that a map of repeated blocks ends.
        let first = u32::try_from(self.next).ok().filter(|&at| u64::from(at) <= BLOCKS_MAX);
        let Some(first) = first else {
            return Err(Corruption::new(STRUCTURE, "too many blocks").into());
        };
        self.next += u64::from(len);
        match self.runs.last_mut() {
            Some(last) if last.start.plus(last.len.into()) == start => last.len += len,
            _ => self.runs.push(JournalExtent { first, start, len }),
        }
        Ok(())
    }
}

fn repeated(block: Block) -> Error {
    Corruption::new(STRUCTURE, "it contains the same block twice").at_block(block.0).into()
}

fn hole(block: u64) -> Error {
    Corruption::new(STRUCTURE, format!("its block {block} is a hole")).into()
}
