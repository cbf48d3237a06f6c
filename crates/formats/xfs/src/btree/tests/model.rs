//! Random changes, made to a tree and to a map in memory.

use operations::RunOperations;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

use fastrand::Rng;
use operations::Outcome;
use vfs::Error;

use super::harness::{Supplied, group, plant, plant_in_fork, supply, volume};
use super::structure::{check, check_counts};
use crate::XfsCore;
use crate::alloc::trees::GroupTree;
use crate::btree::records::{
    BmapTree, BnoTree, CntTree, FinoTree, FreeRun, InoTree, InodeChunk, RefcountRecord,
    RefcountTree, RmapRecord, RmapTree,
};
use crate::btree::{Cursor, Seek, Supply, Tree};
use crate::format::address::{AgBlock, AgIno, FileBlock, FsBlock};
use crate::format::extent::Extent;
use crate::format::inode::Fork;
use crate::inode::Handle;

type Model<T> = BTreeMap<<T as Tree>::Key, <T as Tree>::Record>;

/// Makes a record for a number; higher numbers have higher keys.
type Make<T> = fn(u32, &mut Rng) -> <T as Tree>::Record;

/// Order of insertions and removals.
#[derive(Clone, Copy, Debug)]
enum Pattern {
    Ascending,
    Descending,
    Random,
    /// Mostly removals.
    Thinning,
}

/// Numbers that records are made for.
const NUMBERS: u32 = 6000;

fn change<'a, T: Tree, S: Supply<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, S>,
    model: &mut Model<T>,
    make: Make<T>,
    pattern: Pattern,
    step: u32,
    rng: &mut Rng,
) -> Outcome<()> {
    let number = match pattern {
        Pattern::Ascending => step,
        Pattern::Descending => NUMBERS - 1 - step,
        Pattern::Random | Pattern::Thinning => rng.u32(..NUMBERS),
    };
    let record = make(number, rng);
    let key = T::key_of(&record);
    compare_seeks(cursor, model, key)?;
    match (cursor.seek(key, Seek::Exactly)?, pattern) {
        (Some(_), Pattern::Thinning) => {
            cursor.remove()?;
            model.remove(&key);
        }
        (Some(_), Pattern::Random) if rng.bool() && model.len() > 1 => {
            cursor.remove()?;
            model.remove(&key);
        }
        (Some(_), _) => {
            cursor.update(record)?;
            model.insert(key, record);
        }
        (None, Pattern::Thinning) => {
            if cursor.seek(key, Seek::AtLeast)?.is_some() && model.len() > 1 {
                let near = model.range(key..).next().map(|(k, _)| *k);
                cursor.remove()?;
                model.remove(&near.unwrap());
            }
        }
        (None, _) => {
            cursor.insert(record)?;
            model.insert(key, record);
            assert_eq!(
                cursor.next()?,
                model.range((Excluded(key), Unbounded)).next().map(|(_, r)| *r)
            );
        }
    }
    Ok(())
}

fn compare_seeks<'a, T: Tree, S: Supply<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, S>,
    model: &Model<T>,
    key: T::Key,
) -> Outcome<()> {
    let below = model.range((Unbounded, Included(key))).next_back().map(|(_, r)| *r);
    let above = model.range((Included(key), Unbounded)).next().map(|(_, r)| *r);
    assert_eq!(cursor.seek(key, Seek::AtMost)?, below);
    if let Some(below) = below {
        let after = model.range((Excluded(T::key_of(&below)), Unbounded)).next();
        assert_eq!(cursor.next()?, after.map(|(_, r)| *r));
    }
    assert_eq!(cursor.seek(key, Seek::AtLeast)?, above);
    if let Some(above) = above {
        let before = model.range((Unbounded, Excluded(T::key_of(&above)))).next_back();
        assert_eq!(cursor.previous()?, before.map(|(_, r)| *r));
    }
    Ok(())
}

const PATTERNS: [(Pattern, u32); 7] = [
    (Pattern::Ascending, NUMBERS),
    (Pattern::Thinning, NUMBERS - 200),
    (Pattern::Random, 9000),
    (Pattern::Thinning, 9000),
    (Pattern::Descending, NUMBERS),
    (Pattern::Random, 6000),
    (Pattern::Thinning, 12000),
];

fn compare_all<'a, T: Tree, S: Supply<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, S>,
    model: &Model<T>,
    pattern: Pattern,
) -> usize {
    let (records, blocks) = check(cursor);
    assert_eq!(records, model.values().copied().collect::<Vec<_>>(), "after {pattern:?}");
    assert_eq!(blocks, supply::taken(), "after {pattern:?}");
    if matches!(pattern, Pattern::Ascending | Pattern::Descending) {
        // Leaves of a tree that grows at one end are nearly full.
        let full = model.len().div_ceil(cursor.leaf.max);
        assert!(blocks.len() <= full + full / 8 + 8, "{} blocks for {full}", blocks.len());
    }
    blocks.len()
}

fn exercise_group<T: GroupTree>(block_log: u8, seed: u64, make: Make<T>) {
    let fs = volume(block_log);
    plant::<T>(&fs);
    let (mut rng, mut model) = (Rng::with_seed(seed), Model::<T>::new());
    for (pattern, steps) in PATTERNS {
        let mut step = 0;
        while step < steps {
            let batch = rng.u32(1..200).min(steps - step);
            fs.atomically(|op| {
                let mut group = group(op)?;
                let mut cursor = Cursor::<T, _>::new(&mut group);
                (step..step + batch)
                    .try_for_each(|s| change(&mut cursor, &mut model, make, pattern, s, &mut rng))
            })
            .unwrap();
            step += batch;
        }
        fs.atomically(|op| {
            let mut group = group(op)?;
            let blocks = compare_all::<T, _>(&mut Cursor::new(&mut group), &model, pattern);
            check_counts(group.0.guard, T::AG_TREE, blocks as u32);
            Ok(())
        })
        .unwrap();
    }
    failed_operation_leaves_no_trace::<T>(&fs, &model, make, &mut rng);
    empty::<T>(&fs, model);
}

