//! Moves inodes out of groups that will be removed. Every name, `..` entry and superblock field with an inode's number
//! changes in the step that moves the inode.

use std::collections::{HashMap, HashSet};

use vfs::{Error, FileType, Result};

use super::inline;
use super::map::{How, has_map};
use super::mover::Mover;
use crate::alloc::bitmap::{self, Bits};
use crate::format::address::{Block, Group};
use crate::format::dirent;
use crate::format::group::GroupFlags;
use crate::format::htree::{self, IndexKind};
use crate::format::inode::{Inode, flags};

/// `COMPAT_STABLE_INODES`: encryption depends on inode numbers.
const STABLE_INODES: u32 = 0x800;
/// Offset of the inode number of `..` in the first block of a directory.
const DOT_DOT_AT: usize = 12;
/// Marks an inline directory instead of a directory block.
const IN_INODE: u32 = u32::MAX;

/// References to inodes that move.
#[derive(Default)]
struct References {
    /// For each such inode: directories and their blocks with names of it.
    names: HashMap<u32, Vec<(u32, u32)>>,
    /// For each such directory: its subdirectories.
    children: HashMap<u32, Vec<u32>>,
}

impl References {
    /// Adds the references in an inline directory to inodes from `first` on. `slot` is that of the directory.
    fn add_inline(&mut self, dir: u32, slot: &[u8], first: u32) {
        let parent = inline::parent(&Inode::from_slot(slot));
        if parent >= first {
            self.children.entry(parent).or_default().push(dir);
        }
        let named: HashSet<u32> = inline::names(slot).into_iter().collect();
        for ino in named.into_iter().filter(|ino| *ino >= first) {
            self.names.entry(ino).or_default().push((dir, IN_INODE));
        }
    }
}

impl Mover {
    /// Returns the numbers of the inodes in use past the last one that stays, in order.
    fn vanishing(&self) -> Result<Vec<u32>> {
        let first = self.new.geometry.inodes_count + 1;
        let mut found = Vec::new();
        for ino in self.inodes_in_use()? {
            if ino >= first {
                found.push(ino);
            }
        }
        Ok(found)
    }

    /// Returns the numbers of all inodes in use.
    pub(super) fn inodes_in_use(&self) -> Result<Vec<u32>> {
        let geometry = &self.params.geometry;
        let mut found = Vec::new();
        for group in geometry.groups() {
            if self.groups.get(group).flags.contains(GroupFlags::INODE_UNINIT)
                && self.params.sb.features.group_csum()
            {
                continue;
            }
            let bits = self.groups.inode_bitmap(&self.draft, &self.params, group)?;
            let is_used = |index: &u32| bits[*index as usize / 8] >> (index % 8) & 1 == 1;
            let used = (0..geometry.inodes_per_group).filter(is_used);
            found.extend(used.map(|index| geometry.ino_of(group, index).0 as u32));
        }
        Ok(found)
    }

    /// Moves all inodes of removed groups to new numbers.
    pub(super) fn move_inodes(&mut self) -> Result<()> {
        let vanishing = self.vanishing()?;
        if vanishing.is_empty() {
            return Ok(());
        }
        self.check_movable(vanishing.len())?;
        let references = self.find_references()?;
        let mut renumbered = HashMap::new();
        for ino in &vanishing {
            self.move_inode(*ino, &references, &mut renumbered)?;
            self.moving.inodes += 1;
        }
        Ok(())
    }

    fn check_movable(&self, count: usize) -> Result<()> {
        if self.params.sb.raw.feature_compat.get() & STABLE_INODES == 0 {
            return Ok(());
        }
        Err(Error::unsupported(
            format!("shrinking with stable_inodes, because {count} inodes would have to be moved"),
            "choose a larger size, or create a new image with diskwright convert --size min",
        ))
    }

    /// Finds references in all directories.
    fn find_references(&self) -> Result<References> {
        let mut found = References::default();
        let first = self.new.geometry.inodes_count + 1;
        for ino in self.inodes_in_use()? {
            let slot = self.slot(ino)?;
            let inode = Inode::from_slot(&slot);
            if !inode.is_dir() || inode.links_count() == 0 {
                continue;
            }
            if inode.has_flag(flags::INLINE_DATA) {
                found.add_inline(ino, &slot, first);
                continue;
            }
            self.for_each_block(&inode, |number, _, bytes| {
                let mut here = HashSet::new();
                for record in dirent::entries(bytes) {
                    let is_dot = number == 0 && record.offset == 0;
                    let is_dot_dot = number == 0 && record.offset == DOT_DOT_AT;
                    if record.inode < first || is_dot {
                        continue;
                    }
                    if is_dot_dot {
                        found.children.entry(record.inode).or_default().push(ino);
                    } else if here.insert(record.inode) {
                        found.names.entry(record.inode).or_default().push((ino, number));
                    }
                }
            })?;
        }
        Ok(found)
    }

