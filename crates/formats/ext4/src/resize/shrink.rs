//! Shrinking in place.

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::{BlockDevice, OverlayDevice};
use operations::repair::Staging;
use vfs::check::{FindingCounter, Options};
use vfs::{Error, Result};

use super::finish::{adjust_kept, write_size};
use super::groups::DescriptorTable;
use super::least::{self, SizeRequest};
use super::map::{How, has_map};
use super::mover::Mover;
use super::target::target;
use super::{Size, open_and_close};
use crate::check::codes::{GROUP_BACKUP, SUPERBLOCK_BACKUP};
use crate::format::address::{Block, Group};
use crate::format::features::Compat;
use crate::format::inode::Inode;
use crate::format::{indirect, orphan, xattr};
use crate::log::JournalMap;
use crate::params::{Params, read_superblock};

/// Inode of the bad block list, whose blocks cannot move.
const BAD_BLOCKS_INO: u32 = 1;
/// Inode of the blocks reserved for descriptors.
const RESIZE_INO: u32 = 7;
/// If the estimated minimum size turns out to be too small, it is increased by one part in this many.
const STEP_SHARE: u64 = 64;

/// Result of shrinking a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shrunk {
    /// Size before.
    pub before: Size,
    /// Size after.
    pub after: Size,
    /// Number of inodes with new numbers.
    pub inodes_moved: u64,
    /// Number of files with moved blocks.
    pub files_moved: u64,
}

/// Returns the sizes before and after shrinking, according to the blocks in use. The minimum size is an estimate: usually
/// the result is smaller, because metadata of removed groups is counted.
///
/// # Errors
/// Like [`shrink`]; `NoSpace` if the contents do not fit.
pub fn plan_shrinking(device: &Arc<dyn BlockDevice>, request: SizeRequest) -> Result<(Size, Size)> {
    let old = Params::of(read_superblock(&**device)?);
    let new = least::choose(device, &old, request)?;
    Ok((Size::of(&old), Size::of(&new)))
}