fn failed_operation_leaves_no_trace<T: GroupTree>(
    fs: &XfsCore,
    model: &Model<T>,
    make: Make<T>,
    rng: &mut Rng,
) {
    let taken = supply::taken();
    let failed = fs.atomically(|op| {
        let mut group = group(op)?;
        let mut cursor = Cursor::<T, _>::new(&mut group);
        let mut copy = model.clone();
        for step in 0..2000 {
            change(&mut cursor, &mut copy, make, Pattern::Random, step, rng)?;
        }
        Err::<(), _>(Error::NoSpace.into())
    });
    assert!(matches!(failed, Err(Error::NoSpace)));
    supply::set(taken);
    fs.atomically(|op| {
        let mut group = group(op)?;
        compare_all::<T, _>(&mut Cursor::new(&mut group), model, Pattern::Random);
        Ok(())
    })
    .unwrap();
}

fn empty<T: GroupTree>(fs: &XfsCore, mut model: Model<T>) {
    fs.atomically(|op| {
        let mut group = group(op)?;
        let mut cursor = Cursor::<T, _>::new(&mut group);
        while let Some((key, record)) = model.pop_first() {
            assert_eq!(cursor.seek(key, Seek::AtLeast)?, Some(record));
            cursor.remove()?;
        }
        assert_eq!(compare_all(&mut cursor, &model, Pattern::Thinning), 1);
        assert_eq!(group.0.guard.root(T::AG_TREE).levels, 1);
        Ok(())
    })
    .unwrap();
}

fn free_run(number: u32, rng: &mut Rng) -> FreeRun {
    FreeRun { start: AgBlock(number * 4), len: rng.u32(1..4) }
}

fn chunk(number: u32, rng: &mut Rng) -> InodeChunk {
    let freecount = rng.u8(..65);
    InodeChunk {
        start: AgIno(number * 64),
        holemask: rng.u16(..),
        count: 64,
        freecount,
        free: rng.u64(..),
    }
}

#[test]
fn free_space_by_block() {
    exercise_group::<BnoTree>(10, 1, free_run);
}

#[test]
fn free_space_by_length() {
    exercise_group::<CntTree>(10, 2, |number, _| FreeRun {
        start: AgBlock(number.wrapping_mul(0x9e37_79b1) % 30_000),
        len: number / 5 + 1,
    });
}

#[test]
fn inode_chunks() {
    exercise_group::<InoTree>(10, 3, chunk);
    exercise_group::<FinoTree>(11, 4, chunk);
}

#[test]
fn reverse_map_with_records_that_overlap() {
    exercise_group::<RmapTree>(10, 5, |number, rng| RmapRecord {
        start: AgBlock(number / 3),
        len: if rng.u8(..8) == 0 { rng.u32(1..5000) } else { rng.u32(1..9) },
        owner: 128 + u64::from(number % 3),
        offset: 1000,
    });
}

#[test]
fn counts_of_references() {
    exercise_group::<RefcountTree>(10, 6, |number, rng| RefcountRecord {
        start: AgBlock(number % 3000),
        cow: number >= 3000,
        len: rng.u32(1..100),
        count: rng.u32(2..9),
    });
}

fn extent(number: u32, rng: &mut Rng) -> Extent {
    Extent {
        offset: FileBlock(u64::from(number) << 20),
        start: FsBlock(rng.u64(100..20000)),
        len: rng.u64(1..1000),
        unwritten: rng.bool(),
    }
}

fn exercise_fork(block_log: u8, fork_bytes: usize, seed: u64) {
    let fs = volume(block_log);
    let mut rng = Rng::with_seed(seed);
    let first = extent(0, &mut rng);
    let mut handle = plant_in_fork::<BmapTree>(&fs, fork_bytes, &first);
    let mut model = Model::<BmapTree>::from([(first.offset, first)]);
    for (pattern, steps) in PATTERNS {
        let mut at = handle.clone();
        fs.atomically(|op| {
            let mut map = Supplied(op.map(&mut at, Fork::Data));
            let mut cursor = Cursor::<BmapTree, _>::new(&mut map);
            (0..steps)
                .try_for_each(|s| change(&mut cursor, &mut model, extent, pattern, s, &mut rng))
        })
        .unwrap();
        handle = at;
        compare_fork(&fs, &mut handle, &model, pattern);
    }
}

fn compare_fork(fs: &XfsCore, handle: &mut Handle, model: &Model<BmapTree>, pattern: Pattern) {
    fs.atomically(|op| {
        let mut map = Supplied(op.map(handle, Fork::Data));
        let mut cursor = Cursor::<BmapTree, _>::new(&mut map);
        let blocks = compare_all(&mut cursor, model, pattern);
        assert_eq!(handle.inode.nblocks(), blocks as u64);
        Ok(())
    })
    .unwrap();
}

#[test]
fn maps_of_forks_of_many_sizes() {
    // Room for one entry, for three, and for as many as the largest fork holds.
    for (fork_bytes, seed) in [(24, 7), (56, 8), (328, 9)] {
        exercise_fork(10, fork_bytes, seed);
    }
    exercise_fork(12, 176, 10);
}
