//! Block groups in the format of `dumpe2fs`: metadata locations and free space.

use std::fmt::Write;
use std::ops::RangeInclusive;
use std::sync::Arc;

use disk::BlockDevice;
use ext4::format::address::{Block, Group};
use ext4::format::features::{Incompat, RoCompat};
use ext4::format::geometry::Geometry;
use ext4::format::group::{GroupDescriptor, GroupFlags};
use ext4::format::superblock::Superblock;

/// Offset of the checksum in a group descriptor (`bg_checksum`).
const CHECKSUM_OFFSET: usize = 0x1e;
/// Names of `bg_flags` in dumpe2fs, in its order.
const FLAGS: [(GroupFlags, &str); 3] = [
    (GroupFlags::INODE_UNINIT, "INODE_UNINIT"),
    (GroupFlags::BLOCK_UNINIT, "BLOCK_UNINIT"),
    (GroupFlags::INODE_ZEROED, "ITABLE_ZEROED"),
];

/// File system whose groups are listed.
struct ListedGroups<'a> {
    device: &'a dyn BlockDevice,
    superblock: &'a Superblock,
    geometry: Geometry,
    is_hex: bool,
}

/// Group descriptor, with its checksum if the file system has checksums.
struct Described {
    group: Group,
    descriptor: GroupDescriptor,
    checksum: Option<u16>,
}

/// Returns the lines of all groups. Bitmaps and descriptors are shown even if their checksums are wrong.
pub(super) fn lines(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    is_hex: bool,
) -> vfs::Result<String> {
    let geometry = Geometry::new(superblock);
    let all = geometry.groups();
    let groups = ListedGroups { device: device.as_ref(), superblock, geometry, is_hex };
    let mut out = String::new();
    for group in all {
        let described = groups.describe(group)?;
        groups.places(&mut out, &described);
        groups.free(&mut out, &described)?;
    }
    Ok(out)
}

