//! Adding and removing owners of blocks, compared with a set of (block, owner).

use operations::RunOperations;
use std::collections::BTreeSet;

use fastrand::Rng;
use vfs::{Error, Ino};

use super::harness::{fill_agfl, plant, volume};
use super::structure::check;
use crate::XfsCore;
use crate::alloc::{HeldAg, RmapOwner};
use crate::btree::records::{RefcountRecord, RefcountTree, RmapRecord, RmapTree, rmap_offset};
use crate::format::address::{AgBlock, AgNumber};
use crate::format::inode::Fork;

const BLOCKS: u32 = 1500;

/// One block of one owner, as a record of length one.
type Mapping = (u32, u64, u64);

fn mappings(start: u32, len: u32, owner: RmapOwner) -> Vec<Mapping> {
    let (number, offset) = match owner {
        RmapOwner::Fork { ino, fork, offset, unwritten } => {
            let fork = if fork == Fork::Attr { 1 << 63 } else { 0 };
            (ino.0, offset | fork | u64::from(unwritten) << 61)
        }
        RmapOwner::Bmbt { ino, fork } => (ino.0, 1 << 62 | u64::from(fork == Fork::Attr) << 63),
        RmapOwner::InodeTrees => (-6_i64 as u64, 0),
        RmapOwner::Inodes => (-7_i64 as u64, 0),
        RmapOwner::RefcountTree => (-8_i64 as u64, 0),
        RmapOwner::Ag => (-5_i64 as u64, 0),
        RmapOwner::Staged => (-9_i64 as u64, 0),
    };
    let counts = matches!(owner, RmapOwner::Fork { .. });
    let at = |n: u32| (start + n, number, if counts { offset + u64::from(n) } else { offset });
    (0..len).map(at).collect()
}

/// Returns the longest runs that make up a set, in the order of their keys.
fn runs(set: &BTreeSet<Mapping>) -> Vec<RmapRecord> {
    let next = |&(block, owner, offset): &Mapping| {
        let counts = owner >> 63 == 0 && offset & rmap_offset::BMBT_BLOCK == 0;
        (block + 1, owner, if counts { offset + 1 } else { offset })
    };
    let before = |&(block, owner, offset): &Mapping| {
        let counts = owner >> 63 == 0 && offset & rmap_offset::BMBT_BLOCK == 0;
        let offset = if counts { offset.wrapping_sub(1) } else { offset };
        (block.wrapping_sub(1), owner, offset)
    };
    let mut records: Vec<_> = set
        .iter()
        .filter(|first| !set.contains(&before(first)))
        .map(|first| {
            let len = std::iter::successors(Some(*first), |m| Some(next(m)))
                .take_while(|m| set.contains(m))
                .count();
            let (start, owner, offset) = *first;
            RmapRecord { start: AgBlock(start), len: len as u32, owner, offset }
        })
        .collect();
    records.sort_by_key(RmapRecord::key);
    records
}

fn random_owner(rng: &mut Rng, start: u32) -> RmapOwner {
    let ino = Ino(128 + rng.u64(..3));
    let fork = if rng.u8(..4) == 0 { Fork::Attr } else { Fork::Data };
    match rng.u8(..8) {
        0 => RmapOwner::Bmbt { ino, fork },
        1 => RmapOwner::Inodes,
        2 => RmapOwner::InodeTrees,
        3 => RmapOwner::Ag,
        // Offsets increase with the blocks, so runs are often contiguous.
        _ => RmapOwner::Fork { ino, fork, offset: 1000 + u64::from(start), unwritten: rng.bool() },
    }
}

fn on<R>(fs: &XfsCore, mut body: impl FnMut(&mut HeldAg<'_, '_>) -> operations::Outcome<R>) -> R {
    fs.atomically(|op| body(&mut op.ag(AgNumber(0))?)).unwrap()
}

fn compare(fs: &XfsCore, set: &BTreeSet<Mapping>) {
    on(fs, |ag| {
        let (records, _) = check(&mut ag.cursor::<RmapTree>());
        assert_eq!(records, runs(set));
        Ok(())
    });
}

/// Returns a mapped run and its owner.
fn random_mapped(rng: &mut Rng, set: &BTreeSet<Mapping>) -> Option<(u32, u32, RmapOwner)> {
    let records = runs(set);
    let record = records.get(rng.usize(..records.len().max(1)))?;
    let skip = if rng.bool() { 0 } else { rng.u32(..record.len) };
    let len = if rng.bool() { record.len - skip } else { rng.u32(1..=record.len - skip) };
    let fork = if record.offset >> 63 != 0 { Fork::Attr } else { Fork::Data };
    let owner = match record.owner {
        ino if record.offset & rmap_offset::BMBT_BLOCK != 0 => {
            RmapOwner::Bmbt { ino: Ino(ino), fork }
        }
        ino if ino >> 63 == 0 => RmapOwner::Fork {
            ino: Ino(ino),
            fork,
            offset: (record.offset & rmap_offset::MASK) + u64::from(skip),
            unwritten: record.offset & rmap_offset::UNWRITTEN != 0,
        },
        number if number == -6_i64 as u64 => RmapOwner::InodeTrees,
        number if number == -7_i64 as u64 => RmapOwner::Inodes,
        _ => RmapOwner::Ag,
    };
    Some((record.start.0 + skip, len, owner))
}

