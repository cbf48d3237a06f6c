//! Damaged images: the readable parts are reported, the others are unknown. No panics or endless loops.

use std::ops::ControlFlow;

use diskwright::disk_map::{Curve, Options, Survey};
use vfs::survey::BlockUse;

use crate::disk_map::common::{GOLDEN, Ledger, open, open_bytes, survey, unpack};

fn golden(wanted: &str) -> Vec<u8> {
    let (_, packed) = GOLDEN.into_iter().flatten().find(|(name, _)| *name == wanted).expect(wanted);
    unpack(packed)
}

/// Pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end.max(1)
    }
}

/// Surveys a damaged image in all ways.
fn look(name: &str, bytes: &[u8], norecovery: bool) -> Option<Survey> {
    let device = std::sync::Arc::new(disk::MemoryDevice::from_bytes(bytes));
    let fs = open(device, norecovery).ok()?;
    let Ok(shape) = fs.shape() else { return None };
    if shape.blocks > 1 << 24 {
        return None;
    }
    Ledger::of_damaged(name, &*fs);
    let survey = survey(&*fs, 64);
    let totals = survey.cells.totals();
    assert_eq!(totals.iter().sum::<u64>(), shape.blocks, "{name}");
    for curve in [Curve::Rows, Curve::Hilbert] {
        let options = Options { title: name.into(), format: "x".into(), curve };
        assert!(diskwright::disk_map::svg(&survey, &options).ends_with("</svg>\n"));
    }
    Some(survey)
}

#[test]
fn no_damage_makes_it_panic() {
    let rounds = testkit::effort(6, 20, 400);
    let mut random = Random(7);
    let mut seen = 0;
    for (name, packed) in GOLDEN.into_iter().flatten() {
        let image = unpack(packed);
        for round in 0..rounds {
            let mut bytes = image.clone();
            // Metadata is more often at the start than elsewhere.
            for _ in 0..1 + random.below(30) {
                let within = [4 << 10, 64 << 10, 1 << 20, u64::MAX][random.below(4) as usize];
                let at = random.below(within.min(bytes.len() as u64)) as usize;
                bytes[at] = random.below(256) as u8;
            }
            seen += usize::from(look(name, &bytes, round % 2 == 1).is_some());
        }
    }
    assert!(seen > rounds, "{seen} could be opened");
}

/// Returns the byte range of a block of some kind of an image.
fn block_of(image: &[u8], kind: BlockUse) -> std::ops::Range<usize> {
    let fs = open_bytes(image).expect("a sound image");
    let ledger = Ledger::of("image", &*fs);
    let at = ledger.kinds.iter().position(|found| *found == Some(kind)).expect("such a block");
    let size = fs.shape().expect("a shape").block_size as usize;
    at * size..(at + 1) * size
}

#[test]
fn unreadable_parts_are_unknown() {
    for name in ["ext4/ext4", "ext4/deep-index", "xfs/default", "xfs/small-blocks"] {
        let image = golden(name);
        let whole = look(name, &image, false).expect("a sound image");
        assert!(whole.is_sound());
        // The first inodes: the use of their blocks is unknown.
        let mut bytes = image.clone();
        bytes[block_of(&image, BlockUse::Inodes)].fill(0xa5);
        let survey = look(name, &bytes, true).expect("an image that can be opened");
        assert!(survey.unknown > 0 && !survey.remarks.is_empty(), "{name}");
        assert_eq!(survey.total(BlockUse::Unknown), survey.unknown);
        assert!(!survey.is_sound(), "{name}");
        for kind in [BlockUse::Headers, BlockUse::Allocation, BlockUse::Inodes, BlockUse::Free] {
            assert_eq!(survey.total(kind), whole.total(kind), "{name}: {kind:?}");
        }
    }
}

#[test]
fn damaged_map_blocks_are_reported() {
    let image = golden("ext4/ext3");
    let mut bytes = image.clone();
    let pointers = block_of(&image, BlockUse::Maps);
    bytes[pointers].fill(0xff);
    let survey = look("ext3", &bytes, true).expect("an image that can be opened");
    assert!(survey.unknown > 0);
    assert!(survey.remarks.iter().any(|remark| remark.contains("inode")), "{:?}", survey.remarks);
}

#[test]
fn a_bitmap_with_all_blocks_free_contradicts_blocks_in_use() {
    let image = golden("ext4/ext2-rev0");
    let mut bytes = image.clone();
    let bitmap = block_of(&image, BlockUse::Allocation);
    bytes[bitmap.start..bitmap.start + 64].fill(0);
    let survey = look("ext2", &bytes, true).expect("an image that can be opened");
    assert!(survey.twice > 0 && !survey.is_sound());
    assert!(survey.remarks.iter().any(|remark| remark.contains("more than once")));
}

#[test]
fn callers_can_cancel_a_survey() {
    for name in ["ext4/groups", "xfs/default"] {
        let fs = open_bytes(&golden(name)).expect("a sound image");
        let mut calls = 0;
        let mut stop = |done, total| {
            calls += 1;
            assert!(done <= total);
            ControlFlow::Break(())
        };
        let survey = Survey::take(&*fs, 100, &mut stop).expect("a survey");
        assert_eq!(calls, 1, "{name}");
        assert!(!survey.is_complete && !survey.is_sound());
        assert_eq!(survey.cells.totals().iter().sum::<u64>(), survey.shape.blocks);
    }
}
