//! Random allocations, compared with a model and the trees, and checked by `xfs_repair`.

use operations::RunOperations;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::FileDevice;
use fastrand::Rng;
use testkit::{MkfsXfs, xfs_repair};
use vfs::{Error, Result};

use super::{ExtentRequest, HeldAg, RmapOwner};
use crate::Xfs;
use crate::alloc::ags::AgTree;
use crate::alloc::trees::GroupTree;
use crate::btree::Seek;
use crate::btree::records::{BnoTree, CntTree, FreeRun};
use crate::format::address::{AgBlock, AgNumber, FsBlock};

const CACHE_BYTES: usize = 16 << 20;

/// An image made by mkfs.xfs and opened as an image in progress.
pub(crate) struct Fresh {
    pub(crate) fs: Xfs,
    pub(crate) path: PathBuf,
    _home: tempfile::TempDir,
}

impl Fresh {
    pub(crate) fn new(options: &str, size: u64) -> Self {
        let home = testkit::scratch();
        let path = home.path().join("image");
        MkfsXfs::default().options(options).create(&path, size);
        Self::open(home, path)
    }

    /// Makes an image with files that the kernel wrote.
    pub(crate) fn filled(options: &str, size: u64, fill: impl FnOnce(&Path)) -> Self {
        let home = testkit::scratch();
        let path = home.path().join("image");
        MkfsXfs::default().options(options).create(&path, size);
        testkit::populate_with_kernel(&path, "xfs", fill);
        Self::open(home, path)
    }

    fn open(home: tempfile::TempDir, path: PathBuf) -> Self {
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let device = Arc::new(FileDevice::new(file).unwrap());
        let fs = Xfs::open_in_progress(device, CACHE_BYTES).unwrap();
        Self { fs, path, _home: home }
    }

    /// Finishes the image and checks it.
    pub(crate) fn judge(&self) {
        self.fs.finish(None).unwrap();
        xfs_repair(&self.path);
    }
}

/// Returns all records of a tree.
pub(crate) fn records<T: GroupTree>(ag: &mut HeldAg<'_, '_>, first: T::Key) -> Vec<T::Record> {
    let mut cursor = ag.cursor::<T>();
    let mut found = Vec::new();
    let mut next = cursor.seek(first, Seek::AtLeast).unwrap();
    while let Some(record) = next {
        found.push(record);
        next = cursor.next().unwrap();
    }
    found
}

/// Checks that both free-space trees of a group and its counts agree. Returns the free runs.
fn check_space(fs: &Xfs, ag: AgNumber) -> Vec<FreeRun> {
    fs.atomically(|op| {
        let mut ag = op.ag(ag)?;
        let by_block = records::<BnoTree>(&mut ag, AgBlock(0));
        let by_length = records::<CntTree>(&mut ag, (0, AgBlock(0)));
        assert!(by_length.is_sorted_by_key(|run| (run.len, run.start)));
        let mut sorted = by_length.clone();
        sorted.sort_by_key(|run| run.start);
        assert_eq!(by_block, sorted);
        for pair in by_block.windows(2) {
            assert!(pair[0].start.0 + pair[0].len < pair[1].start.0, "{pair:?}");
        }
        let state = **ag.guard;
        assert_eq!(by_block.iter().map(|run| run.len).sum::<u32>(), state.freeblks);
        assert_eq!(by_length.last().map_or(0, |run| run.len), state.longest);
        assert!(state.flcount <= crate::format::ag::agfl_capacity(&fs.volume.geometry));
        Ok(by_block)
    })
    .unwrap()
}

/// Extents that the model has allocated, by first block.
#[derive(Default)]
struct SpaceModel {
    extents: BTreeMap<u64, u32>,
}

impl SpaceModel {
    /// Checks that no block of the model is free.
    fn check(&self, fs: &Xfs) {
        let geometry = fs.volume.geometry;
        let mut free = BTreeSet::new();
        for ag in geometry.ags() {
            for run in check_space(fs, ag) {
                free.extend(
                    (0..run.len).map(|at| geometry.fs_block(ag, run.start).0 + u64::from(at)),
                );
            }
        }
        for (&start, &len) in &self.extents {
            assert!((start..start + u64::from(len)).all(|block| !free.contains(&block)));
        }
    }

