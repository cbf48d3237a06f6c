//! Data blocks, leaves and the free-space index in memory, compared with models; and damage.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use vfs::{FileType, Ino};

use super::data::{self, NewEntry};
use super::leaf::{self, LeafEntry};
use super::{DirLayout, free, magic, short};
use crate::format::bytes::put32;

const LAYOUTS: [DirLayout; 3] = [
    DirLayout { crc: true, ftype: true, folds_case: false, size_log: 10, block_log: 10 },
    DirLayout { crc: true, ftype: true, folds_case: false, size_log: 12, block_log: 10 },
    DirLayout { crc: false, ftype: false, folds_case: true, size_log: 16, block_log: 12 },
];

fn block(layout: &DirLayout, magic: [u32; 2]) -> Vec<u8> {
    let mut block = vec![0; layout.size()];
    put32(&mut block, 0, magic[layout.version()]);
    block
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Adds and removes entries; the block stays valid and contains them.
    #[test]
    fn data_blocks_hold_what_is_in_them(
        which in 0..3_usize,
        steps in prop::collection::vec((any::<bool>(), 1..256_usize, any::<u16>()), 1..300),
    ) {
        let layout = LAYOUTS[which];
        let mut block = block(&layout, magic::DATA);
        data::clear(&layout, &mut block);
        let mut model = BTreeMap::new();
        for (number, (is_new, len, pick)) in steps.into_iter().enumerate() {
            if is_new {
                let mut name = vec![b'n'; len];
                name[0] = b'a' + (number % 20) as u8;
                let ino = Ino(number as u64 + 100);
                let entry = NewEntry { name: &name, ino, file_type: FileType::Fifo };
                let best = data::best_len(&layout, &block);
                let offset = data::insert(&layout, &mut block, &entry);
                prop_assert_eq!(offset.is_some(), best >= layout.entry_size(len));
                if let Some(offset) = offset {
                    prop_assert!(model.insert(offset, (name, ino)).is_none());
                }
            } else if let Some((&offset, (name, _))) = model.iter().nth(pick as usize % 40) {
                let range = data::Free { offset, len: layout.entry_size(name.len()) };
                data::release(&layout, &mut block, range, layout.size());
                model.remove(&offset);
            }
            let listed: BTreeMap<_, _> = data::entries(&layout, &block)
                .map(|e| (e.offset, (e.name.to_vec(), e.ino)))
                .collect();
            prop_assert_eq!(&listed, &model);
            prop_assert_eq!(data::verify_structure(&layout, &block), Ok(model.len()));
            prop_assert_eq!(data::best_len(&layout, &block) == layout.data_room(), model.is_empty());
        }
    }

    /// Adds and removes hashes in a leaf; they stay sorted.
    #[test]
    fn leaves_stay_in_order(
        steps in prop::collection::vec((any::<bool>(), 0..40_u32, any::<u16>()), 1..250),
    ) {
        let layout = LAYOUTS[0];
        let mut block = vec![0; layout.size()];
        leaf::set_kind(&layout, &mut block, leaf::LeafKind::Many);
        let mut model = BTreeSet::new();
        for (number, (is_new, hash, pick)) in (1..).zip(steps) {
            let (count, stale) = (leaf::table(&layout, &block).count, leaf::stale(&layout, &block));
            let table = leaf::table(&layout, &block);
            if is_new && (stale > 0 || count < layout.leaf_capacity()) {
                let index = table.lower_bound(&block, hash);
                let entry = LeafEntry { hash, address: number };
                if leaf::insert_over_stale(&mut block, &table, index, entry) {
                    leaf::set_counts(&layout, &mut block, count, stale - 1);
                } else {
                    prop_assert_eq!(stale, 0);
                    leaf::insert_at(&mut block, &table, index, entry);
                    leaf::set_counts(&layout, &mut block, count + 1, 0);
                }
                model.insert((hash, number));
            } else if is_new {
                leaf::compact(&layout, &mut block);
            } else if let Some(&(hash, address)) = model.iter().nth(pick as usize % 120) {
                let at = table.equal(&block, hash).find(|(_, e)| e.address == address);
                leaf::set_stale(&mut block, &table, at.unwrap().0);
                leaf::set_counts(&layout, &mut block, count, stale + 1);
                model.remove(&(hash, address));
            }
            let table = leaf::table(&layout, &block);
            let live: BTreeSet<_> = leaf::live(&block, &table).map(|e| (e.hash, e.address)).collect();
            prop_assert_eq!(&live, &model);
            prop_assert!(leaf::verify(&layout, &block).is_ok());
        }
    }

    /// No bytes make a verifier, or code that follows it, panic.
    #[test]
    fn damage_is_found_or_harmless(
        which in 0..3_usize,
        names in prop::collection::vec(1..60_usize, 0..30),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let layout = LAYOUTS[which];
        let mut data_block = block(&layout, magic::DATA);
        data::clear(&layout, &mut data_block);
        for (i, len) in names.iter().enumerate() {
            let entry =
                NewEntry { name: &vec![b'x'; *len], ino: Ino(i as u64 + 9), file_type: FileType::Socket };
            data::insert(&layout, &mut data_block, &entry);
        }
        for (at, value) in &damage {
            let at = at.index(600);
            data_block[at] = *value;
        }
        if data::verify_structure(&layout, &data_block).is_ok() {
            data::entries(&layout, &data_block).for_each(drop);
            let entry = NewEntry { name: b"after", ino: Ino(1), file_type: FileType::Socket };
            if data::insert(&layout, &mut data_block, &entry).is_some() {
                prop_assert!(data::verify_structure(&layout, &data_block).is_ok());
            }
        }
        let mut leaf_block = vec![0; layout.size()];
        leaf::set_kind(&layout, &mut leaf_block, leaf::LeafKind::Single);
        for (at, value) in &damage {
            leaf_block[at.index(100) + 4 * usize::from(layout.crc)] ^= value;
        }
        if leaf::verify(&layout, &leaf_block).is_ok() {
            let table = leaf::table(&layout, &leaf_block);
            table.equal(&leaf_block, 0).for_each(drop);
        }
        for (at, value) in &damage {
            data_block[at.index(layout.size())] = *value;
        }
        put32(&mut data_block, 0, magic::FREE[layout.version()]);
        if free::verify(&layout, layout.free_first().0 as u32, &data_block).is_ok() {
            free::slots(&layout, &data_block).iter().for_each(|slot| _ = slot.len());
        }
    }
}

