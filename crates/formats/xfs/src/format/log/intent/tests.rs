//! Round trips of all kinds of intents, and damaged ones.

use engine::Corruption;
use proptest::prelude::*;
use vfs::Ino;

use super::*;
use crate::format::features::{Features, Features2, Incompat, LogIncompat, RoCompat, Version};
use crate::format::inode::Fork;

fn geometry() -> Geometry {
    let features = Features {
        version: 5,
        version_bits: Version::empty(),
        features2: Features2::empty(),
        compat: 0,
        ro_compat: RoCompat::all(),
        incompat: Incompat::all(),
        log_incompat: LogIncompat::all(),
    };
    Geometry {
        features,
        meta_uuid: [0; 16],
        block_log: 12,
        sector_log: 9,
        inode_log: 9,
        dir_block_log: 12,
        ag_block_log: 15,
        ag_blocks: 20000,
        ag_count: 4,
        blocks: 80000,
        inode_align: 8,
        sparse_align: 4,
        realtime: None,
    }
}

const RUN: ExtentRun = ExtentRun { start: FsBlock(1 << 15 | 100), len: 7 };

fn link(name: &str) -> ParentLink {
    ParentLink { dir: Ino(128), generation: 9, name: name.into() }
}

fn attribute_of(work: AttributeWork) -> Intent {
    Intent::attribute(8, &AttributeChange { ino: Ino(130), generation: 4, work })
}

fn exchange() -> Exchange {
    let file = |ino, offset| ExchangeFile {
        ino: Ino(ino),
        generation: 3,
        offset: FileBlock(offset),
        size: 5000,
        clear_reflink: ino == 130,
    };
    Exchange {
        files: [file(130, 7), file(131, 9)],
        blocks: 12,
        fork: Fork::Data,
        set_sizes: true,
        written_only: true,
    }
}

fn samples() -> Vec<(Intent, Work)> {
    let rmap = RmapKind::ALL.map(|kind| RmapChange {
        kind,
        run: RUN,
        owner: if kind == RmapKind::Free { u64::MAX - 8 } else { 130 },
        offset: FileBlock(44),
        fork: if kind == RmapKind::Map { Fork::Attr } else { Fork::Data },
        is_bmbt: false,
        unwritten: kind == RmapKind::Convert,
    });
    let counts = RefcountKind::ALL.map(|kind| RefcountChange { kind, run: RUN });
    let bmap = |kind| BmapChange {
        kind,
        ino: Ino(130),
        fork: Fork::Attr,
        offset: FileBlock(1),
        run: RUN,
        unwritten: true,
        is_realtime: false,
    };
    let works = [
        AttributeWork::Set { namespace: 2, name: b"name".into(), value: b"value".into() },
        AttributeWork::Set { namespace: 0, name: b"n".into(), value: Vec::new() },
        AttributeWork::Remove { namespace: 4, name: vec![b'x'; 255] },
        AttributeWork::ParentSet(link("one")),
        AttributeWork::ParentRemove(link("three")),
        AttributeWork::ParentReplace { old: link("old"), new: link("another") },
    ];
    let mut all = vec![
        (Intent::free(1, &[RUN, RUN]), Work::Free(vec![RUN, RUN])),
        (Intent::rmap(2, &rmap), Work::Rmap(rmap.to_vec())),
        (Intent::refcount(3, &counts), Work::Refcount(counts.to_vec())),
        (Intent::exchange(4, &exchange()), Work::Exchange(exchange())),
    ];
    all.extend(BmapKind::ALL.map(|kind| (Intent::bmap(5, &bmap(kind)), Work::Bmap(bmap(kind)))));
    all.extend(works.map(|work| {
        let change = AttributeChange { ino: Ino(130), generation: 4, work: work.clone() };
        (attribute_of(work), Work::Attribute(change))
    }));
    all
}

fn parsed(intent: &Intent) -> Result<Intent, Corruption> {
    let regions: Vec<&[u8]> = intent.regions.iter().map(Vec::as_slice).collect();
    Intent::parse(intent.item, &regions)
}

#[test]
fn intents_come_back() {
    for (intent, work) in samples() {
        assert_eq!(parsed(&intent).unwrap(), intent);
        assert_eq!(intent.work(&geometry()).unwrap(), work);
    }
}

#[test]
fn done_items_name_their_intent() {
    for (intent, work) in samples() {
        let done = intent.done();
        assert_eq!(done[..2], (intent.item as u16 + 1).to_le_bytes());
        assert_eq!(done[2..4], 1_u16.to_le_bytes());
        assert_eq!(done[8..16], intent.id.to_le_bytes());
        match work {
            Work::Free(_) => assert_eq!(done[4..], intent.regions[0][4..]),
            _ => assert_eq!(done.len(), 16),
        }
    }
}