    fn insert(&mut self, start: FsBlock, len: u32) {
        let end = start.0 + u64::from(len);
        let before = self.extents.range(..end).next_back();
        assert!(before.is_none_or(|(&at, &len)| at + u64::from(len) <= start.0), "{start}, {len}");
        self.extents.insert(start.0, len);
    }

    /// Makes one random change, in one operation. Returns false if there is no space.
    fn step(&mut self, fs: &Xfs, rng: &mut Rng, len_max: u32) -> bool {
        if self.extents.is_empty() || rng.u32(..100) < 60 {
            self.grow(fs, rng, len_max)
        } else {
            self.shrink(fs, rng);
            true
        }
    }

    fn grow(&mut self, fs: &Xfs, rng: &mut Rng, len_max: u32) -> bool {
        let geometry = fs.volume.geometry;
        let near = geometry.fs_block(
            AgNumber(rng.u32(..geometry.ag_count)),
            AgBlock(rng.u32(..geometry.ag_blocks)),
        );
        let max_len = rng.u32(1..=len_max);
        let min_len = if rng.bool() { max_len } else { 1 };
        let got = fs.atomically(|op| {
            let owner = RmapOwner::RefcountTree;
            op.allocate_extent(&ExtentRequest {
                near,
                lead: 0,
                min_len,
                max_len,
                owner,
                for_data: false,
            })
        });
        match got {
            Ok((start, len)) => {
                assert!((min_len..=max_len).contains(&len));
                self.insert(start, len);
                true
            }
            Err(Error::NoSpace) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Frees some extents, or their ends or middles.
    fn shrink(&mut self, fs: &Xfs, rng: &mut Rng) {
        let mut freed = Vec::new();
        for _ in 0..rng.usize(1..4) {
            let Some((&start, &len)) =
                self.extents.iter().nth(rng.usize(..self.extents.len().max(1)))
            else {
                break;
            };
            let from = if rng.bool() { 0 } else { rng.u32(..len) };
            let count = if rng.bool() { len - from } else { rng.u32(1..=len - from) };
            self.extents.remove(&start);
            if from > 0 {
                self.extents.insert(start, from);
            }
            let end = from + count;
            if end < len {
                self.extents.insert(start + u64::from(end), len - end);
            }
            freed.push((start + u64::from(from), count));
        }
        self.free(fs, &freed);
    }

    fn free(&self, fs: &Xfs, freed: &[(u64, u32)]) {
        fs.atomically(|op| {
            for &(start, len) in freed {
                op.free_extent(FsBlock(start), len, RmapOwner::RefcountTree);
            }
            Ok(())
        })
        .unwrap();
    }

    fn free_all(&mut self, fs: &Xfs) {
        for extent in std::mem::take(&mut self.extents) {
            self.free(fs, &[extent]);
        }
    }
}

/// mkfs.xfs options for images that differ in trees, block size and sector size.
const KINDS: [&str; 7] = [
    "",
    "-b size=1024",
    "-m rmapbt=0",
    "-m rmapbt=0,reflink=0,finobt=0",
    "-s size=4096",
    "-b size=1024 -m rmapbt=0",
    "-b size=65536",
];

#[test]
fn random_changes_leave_valid_trees() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    for (seed, kind) in KINDS.into_iter().enumerate() {
        let image = Fresh::new(kind, 320 << 20);
        let mut rng = Rng::with_seed(seed as u64);
        let mut model = SpaceModel::default();
        for step in 0..3000 {
            let len_max = if step % 10 == 0 { 2000 } else { 8 };
            model.step(&image.fs, &mut rng, len_max);
            if step % 1000 == 0 {
                model.check(&image.fs);
            }
        }
        model.check(&image.fs);
        model.free_all(&image.fs);
        model.check(&image.fs);
        image.judge();
    }
}

#[test]
fn a_full_image_can_be_emptied() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    for (seed, kind) in KINDS.into_iter().enumerate().step_by(testkit::effort(2, 2, 1)) {
        let size = if kind.contains("65536") { 320 << 20 } else { 64 << 20 };
        let image = Fresh::new(kind, size);
        let mut rng = Rng::with_seed(seed as u64);
        let mut model = SpaceModel::default();
        let mut full = 0;
        while full < 3 {
            full += u32::from(!model.grow(&image.fs, &mut rng, 1));
        }
        model.check(&image.fs);
        // Every second block first, which gives the maximum number of runs and records.
        let blocks: Vec<u64> = model.extents.keys().copied().collect();
        for &block in blocks.iter().step_by(2) {
            model.extents.remove(&block);
            model.free(&image.fs, &[(block, 1)]);
        }
        model.check(&image.fs);
        model.free_all(&image.fs);
        image.judge();
    }
}

