//! Names in the slack of directories, in old images of directories, and in free blocks.
//!
//! Removing an entry adds its length to that of the entry before it; its bytes stay. The first entry of a block only loses
//! its inode number. Splitting and compacting blocks leaves copies of entries that still exist elsewhere.

use vfs::deleted::{DeletedData, DeletedName, DeletedSource, InodeState, is_name};
use vfs::{Ino, Result};

use super::images::Tables;
use super::{Owner, Search};
use crate::dir::encrypted::EncryptedNames;
use crate::dir::{self};
use crate::format::address::{Block, FileBlock, Group};
use crate::format::checksum::inode_seed;
use crate::format::dirent::{self, DirRecord, HEADER_SIZE, TAIL_SIZE, record_size};
use crate::format::hash::NameHash;
use crate::format::inode::{Inode, flags};
use crate::inode::Handle;
use crate::map::{self, MappedRun, Mapping};

/// Offset of `dx_root_info`, after the records of `.` and `..`.
const INDEX_INFO: usize = 0x18;

/// How to read the bytes of a directory block.
#[derive(Clone, Copy)]
pub(super) struct EntryRules {
    inodes: u32,
    has_types: bool,
}

impl EntryRules {
    fn of(search: &Search<'_>) -> Self {
        let volume = &search.fs.volume;
        Self { inodes: volume.geometry.inodes_count, has_types: volume.filetype }
    }

