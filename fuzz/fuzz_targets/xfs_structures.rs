//! Parses single structures of XFS: names and types of metadata files, the realtime section, its superblock and blocks
//! of its bitmap and summary, and quota records. Errors are fine; panics and wrong values are bugs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vfs::Ino;
use xfs::format::address::{Block, FsBlock};
use xfs::format::checksum;
use xfs::format::geometry::Geometry;
use xfs::format::log::dquot::{CRC_OFFSET, DQUOT_BLOCK_SIZE};
use xfs::format::metafile::MetafileType;
use xfs::format::quota::{self, QuotaKind, Resource};
use xfs::format::realtime::space::{SpaceFile, SpaceLayout};
use xfs::format::realtime::{RawRealtimeSuperblock, Realtime};
use xfs::format::superblock::{self, Superblock};

/// Size of a block in bytes.
const BLOCK_BYTES: usize = 4096;

fn block_of(bytes: &[u8]) -> Vec<u8> {
    let mut block = bytes.to_vec();
    block.resize(BLOCK_BYTES, 0);
    block
}

fn metafile(bytes: &[u8]) {
    if let Some(found) = MetafileType::of_path(bytes) {
        assert!(
            !found.is_quota() || bytes.starts_with(b"quota/"),
            "quota files have one directory"
        );
    }
    if let [high, low, ..] = bytes {
        let _ = MetafileType::from_number(u16::from_be_bytes([*high, *low]));
    }
}

/// Damages a superblock with the bytes, and looks at its realtime section.
fn section(bytes: &[u8]) {
    let mut sector = superblock_of_metadir();
    for patch in bytes.chunks_exact(3).take(16) {
        let at = usize::from(u16::from_be_bytes([patch[0], patch[1]])) % 512;
        sector[at] = patch[2];
    }
    checksum::seal(&mut sector[..512], superblock::CRC_OFFSET);
    let Ok(sb) = Superblock::parse(&sector, u64::MAX) else { return };
    let geometry = Geometry::new(&sb);
    let Ok(Some(realtime)) = Realtime::of(&sb) else { return };
    let space = realtime.space(0);
    assert!(space.extents() > 0 && space.bitmap_blocks() > 0, "a section is not empty");
    for start in [0, 1, sb.raw.rblocks.get() / 2, u64::MAX >> 9] {
        for len in [1, 7, u64::from(realtime.extent_blocks())] {
            if let Some(extents) = realtime.extents_of(FsBlock(start), len) {
                assert!(extents.end <= realtime.extents(), "extents are within the section");
            }
        }
    }
    let _ = geometry.realtime;
}

fn superblock_of_metadir() -> Vec<u8> {
    use diskwright_fuzz::xfs::common::image::golden;
    use std::sync::LazyLock;
    static SECTOR: LazyLock<Vec<u8>> = LazyLock::new(|| golden("metadir-quota")[..4096].to_vec());
    SECTOR.clone()
}

fn space(has_headers: bool, log: u8, bytes: &[u8]) {
    let mut block = block_of(bytes);
    let layout = SpaceLayout::new(12, 1 << (log % 40), has_headers);
    checksum::seal(&mut block, 4);
    let sector = superblock_of_metadir();
    let Ok(sb) = Superblock::parse(&sector, u64::MAX) else { return };
    let geometry = Geometry::new(&sb);
    for file in [SpaceFile::Bitmap, SpaceFile::Summary] {
        let _ = layout.verify(&geometry, (file, Ino(131)), Block(9), &block);
        assert!(layout.blocks_of(file) > 0);
    }
    let words = layout.words_per_block() as usize;
    let _ = (0..words).map(|nth| layout.word(&block, nth)).fold(0, u32::wrapping_add);
    for (start, len) in [(0, 1), (layout.extents() - 1, 1), (0, layout.extents())] {
        let per_block = layout.words_per_block();
        let counters = layout.summary_blocks() * per_block;
        assert!(layout.counter_of(start, len) < counters, "each run has a counter");
    }
    let _ = RawRealtimeSuperblock::parse(&block);
}

fn quotas(first: u8, bytes: &[u8]) {
    let mut block = block_of(bytes);
    for record in block.chunks_exact_mut(DQUOT_BLOCK_SIZE) {
        checksum::seal(record, CRC_OFFSET);
    }
    let _ = quota::verify(first.into(), &block);
    let record = &mut block[..DQUOT_BLOCK_SIZE];
    for resource in Resource::ALL {
        let before = quota::read(record, resource);
        quota::write(record, resource, &before);
        let after = quota::read(record, resource);
        assert_eq!((before.count, before.hard, before.soft), (after.count, after.hard, after.soft));
        let _ = after.is_over();
    }
    let _ = QuotaKind::ALL.map(|kind| quota::is_record(kind, first.into(), record));
}

// The first byte chooses the structure, the second one a size or a number.
fuzz_target!(|input: &[u8]| {
    let [kind, number, bytes @ ..] = input else { return };
    match kind % 5 {
        0 => metafile(bytes),
        1 => section(bytes),
        2 => space(true, *number, bytes),
        3 => space(false, *number, bytes),
        _ => quotas(*number, bytes),
    }
});