#[test]
fn a_failed_operation_leaves_no_trace() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let image = Fresh::new("", 320 << 20);
    let before: Vec<_> =
        image.fs.volume.geometry.ags().map(|ag| check_space(&image.fs, ag)).collect();
    for at in 0..20 {
        let outcome: Result<()> = image.fs.atomically(|op| {
            for max_len in 1..20 {
                let owner = RmapOwner::RefcountTree;
                let near = FsBlock(at * 100);
                op.allocate_extent(&ExtentRequest {
                    near,
                    lead: 0,
                    min_len: 1,
                    max_len,
                    owner,
                    for_data: false,
                })?;
            }
            Err(Error::NoSpace.into())
        });
        assert!(matches!(outcome, Err(Error::NoSpace)));
    }
    let after: Vec<_> =
        image.fs.volume.geometry.ags().map(|ag| check_space(&image.fs, ag)).collect();
    assert_eq!(before, after);
    image.judge();
}

#[test]
fn threads_in_groups_of_their_own_do_not_meet() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let image = Fresh::new("", 320 << 20);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let fs = &image.fs;
            scope.spawn(move || {
                let mut rng = Rng::with_seed(seed);
                let mut model = SpaceModel::default();
                for _ in 0..2000 {
                    model.step(fs, &mut rng, 16);
                }
                model.check(fs);
                model.free_all(fs);
            });
        }
    });
    SpaceModel::default().check(&image.fs);
    image.judge();
}

#[test]
fn freeing_twice_is_damage() {
    testkit::require!(Tool("mkfs.xfs"));
    let image = Fresh::new("-m rmapbt=0", 320 << 20);
    let free = |start| {
        image.fs.atomically(|op| {
            op.free_extent(start, 4, RmapOwner::RefcountTree);
            Ok(())
        })
    };
    let request = ExtentRequest {
        near: FsBlock(100),
        lead: 0,
        min_len: 4,
        max_len: 4,
        owner: RmapOwner::RefcountTree,
        for_data: false,
    };
    let (start, _) = image.fs.atomically(|op| op.allocate_extent(&request)).unwrap();
    free(start).unwrap();
    assert!(matches!(free(start), Err(Error::Corrupt(_))));
    assert!(matches!(free(FsBlock(u64::MAX)), Err(Error::Corrupt(_))));
    image.judge();
}

#[test]
fn the_place_asked_for_is_taken_where_it_is_free() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let image = Fresh::new("-m rmapbt=0", 320 << 20);
    let near = image.fs.volume.geometry.fs_block(AgNumber(1), AgBlock(5000));
    let request = ExtentRequest {
        near,
        lead: 0,
        min_len: 1,
        max_len: 10,
        owner: RmapOwner::RefcountTree,
        for_data: false,
    };
    let allocate = || image.fs.atomically(|op| op.allocate_extent(&request)).unwrap();
    assert_eq!(allocate(), (near, 10));
    // The adjacent place is the nearest one.
    let (second, len) = allocate();
    assert_eq!(len, 10);
    assert!(second.0.abs_diff(near.0) == 10, "{second}");
    image
        .fs
        .atomically(|op| {
            op.free_extent(near, 10, request.owner);
            op.free_extent(second, 10, request.owner);
            Ok(())
        })
        .unwrap();
    image.judge();
}

#[test]
fn trees_that_the_image_lacks_have_no_levels() {
    testkit::require!(Tool("mkfs.xfs"));
    let image = Fresh::new("-m rmapbt=0,reflink=0,finobt=0", 320 << 20);
    let guard = image.fs.volume.ags.hold(AgNumber(0));
    let levels = [AgTree::Rmap, AgTree::Refcount, AgTree::Fino].map(|tree| guard.root(tree).levels);
    assert_eq!(levels, [0; 3]);
}