#[test]
fn frees_of_32_bit_machines_are_read() {
    let mut region = Intent::free(6, &[RUN]).regions.remove(0);
    region.truncate(28);
    let intent = Intent { id: 6, item: ItemType::Efi, regions: vec![region] };
    assert_eq!(intent.work(&geometry()).unwrap(), Work::Free(vec![RUN]));
    assert_eq!(intent.done().len(), 28);
}

/// Returns an intent with byte `at` of a region changed.
fn with(intent: &Intent, region: usize, at: usize, byte: u8) -> Intent {
    let mut changed = intent.clone();
    changed.regions[region][at] = byte;
    changed
}

#[test]
fn wrong_intents_are_detected() {
    let all = samples();
    let of = |item: ItemType| &all.iter().find(|(intent, _)| intent.item == item).unwrap().0;
    let (efi, rui, cui, bui) =
        (of(ItemType::Efi), of(ItemType::Rui), of(ItemType::Cui), of(ItemType::Bui));
    let (attri, xmi) = (of(ItemType::Attri), of(ItemType::Xmi));
    let replace = &all.last().unwrap().0;
    let wrong = [
        // Counts.
        with(efi, 0, 4, 3),
        with(efi, 0, 7, 0xff),
        with(rui, 0, 4, 7),
        with(bui, 0, 4, 2),
        // First blocks and lengths.
        with(efi, 0, 16 + 7, 1),
        with(efi, 0, 16 + 2, 9),
        with(cui, 0, 16 + 8, 0),
        with(cui, 0, 16 + 11, 0x80),
        with(rui, 0, 16 + 24, 0),
        // Operations and flags.
        with(rui, 0, 16 + 28, 9),
        with(rui, 0, 16 + 28, 0),
        with(rui, 0, 16 + 29, 1),
        with(cui, 0, 16 + 12, 5),
        with(cui, 0, 16 + 15, 1),
        with(bui, 0, 16 + 28, 3),
        with(bui, 0, 16 + 31, 0x20),
        with(attri, 0, 24, 7),
        with(attri, 0, 25, 1),
        with(attri, 0, 36, 6),
        with(attri, 0, 37, 1),
        with(xmi, 0, 64, 0xff),
        // Inodes and logical blocks.
        with(rui, 0, 16 + 6, 1),
        with(rui, 0, 16 + 16 + 7, 1),
        with(bui, 0, 16 + 7, 0xff),
        with(bui, 0, 16 + 16 + 6, 0x40),
        with(attri, 0, 22, 1),
        with(xmi, 0, 16, 131),
        with(xmi, 0, 22, 1),
        with(xmi, 0, 46, 0x40),
        with(xmi, 0, 79, 0x80),
        // Names and values.
        with(attri, 0, 2, 4),
        with(attri, 0, 28, 5),
        with(attri, 0, 30, 1),
        with(attri, 0, 34, 1),
        with(attri, 1, 0, 0),
        with(replace, 0, 28, 0),
        with(replace, 0, 30, 9),
        with(replace, 0, 32, 13),
        with(replace, 1, 0, b'/'),
        with(replace, 3, 1, 9),
    ];
    for (index, intent) in wrong.iter().enumerate() {
        let outcome = intent.check(&geometry());
        assert!(outcome.is_err(), "number {index}: {intent:?}");
    }
    // With no features, the following intents are invalid.
    let mut none = geometry();
    none.features.ro_compat = RoCompat::empty();
    none.features.incompat = Incompat::empty();
    none.features.log_incompat = LogIncompat::empty();
    for intent in [rui, cui, attri, replace, xmi] {
        assert!(intent.check(&none).is_err(), "{intent:?}");
    }
    for intent in [efi, bui] {
        assert!(intent.check(&none).is_ok(), "{intent:?}");
    }
}

#[test]
fn truncated_intents_are_damage() {
    for (intent, _) in samples() {
        for region in 0..intent.regions.len() {
            for len in 0..intent.regions[region].len() {
                let mut short = intent.clone();
                short.regions[region].truncate(len);
                let outcome = parsed(&short).and_then(|short| short.check(&geometry()));
                assert!(outcome.is_err(), "{len} bytes of {intent:?}");
            }
            let mut long = intent.clone();
            long.regions[region].extend([0; 4]);
            assert!(long.check(&geometry()).is_err());
        }
        let mut more = intent.clone();
        more.regions.push(vec![0; 4]);
        assert!(more.check(&geometry()).is_err());
        more.regions.clear();
        assert!(parsed(&more).is_err() && more.check(&geometry()).is_err());
        assert!(parsed(&Intent { item: ItemType::Buf, ..intent }).is_err());
    }
}

proptest! {
    #[test]
    fn garbage_is_no_panic(which in 0_usize..12, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut intent = samples().swap_remove(which).0;
        for (region, at, byte) in changes {
            let count = intent.regions.len();
            let region = &mut intent.regions[region.index(count)];
            let len = region.len();
            region[at.index(len)] = byte;
        }
        if let Ok(intent) = parsed(&intent) {
            let _ = intent.work(&geometry());
            intent.done();
        }
    }
}