    /// Returns the record at `at` if its inode number may be 0, as in the first one of a block after its removal.
    fn record<'b>(&self, block: &'b [u8], at: usize, end: usize) -> Option<DirRecord<'b>> {
        let record = dirent::record_at(block.get(..end)?, at)?;
        let is_type = match self.has_types {
            true => (1..=7).contains(&record.file_type),
            false => record.file_type == 0,
        };
        (is_type && is_name(record.name) && record.inode <= self.inodes).then_some(record)
    }

    /// Calls `each` with the removed records of a block whose chain of records is valid.
    fn removed(&self, block: &[u8], each: &mut dyn FnMut(&DirRecord<'_>)) {
        let mut before = 0;
        for record in dirent::records(block) {
            let end = record.offset + record.rec_len;
            let is_node = record.offset == 0 && record.inode == 0 && end == block.len();
            let is_tail = record.rec_len == TAIL_SIZE && record.name.is_empty();
            if is_tail && record.inode == 0 {
                continue;
            }
            let is_root = before == record_size(1) && record.name == b".." && has_index(block);
            if is_root || is_node && !self.starts_with_name(block) {
                return;
            }
            let mut at = record.offset + record_size(record.name.len());
            if record.inode == 0 {
                match self.record(block, record.offset, end) {
                    Some(removed) => each(&removed),
                    None => at = record.offset + HEADER_SIZE,
                }
            }
            before = end;
            self.scan(block, at, end, each);
        }
    }

    fn starts_with_name(&self, block: &[u8]) -> bool {
        self.record(block, 0, block.len()).is_some()
    }

    /// Calls `each` with everything in a range that can be a record.
    fn scan(&self, block: &[u8], mut at: usize, end: usize, each: &mut dyn FnMut(&DirRecord<'_>)) {
        while at + HEADER_SIZE < end {
            // The record may have been longer than the rest of the range, into which it was joined.
            match self.record(block, at, block.len()) {
                Some(record) if record.inode != 0 && at + record_size(record.name.len()) <= end => {
                    each(&record);
                    at += record_size(record.name.len());
                }
                _ => at += 4,
            }
        }
    }
}

/// Returns whether the first block of a directory contains the root of an index after `.` and `..`.
fn has_index(block: &[u8]) -> bool {
    matches!(block.get(INDEX_INFO..INDEX_INFO + 8), Some([0, 0, 0, 0, 0..=6, 8, 0..=3, _]))
}

impl Search<'_> {
    /// Reports the removed names of a directory in use.
    pub(super) fn live_directory(&mut self, dir: &Handle) {
        let owner = Owner { ino: dir.ino(), is_encrypted: dir.has_flag(flags::ENCRYPT) };
        if dir.has_flag(flags::INLINE_DATA) {
            let bytes = dir.inode.i_block().to_vec();
            let source = DeletedSource::Slack { block: None };
            let rules = EntryRules::of(self);
            let first = bytes.get(dirent::INLINE_PARENT_SIZE..).unwrap_or_default();
            let mut found = Vec::new();
            rules.removed(first, &mut |record| found.push(owned(record)));
            return self.tell(Some(owner), found, source);
        }
        if let Err(error) = self.live_blocks(dir, owner) {
            self.remark(format_args!("directory {}", dir.ino()), &error);
        }
    }

    fn live_blocks(&mut self, dir: &Handle, owner: Owner) -> Result<()> {
        let mut source = self.fs;
        let end = dir::blocks_count(source, dir)?;
        let mut at = 0;
        while at < end {
            let MappedRun { place, len } = map::run_at(&mut source, dir, FileBlock(at as u32))?;
            let len = len.min(end - at);
            at += len;
            let Mapping::Written(start) = place else { continue };
            for nth in 0..len {
                if !self.spend(1) {
                    return Err(dir.corrupt("directory", "directories have too many blocks"));
                }
                let block = start.plus(nth);
                if self.journal.has(block) {
                    self.directories.insert(block, owner);
                }
                let current = self.current_block(block)?;
                self.slack(owner, block, &current);
            }
        }
        Ok(())
    }

    fn slack(&mut self, owner: Owner, block: Block, bytes: &[u8]) {
        let mut found = Vec::new();
        EntryRules::of(self).removed(bytes, &mut |record| found.push(owned(record)));
        self.tell(Some(owner), found, DeletedSource::Slack { block: Some(block.0) });
    }

    /// Reports the names in the blocks of a directory that is not in use.
    pub(super) fn deleted_directory(
        &mut self,
        ino: Ino,
        inode: &Inode,
        data: &DeletedData,
        state: InodeState,
    ) {
        let owner = Owner { ino, is_encrypted: inode.has_flag(flags::ENCRYPT) };
        let seed = inode_seed(self.fs.superblock().checksum_seed, ino, inode.generation());
        for run in data.runs() {
            for nth in 0..run.len {
                let block = Block(run.start + nth);
                if !self.spend(1) {
                    return;
                }
                if self.journal.has(block) {
                    self.directories.entry(block).or_insert(owner);
                }
                if state != InodeState::Orphan && !self.sink.is_free(block.0) {
                    continue;
                }
                let Ok(bytes) = self.block(block) else { continue };
                if self.is_directory_block(&bytes, Some(seed)) {
                    self.all_names(Some(owner), &bytes, DeletedSource::Free { block: block.0 });
                }
            }
        }
    }

    /// Reports all names in the images of directories in the journal.
    pub(super) fn journaled_names(&mut self) {
        let tables = Tables::of(self);
        for block in self.journal.blocks() {
            if tables.find(block).is_some() {
                continue;
            }
            for image in self.journal.of(block).to_vec() {
                let Some(bytes) = self.journal.bytes(self.evidence, &image) else { continue };
                if !self.is_directory_block(&bytes, None) {
                    continue;
                }
                let known = self.directories.get(&block).copied();
                let owner = known.or_else(|| stated_owner(&bytes));
                let (block, sequence) = (image.at.into(), image.tid.0.into());
                self.all_names(owner, &bytes, DeletedSource::Log { block, sequence });
            }
        }
    }

    /// Reports the names in free blocks of a group that contain a directory block.
    pub(super) fn free_directory_blocks(&mut self, group: Group) {
        let geometry = *self.fs.geometry();
        let first = geometry.first_block(group);
        for nth in 0..u64::from(geometry.blocks_in(group)) {
            let block = first.plus(nth);
            if !self.sink.is_free(block.0) {
                continue;
            }
            let Ok(bytes) = self.block(block) else { continue };
            if self.is_directory_block(&bytes, None) {
                let owner = stated_owner(&bytes);
                self.all_names(owner, &bytes, DeletedSource::Free { block: block.0 });
            }
        }
    }

    /// Returns whether bytes are a directory block with at least one name. With a seed, the checksum must match.
    fn is_directory_block(&self, bytes: &[u8], seed: Option<u32>) -> bool {
        let volume = &self.fs.volume;
        let inodes = volume.geometry.inodes_count;
        if has_index(bytes) && stated_owner(bytes).is_some() {
            // The root of an index has no checksum record. It contains no names.
            return false;
        }
        let is_sound = match seed.filter(|_| volume.checksums) {
            Some(seed) => dirent::verify(bytes, inodes, Some(seed)),
            None => dirent::verify_structure(bytes, inodes, volume.checksums),
        };
        is_sound.is_ok() && dirent::records(bytes).all(|r| r.inode == 0 || is_sound_name(r.name))
    }

    /// Reports the names of a directory block, removed or not.
    fn all_names(&mut self, owner: Option<Owner>, bytes: &[u8], source: DeletedSource) {
        let in_use = dirent::entries(bytes).filter(|record| is_name(record.name));
        let mut found: Vec<_> = in_use.map(|record| owned(&record)).collect();
        EntryRules::of(self).removed(bytes, &mut |record| found.push(owned(record)));
        self.tell(owner, found, source);
    }

    /// Returns the names of an encrypted directory, decrypted if it is in use and its key was given.
    fn encrypted_names(&self, dir: Ino) -> EncryptedNames {
        let names =
            crate::inode::load(self.fs, dir).and_then(|dir| EncryptedNames::of(self.fs, &dir));
        names.ok().flatten().unwrap_or_else(EncryptedNames::locked)
    }

    fn tell(&mut self, owner: Option<Owner>, found: Vec<OwnedRecord>, source: DeletedSource) {
        let has_types = self.fs.volume.filetype;
        let encrypted = owner.filter(|owner| owner.is_encrypted && !found.is_empty());
        let encrypted = encrypted.map(|owner| self.encrypted_names(owner.ino));
        let mut scratch = Vec::new();
        for OwnedRecord { inode, file_type, name } in found {
            let name = match &encrypted {
                Some(names) => match names.show(&name, NO_HASH, &mut scratch) {
                    Some(shown) => shown.to_vec(),
                    None => continue,
                },
                None => name,
            };
            self.sink.name(DeletedName {
                dir: owner.map(|owner| owner.ino),
                name,
                ino: (inode != 0).then_some(Ino(inode.into())),
                file_type: dirent::file_type_from_code(file_type).filter(|_| has_types),
                source,
            });
        }
    }
}

/// Shown hash of a name without an entry in the index.
const NO_HASH: NameHash = NameHash { major: 0, minor: 0 };

/// Copy of a record.
struct OwnedRecord {
    inode: u32,
    file_type: u8,
    name: Vec<u8>,
}

fn owned(record: &DirRecord<'_>) -> OwnedRecord {
    OwnedRecord { inode: record.inode, file_type: record.file_type, name: record.name.to_vec() }
}

fn is_sound_name(name: &[u8]) -> bool {
    name == b"." || name == b".." || is_name(name)
}

/// Returns the directory that the entry `.` names, in the first block of a directory.
fn stated_owner(block: &[u8]) -> Option<Owner> {
    let dot = dirent::record_at(block, 0).filter(|record| record.name == b".")?;
    let dot_dot = dirent::record_at(block, dot.rec_len)?;
    let is_first = dot.inode != 0 && dot_dot.name == b"..";
    is_first.then_some(Owner { ino: Ino(dot.inode.into()), is_encrypted: false })
}
