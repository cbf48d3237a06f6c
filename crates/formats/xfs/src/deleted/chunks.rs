//! Inodes that are not in use, in inode chunks and in free blocks.

use vfs::deleted::{DeletedData, DeletedInode, DeletedSource, InodeState};
use vfs::{FileType, Ino, Timestamp};

use super::Search;
use super::logged::{ImageValue, LoggedImage};
use crate::btree::records::{InoTree, InodeChunk};
use crate::format::address::{AgBlock, AgIno, AgNumber, Block};
use crate::format::dir::DirLayout;
use crate::format::geometry::INODES_PER_CHUNK;
use crate::format::inode::{self, Inode, Time};
use crate::inode::Handle;
use crate::survey::tree::{Met, Scope, walk};

/// An image of an inode that is not in use.
struct Candidate {
    inode: Inode,
    /// Generation that the inode had as a file.
    generation: u32,
    data: DeletedData,
    /// True if the image was freed, so that its type, size and links are cleared.
    is_freed: bool,
    value: ImageValue,
    source: DeletedSource,
    /// Last change of the freed image of the same generation.
    dtime: Option<Timestamp>,
}

impl Search<'_> {
    /// Reports the inodes of a group that are not in use, and the removed names of its directories.
    pub(super) fn chunks(&mut self, ag: AgNumber) {
        let (fs, scope) = (self.fs, Scope { keys: None, reads_leaves: true });
        let walked = walk::<InoTree>(fs, ag, scope, &mut |met| {
            if let Met::Record(chunk) = met {
                self.chunk(ag, &chunk);
            }
            Ok(())
        });
        if let Err(error) = walked {
            self.remark(format_args!("the tree of inodes of group {ag}"), &error);
        }
    }

    fn chunk(&mut self, ag: AgNumber, chunk: &InodeChunk) {
        let geometry = *self.fs.geometry();
        let mut held: Option<(AgBlock, Vec<u8>, Vec<u8>)> = None;
        for nth in 0..INODES_PER_CHUNK {
            if chunk.holemask >> (nth / 4) & 1 == 1 {
                continue;
            }
            let Some(number) = chunk.start.0.checked_add(nth) else { return };
            let (block, offset) = geometry.inode_place(AgIno(number));
            if block.0 >= geometry.ag_len(ag) {
                return;
            }
            if held.as_ref().is_none_or(|(held, ..)| *held != block) {
                let place = geometry.block_of(ag, block);
                match (self.current_block(place), self.block(place)) {
                    (Ok(current), Ok(found)) => held = Some((block, current, found)),
                    (Err(error), _) | (_, Err(error)) => {
                        self.remark(format_args!("block {place} of inodes"), &error);
                        return;
                    }
                }
            }
            let Some((_, current, found)) = &held else { return };
            let range = offset..offset + geometry.inode_size();
            let (Some(current), Some(found)) = (current.get(range.clone()), found.get(range))
            else {
                return;
            };
            let (current, found) = (current.to_vec(), found.to_vec());
            let place = (geometry.block_of(ag, block), offset);
            let is_used = chunk.free >> nth & 1 == 0;
            self.slot(geometry.ino(ag, AgIno(number)), is_used, place, &current, &found);
        }
    }

    fn slot(
        &mut self,
        ino: Ino,
        is_used: bool,
        place: (Block, usize),
        current: &[u8],
        found: &[u8],
    ) {
        let geometry = *self.fs.geometry();
        if is_used && let Ok(inode) = Inode::parse(&geometry, ino, current) {
            if inode.is_metadata() {
                return;
            }
            if inode.nlink() > 0 {
                let generation = inode.generation();
                if inode.is_dir() {
                    self.live_directory(&Handle::new(ino, inode, place.0, place.1));
                }
                let logged = self.logged.take(ino);
                let older: Vec<_> = logged
                    .into_iter()
                    .filter(|image| image.inode.generation() != generation)
                    .collect();
                return self.report(ino, InodeState::Reused, Vec::new(), older, None);
            }
        }
        let state = if is_used { InodeState::Orphan } else { InodeState::Free };
        let mut slots = vec![current];
        if current != found {
            slots.push(found);
        }
        let mut candidates = Vec::new();
        for slot in slots {
            candidates.extend(self.candidate(ino, slot, state, DeletedSource::Inodes));
        }
        let logged = self.logged.take(ino);
        self.report(ino, state, candidates, logged, Some(current));
    }

    /// Returns the candidate in a slot, if something of it can be read.
    fn candidate(
        &mut self,
        ino: Ino,
        slot: &[u8],
        state: InodeState,
        source: DeletedSource,
    ) -> Option<Candidate> {
        let geometry = *self.fs.geometry();
        inode::verify_slot(&geometry, ino, slot).ok()?;
        let inode = Inode::from_slot(slot);
        if inode.has_attr_fork() && inode.forkoff_bytes() >= inode.literal_size() {
            return None;
        }
        let is_freed = inode.mode() == 0;
        let (data, generation, value) = if is_freed {
            let data = self.leftover(ino, &inode);
            let was_used = inode.time(Time::Change).is_some_and(|time| time.sec != 0);
            if !was_used && data == DeletedData::Lost && !self.leftover_names(ino, &inode) {
                return None;
            }
            (data, inode.generation().wrapping_sub(1), ImageValue::Empty)
        } else {
            inode.file_type()?;
            let data = self.contents(ino, &inode, state == InodeState::Orphan);
            (data, inode.generation(), ImageValue::of(&inode))
        };
        Some(Candidate { inode, generation, data, is_freed, value, source, dtime: None })
    }

    /// Reports the images in the log of inodes that are in no chunk.
    pub(super) fn rest(&mut self) {
        for ino in self.logged.left() {
            let logged = self.logged.take(ino);
            self.report(ino, InodeState::Free, Vec::new(), logged, None);
        }
    }

    /// Reports inodes in a free block that was a part of an inode chunk.
    pub(super) fn freed_inodes(&mut self, ag: AgNumber, block: AgBlock, bytes: &[u8]) {
        let geometry = *self.fs.geometry();
        let first = geometry.first_ino(block);
        let source = DeletedSource::Free { block: geometry.block_of(ag, block).0 };
        for (nth, slot) in bytes.chunks_exact(geometry.inode_size()).enumerate() {
            let Some(number) = first.0.checked_add(nth as u32) else { return };
            let ino = geometry.ino(ag, AgIno(number));
            let found = self.candidate(ino, slot, InodeState::Free, source);
            let Some(found) = found else { continue };
            let logged = self.logged.take(ino);
            self.report(ino, InodeState::Free, vec![found], logged, Some(slot));
        }
    }

    /// Reports the most useful candidate of each generation. `slot` completes images in the log without a fork.
    fn report(
        &mut self,
        ino: Ino,
        state: InodeState,
        mut candidates: Vec<Candidate>,
        logged: Vec<LoggedImage>,
        slot: Option<&[u8]>,
    ) {
        let newest = candidates.first().map(|candidate| candidate.generation);
        let is_orphan = state == InodeState::Orphan;
        for mut image in logged {
            let generation = image.inode.generation();
            if !image.has_fork
                && let Some(slot) = slot
            {
                let found = Inode::from_slot(slot);
                let is_same = found.generation() == generation
                    || found.mode() == 0 && found.generation() == generation.wrapping_add(1);
                let core = image.inode.core_size();
                if is_same && slot.len() == image.inode.as_bytes().len() {
                    image.inode.as_mut_bytes()[core..].copy_from_slice(&slot[core..]);
                    image.has_fork = true;
                }
            }
            let data = match image.has_fork {
                true => self.contents(ino, &image.inode, is_orphan),
                false => DeletedData::Lost,
            };
            let (value, source) = (ImageValue::of(&image.inode), image.source());
            let inode = image.inode;
            candidates.push(Candidate {
                inode,
                generation,
                data,
                is_freed: false,
                value,
                source,
                dtime: None,
            });
        }
        while let Some(first) = candidates.first() {
            let generation = first.generation;
            let (same, others): (Vec<_>, Vec<_>) =
                candidates.into_iter().partition(|one| one.generation == generation);
            candidates = others;
            let is_newest = newest == Some(generation);
            let state = if is_orphan && !is_newest { InodeState::Reused } else { state };
            if let Some(best) = combined(same) {
                self.report_inode(ino, state, best);
            }
        }
    }

    fn report_inode(&mut self, ino: Ino, state: InodeState, best: Candidate) {
        let Candidate { inode, generation, data, is_freed, source, dtime, .. } = best;
        let file_type = match is_freed {
            false => inode.file_type(),
            true => self.type_of_contents(ino, &data),
        };
        if file_type == Some(FileType::Directory) {
            self.deleted_directory(ino, &inode, &data, state, is_freed);
        }
        let time = |which| inode.time(which).unwrap_or_default();
        self.sink.inode(DeletedInode {
            ino,
            generation,
            file_type,
            permissions: (!is_freed).then(|| inode.mode() & !vfs::S_IFMT),
            uid: inode.uid(),
            gid: inode.gid(),
            size: (!is_freed).then(|| inode.size()),
            atime: time(Time::Access),
            mtime: time(Time::Modify),
            ctime: time(Time::Change),
            crtime: self.fs.geometry().features.crc().then(|| time(Time::Create)),
            // The format stores no time of deletion. Freeing is the last change of the inode.
            dtime,
            state,
            data,
            source,
        });
    }

    /// Returns the type of a freed inode: a directory if its first block still is a directory block.
    fn type_of_contents(&self, ino: Ino, data: &DeletedData) -> Option<FileType> {
        let run = data.runs().first()?;
        let bytes = self.block(Block(run.start)).ok()?;
        let layout = DirLayout::new(self.fs.geometry());
        let is_dir =
            self.sink.is_free(run.start) && self.stated_owner(&layout, &bytes) == Some(ino);
        is_dir.then_some(FileType::Directory)
    }
}

/// Returns the most useful candidate of one generation, completed from the others.
fn combined(candidates: Vec<Candidate>) -> Option<Candidate> {
    // A freed slot keeps the extents that an image in the log may lack.
    let freed = candidates.iter().find(|one| one.is_freed);
    let leftover = freed.map(|one| (one.data.clone(), one.source));
    let dtime = freed.and_then(|one| one.inode.time(Time::Change));
    let mut best = candidates
        .into_iter()
        .reduce(|best, next| if next.value > best.value { next } else { best })?;
    if let (DeletedData::Lost, Some((data, source))) = (&best.data, leftover)
        && best.inode.size() > 0
    {
        (best.data, best.source) = (data, source);
    }
    best.dtime = dtime;
    Some(best)
}