impl ListedGroups<'_> {
    fn read(&self, block: Block) -> vfs::Result<Vec<u8>> {
        let mut bytes = vec![0; self.geometry.block_size() as usize];
        self.device
            .read_at(self.geometry.byte_of(block), &mut bytes)
            .map_err(vfs::Error::Device)?;
        Ok(bytes)
    }

    fn describe(&self, group: Group) -> vfs::Result<Described> {
        let (block, offset) = self.geometry.descriptor_position(group);
        let bytes = self.read(block)?;
        let bytes = &bytes[offset..offset + usize::from(self.superblock.desc_size)];
        let descriptor = GroupDescriptor::parse_unsealed(bytes, self.superblock, group)?;
        let stored = u16::from_le_bytes([bytes[CHECKSUM_OFFSET], bytes[CHECKSUM_OFFSET + 1]]);
        let checksum = self.superblock.features.group_csum().then_some(stored);
        Ok(Described { group, descriptor, checksum })
    }

    /// Formats a number in decimal, or in hexadecimal with 4 digits, or 8 digits with the feature `64bit`.
    fn number(&self, number: u64) -> String {
        match (self.is_hex, self.superblock.features.incompat(Incompat::BIT64)) {
            (false, _) => number.to_string(),
            (true, false) => format!("0x{number:04x}"),
            (true, true) => format!("0x{number:08x}"),
        }
    }

    fn range(&self, range: &RangeInclusive<u64>) -> String {
        format!("{}-{}", self.number(*range.start()), self.number(*range.end()))
    }

    /// Returns the offset of a block from the start of its group, with the group number unless it is `group`.
    fn relative(&self, block: Block, group: Group) -> String {
        let owner = self.geometry.group_of(block);
        let distance = block.0 - self.geometry.first_block(owner).0;
        if owner == group {
            format!(" (+{distance})")
        } else {
            format!(" (bg #{} + {distance})", owner.0)
        }
    }

    fn places(&self, out: &mut String, described: &Described) {
        let Described { group, descriptor, checksum } = described;
        let first = self.geometry.first_block(*group).0;
        let last = first + u64::from(self.geometry.blocks_in(*group)) - 1;
        let _ = write!(out, "Group {}: (Blocks {})", group.0, self.range(&(first..=last)));
        if let Some(checksum) = checksum {
            let _ = write!(out, " csum 0x{checksum:04x}");
        }
        // Without checksums the flags are not valid.
        let flags = FLAGS.iter().filter(|_| checksum.is_some());
        let flags = flags.filter(|(flag, _)| descriptor.flags.contains(*flag));
        let flags = flags.map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
        if !flags.is_empty() {
            let _ = write!(out, " [{flags}]");
        }
        out.push('\n');
        self.superblock_and_table(out, *group);
        let has_sums = self.superblock.features.metadata_csum();
        let sum = |sum: u32| if has_sums { format!(", csum {sum:#010x}") } else { String::new() };
        let bitmaps = [
            ("Block", descriptor.block_bitmap, descriptor.block_bitmap_csum),
            ("Inode", descriptor.inode_bitmap, descriptor.inode_bitmap_csum),
        ];
        for (name, block, checksum) in bitmaps {
            let (number, place) = (self.number(block.0), self.relative(block, *group));
            let _ = writeln!(out, "  {name} bitmap at {number}{place}{}", sum(checksum));
        }
        let table = descriptor.inode_table;
        let end = table.0 + u64::from(self.geometry.itable_blocks()) - 1;
        // The original omits an offset of 0 here, but not for bitmaps.
        let is_first = table == self.geometry.first_block(*group);
        let place = if is_first { String::new() } else { self.relative(table, *group) };
        let _ = writeln!(out, "  Inode table at {}{place}", self.range(&(table.0..=end)));
    }

    /// Adds the lines of the superblock, the descriptors and the reserved descriptor blocks.
    fn superblock_and_table(&self, out: &mut String, group: Group) {
        let superblock = self.geometry.superblock_of(group);
        let (table, start) = self.geometry.gdt_copy_in(group);
        let mut parts = Vec::new();
        if let Some(block) = superblock {
            let kind = if group.0 == 0 { "Primary" } else { "Backup" };
            parts.push(format!("{kind} superblock at {}", self.number(block.0)));
        }
        let has_meta_groups = self.superblock.features.incompat(Incompat::META_BG);
        let end = start.0 + u64::from(table.len() as u32);
        if !table.is_empty() && has_meta_groups {
            parts.push(format!("Group descriptor at {}", self.number(start.0)));
        } else if !table.is_empty() {
            parts.push(format!("Group descriptors at {}", self.range(&(start.0..=end - 1))));
        }
        if !parts.is_empty() {
            let _ = writeln!(out, "  {}", parts.join(", "));
        }
        let reserved = u64::from(self.superblock.raw.reserved_gdt_blocks.get());
        if superblock.is_some() && reserved > 0 {
            let range = self.range(&(end..=end + reserved - 1));
            let _ = writeln!(out, "  Reserved GDT blocks at {range}");
        }
    }

    fn free(&self, out: &mut String, described: &Described) -> vfs::Result<()> {
        let Described { group, descriptor, .. } = described;
        let has_clusters = self.superblock.features.ro_compat.contains(RoCompat::BIGALLOC);
        let unit = if has_clusters { "clusters" } else { "blocks" };
        let _ = write!(
            out,
            "  {} free {unit}, {} free inodes, {} directories",
            descriptor.free_blocks, descriptor.free_inodes, descriptor.used_dirs
        );
        if descriptor.itable_unused > 0 {
            let _ = write!(out, ", {} unused inodes", descriptor.itable_unused);
        }
        let blocks = self.block_bitmap(*group, descriptor)?;
        let first = self.geometry.first_block(*group).0;
        let ratio = u64::from(self.geometry.cluster_blocks());
        let free =
            self.free_list(&blocks, self.geometry.clusters_in(*group), |bit| first + bit * ratio);
        let _ = write!(out, "\n  Free blocks: {free}");
        let count = self.superblock.inodes_per_group;
        let inodes = match descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
            true => vec![0; (count as usize).div_ceil(8)],
            false => self.read(descriptor.inode_bitmap)?,
        };
        let first = u64::from(group.0) * u64::from(count) + 1;
        let free = self.free_list(&inodes, count, |bit| first + bit);
        let _ = writeln!(out, "\n  Free inodes: {free}");
        Ok(())
    }

    /// Returns the block bitmap. An uninitialised one is computed from the group's own metadata.
    fn block_bitmap(&self, group: Group, descriptor: &GroupDescriptor) -> vfs::Result<Vec<u8>> {
        if !descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
            return self.read(descriptor.block_bitmap);
        }
        let mut bitmap = vec![0; self.geometry.block_size() as usize];
        let table = descriptor.inode_table;
        let places = [
            self.geometry.base_metadata(group),
            descriptor.block_bitmap..descriptor.block_bitmap.plus(1),
            descriptor.inode_bitmap..descriptor.inode_bitmap.plus(1),
            table..table.plus(u64::from(self.geometry.itable_blocks())),
        ];
        for block in places.iter().flat_map(|place| place.start.0..place.end.0).map(Block) {
            if self.geometry.group_of(block) == group {
                let bit = self.geometry.bit_of(block) as usize;
                bitmap[bit / 8] |= 1 << (bit % 8);
            }
        }
        Ok(bitmap)
    }

    /// Returns the ranges of clear bits among the first `count`, numbered by `number_of`.
    fn free_list(&self, bitmap: &[u8], count: u32, number_of: impl Fn(u64) -> u64) -> String {
        let is_free =
            |bit: u32| bitmap.get(bit as usize / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 0);
        let mut runs = Vec::new();
        let mut bit = 0;
        while bit < count {
            let Some(start) = (bit..count).find(|bit| is_free(*bit)) else { break };
            let end = (start..count).find(|bit| !is_free(*bit)).unwrap_or(count);
            let (first, last) = (number_of(start.into()), number_of(u64::from(end) - 1));
            runs.push(if first == last { self.number(first) } else { self.range(&(first..=last)) });
            bit = end;
        }
        runs.join(", ")
    }
}
