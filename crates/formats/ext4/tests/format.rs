//! The format layer on images made by mke2fs, and on damaged superblocks.

use std::hint::black_box;
use std::path::Path;

use disk::{BlockDevice, FileDevice, MemoryDevice};
use ext4::format::address::Block;
use ext4::format::geometry::Geometry;
use ext4::format::group::{GroupDescriptor, GroupFlags};
use ext4::format::jbd2::RawJournalSuperblock;
use ext4::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use ext4::mkfs::{self, FeatureChange, Options, PreviousContents};
use proptest::prelude::*;
use testkit::{Mke2fs, require, scratch};
use vfs::Ino;

const MIB: u64 = 1 << 20;

fn read_superblock(device: &dyn BlockDevice) -> vfs::Result<Superblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
    Superblock::parse(&bytes, device.len())
}

/// Parses all structures that a mount reads first. Each has its own checksum.
fn check_image(image: &Path) {
    let device = FileDevice::new(std::fs::File::open(image).unwrap()).unwrap();
    let sb = read_superblock(&device).unwrap();
    assert_eq!(sb.read_only_because(), None);
    let geometry = Geometry::new(&sb);
    let mut block = vec![0; geometry.block_size() as usize];
    let mut free_blocks = 0;
    for group in geometry.groups() {
        let (table, offset) = geometry.descriptor_position(group);
        device.read_at(geometry.byte_of(table), &mut block).unwrap();
        let bytes = &block[offset..offset + usize::from(geometry.desc_size)];
        let descriptor = GroupDescriptor::parse(bytes, &sb, group).unwrap();
        let mut again = bytes.to_vec();
        descriptor.write(&mut again, &sb, group);
        assert_eq!(again, bytes);
        free_blocks += u64::from(descriptor.free_blocks);
        if !descriptor.flags.contains(GroupFlags::BLOCK_UNINIT) {
            device.read_at(geometry.byte_of(descriptor.block_bitmap), &mut block).unwrap();
            descriptor.check_block_bitmap(&block, &sb, group).unwrap();
        }
        if !descriptor.flags.contains(GroupFlags::INODE_UNINIT) {
            device.read_at(geometry.byte_of(descriptor.inode_bitmap), &mut block).unwrap();
            descriptor.check_inode_bitmap(&block, &sb, group).unwrap();
        }
        let (part, copy) = geometry.gdt_copy_in(group);
        if let Some(index) = part.clone().next() {
            let mut copied = vec![0; block.len()];
            device.read_at(geometry.byte_of(copy), &mut copied).unwrap();
            device.read_at(geometry.byte_of(geometry.gdt_block(index)), &mut block).unwrap();
            assert_eq!(copied, block, "group {group}");
        }
    }
    assert_eq!(free_blocks, sb.raw.free_blocks());
}

#[test]
fn images_of_mke2fs_parse() {
    require!(Tool("mke2fs"));
    let dir = scratch();
    let image = dir.path().join("image");
    let cases: [(&str, u32, &str); 10] = [
        ("ext2", 1024, "filetype"),
        ("ext2", 4096, "none"),
        ("ext3", 1024, "has_journal"),
        ("ext4", 1024, "metadata_csum"),
        ("ext4", 4096, "metadata_csum,64bit"),
        ("ext4", 1024, "metadata_csum,^64bit"),
        ("ext4", 1024, "^metadata_csum,uninit_bg,64bit"),
        ("ext4", 1024, "^metadata_csum,uninit_bg,^64bit"),
        ("ext4", 1024, "meta_bg,^resize_inode"),
        ("ext4", 2048, "sparse_super2,^resize_inode"),
    ];
    for (fs_type, block_size, features) in cases {
        eprintln!("{fs_type} {block_size} {features}");
        Mke2fs::new(fs_type).block_size(block_size).features(features).create(&image, 500 * MIB);
        check_image(&image);
    }
    Mke2fs::new("ext2").arguments(["-r", "0"]).create(&image, 20 * MIB);
    check_image(&image);
}