    /// Calls `each` with the number, the device block and the contents of each block of a file.
    fn for_each_block(&self, inode: &Inode, mut each: impl FnMut(u32, Block, &[u8])) -> Result<()> {
        let blocks = inode.size().div_ceil(self.block_size() as u64) as u32;
        if inode.has_flag(flags::EXTENTS) {
            for extent in self.tree(&inode.i_block()[..])?.extents {
                for nth in 0..extent.len {
                    let place = extent.start.plus(nth.into());
                    each(extent.block.0 + nth, place, &self.read(place)?);
                }
            }
            return Ok(());
        }
        for number in 0..blocks {
            if let Some(place) = self.place(inode, number)? {
                each(number, place, &self.read(place)?);
            }
        }
        Ok(())
    }

    fn move_inode(
        &mut self,
        old: u32,
        references: &References,
        renumbered: &mut HashMap<u32, u32>,
    ) -> Result<()> {
        let names = references.names.get(&old).map_or(0, Vec::len);
        let children = references.children.get(&old).map_or(0, Vec::len);
        // Room for both slots, both bitmaps, all references, and bitmaps of rewritten blocks.
        self.make_room(names + children + 48)?;
        let mut slot = self.slot(old)?;
        let mut inode = Inode::from_slot(&slot);
        if inode.has_flag(flags::EA_INODE) {
            return Err(Error::unsupported(
                format!(
                    "shrinking that would move inode {old}, which stores an attribute value \
                     (ea_inode)"
                ),
                "choose a larger size, or create a new image with diskwright convert --size min",
            ));
        }
        let is_dir = inode.file_type() == Some(FileType::Directory);
        // A directory is copied while its old blocks are still in use. Other files only get new tree blocks.
        let space = inode.blocks_512(self.params.geometry.block_size());
        let copied = if is_dir { self.clusters_of(space) } else { self.tree_blocks(&inode)? };
        self.make_space(copied)?;
        let new = self.take_inode(is_dir)?;
        self.move_contents(&mut inode, new, is_dir)?;
        let count = inode.as_bytes().len().min(slot.len());
        slot[..count].copy_from_slice(&inode.as_bytes()[..count]);
        self.put_slot(new, slot.clone())?;
        slot.fill(0);
        self.put_slot(old, slot)?;
        self.free_inode(old, is_dir)?;
        renumbered.insert(old, new);
        self.rename_references((old, new), references, renumbered)?;
        self.rename_in_superblock(old, new);
        self.count_space(new, &inode, space)
    }

    /// Replaces the number of a moved inode in the names of it, and in `..` of its subdirectories.
    fn rename_references(
        &mut self,
        (old, new): (u32, u32),
        references: &References,
        renumbered: &HashMap<u32, u32>,
    ) -> Result<()> {
        let now = |ino: &u32| renumbered.get(ino).copied().unwrap_or(*ino);
        for (dir, number) in references.names.get(&old).into_iter().flatten() {
            let (dir, number) = (now(dir), *number);
            if number == IN_INODE {
                self.rename_inline(dir, old, new)?;
                continue;
            }
            self.rename_in(
                dir,
                number,
                |record| (number > 0 || record.offset > DOT_DOT_AT) && record.inode == old,
                new,
            )?;
        }
        for child in references.children.get(&old).into_iter().flatten().map(now) {
            if Inode::from_slot(&self.slot(child)?).has_flag(flags::INLINE_DATA) {
                self.set_inline_parent(child, new)?;
                continue;
            }
            self.rename_in(
                child,
                0,
                |record| record.offset == DOT_DOT_AT && record.inode == old,
                new,
            )?;
        }
        Ok(())
    }