/// Shrinks a file system. First moves everything past the new end, in steps that each leave a valid image of the old
/// size; then changes the size in one step. `progress` receives the work done and the total work, and returns whether
/// to continue.
///
/// # Errors
/// `Invalid` if the file system is already smaller; `NoSpace` or `NoInodes` if its contents do not fit; `Unsupported`
/// for contents that cannot be moved, and for images with check findings; `Corrupt` for damage; if the device fails;
/// `Interrupted` if `progress` cancels. In all these cases the image keeps its old size, or for
/// [`SizeRequest::Minimum`] a size that it had in between.
pub fn shrink(
    device: Arc<dyn BlockDevice>,
    request: SizeRequest,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Shrunk> {
    let sb = read_superblock(&*device)?;
    if matches!(request, SizeRequest::Blocks(blocks) if blocks > sb.blocks_count) {
        return Err(Error::Invalid("the file system is already smaller"));
    }
    // A rejected request must leave no trace, not even a new modification time, so it is first tried on an overlay.
    let view: Arc<dyn BlockDevice> = Arc::new(OverlayDevice::new(device.clone()));
    open_and_close(&view)?;
    check_sound(&view)?;
    let old = Params::of(read_superblock(&*view)?);
    let before = Size::of(&old);
    let new = least::choose(&view, &old, request)?;
    drop(view);
    open_and_close(&device)?;
    let mut total = Shrunk { before, after: before, inodes_moved: 0, files_moved: 0 };
    shrink_once(&device, request, new, &mut total, progress)?;
    // Metadata of removed groups occupied space in groups that stay, which is free now.
    let mut last = before.blocks;
    while request == SizeRequest::Minimum && total.after.blocks < last {
        last = total.after.blocks;
        let old = Params::of(read_superblock(&*device)?);
        let new = least::choose(&device, &old, request)?;
        match shrink_once(&device, request, new, &mut total, progress) {
            // The size reached so far is the result.
            Err(Error::Unsupported(_)) => break,
            done => done?,
        }
    }
    Ok(total)
}

/// Moves everything past the end of `new` and changes the size. For the minimum size, tries larger sizes if moves run
/// out of space; `total.after` stays if none is smaller than the current size.
fn shrink_once(
    device: &Arc<dyn BlockDevice>,
    request: SizeRequest,
    mut new: Params,
    total: &mut Shrunk,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<()> {
    let old = Params::of(read_superblock(&**device)?);
    let before = old.geometry.blocks_count;
    let own_journal = journal_blocks(&**device, &old)?;
    // The requested size. A target may be smaller if its last group would be too small.
    let mut asked = new.geometry.blocks_count;
    while new.geometry.blocks_count < before {
        match move_all(device, &new, own_journal, total, progress) {
            Ok(()) => {
                cut(device, &new)?;
                total.after = Size::of(&new);
                return Ok(());
            }
            Err(Error::NoSpace) if request == SizeRequest::Minimum => {
                asked += asked / STEP_SHARE + STEP_SHARE;
                new = target(&old, asked.min(before), device.len())?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Rejects damaged images.
fn check_sound(device: &Arc<dyn BlockDevice>) -> Result<()> {
    // The backups are rewritten with the new size.
    let counter = FindingCounter::except(&[SUPERBLOCK_BACKUP, GROUP_BACKUP]);
    let staging = Arc::new(Staging::new(device.clone()));
    let checked = crate::check::check(staging.clone(), &Options::default(), &counter);
    // After a failed read, damage that was found may not exist.
    staging.check_reads().map_err(Error::Device)?;
    let summary = checked?;
    match counter.count() {
        0 if summary.is_complete => Ok(()),
        found => Err(Error::unsupported(
            format!("shrinking an image with {found} findings of the check"),
            "run diskwright repair first",
        )),
    }
}

/// Moves everything below the new end.
fn move_all(
    device: &Arc<dyn BlockDevice>,
    new: &Params,
    own_journal: u32,
    total: &mut Shrunk,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<()> {
    let mut mover = new_mover(device, new)?;
    let moved = mover.move_parts(own_journal, progress);
    total.inodes_moved += mover.moved.inodes;
    total.files_moved += mover.moved.files;
    let closed = mover.close();
    if moved.is_err() {
        // The temporary journal is larger than the original one. If this fails too, it stays, which is valid.
        let _ = return_journal(device, new, own_journal);
    }
    moved.and(closed)
}

fn new_mover(device: &Arc<dyn BlockDevice>, new: &Params) -> Result<Mover> {
    let old = Params::of(read_superblock(&**device)?);
    let new = target(&old, new.geometry.blocks_count, device.len())?;
    Mover::new(device.clone(), old, new)
}

/// Returns the length of the journal in the image in blocks; 0 if there is none.
fn journal_blocks(device: &dyn BlockDevice, params: &Params) -> Result<u32> {
    if params.sb.has_external_journal() {
        return Ok(0);
    }
    Ok(JournalMap::read(device, &params.sb)?.map_or(0, |map| map.blocks()))
}

/// Restores the original journal length of an image that keeps its size.
fn return_journal(device: &Arc<dyn BlockDevice>, new: &Params, own_journal: u32) -> Result<()> {
    let old = Params::of(read_superblock(&**device)?);
    if journal_blocks(&**device, &old)? == own_journal {
        return Ok(());
    }
    let all = 0..old.geometry.blocks_count;
    let mut mover = new_mover(device, new)?;
    let replaced = mover.replace_journal(own_journal, all);
    replaced.map(drop).and(mover.close())
}

/// Writes the new size after everything past it was moved.
fn cut(device: &Arc<dyn BlockDevice>, new: &Params) -> Result<()> {
    let old = Params::of(read_superblock(&**device)?);
    let mut new = target(&old, new.geometry.blocks_count, device.len())?;
    // The next mount computes it again.
    new.sb.raw.overhead_clusters = 0.into();
    let mut draft = super::draft::Draft::new(device.clone(), old.block_size());
    let mut groups = DescriptorTable::read(&draft, &old)?;
    adjust_kept(&mut draft, &old, &new, &mut groups)?;
    groups.resize(&new, &[]);
    write_size(device, draft, &new, &mut groups, Block(u64::MAX))
}

impl Mover {
    /// Moves everything, in as few steps as the journal has room for.
    fn move_parts(
        &mut self,
        own_journal: u32,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<()> {
        self.move_tables()?;
        self.move_inodes()?;
        self.move_files(progress)?;
        self.move_journal(own_journal)
    }

    /// Moves bitmaps and inode tables of groups that stay, and the block of the resize inode.
    fn move_tables(&mut self) -> Result<()> {
        let end = self.end();
        let len = u64::from(self.params.geometry.itable_blocks());
        for group in self.kept() {
            let desc = *self.groups.get(group);
            let is_past = |start: Block, len: u64| start.plus(len).0 > end;
            let parts = [(desc.block_bitmap, 1), (desc.inode_bitmap, 1), (desc.inode_table, len)];
            if !parts.iter().any(|(start, len)| is_past(*start, *len)) {
                continue;
            }
            self.make_room(16)?;
            for (nth, (start, len)) in parts.into_iter().enumerate() {
                if is_past(start, len) {
                    self.move_table(group, nth, start, len)?;
                }
            }
        }
        self.make_room(16)?;
        self.move_double()
    }

    fn move_table(&mut self, group: Group, which: usize, old: Block, len: u64) -> Result<()> {
        // Uninitialised bitmaps are generated now, because they depend on the current positions.
        self.bitmap(group)?;
        self.touch(group);
        for at in [old, old.plus(len - 1)] {
            self.bitmap(self.params.geometry.group_of(at))?;
        }
        let within = (self.params.geometry.flex_groups == 1).then_some(group);
        let new = self.take_together(len, within)?;
        self.copy(old, new, len)?;
        self.forget_tables();
        let desc = self.groups.get_mut(group);
        match which {
            0 => desc.block_bitmap = new,
            1 => desc.inode_bitmap = new,
            _ => desc.inode_table = new,
        }
        let system = self.groups.system(&self.params);
        let clusters = u64::from(self.params.geometry.cluster_blocks());
        let mut block = self.params.geometry.cluster_start(old);
        while block.0 < old.0 + len {
            if !system.overlaps(block, clusters) {
                self.give_up(block, 1);
            }
            block = block.plus(clusters);
        }
        Ok(())
    }

    fn move_double(&mut self) -> Result<()> {
        const AT: usize = indirect::DIRECT_COUNT as usize + 1;
        if !self.params.sb.features.compat(Compat::RESIZE_INODE) {
            return Ok(());
        }
        let mut slot = self.slot(RESIZE_INO)?;
        let mut inode = Inode::from_slot(&slot);
        let double = indirect::pointer(&inode.i_block()[..], AT as u16);
        let Some(old) = double.filter(|block| block.0 >= self.end()) else { return Ok(()) };
        let new = self.take_block()?;
        self.copy(old, new, 1)?;
        self.give_up(old, 1);
        inode.i_block_mut()[AT * 4..AT * 4 + 4].copy_from_slice(&(new.0 as u32).to_le_bytes());
        let count = inode.as_bytes().len().min(slot.len());
        slot[..count].copy_from_slice(&inode.as_bytes()[..count]);
        self.put_slot(RESIZE_INO, slot)
    }

    /// Moves blocks of all files except the journal.
    fn move_files(&mut self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        let inodes = self.inodes_in_use()?;
        let total = inodes.len() as u64;
        let mut shared: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (done, ino) in inodes.into_iter().enumerate() {
            let inode = Inode::from_slot(&self.slot(ino)?);
            let is_journal = ino == self.journal();
            if inode.mode() == 0 && ino != BAD_BLOCKS_INO || ino == RESIZE_INO || is_journal {
                continue;
            }
            if inode.file_acl() >= self.end() {
                shared.entry(inode.file_acl()).or_default().push(ino);
            }
            if self.move_blocks(ino, &inode)? {
                self.moving.files += 1;
            }
            if done % 256 == 0 && !progress(done as u64, total) {
                self.end_step()?;
                return Err(Error::Device(std::io::ErrorKind::Interrupted.into()));
            }
        }
        for (block, users) in shared {
            self.move_attributes(Block(block), &users)?;
        }
        progress(total, total);
        Ok(())
    }

    /// Moves the blocks of a file past the end, in as many steps as necessary.
    fn move_blocks(&mut self, ino: u32, inode: &Inode) -> Result<bool> {
        if !has_map(inode) && ino != BAD_BLOCKS_INO {
            return Ok(false);
        }
        let mut any = false;
        loop {
            let mut slot = self.slot(ino)?;
            let mut inode = Inode::from_slot(&slot);
            self.make_room(16)?;
            let seed = self.seed(ino, inode.generation());
            let space = inode.blocks_512(self.params.geometry.block_size());
            self.make_space(self.clusters_to_move(&inode)?)?;
            let is_orphans = ino == self.params.sb.raw.orphan_file_inum.get();
            let change = move |_: u32, place: Block, bytes: &mut [u8]| {
                if is_orphans {
                    orphan::seal(bytes, place, seed);
                }
            };
            let is_metadata = is_orphans || inode.is_dir();
            let how = How { change: is_metadata.then_some(&change), ..How::plain(ino) };
            let moved = self.move_file(&mut inode, &how)?;
            if !moved.any {
                return Ok(any);
            }
            if ino == BAD_BLOCKS_INO {
                return Err(Error::unsupported(
                    "shrinking with bad blocks past the new end",
                    "choose a larger size, or create a new image with diskwright convert --size min",
                ));
            }
            any = true;
            let count = inode.as_bytes().len().min(slot.len());
            slot[..count].copy_from_slice(&inode.as_bytes()[..count]);
            self.put_slot(ino, slot)?;
            self.count_space(ino, &inode, space)?;
            if !moved.more {
                return Ok(true);
            }
            self.end_step()?;
        }
    }

    /// Moves an attribute block for all inodes that share it.
    fn move_attributes(&mut self, old: Block, users: &[u32]) -> Result<()> {
        self.make_room(users.len() + 8)?;
        let new = self.take_block()?;
        let mut bytes = self.read(old)?;
        if self.params.checksums {
            xattr::seal_block(&mut bytes, new, self.params.sb.checksum_seed);
        }
        self.write_ahead(new, &bytes)?;
        self.give_up(old, 1);
        for ino in users {
            let mut slot = self.slot(*ino)?;
            let mut inode = Inode::from_slot(&slot);
            inode.set_file_acl(new.0);
            let count = inode.as_bytes().len().min(slot.len());
            slot[..count].copy_from_slice(&inode.as_bytes()[..count]);
            self.put_slot(*ino, slot)?;
        }
        Ok(())
    }
}