#[test]
fn the_journal_of_mke2fs_parses() {
    require!(Tool("mke2fs"), Tool("debugfs"));
    let dir = scratch();
    let image = dir.path().join("image");
    Mke2fs::new("ext3").block_size(1024).create(&image, 64 * MIB);
    let text = testkit::debugfs(&image, "bmap <8> 0");
    let first = Block(text.lines().next().unwrap().trim().parse().unwrap());
    let device = FileDevice::new(std::fs::File::open(&image).unwrap()).unwrap();
    let mut block = [0; 1024];
    device.read_at(first.0 * 1024, &mut block).unwrap();
    let journal = RawJournalSuperblock::parse(&block).unwrap();
    assert_eq!((journal.blocksize.get(), journal.is_dirty()), (1024, false));
}

/// Returns the superblock of a small file system without checksums, so that damage is not rejected at once.
fn sample() -> ([u8; SUPERBLOCK_SIZE], u64) {
    let features = FeatureChange::parse_list("-metadata_csum").unwrap();
    let layout = mkfs::plan(&Options { features, ..Options::new(300 * MIB) }).unwrap();
    let device = MemoryDevice::new(300 * MIB);
    mkfs::format(&device, &layout, PreviousContents::Zeros).unwrap();
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
    (bytes, device.len())
}

/// Calls all methods of a geometry with limit values.
fn exercise(sb: &Superblock) {
    let geometry = Geometry::new(sb);
    assert!(u64::from(geometry.groups_count) <= sb.blocks_count);
    let mut blocks = u64::from(geometry.first_data_block);
    for group in geometry.groups() {
        blocks += u64::from(geometry.blocks_in(group));
        let base = geometry.base_metadata(group);
        assert!(base.start <= base.end);
        let (_, offset) = geometry.descriptor_position(group);
        assert!(offset + usize::from(geometry.desc_size) <= geometry.block_size() as usize);
        black_box(geometry.gdt_copy_in(group));
    }
    assert_eq!(blocks, sb.blocks_count);
    for ino in [0, 1, u64::from(sb.inodes_count), u64::from(sb.inodes_count) + 1, u64::MAX] {
        if let Some((group, index)) = geometry.place_of(Ino(ino)) {
            assert_eq!(geometry.ino_of(group, index), Ino(ino));
            black_box(geometry.inode_position(Block(u64::MAX), index));
        }
    }
    for block in [0, 1, sb.blocks_count, u64::MAX] {
        black_box(geometry.group_of(Block(block)));
        assert!(geometry.bit_of(Block(block)) < geometry.clusters_per_group());
        black_box(geometry.contains(Block(block), block));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testkit::effort(500, 2_000, 200_000), ..ProptestConfig::default() })]

    #[test]
    fn damaged_superblocks_are_refused_or_sound(
        damage in prop::collection::vec(
            (0_usize..0x180, prop_oneof![Just(0), Just(0xff), any::<u8>()]),
            1..6,
        ),
    ) {
        let (mut bytes, len) = sample();
        for (at, value) in damage {
            bytes[at] = value;
        }
        if let Ok(sb) = Superblock::parse(&bytes, len) {
            exercise(&sb);
            let mut damaged = vec![0xee; usize::from(sb.desc_size)];
            let group = ext4::format::address::Group(0);
            prop_assert!(GroupDescriptor::parse(&damaged, &sb, group).is_err());
            GroupDescriptor::default().write(&mut damaged, &sb, group);
        }
    }
}

#[test]
fn every_bit_flip_under_a_checksum_is_seen() {
    let layout = mkfs::plan(&Options::new(16 * MIB)).unwrap();
    let device = MemoryDevice::new(16 * MIB);
    mkfs::format(&device, &layout, PreviousContents::Zeros).unwrap();
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
    for bit in (0..SUPERBLOCK_SIZE * 8).step_by(7) {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(Superblock::parse(&flipped, device.len()).is_err(), "bit {bit}");
    }
    assert!(Superblock::parse(&bytes, device.len() - 1).is_err());
}
