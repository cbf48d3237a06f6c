//! Group descriptors, their backups, and the positions of the structures that they name.

use vfs::Ino;
use vfs::check::Finding;

use super::codes::{
    GROUP_BACKUP, GROUP_CHECKSUM, GROUP_FLAGS, GROUP_OVERLAP, GROUP_PLACES, GROUP_UNUSED,
};
use super::context::Context;
use crate::alloc::system::SystemZone;
use crate::format::address::{Block, Group};
use crate::format::group::{GroupDescriptor, GroupFlags};
use crate::format::inode;

/// A group descriptor, and how far it can be trusted.
#[derive(Clone, Copy, Default)]
pub(super) struct GroupFacts {
    pub(super) desc: GroupDescriptor,
    /// True if its checksum is right or not used.
    is_sealed: bool,
    /// True if its positions can be used.
    pub(super) is_usable: bool,
}

/// Size of one read of the descriptor table in bytes.
const READ_BYTES: usize = 1 << 20;

impl Context<'_> {
    /// Reads all descriptors, and marks the file system's own structures as in use.
    pub(super) fn check_groups(&mut self) {
        let mut groups = Vec::with_capacity(self.geometry().groups_count as usize);
        self.for_each_descriptor(&mut |context, group, bytes| {
            groups.push(context.check_descriptor(group, bytes));
        });
        groups.resize(self.geometry().groups_count as usize, GroupFacts::default());
        self.groups = groups;
        self.find_better_places();
        let usable = |group: Group| self.group(group).filter(|g| g.is_usable).map(|g| g.desc);
        self.system = SystemZone::of(self.geometry(), usable);
        self.take_system_blocks();
        self.check_backups();
    }

    /// Calls `each` with each group's descriptor in the primary table, in order. Stops if the device fails.
    fn for_each_descriptor(&self, each: &mut dyn FnMut(&Self, Group, &[u8])) {
        let geometry = self.geometry();
        let size = usize::from(geometry.desc_size);
        let per_block = geometry.desc_per_block() as usize;
        let pieces = (READ_BYTES / self.block_size()).max(1) as u32;
        let mut bytes = Vec::new();
        let (mut index, mut group) = (0, 0);
        while index < geometry.gdt_blocks() {
            // Read contiguous blocks of the table together.
            let start = geometry.gdt_block(index);
            let follows =
                |count: &u32| geometry.gdt_block(index + count) == start.plus((*count).into());
            let left = (geometry.gdt_blocks() - index).min(pieces);
            let count = 1 + (1..left).take_while(follows).count();
            bytes.resize(count * self.block_size(), 0);
            if !self.read(start, &mut bytes) {
                return;
            }
            for block in bytes.chunks_exact(self.block_size()) {
                for descriptor in block.chunks_exact(size).take(per_block) {
                    if group < geometry.groups_count {
                        each(self, Group(group), descriptor);
                        group += 1;
                    }
                }
            }
            index += count as u32;
        }
    }

    fn check_descriptor(&self, group: Group, bytes: &[u8]) -> GroupFacts {
        let sb = &self.params.sb;
        let seal = GroupDescriptor::check_sum(bytes, sb, group);
        if let Err(damage) = &seal {
            self.tell(Finding::of_damage(GROUP_CHECKSUM, damage));
        }
        let Some(desc) = GroupDescriptor::read(bytes) else { return GroupFacts::default() };
        let places = desc.check_places_in(sb, self.geometry(), group);
        if let Err(damage) = &places {
            self.tell(Finding::of_damage(GROUP_PLACES, damage).in_group(group.0));
        }
        let uninit = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
        let unused = desc.itable_unused;
        if !sb.features.group_csum() && (desc.flags.intersects(uninit) || unused != 0) {
            let found = format!("flags {:#x}, {unused} unused inodes", desc.flags.bits());
            let finding = Finding::new(GROUP_FLAGS).in_group(group.0);
            self.tell(finding.mismatch("none", found));
        }
        // The bitmap of the last group also marks the bits past the end, so it is always initialised.
        let is_last = group.0 + 1 == self.geometry().groups_count;
        if sb.features.group_csum() && is_last && desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let finding = Finding::new(GROUP_FLAGS).in_group(group.0);
            self.tell(finding.detail("the block bitmap of the last group is not initialised"));
        }
        if unused > sb.inodes_per_group {
            let finding = Finding::new(GROUP_FLAGS).in_group(group.0).field("itable_unused");
            self.tell(finding.mismatch(format!("at most {}", sb.inodes_per_group), unused));
        }
        GroupFacts { desc, is_sealed: seal.is_ok(), is_usable: places.is_ok() }
    }

    /// For damaged primary descriptors, uses the positions in backups.
    fn find_better_places(&mut self) {
        let damaged: Vec<_> =
            self.geometry().groups().filter(|g| !self.groups[g.0 as usize].is_usable).collect();
        for group in damaged {
            if let Some(desc) = self.backup_of(group) {
                self.groups[group.0 as usize] =
                    GroupFacts { desc, is_sealed: false, is_usable: true };
            } else {
                self.leave_out();
            }
        }
    }

    /// Returns a valid backup of a descriptor.
    fn backup_of(&self, group: Group) -> Option<GroupDescriptor> {
        const BACKUPS_MAX: usize = 8;
        let geometry = self.geometry();
        let per_block = geometry.desc_per_block();
        let (index, offset) = (group.0 / per_block, (group.0 % per_block) as usize);
        let is_backup = |holder: &Group| geometry.gdt_copy_in(*holder).0.contains(&index);
        let holders = geometry.groups().skip(1).filter(is_backup);
        holders.take(BACKUPS_MAX).find_map(|holder| {
            let (range, start) = geometry.gdt_copy_in(holder);
            let bytes = self.block(start.plus(u64::from(index - range.start)))?;
            let size = usize::from(geometry.desc_size);
            let bytes = bytes.get(offset * size..(offset + 1) * size)?;
            GroupDescriptor::check_sum(bytes, &self.params.sb, group).ok()?;
            let desc = GroupDescriptor::read(bytes)?;
            desc.check_places_in(&self.params.sb, geometry, group).ok().map(|()| desc)
        })
    }

    /// Marks the blocks of superblocks, descriptors, bitmaps and tables, and finds overlaps.
    fn take_system_blocks(&self) {
        let geometry = *self.geometry();
        let mut ranges: Vec<(u64, u64, Group)> = Vec::new();
        for group in geometry.groups() {
            let base = geometry.base_metadata(group);
            let facts = self.groups[group.0 as usize];
            let mut add = |start: Block, len: u64| {
                if len > 0 {
                    self.claims.take_system(start, len);
                    ranges.push((start.0, start.plus(len).0, group));
                }
            };
            add(base.start, base.end.0.saturating_sub(base.start.0));
            if facts.is_usable {
                add(facts.desc.block_bitmap, 1);
                add(facts.desc.inode_bitmap, 1);
                add(facts.desc.inode_table, geometry.itable_blocks().into());
            }
        }
        ranges.sort_unstable();
        for pair in ranges.windows(2).filter(|pair| pair[0].1 > pair[1].0) {
            let detail = format!("it overlaps a structure of group {}", pair[0].2);
            let finding = Finding::new(GROUP_OVERLAP).in_group(pair[1].2.0).at_block(pair[1].0);
            self.tell(finding.detail(detail));
        }
    }

    /// Reports an inode that was not read, because it is in the unused part of its group's table, but that seems to be
    /// in use.
    pub(super) fn check_left_out(&self, ino: u32) {
        let Some((group, index)) = self.geometry().place_of(Ino(ino.into())) else { return };
        let is_left_out = self
            .group(group)
            .is_some_and(|facts| facts.is_usable && index >= facts.inodes_to_read(self));
        let Some(slot) = Some(ino).filter(|_| is_left_out).and_then(|ino| self.slot(ino)) else {
            return;
        };
        let subject = self.subject(ino, &slot);
        let is_live = subject.inode.file_type().is_some() && subject.inode.links_count() > 0;
        let is_sealed = subject.seed.is_none_or(|seed| {
            let (computed, stored) = inode::slot_checksums(seed, &slot);
            computed == stored
        });
        if is_live && is_sealed {
            let finding = Finding::new(GROUP_UNUSED).in_group(group.0);
            self.tell(finding.detail(format!("inode {ino} is in use")));
        }
    }

    /// Compares the positions in the backup descriptors with the primary ones. Counts and flags of backups are never
    /// updated, so they are ignored.
    fn check_backups(&self) {
        let geometry = self.geometry();
        for holder in geometry.groups().skip(1) {
            let (range, start) = geometry.gdt_copy_in(holder);
            for index in range.clone() {
                let place = start.plus(u64::from(index - range.start));
                if place == geometry.gdt_block(index) {
                    continue;
                }
                let Some(bytes) = self.block(place) else { return };
                self.check_backup_block(&bytes, place, index, holder);
            }
        }
    }

    fn check_backup_block(&self, bytes: &[u8], place: Block, index: u32, holder: Group) {
        let geometry = self.geometry();
        let first = index * geometry.desc_per_block();
        let descriptors = bytes.chunks_exact(usize::from(geometry.desc_size));
        for (group, bytes) in (first..geometry.groups_count).zip(descriptors) {
            let facts = &self.groups[group as usize];
            let Some(desc) = GroupDescriptor::read(bytes) else { continue };
            let places = |d: &GroupDescriptor| [d.block_bitmap, d.inode_bitmap, d.inode_table];
            if facts.is_usable && places(&desc) != places(&facts.desc) {
                let finding = Finding::new(GROUP_BACKUP).in_group(holder.0).at_block(place.0);
                let finding =
                    finding.detail(format!("the copy of the descriptor of group {group}"));
                let show = |d: &GroupDescriptor| format!("{:?}", places(d).map(|block| block.0));
                self.tell(finding.mismatch(show(&facts.desc), show(&desc)));
                return;
            }
        }
    }
}

impl GroupFacts {
    /// Returns whether the block bitmap is uninitialised: only metadata is in use.
    pub(super) fn is_block_uninit(&self, context: &Context<'_>) -> bool {
        self.has_flag(context, GroupFlags::BLOCK_UNINIT)
    }

    /// Returns whether inode bitmap and table are uninitialised: no inode is in use.
    pub(super) fn is_inode_uninit(&self, context: &Context<'_>) -> bool {
        self.has_flag(context, GroupFlags::INODE_UNINIT)
    }

    fn has_flag(&self, context: &Context<'_>, flag: GroupFlags) -> bool {
        context.params.sb.features.group_csum() && self.is_sealed && self.desc.flags.contains(flag)
    }

    /// Returns the number of inodes at the start of the table that may be in use.
    pub(super) fn inodes_to_read(&self, context: &Context<'_>) -> u32 {
        let all = context.geometry().inodes_per_group;
        if !self.is_usable || self.is_inode_uninit(context) {
            0
        } else if context.params.sb.features.group_csum() && self.is_sealed {
            all.saturating_sub(self.desc.itable_unused)
        } else {
            all
        }
    }
}
