//! The inodes that every new file system has, and the contents of their blocks.

use vfs::{Error, FileType, Ino, Result, Timestamp};
use zerocopy::IntoBytes;

use super::journal;
use super::mapping::{self, DIRECT_BLOCKS, Mapped};
use super::options::{ExternalJournal, Options};
use super::space::Space;
use crate::format::address::{Block, Group};
use crate::format::features::{Compat, Incompat};
use crate::format::geometry::Geometry;
use crate::format::inode::{Inode, ROOT_INO, Time, flags};
use crate::format::jbd2::RawJournalSuperblock;
use crate::format::mmp::{self, RawMmp};
use crate::format::superblock::{FIRST_INO_REV0, Superblock};
use crate::format::{checksum, dirent, orphan};

/// Inode of the bad block list.
const BAD_BLOCKS_INO: Ino = Ino(1);
/// Inode of the blocks reserved for growth of the descriptor table.
const RESIZE_INO: Ino = Ino(7);
/// Inode of the journal.
const JOURNAL_INO: Ino = Ino(8);
/// Inode of `lost+found`, which e2fsck expects under this name in the root.
const LOST_FOUND_INO: Ino = Ino(FIRST_INO_REV0 as u64);
const LOST_FOUND_NAME: &[u8] = b"lost+found";
/// Inode of the orphan file, if there is one.
const ORPHAN_INO: Ino = Ino(FIRST_INO_REV0 as u64 + 1);
/// Size of `lost+found` in bytes, at least two blocks. It has room for names in case no block can be allocated.
const LOST_FOUND_SIZE: u64 = 16 << 10;
/// `s_jnl_backup_type`: `s_jnl_blocks` contains the journal's block map and size.
const JOURNAL_BACKUP_BLOCKS: u8 = 1;

/// System files of a new file system.
#[derive(Clone, Debug, Default)]
pub(super) struct SystemFiles {
    /// Inodes, all in group 0.
    pub(super) inodes: Vec<(Ino, Inode)>,
    /// Blocks that are not all zeros.
    pub(super) blocks: Vec<(Block, BlockContents)>,
    /// Number of inodes in use, counted from the first.
    pub(super) inodes_used: u32,
    /// Number of blocks of the journal.
    pub(super) journal_blocks: u64,
}

/// Contents of a block. There may be thousands, so contents that repeat are generated when they are written.
#[derive(Clone, Debug)]
pub(super) enum BlockContents {
    /// These bytes, followed by zeros.
    Start(Vec<u8>),
    /// An empty block of the orphan file, with the seed of the file's checksums.
    NoOrphans(Option<u32>),
}

impl BlockContents {
    /// Writes the contents for block `place` to `block`.
    pub(super) fn fill(&self, place: Block, block: &mut [u8]) {
        match self {
            Self::Start(bytes) => {
                let (start, rest) = block.split_at_mut(bytes.len());
                start.copy_from_slice(bytes);
                rest.fill(0);
            }
            Self::NoOrphans(seed) => {
                block.fill(0);
                orphan::seal(block, place, *seed);
            }
        }
    }
}

/// Returns the seed of metadata checksums, if there are checksums.
pub(super) fn checksum_seed(sb: &Superblock) -> Option<u32> {
    sb.features.metadata_csum().then_some(sb.checksum_seed)
}

/// Creates the system files one after another.
struct Maker<'a> {
    options: &'a Options,
    sb: &'a mut Superblock,
    geometry: &'a Geometry,
    space: &'a mut Space,
    files: SystemFiles,
}

/// Creates all system files and sets their fields in the superblock.
pub(super) fn make(
    options: &Options,
    sb: &mut Superblock,
    geometry: &Geometry,
    space: &mut Space,
    itable_end: Block,
) -> Result<SystemFiles> {
    let features = sb.features;
    let mut maker = Maker { options, sb, geometry, space, files: SystemFiles::default() };
    maker.bad_blocks();
    maker.root()?;
    maker.lost_found()?;
    if features.compat(Compat::RESIZE_INODE) {
        maker.resize_inode(itable_end)?;
    }
    if features.compat(Compat::HAS_JOURNAL) {
        maker.journal()?;
    }
    if features.incompat(Incompat::MMP) {
        maker.mmp()?;
    }
    if features.compat(Compat::ORPHAN_FILE) {
        maker.orphan_file()?;
    }
    let last = if features.compat(Compat::ORPHAN_FILE) { ORPHAN_INO } else { LOST_FOUND_INO };
    maker.files.inodes_used = last.0 as u32;
    if options.tuning.has_project_quota {
        maker.project_quota();
    }
    Ok(maker.files)
}

