//! Inodes that are not in use, in inode tables and in the journal.

use vfs::deleted::{DeletedData, DeletedInode, DeletedSource, InodeState};
use vfs::{Ino, Timestamp};

use super::Search;
use super::images::{InodeImage, Usefulness, plausible};
use super::journal::Age;
use super::maps::Subject;
use crate::format::address::{Block, Group};
use crate::format::checksum::inode_seed;
use crate::format::group::GroupFlags;
use crate::format::inode::{BlockOwner, Inode, ROOT_INO, Time};
use crate::inode::Handle;
use crate::kind::BlockKind;

/// Image of an inode that is not in use.
struct Candidate {
    inode: Inode,
    slot: Vec<u8>,
    age: Option<Age>,
    source: DeletedSource,
}

impl Candidate {
    fn rank(&self) -> Usefulness {
        Usefulness::of(&self.inode)
    }
}

/// Slot of an inode table, in the replayed state and as found.
struct SlotPair<'t> {
    ino: Ino,
    is_used: bool,
    block: Block,
    offset: usize,
    current: &'t [u8],
    found: &'t [u8],
}

impl Search<'_> {
    /// Reports the inodes of a group that are not in use, and the removed names of its directories.
    pub(super) fn group(&mut self, group: Group) {
        let fs = self.fs;
        let geometry = *fs.geometry();
        let desc = fs.volume.groups.places(group);
        let has_unused = fs.superblock().features.group_csum();
        if has_unused && desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return;
        }
        let unused = if has_unused { desc.itable_unused } else { 0 };
        let count = geometry.inodes_per_group.saturating_sub(unused);
        let bitmap = match fs.block(desc.inode_bitmap, BlockKind::InodeBitmap.of_group(group.0)) {
            Ok(bytes) => Some(bytes.to_vec()),
            Err(error) => {
                self.remark(format_args!("the inode bitmap of group {group}"), &error);
                None
            }
        };
        let is_used = |index: u32| {
            bitmap.as_ref().is_none_or(|bits| {
                bits.get(index as usize / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1)
            })
        };
        let (per_block, size) = (geometry.inodes_per_block(), usize::from(geometry.inode_size));
        for at in 0..count.div_ceil(per_block) {
            let block = desc.inode_table.plus(at.into());
            let (current, found) = match (self.current_block(block), self.block(block)) {
                (Ok(current), Ok(found)) => (current, found),
                (Err(error), _) | (_, Err(error)) => {
                    self.remark(format_args!("block {block} of an inode table"), &error);
                    continue;
                }
            };
            for index in at * per_block..count.min((at + 1) * per_block) {
                let offset = (index % per_block) as usize * size;
                let range = offset..offset + size;
                let (Some(current), Some(found)) = (current.get(range.clone()), found.get(range))
                else {
                    continue;
                };
                let ino = geometry.ino_of(group, index);
                let is_used = is_used(index);
                self.slot(&SlotPair { ino, is_used, block, offset, current, found });
            }
        }
    }

    fn slot(&mut self, slot: &SlotPair<'_>) {
        let ino = slot.ino;
        let images = self.images.take(ino);
        let inode = Inode::from_slot(slot.current);
        let sb = self.fs.superblock();
        let is_own = ino < Ino(sb.first_ino.into());
        let is_live = slot.is_used && inode.mode() != 0 && inode.links_count() > 0;
        if is_live && inode.is_dir() && (!is_own || ino == ROOT_INO) {
            let seed = inode_seed(sb.checksum_seed, ino, inode.generation());
            let owner = BlockOwner { ino, seed };
            self.live_directory(&Handle { owner, inode, block: slot.block, offset: slot.offset });
        }
        if is_own {
            return;
        }
        let generation = inode.generation();
        let (state, of_live) = match is_live {
            true => (InodeState::Reused, Some(generation)),
            false if slot.is_used && inode.mode() != 0 => (InodeState::Orphan, None),
            false => (InodeState::Free, None),
        };
        let mut dtime = 0;
        let mut in_table = Vec::new();
        let mut slots = vec![slot.current];
        if slot.found != slot.current {
            slots.push(slot.found);
        }
        for bytes in slots {
            let Some(inode) = plausible(sb, ino, bytes) else { continue };
            if of_live == Some(inode.generation()) {
                continue;
            }
            if inode.links_count() == 0 && state == InodeState::Free {
                dtime = dtime.max(inode.dtime());
            }
            let slot = bytes.to_vec();
            let source = DeletedSource::Inodes;
            in_table.push(Candidate { inode, slot, age: None, source });
        }
        self.report(ino, state, of_live, dtime, in_table, &images);
    }

    /// Reports the images of inodes outside of the used part of their tables.
    pub(super) fn rest(&mut self) {
        for ino in self.images.left() {
            let images = self.images.take(ino);
            self.report(ino, InodeState::Free, None, 0, Vec::new(), &images);
        }
    }

    /// Reports the most useful candidate of each generation.
    fn report(
        &mut self,
        ino: Ino,
        state: InodeState,
        of_live: Option<u32>,
        dtime: u32,
        mut candidates: Vec<Candidate>,
        images: &[InodeImage],
    ) {
        let newest = candidates.first().map(|candidate| candidate.inode.generation());
        for image in images.iter().filter(|image| of_live != Some(image.generation)) {
            let size = usize::from(self.fs.geometry().inode_size);
            let bytes = self.journal.bytes(self.evidence, &image.block);
            let slot = bytes.as_deref().and_then(|b| b.get(image.offset..image.offset + size));
            let Some(slot) = slot else { continue };
            let (block, sequence) = (image.block.at.into(), image.block.tid.0.into());
            candidates.push(Candidate {
                inode: Inode::from_slot(slot),
                slot: slot.to_vec(),
                age: Some(image.block.age),
                source: DeletedSource::Log { block, sequence },
            });
        }
        while let Some(first) = candidates.first() {
            let generation = first.inode.generation();
            let (same, others): (Vec<_>, Vec<_>) =
                candidates.into_iter().partition(|one| one.inode.generation() == generation);
            candidates = others;
            // The first one wins a tie: it is in the table.
            let best = same.into_iter().reduce(
                |best, next| {
                    if next.rank() > best.rank() { next } else { best }
                },
            );
            let Some(best) = best else { continue };
            let is_newest = newest == Some(generation);
            let state = match state {
                InodeState::Orphan if !is_newest => InodeState::Reused,
                state => state,
            };
            self.report_inode(ino, state, if is_newest { dtime } else { 0 }, &best);
        }
    }

    fn report_inode(&mut self, ino: Ino, state: InodeState, dtime: u32, best: &Candidate) {
        let inode = &best.inode;
        let subject = Subject {
            ino,
            inode,
            slot: &best.slot,
            age: best.age,
            is_orphan: state == InodeState::Orphan,
        };
        let data = self.contents(&subject);
        let is_cleared = inode.size() == 0 && (inode.links_count() == 0 || inode.dtime() != 0);
        if inode.is_dir() {
            self.deleted_directory(ino, inode, &data, state);
        }
        let seconds = |sec: u32| (sec != 0).then_some(Timestamp { sec: sec.into(), nsec: 0 });
        self.sink.inode(DeletedInode {
            ino,
            generation: inode.generation(),
            file_type: inode.file_type(),
            permissions: Some(inode.permissions()),
            uid: inode.uid(),
            gid: inode.gid(),
            size: (!is_cleared || data != DeletedData::Lost).then(|| inode.size()),
            atime: inode.time(Time::Access),
            mtime: inode.time(Time::Modify),
            ctime: inode.time(Time::Change),
            crtime: inode.crtime(),
            dtime: seconds(dtime),
            state,
            data,
            source: best.source,
        });
    }
}