#[test]
fn the_free_index_follows_its_blocks() {
    let layout = LAYOUTS[0];
    let at = layout.free_first().0 as u32;
    let mut block = block(&layout, magic::FREE);
    free::enter(&layout, &mut block, 0, 100);
    free::enter(&layout, &mut block, 3, 200);
    assert_eq!(free::header(&layout, &block), free::FreeHeader { first: 0, valid: 4, used: 2 });
    assert!(free::verify(&layout, at, &block).is_ok());
    assert!(free::verify(&layout, at + 1, &block).is_err());
    assert!(!free::remove(&layout, &mut block, 3));
    assert_eq!(free::header(&layout, &block).valid, 1);
    assert!(free::remove(&layout, &mut block, 0));
    assert_eq!(block[60..64], [0; 4], "the pad stays zero");
}

#[test]
fn shortform_takes_wide_numbers_when_one_needs_them() {
    let layout = LAYOUTS[0];
    let entry = |offset, name: &'static [u8], ino| short::ShortEntry {
        offset,
        name,
        ino: Ino(ino),
        code: 1,
    };
    let narrow = [entry(96, b"a", 5), entry(112, b"bc", u64::from(u32::MAX))];
    let bytes = short::build(&layout, Ino(7), narrow.into_iter());
    assert_eq!((bytes.len(), &bytes[..2]), (6 + 9 + 10, &[2, 0][..]));
    let sizes = |ino| short::size(&layout, Ino(ino), narrow.iter().map(|e| (e.name, e.ino)));
    assert_eq!((sizes(7), sizes(1 << 32)), (bytes.len(), bytes.len() + 12));
    let wide = short::build(&layout, Ino(1 << 32), narrow.into_iter());
    assert_eq!((wide.len(), wide[1]), (bytes.len() + 12, 1));
}