fn exercise(fs: &XfsCore, rng: &mut Rng, is_free: impl Fn(&BTreeSet<Mapping>, &[Mapping]) -> bool) {
    let mut set = BTreeSet::new();
    for round in 0..3000 {
        // Mostly adds at first, then mostly removes.
        let adds = if round < 1800 { rng.u8(..10) < 8 } else { rng.u8(..10) < 3 };
        if adds {
            let (start, len) = (rng.u32(..BLOCKS), rng.u32(1..9));
            let owner = random_owner(rng, start);
            let new = mappings(start, len, owner);
            if is_free(&set, &new) {
                on(fs, |ag| ag.rmap_add(AgBlock(start), len, owner));
                set.extend(new);
            }
        } else if let Some((start, len, owner)) = random_mapped(rng, &set) {
            let old = mappings(start, len, owner);
            old.iter().for_each(|m| assert!(set.remove(m)));
            if let (RmapOwner::Fork { ino, fork, offset, unwritten }, true) = (owner, rng.bool()) {
                on(fs, |ag| ag.rmap_convert(AgBlock(start), len, owner));
                let now = RmapOwner::Fork { ino, fork, offset, unwritten: !unwritten };
                set.extend(mappings(start, len, now));
            } else {
                on(fs, |ag| ag.rmap_remove(AgBlock(start), len, owner));
            }
        }
        if round % 250 == 0 {
            compare(fs, &set);
        }
    }
    compare(fs, &set);
    while let Some((start, len, owner)) = random_mapped(rng, &set) {
        on(fs, |ag| ag.rmap_remove(AgBlock(start), len, owner));
        mappings(start, len, owner).iter().for_each(|m| assert!(set.remove(m)));
    }
    compare(fs, &set);
}

#[test]
fn blocks_of_one_owner_each() {
    let fs = volume(10);
    plant::<RmapTree>(&fs);
    fill_agfl(&fs);
    exercise(&fs, &mut Rng::with_seed(20), |set, new| {
        new.iter().all(|(block, ..)| set.range((*block, 0, 0)..(block + 1, 0, 0)).next().is_none())
    });
}

#[test]
fn blocks_that_files_share() {
    let fs = volume(10);
    plant::<RmapTree>(&fs);
    fill_agfl(&fs);
    plant::<RefcountTree>(&fs);
    on(&fs, |ag| {
        let shared = RefcountRecord { start: AgBlock(0), cow: false, len: 1, count: 2 };
        ag.cursor::<RefcountTree>().insert(shared)
    });
    let can_share = |m: &Mapping| m.1 >> 63 == 0 && m.2 >> 62 == 0;
    // An inode may have a block only once, whether written or unwritten.
    let same = |a: &Mapping, b: &Mapping| a.1 == b.1;
    exercise(&fs, &mut Rng::with_seed(21), |set, new| {
        new.iter().all(|m| {
            let mut others = set.range((m.0, 0, 0)..(m.0 + 1, 0, 0));
            others.all(|other| can_share(other) && can_share(m) && !same(other, m))
        })
    });
}

#[test]
fn records_that_do_not_match_are_damage() {
    let fs = volume(10);
    plant::<RmapTree>(&fs);
    fill_agfl(&fs);
    let file = RmapOwner::Fork { ino: Ino(128), fork: Fork::Data, offset: 7, unwritten: false };
    on(&fs, |ag| ag.rmap_add(AgBlock(100), 10, file));
    let attempt = |body: &dyn Fn(&mut HeldAg<'_, '_>) -> operations::Outcome<()>| {
        let outcome = fs.atomically(|op| body(&mut op.ag(AgNumber(0))?));
        match outcome {
            Err(Error::Corrupt(damage)) => damage.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let text = attempt(&|ag| ag.rmap_add(AgBlock(105), 1, RmapOwner::Ag));
    assert!(text.contains("rmapbt") && text.contains("10 blocks from 100 of owner 0x80"), "{text}");
    attempt(&|ag| ag.rmap_add(AgBlock(95), 6, RmapOwner::Ag));
    attempt(&|ag| ag.rmap_remove(AgBlock(105), 6, file));
    attempt(&|ag| ag.rmap_remove(AgBlock(100), 1, RmapOwner::Inodes));
    let other = RmapOwner::Fork { ino: Ino(128), fork: Fork::Data, offset: 8, unwritten: false };
    attempt(&|ag| ag.rmap_remove(AgBlock(100), 1, other));
    compare(&fs, &mappings(100, 10, file).into_iter().collect());
}
