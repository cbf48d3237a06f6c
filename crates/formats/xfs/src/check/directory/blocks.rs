//! Checks the entries of directories in blocks.

use std::collections::HashSet;

use vfs::Ino;
use vfs::check::Finding;

use super::Check;
use super::index::Index;
use super::reader::{Reader, Space, spaces};
use crate::check::codes;
use crate::check::sums;
use crate::format::address::Block;
use crate::format::bytes::be64;
use crate::format::dir::{self, DirBlockKind, data, is_block_form, leaf};
use crate::format::extent::Extent;
use crate::format::inode::Inode;

/// Summary of the data blocks of a directory.
#[derive(Debug, Default)]
pub(super) struct DataBlockSummary {
    /// Sum over the hash and address of each entry.
    pub(super) sum: u64,
    pub(super) count: u64,
    /// The longest unused range of each data block, or a marker for a missing one.
    pub(super) bests: Vec<u16>,
    /// True if some blocks could not be read.
    pub(super) is_broken: bool,
}

impl DataBlockSummary {
    pub(super) fn add(&mut self, hash: u32, address: u32) {
        self.sum = self.sum.wrapping_add(sums::mix(hash.into(), address.into()));
        self.count += 1;
    }
}

impl Check<'_> {
    pub(super) fn blocks(&self, inode: &Inode, extents: &[Extent]) {
        let layout = &self.inodes.layout;
        let mut reader = Reader::new(self.inodes.ctx, layout, extents);
        let mut entries = DataBlockSummary::default();
        let mut index = Index::new(self);
        let mut block_form = false;
        for (space, number) in spaces(layout, extents) {
            let at = reader.first(space, number);
            let part = match space {
                Space::Data => DirBlockKind::Data,
                Space::Leaf => DirBlockKind::Leaf,
                Space::Free => DirBlockKind::Free,
                Space::Beyond => {
                    let finding = self.fault(codes::DIR_MAP, "a block at an invalid position");
                    self.found(finding.mismatch("none", at));
                    continue;
                }
            };
            let Some((place, bytes)) = reader.read(at) else {
                self.found(
                    self.fault(codes::DIR_MAP, format!("block {at} is not mapped completely")),
                );
                (entries.is_broken, index.is_broken) = (true, true);
                continue;
            };
            if !self.verify(part, at.0 as u32, place, bytes) {
                match space {
                    Space::Data => {
                        entries.is_broken = true;
                        entries.bests.resize(number as usize + 1, dir::free::NO_BLOCK);
                    }
                    _ => index.is_broken = true,
                }
                continue;
            }
            match space {
                Space::Data => {
                    block_form |= is_block_form(layout, bytes);
                    self.data(number, bytes, &mut entries);
                    if is_block_form(layout, bytes) {
                        index.block_form(bytes, &leaf::block_table(layout, bytes));
                    }
                }
                Space::Leaf => index.leaf(number, bytes),
                _ => index.free(number, bytes),
            }
        }
        self.check_size(inode, &entries, block_form);
        if entries.is_broken || index.is_broken {
            return self.inodes.ctx.note_names_gap();
        }
        index.finish(&entries, block_form);
        let suspects = index.into_suspects();
        self.names_twice(&mut reader, suspects);
    }

    /// Checks a single block. Returns whether it can be used.
    fn verify(&self, part: DirBlockKind, at: u32, place: Block, bytes: &[u8]) -> bool {
        let (geometry, ino) = (&self.inodes.ctx.geometry, self.dir.ino);
        let outcome = match dir::verify(geometry, part, (ino, at), place, bytes) {
            Err(damage) if damage.is_checksum() => {
                self.inodes.ctx.damage(codes::DIR_CHECKSUM, &damage, Some(place));
                dir::verify_structure(geometry, part, (ino, at), place, bytes)
            }
            outcome => outcome,
        };
        if geometry.features.crc() {
            let at = if part == DirBlockKind::Leaf { 24 } else { 16 };
            let finding = || self.fault(codes::LSN, "directory").at_block(place.0);
            self.inodes.ctx.check_lsn(be64(bytes, at), finding);
        }
        let code = match part {
            DirBlockKind::Data => codes::DIR_DATA,
            DirBlockKind::Leaf => codes::DIR_LEAF,
            DirBlockKind::Free => codes::DIR_FREE,
        };
        let Err(damage) = outcome else {
            if let Some(found) = dir::padding(part, bytes).filter(|_| geometry.features.crc()) {
                let finding = Finding::new(code).of_inode(ino.0).at_block(place.0).field("pad");
                self.found(finding.mismatch(0, found));
            }
            return true;
        };
        self.inodes.ctx.damage(code, &damage.of_inode(ino.0), Some(place));
        false
    }

    /// Checks that the size of a directory is the end of its data.
    fn check_size(&self, inode: &Inode, entries: &DataBlockSummary, block_form: bool) {
        let layout = &self.inodes.layout;
        if entries.bests.is_empty() {
            return self.found(self.fault(codes::DIR_MAP, "it has no first block"));
        }
        let size = (entries.bests.len() as u64) << layout.size_log;
        if size != inode.size() {
            let finding = Finding::new(codes::DIR_MAP).of_inode(self.dir.ino.0).field("di_size");
            self.found(finding.mismatch(size, inode.size()));
        }
        if block_form && entries.bests.len() > 1 {
            self.found(self.fault(codes::DIR_DATA, "block form with more than one data block"));
        }
    }

    fn data(&self, number: u64, bytes: &[u8], entries: &mut DataBlockSummary) {
        let layout = &self.inodes.layout;
        entries.bests.resize(number as usize, dir::free::NO_BLOCK);
        entries.bests.push(data::best_len(layout, bytes) as u16);
        let mut dots = [None; 2];
        for entry in data::entries(layout, bytes) {
            let address = layout.address(number as u32, entry.offset);
            entries.add(layout.hash(entry.name), address);
            if number == 0 && entry.offset == layout.header() && entry.name == b"." {
                dots[0] = Some(entry.ino);
            } else if number == 0 && entry.offset == layout.dot_dot() && entry.name == b".." {
                dots[1] = Some(entry.ino);
            } else {
                self.check_name(entry.name);
                let code =
                    if layout.ftype { bytes[entry.offset + 9 + entry.name.len()] } else { 0 };
                self.entry(entry.name, entry.ino, code);
            }
            if layout.ftype && matches!(entry.name, b"." | b"..") {
                let code = bytes[entry.offset + 9 + entry.name.len()];
                if code != crate::check::links::DIRECTORY {
                    let finding = self.fault(codes::DIR_FTYPE, "in the directory itself");
                    self.found(finding.named(entry.name).mismatch(2, code));
                }
            }
        }
        if number > 0 {
            return;
        }
        if dots[0] != Some(self.dir.ino) {
            let found = dots[0].map_or("none".to_owned(), |Ino(ino)| ino.to_string());
            let finding = self.fault(codes::DIR_DOT, "first entry").named(b".");
            self.found(finding.mismatch(self.dir.ino, found));
        }
        match dots[1] {
            Some(parent) => self.inodes.links.dot_dot(self.dir, parent),
            None => {
                let finding = self.fault(codes::DIR_DOT_DOT, "second entry").named(b"..");
                self.found(finding.mismatch("an entry", "none"));
            }
        }
    }

    /// Reports duplicate names among entries that share their hash with another.
    fn names_twice(&self, reader: &mut Reader<'_>, mut suspects: Vec<u32>) {
        let layout = &self.inodes.layout;
        suspects.sort_unstable();
        suspects.dedup();
        let mut names: HashSet<(u64, u64)> = HashSet::new();
        for address in suspects {
            let (number, offset) = layout.split_address(address);
            let at = reader.first(Space::Data, number.into());
            let Some((_, bytes)) = reader.read(at) else { return };
            let end = data::end(layout, bytes);
            let Some(entry) = data::entry_at(layout, &bytes[..end], offset) else { continue };
            let name = match layout.folds_case {
                true => entry.name.iter().map(|b| crate::format::hash::fold(*b)).collect(),
                false => entry.name.to_vec(),
            };
            let key = (sums::mix_bytes(1, &name), sums::mix_bytes(2, &name));
            if !names.insert(key) {
                self.found(self.fault(codes::DIR_TWICE, "two entries").named(entry.name));
            }
        }
    }
}