    /// Rewrites contents that depend on the inode number: the entry `.` of a directory, and block checksums.
    fn move_contents(&mut self, inode: &mut Inode, new: u32, is_dir: bool) -> Result<()> {
        if !has_map(inode) {
            return Ok(());
        }
        if !is_dir && !self.params.checksums {
            return Ok(());
        }
        let seed = self.seed(new, inode.generation());
        let has_index = inode.has_flag(flags::INDEX);
        let change = move |number: u32, _: Block, bytes: &mut [u8]| {
            if number == 0 {
                bytes[..4].copy_from_slice(&new.to_le_bytes());
            }
            seal(bytes, number, has_index, seed);
        };
        // Other files keep their data in place: only their tree blocks have checksums.
        let whole = How { all: true, change: Some(&change), ..How::plain(new) };
        if is_dir { self.move_file(inode, &whole).map(drop) } else { self.reseal_tree(inode, new) }
    }

    /// Allocates a free inode that stays.
    fn take_inode(&mut self, is_dir: bool) -> Result<u32> {
        let geometry = self.new.geometry;
        let per_group = geometry.inodes_per_group;
        let free = self.kept().find(|group| self.groups.get(*group).free_inodes > 0);
        let group = free.ok_or(Error::NoInodes)?;
        let mut bits = self.groups.inode_bitmap(&self.draft, &self.params, group)?;
        let reserved = if group.0 == 0 { self.params.sb.first_ino - 1 } else { 0 };
        let index = bitmap::find_free(Bits::plain(&bits), reserved, per_group);
        let index = index.ok_or(Error::NoInodes)?;
        bitmap::set(&mut bits, 0, index..index + 1);
        self.groups.put_inode_bitmap(&mut self.draft, &self.params, group, bits)?;
        let has_csum = self.params.sb.features.group_csum();
        let desc = self.groups.get_mut(group);
        desc.used_dirs += u32::from(is_dir);
        if has_csum {
            let is_new = desc.flags.contains(GroupFlags::INODE_UNINIT);
            let unused = if is_new { per_group } else { desc.itable_unused };
            desc.itable_unused = unused.min(per_group - index - 1);
            desc.flags.remove(GroupFlags::INODE_UNINIT);
        }
        Ok(geometry.ino_of(group, index).0 as u32)
    }

    fn free_inode(&mut self, ino: u32, was_dir: bool) -> Result<()> {
        let place = self.params.geometry.place_of(vfs::Ino(ino.into()));
        let (group, index) = place.unwrap_or((Group(0), 0));
        let mut bits = self.groups.inode_bitmap(&self.draft, &self.params, group)?;
        bitmap::clear(&mut bits, 0, index..index + 1);
        self.groups.put_inode_bitmap(&mut self.draft, &self.params, group, bits)?;
        self.groups.get_mut(group).used_dirs -= u32::from(was_dir);
        Ok(())
    }

    /// Changes the inode of records in a directory block.
    fn rename_in(
        &mut self,
        dir: u32,
        number: u32,
        is_meant: impl Fn(&dirent::DirRecord<'_>) -> bool,
        new: u32,
    ) -> Result<()> {
        let inode = Inode::from_slot(&self.slot(dir)?);
        let Some(place) = self.place(&inode, number)? else { return Ok(()) };
        let mut bytes = self.read(place)?;
        let found: Vec<usize> =
            dirent::entries(&bytes).filter(&is_meant).map(|record| record.offset).collect();
        for at in found {
            bytes[at..at + 4].copy_from_slice(&new.to_le_bytes());
        }
        let seed = self.seed(dir, inode.generation());
        seal(&mut bytes, number, inode.has_flag(flags::INDEX), seed);
        self.draft.update(place, bytes)
    }

    fn rename_in_superblock(&mut self, old: u32, new: u32) {
        let raw = &mut self.params.sb.raw;
        let fields = [
            &mut raw.usr_quota_inum,
            &mut raw.grp_quota_inum,
            &mut raw.prj_quota_inum,
            &mut raw.orphan_file_inum,
            &mut raw.lpf_ino,
        ];
        for field in fields {
            if field.get() == old {
                *field = new.into();
            }
        }
    }
}

/// Updates the checksum of a directory block.
fn seal(bytes: &mut [u8], number: u32, has_index: bool, seed: Option<u32>) {
    let Some(seed) = seed else { return };
    let is_node = dirent::record_at(bytes, 0)
        .is_some_and(|record| record.inode == 0 && record.rec_len == bytes.len());
    match () {
        () if has_index && number == 0 => htree::seal(bytes, IndexKind::Root, seed),
        () if has_index && is_node => htree::seal(bytes, IndexKind::Node, seed),
        () => dirent::seal(bytes, seed),
    }
}
