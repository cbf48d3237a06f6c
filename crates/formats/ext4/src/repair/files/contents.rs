//! Repairs the contents of an inode: map, size, symbolic link target, inline data.

use vfs::{FileType, S_IFMT};

use super::attributes;
use super::inodes::{InodeRepair, OF_MAP, RESIZE_INO, set_blocks};
use super::map::{self, Map};
use crate::check::codes::*;
use crate::format::indirect::DIRECT_COUNT;
use crate::format::inode::{I_BLOCK_SIZE, flags};

impl InodeRepair<'_, '_, '_> {
    /// Repairs the contents, then the size and the block count.
    pub(super) fn repair_contents(&mut self) {
        let Some(file_type) = self.subject.file_type() else { return };
        match file_type {
            _ if self.subject.has(flags::INLINE_DATA) => self.repair_inline(file_type),
            FileType::Regular | FileType::Directory => self.repair_mapped(file_type),
            FileType::Symlink => self.repair_symlink(),
            _ => {
                if self.has(&[INODE_SIZE]) {
                    self.subject.inode.set_size(0);
                }
                self.repair_blocks(0);
            }
        }
    }

    fn repair_inline(&mut self, file_type: FileType) {
        if self.has(&[INLINE_DATA]) {
            let rest = attributes::inline_rest(&self.subject);
            let is_short = self.subject.inode.size() < I_BLOCK_SIZE as u64;
            if file_type == FileType::Symlink && is_short {
                return self.repair_short_inline_symlink(rest.is_some());
            }
            if rest.is_none() && !attributes::set_inline_rest(&mut self.subject, Some(&[])) {
                // There is not even room for the attribute's name, so the contents are not inline.
                self.subject.inode.set_flag(flags::INLINE_DATA, false);
                return self.repair_mapped(file_type);
            }
            let room = (I_BLOCK_SIZE + rest.map_or(0, |rest| rest.len())) as u64;
            let is_too_large = self.subject.inode.size() > room;
            if file_type == FileType::Directory || file_type == FileType::Symlink && is_too_large {
                self.subject.inode.set_size(room);
            } else if file_type == FileType::Symlink && self.subject.inode.size() < room {
                self.become_file();
            }
        }
        if self.has(&[INODE_SIZE]) && file_type == FileType::Regular {
            let rest = attributes::inline_rest(&self.subject).map_or(0, |rest| rest.len());
            self.subject.inode.set_size((I_BLOCK_SIZE + rest) as u64);
        }
        self.repair_blocks(0);
    }

    /// If a symbolic link is too short to be inline, either the flag or the type is wrong.
    fn repair_short_inline_symlink(&mut self, has_data: bool) {
        if has_data {
            self.become_file();
        } else {
            self.subject.inode.set_flag(flags::INLINE_DATA, false);
            self.repair_symlink();
        }
        self.repair_blocks(0);
    }

    fn become_file(&mut self) {
        let permissions = self.subject.inode.mode() & !S_IFMT;
        self.subject.inode.set_mode(0o10_0000 | permissions);
    }

    fn repair_mapped(&mut self, file_type: FileType) {
        let mut map = Map::read(&self.context.checked, &self.subject);
        if map.is_unreadable {
            return;
        }
        let may_be_unwritten = file_type == FileType::Regular;
        if self.has(&[EXTENT_UNWRITTEN]) && !may_be_unwritten {
            map.runs.iter_mut().for_each(|run| run.unwritten = false);
        }
        let end = self.counted_end(&map, file_type);
        if let Some(end) = end {
            map.truncate(end);
        }
        let is_written = if self.has(&[EXTENT_NODE]) && map.runs.is_empty() {
            map.nodes.clear();
            map::write_empty(&self.context.checked, &mut self.subject);
            true
        } else {
            !self.has(OF_MAP) && end.is_none()
                || map::write(self.context, &mut self.subject, &mut map, &mut self.draft)
        };
        if !is_written {
            return;
        }
        if self.has(&[INODE_SIZE]) {
            self.repair_size(&map, file_type);
        }
        let clusters = map.clusters(&self.context.checked);
        self.repair_blocks(clusters);
    }

    /// Returns the end of the file in blocks if blocks beyond it do not belong to it: size and block count agree with
    /// each other, but not with the map.
    fn counted_end(&self, map: &Map, file_type: FileType) -> Option<u64> {
        let is_plain = file_type == FileType::Regular && !self.subject.has(flags::VERITY);
        if !is_plain || !self.has(&[INODE_BLOCKS]) {
            return None;
        }
        let geometry = self.context.checked.geometry();
        let end = self.subject.inode.size().div_ceil(geometry.block_size().into());
        if map.written_end() <= end {
            return None;
        }
        let mut inside = map.clone();
        inside.truncate(end);
        let own_attributes = u64::from(self.subject.inode.file_acl() != 0);
        let most = inside.clusters(&self.context.checked) + own_attributes;
        // Some nodes may only map blocks beyond the end.
        let least = most - map.nodes.len() as u64;
        let units =
            |clusters| clusters << (geometry.cluster_blocks_log + geometry.block_size_log - 9);
        let counted = self.subject.inode.blocks_512(geometry.block_size());
        (units(least)..=units(most)).contains(&counted).then_some(end)
    }

    fn repair_size(&mut self, map: &Map, file_type: FileType) {
        let geometry = self.context.checked.geometry();
        let log = geometry.block_size_log;
        let size = match file_type {
            // A directory without blocks gets one when its entries are written.
            FileType::Directory => map.end().max(1) << log,
            _ => {
                let pointers = u64::from(geometry.block_size() / 4);
                let reach = u64::from(DIRECT_COUNT) + pointers + pointers.pow(2) + pointers.pow(3);
                let blocks = if self.subject.has(flags::EXTENTS) {
                    1 << 32
                } else {
                    reach.min((1 << 32) - 1)
                };
                let (least, most) = (map.written_end().saturating_sub(1) << log, blocks << log);
                let size = self.subject.inode.size();
                let is_right = size <= most && (size >= least || map.written_end() == 0);
                if is_right { size } else { map.written_end() << log }
            }
        };
        self.subject.inode.set_size(size);
    }

    fn repair_symlink(&mut self) {
        let size = self.subject.inode.size();
        let is_fast = size < I_BLOCK_SIZE as u64;
        if !is_fast || size == 0 && self.subject.has(flags::EXTENTS) {
            // The target may be in a block even if the size does not indicate it.
            if is_fast {
                self.subject.inode.set_size(I_BLOCK_SIZE as u64);
            }
            let size_is_known = self.repair_slow_target();
            if size_is_known {
                return self.repair_mapped(FileType::Symlink);
            }
        }
        let root = *self.subject.inode.i_block();
        let len = root.iter().position(|byte| *byte == 0).unwrap_or(0);
        let is_text = root[..len].iter().all(|byte| !byte.is_ascii_control());
        let size = self.subject.inode.size();
        let is_encrypted = self.subject.has(flags::ENCRYPT);
        let is_wrong = self.has(&[SYMLINK, INODE_SIZE]) || self.has(OF_MAP) && !is_fast;
        if is_wrong && (!is_encrypted || size >= I_BLOCK_SIZE as u64) {
            if len == 0 || !is_text {
                self.cleared = Some("The symbolic link is removed, because its target is lost.");
                return self.subject.clear();
            }
            self.subject.inode.set_size(len as u64);
            self.subject.inode.set_flag(flags::EXTENTS, false);
        } else if is_wrong {
            let len = 2 + u64::from(u16::from_le_bytes([root[0], root[1]]));
            if !(3..I_BLOCK_SIZE as u64).contains(&len) {
                self.cleared = Some("The symbolic link is removed, because its target is lost.");
                return self.subject.clear();
            }
            self.subject.inode.set_size(len);
            self.subject.inode.set_flag(flags::EXTENTS, false);
        }
        self.repair_blocks(0);
    }

    /// Sets the size of a symbolic link with its target in a block to the target's length. Returns `false` if there is
    /// no target.
    fn repair_slow_target(&mut self) -> bool {
        let mut map = Map::read(&self.context.checked, &self.subject);
        if map.is_unreadable {
            return true;
        }
        let Some(bytes) = map.place(0).and_then(|place| self.context.checked.block(place)) else {
            return false;
        };
        if !self.has(&[SYMLINK]) {
            return true;
        }
        let len = if self.subject.has(flags::ENCRYPT) {
            2 + usize::from(u16::from_le_bytes([bytes[0], bytes[1]]))
        } else {
            bytes.iter().position(|byte| *byte == 0).unwrap_or(0)
        };
        if len < I_BLOCK_SIZE || len >= bytes.len() {
            return false;
        }
        map.truncate(1);
        let is_written = map::write(self.context, &mut self.subject, &mut map, &mut self.draft);
        if is_written {
            self.subject.inode.set_size(len as u64);
        }
        is_written
    }

    /// Sets the block count of an inode if it is wrong or has changed.
    fn repair_blocks(&mut self, clusters: u64) {
        if self.subject.ino != RESIZE_INO {
            let is_wrong = self.has(&[INODE_BLOCKS]);
            set_blocks(self.context, &mut self.subject, clusters, is_wrong);
        }
    }
}