impl Maker<'_> {
    fn block_size(&self) -> usize {
        self.geometry.block_size() as usize
    }

    /// Returns the seed of an inode's checksums, if there are any. New inodes have generation 0.
    fn seed(&self, ino: Ino) -> Option<u32> {
        checksum_seed(self.sb).map(|seed| checksum::inode_seed(seed, ino, 0))
    }

    /// Allocates and maps the blocks of a file, with extents or a block map depending on the features.
    fn map(&mut self, ino: Ino, goal: Block, len: u64) -> Result<Mapped> {
        let (block_size, seed) = (self.block_size(), self.seed(ino));
        let mapped = if self.sb.features.incompat(Incompat::EXTENTS) {
            mapping::extents(self.space, goal.0, len, block_size, seed)
        } else {
            mapping::block_map(self.space, goal.0, len, block_size)
        };
        mapped.ok_or(Error::NoSpace)
    }

    fn new_inode(&self, file_type: FileType, permissions: u16, links: u16) -> Inode {
        let mut inode = Inode::zeroed(usize::from(self.geometry.inode_size));
        inode.set_mode(file_type.mode_bits() | permissions);
        inode.set_links_count(links);
        set_times(&mut inode, self.options.time);
        inode
    }

    /// Adds a file whose blocks are mapped, with a size of `len` blocks.
    fn add(&mut self, ino: Ino, mut inode: Inode, mapped: Mapped, len: u64) {
        inode.set_size(len << self.geometry.block_size_log);
        self.set_blocks(&mut inode, mapped.total(self.geometry.cluster_blocks().into()));
        inode.set_flag(flags::EXTENTS, self.sb.features.incompat(Incompat::EXTENTS));
        *inode.i_block_mut() = mapped.i_block;
        self.files.inodes.push((ino, inode));
        let index =
            mapped.index.into_iter().map(|(place, bytes)| (place, BlockContents::Start(bytes)));
        self.files.blocks.extend(index);
    }

    fn set_blocks(&self, inode: &mut Inode, blocks: u64) {
        let block_size = self.geometry.block_size();
        // This fails from 2^48 units on; system files are far smaller.
        inode.set_blocks_512(blocks * u64::from(block_size / 512), block_size);
    }

    /// Adds an empty list with only its times set.
    fn bad_blocks(&mut self) {
        let mut inode = Inode::zeroed(128);
        set_times(&mut inode, self.options.time);
        self.files.inodes.push((BAD_BLOCKS_INO, inode));
    }

    fn root(&mut self) -> Result<()> {
        let options = self.options;
        let mut inode = self.new_inode(FileType::Directory, options.root_permissions & 0o7777, 3);
        inode.set_uid(options.root_uid);
        inode.set_gid(options.root_gid);
        let mapped = self.map(ROOT_INO, Block(0), 1)?;
        let names: [(&[u8], Ino); 3] =
            [(b".", ROOT_INO), (b"..", ROOT_INO), (LOST_FOUND_NAME, LOST_FOUND_INO)];
        self.directory_block(&mapped, 0, ROOT_INO, &names);
        self.add(ROOT_INO, inode, mapped, 1);
        Ok(())
    }

    fn lost_found(&mut self) -> Result<()> {
        let inode = self.new_inode(FileType::Directory, 0o700, 2);
        // With 1 KiB blocks the full size would need an indirect block, so only the direct blocks are used.
        let size = LOST_FOUND_SIZE.max(2 * u64::from(self.geometry.block_size()));
        let mut len = (size >> self.geometry.block_size_log).min(DIRECT_BLOCKS);
        if self.sb.features.incompat(Incompat::INLINE_DATA) {
            // mke2fs starts it inline and then counts one block too many.
            len -= 1;
        }
        let mapped = self.map(LOST_FOUND_INO, Block(0), len)?;
        let names: [(&[u8], Ino); 2] = [(b".", LOST_FOUND_INO), (b"..", ROOT_INO)];
        for at in 0..len as usize {
            self.directory_block(&mapped, at, LOST_FOUND_INO, if at == 0 { &names } else { &[] });
        }
        self.add(LOST_FOUND_INO, inode, mapped, len);
        Ok(())
    }

    /// Fills block `at` of directory `dir` with entries for directories.
    fn directory_block(&mut self, mapped: &Mapped, at: usize, dir: Ino, names: &[(&[u8], Ino)]) {
        let Some(place) = mapped.blocks().nth(at) else { return };
        let seed = self.seed(dir);
        let mut bytes = vec![0; self.block_size()];
        let end = bytes.len() - if seed.is_some() { dirent::TAIL_SIZE } else { 0 };
        let file_type = if self.sb.features.incompat(Incompat::FILETYPE) {
            dirent::file_type_code(FileType::Directory)
        } else {
            0
        };
        if names.is_empty() {
            dirent::write_record(&mut bytes, end, 0, 0, &[]);
        }
        let mut offset = 0;
        for (index, (name, ino)) in names.iter().enumerate() {
            let last = index + 1 == names.len();
            let rec_len = if last { end - offset } else { dirent::record_size(name.len()) };
            dirent::write_record(&mut bytes[offset..], rec_len, ino.0 as u32, file_type, name);
            offset += rec_len;
        }
        if let Some(seed) = seed {
            dirent::write_tail(&mut bytes);
            dirent::seal(&mut bytes, seed);
        }
        self.files.blocks.push((place, BlockContents::Start(bytes)));
    }

    /// Creates the file of the blocks reserved for descriptors. A double-indirect block refers to those after the
    /// primary descriptor table, at the index of each in a whole table. Each of them is an indirect block that refers
    /// to its counterparts in the groups with backups.
    fn resize_inode(&mut self, goal: Block) -> Result<()> {
        let geometry = self.geometry;
        let per_block = self.block_size() as u64 / 4;
        let double = Block(self.space.take_run(goal.0, 1).ok_or(Error::NoSpace)?);
        let backups: Vec<Group> =
            geometry.groups().skip(1).filter(|group| geometry.has_superblock(*group)).collect();
        let mut double_bytes = vec![0; self.block_size()];
        for index in 0..u64::from(geometry.reserved_gdt_blocks) {
            let number = u64::from(geometry.gdt_blocks()) + index;
            let block = geometry.gdt_block(0).plus(number);
            set_pointer(&mut double_bytes, (number % per_block) as usize, block);
            let mut bytes = vec![0; 4 * backups.len()];
            for (at, backup) in backups.iter().enumerate() {
                // With bigalloc and blocks of 1 KiB, group 0 starts with an empty block. This is then, as in mke2fs, the
                // block after the counterpart. e2fsck expects it.
                let group_blocks = u64::from(geometry.blocks_per_group);
                let counterpart = block.plus(u64::from(backup.0) * group_blocks);
                set_pointer(&mut bytes, at, counterpart);
            }
            self.files.blocks.push((block, BlockContents::Start(bytes)));
        }
        self.files.blocks.push((double, BlockContents::Start(double_bytes)));

        let mut inode = self.new_inode(FileType::Regular, 0o600, 1);
        let reach = DIRECT_BLOCKS + per_block + per_block * per_block;
        inode.set_size(reach << geometry.block_size_log);
        let kept = u64::from(geometry.reserved_gdt_blocks);
        let unit = u64::from(geometry.cluster_blocks());
        self.set_blocks(&mut inode, unit * (1 + kept * (1 + backups.len() as u64)));
        set_pointer(inode.i_block_mut(), DIRECT_BLOCKS as usize + 1, double);
        self.files.inodes.push((RESIZE_INO, inode));
        Ok(())
    }

    /// Records the journal on another device. [`crate::log::make_device`] makes one, and `finish` registers the file
    /// system there.
    fn external_journal(&mut self, journal: ExternalJournal) -> Result<()> {
        if self.sb.features.compat(Compat::FAST_COMMIT) {
            return Err(Error::Invalid("fast_commit needs a journal in the image"));
        }
        self.sb.raw.journal_uuid = journal.uuid;
        self.sb.raw.journal_dev = journal.device_number.into();
        Ok(())
    }

    fn journal(&mut self) -> Result<()> {
        if let Some(journal) = self.options.external_journal {
            return self.external_journal(journal);
        }
        let geometry = self.geometry;
        let all = u64::from(geometry.first_data_block)..geometry.blocks_count;
        let free = all.end - all.start - self.space.taken_in(all);
        let tuning = &self.options.tuning;
        let size = journal::blocks(self.options, geometry, free)?;
        let fast_commits = if self.sb.features.compat(Compat::FAST_COMMIT) {
            tuning.fast_commit_blocks(size, geometry.block_size_log)?
        } else {
            0
        };
        let len = size + fast_commits;
        // A block map has pointer blocks in between, so mke2fs uses the first free space for it.
        let goal = if let Some(goal) = tuning.journal_goal(geometry.block_size_log) {
            Block(self.space.aligned(goal))
        } else if self.sb.features.incompat(Incompat::EXTENTS) {
            journal::goal(geometry, self.space)
        } else {
            Block(0)
        };
        let mapped = self.map(JOURNAL_INO, goal, u64::from(len))?;
        let mut header = RawJournalSuperblock::empty(geometry.block_size(), len, self.options.uuid);
        header.num_fc_blks = fast_commits.into();
        let first = mapped.blocks().next().ok_or(Error::NoSpace)?;
        self.files.blocks.push((first, BlockContents::Start(header.as_bytes().to_vec())));
        self.files.journal_blocks =
            u64::from(len).next_multiple_of(geometry.cluster_blocks().into());

        let raw = &mut self.sb.raw;
        raw.journal_inum = (JOURNAL_INO.0 as u32).into();
        raw.jnl_backup_type = JOURNAL_BACKUP_BLOCKS;
        let size = u64::from(len) << geometry.block_size_log;
        let words = mapped.i_block.chunks_exact(4).map(|w| [w[0], w[1], w[2], w[3]]);
        for (to, word) in raw.jnl_blocks.iter_mut().zip(words) {
            *to = word.into();
        }
        (raw.jnl_blocks[16], raw.jnl_blocks[15]) =
            ((size as u32).into(), ((size >> 32) as u32).into());

        let inode = self.new_inode(FileType::Regular, 0o600, 1);
        self.add(JOURNAL_INO, inode, mapped, u64::from(len));
        Ok(())
    }

    /// Creates the block of multiple mount protection. It says that no host uses the file system.
    fn mmp(&mut self) -> Result<()> {
        let place = Block(self.space.take_run(0, 1).ok_or(Error::NoSpace)?);
        let interval = mmp::update_interval(self.options.tuning.mmp_interval.unwrap_or(0));
        let time = u64::try_from(self.options.time.sec).unwrap_or(0);
        let mut block = RawMmp::clean(interval, time);
        block.seal(checksum_seed(self.sb));
        self.sb.raw.mmp_interval = interval.into();
        self.sb.raw.mmp_block = place.0.into();
        self.files.blocks.push((place, BlockContents::Start(block.as_bytes().to_vec())));
        Ok(())
    }

    /// Reserves the next inode for the project quota file, which is filled when the tree is complete.
    fn project_quota(&mut self) {
        self.files.inodes_used += 1;
        let number = self.files.inodes_used;
        self.sb.raw.prj_quota_inum = number.into();
        let inode = self.new_inode(FileType::Regular, 0o600, 1);
        self.files.inodes.push((Ino(number.into()), inode));
    }

    fn orphan_file(&mut self) -> Result<()> {
        let Geometry { blocks_count, block_size_log, .. } = *self.geometry;
        let len = self.options.tuning.orphan_blocks(blocks_count, block_size_log)?;
        let mapped = self.map(ORPHAN_INO, Block(0), len)?;
        let seed = self.seed(ORPHAN_INO);
        let blocks = mapped.blocks().map(|place| (place, BlockContents::NoOrphans(seed)));
        self.files.blocks.extend(blocks);
        self.sb.raw.orphan_file_inum = (ORPHAN_INO.0 as u32).into();
        let inode = self.new_inode(FileType::Regular, 0o600, 1);
        self.add(ORPHAN_INO, inode, mapped, len);
        Ok(())
    }
}

fn set_times(inode: &mut Inode, time: Timestamp) {
    for which in [Time::Access, Time::Change, Time::Modify] {
        inode.set_time(which, time);
    }
    inode.set_crtime(time);
}

/// Writes a 32-bit block number. File systems with a resize inode have no larger ones.
fn set_pointer(bytes: &mut [u8], at: usize, block: Block) {
    bytes[at * 4..at * 4 + 4].copy_from_slice(&(block.0 as u32).to_le_bytes());
}
