//! Directories in all their forms compared with a model in memory, xfs_repair and the kernel.
//!
//! All entries are links to one file, so that directories of any size consist only of names.

use crate::changing;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::ControlFlow;
use std::sync::Arc;

use changing::{SMALL_CACHE_BYTES, TINY_BUFFERS, TargetLayout, write_image};
use disk::MemoryDevice;
use fastrand::Rng;
use testkit::require;
use vfs::{Cookie, Error, FileSystem, Ino, NewInode};
use xfs::{FreeIndexStrategy, Xfs};

/// A directory being changed, and its expected contents.
struct Trial {
    fs: Xfs,
    device: Arc<MemoryDevice>,
    dir: Ino,
    files: [Ino; 2],
    names: BTreeMap<Vec<u8>, Ino>,
    rng: Rng,
    longest: usize,
    /// Number of stages whose check by other programs was optional.
    stages: u32,
}

/// Without parent pointers: a file with that many parents would test attributes.
const NO_PARENTS: TargetLayout =
    TargetLayout { features: "-parent", size: 256 << 20, ..TargetLayout::DEFAULT };

impl Trial {
    fn new(layout: TargetLayout, strategy: FreeIndexStrategy, seed: u64, longest: usize) -> Self {
        let device = Arc::new(layout.make());
        let mut fs = layout.open(device.clone(), SMALL_CACHE_BYTES * 4).unwrap();
        fs.set_free_index(strategy);
        let new = NewInode { permissions: 0o755, ..NewInode::default() };
        let dir = fs.mkdir(fs.root(), b"dir", &new).unwrap();
        let files = [&b"one"[..], b"two"].map(|name| fs.create(fs.root(), name, &new).unwrap());
        let (names, rng) = (BTreeMap::new(), Rng::with_seed(seed));
        Self { fs, device, dir, files, names, rng, longest, stages: 0 }
    }

    fn name(&mut self) -> Vec<u8> {
        let len = self.rng.usize(1..=self.longest);
        (0..len).map(|_| self.rng.alphanumeric() as u8).collect()
    }

    fn add(&mut self, name: Vec<u8>) {
        let file = self.files[self.rng.usize(..2)];
        let outcome = self.fs.link(file, self.dir, &name, None);
        match self.names.entry(name) {
            Entry::Occupied(_) => assert!(matches!(outcome, Err(Error::Exists)), "{outcome:?}"),
            Entry::Vacant(vacant) => {
                outcome.unwrap();
                vacant.insert(file);
            }
        }
    }

    fn add_some(&mut self, count: usize) {
        for _ in 0..count {
            let name = self.name();
            self.add(name);
        }
    }

    fn remove(&mut self, name: &[u8]) {
        self.fs.unlink(self.dir, name, None).unwrap();
        self.names.remove(name);
        assert!(matches!(self.fs.lookup(self.dir, name), Err(Error::NotFound)));
    }

    fn remove_some(&mut self, count: usize) {
        for _ in 0..count {
            let probe = self.name();
            let next = self.names.range(probe..).next().or_else(|| self.names.iter().next());
            let Some(name) = next.map(|(name, _)| name.clone()) else { return };
            self.remove(&name);
        }
    }

    /// Checks that all names are found and listed, and no others.
    #[track_caller]
    fn check(&self) {
        for (name, ino) in &self.names {
            assert_eq!(self.fs.lookup(self.dir, name).unwrap(), *ino);
        }
        assert_eq!(self.fs.lookup(self.dir, b"..").unwrap(), self.fs.root());
        assert_eq!(self.fs.lookup(self.dir, b".").unwrap(), self.dir);
        assert!(matches!(self.fs.lookup(self.dir, b"no such name"), Err(Error::NotFound)));
        let listed = self.list(usize::MAX);
        let names: BTreeMap<_, _> = listed.iter().cloned().collect();
        assert_eq!(names.len(), listed.len(), "a name is listed twice");
        assert!(names == self.names, "{} listed, {} expected", names.len(), self.names.len());
    }

    /// Returns the listing without `.` and `..`, resumed after every `piece` entries.
    fn list(&self, piece: usize) -> Vec<(Vec<u8>, Ino)> {
        let (mut all, mut from, mut dots) = (Vec::new(), Cookie(0), 0);
        loop {
            let mut left = piece;
            self.fs
                .readdir(self.dir, from, &mut |entry| {
                    match entry.name {
                        b"." => assert_eq!(entry.ino, self.dir),
                        b".." => assert_eq!(entry.ino, self.fs.root()),
                        name => all.push((name.to_vec(), entry.ino)),
                    }
                    dots += usize::from(entry.name.starts_with(b".") && entry.name.len() < 3);
                    assert!(entry.next > from, "cookies must ascend");
                    from = entry.next;
                    left -= 1;
                    if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })
                .unwrap();
            if left > 0 {
                assert_eq!(dots, 2);
                return all;
            }
        }
    }

    /// Checks an intermediate stage, as often as the effort allows also with other programs.
    #[track_caller]
    fn check_stage(&mut self) {
        self.check();
        self.stages += 1;
        if self.stages.is_multiple_of(testkit::effort(4, 2, 1)) {
            self.judge();
        }
    }

    /// Checks with xfs_repair, and that the kernel lists the same names.
    #[track_caller]
    fn judge(&self) {
        self.fs.finish(None).unwrap();
        let folder = testkit::scratch();
        let path = folder.path().join("image");
        write_image(&self.device, &path).unwrap();
        testkit::xfs_repair(&path);
        if testkit::satisfied(module_path!(), &[testkit::Need::Mount("xfs")]) {
            let mount = testkit::KernelMount::new(&path, &testkit::MountOptions::read_only("xfs"));
            use std::os::unix::ffi::OsStringExt;
            use std::os::unix::fs::DirEntryExt;
            let entries = std::fs::read_dir(mount.path().join("dir")).unwrap().map(Result::unwrap);
            let seen: BTreeMap<_, _> =
                entries.map(|e| (e.file_name().into_vec(), Ino(e.ino()))).collect();
            assert!(seen == self.names, "{} seen, {} expected", seen.len(), self.names.len());
            for name in self.names.keys() {
                use std::os::unix::ffi::OsStrExt;
                let path = mount.path().join("dir").join(std::ffi::OsStr::from_bytes(name));
                path.symlink_metadata().unwrap();
            }
            mount.unmount();
        }
    }

    fn blocks(&self) -> u64 {
        self.fs.attributes(self.dir).unwrap().blocks_512 / 8
    }
}

const SHAPES: [TargetLayout; 6] = [
    NO_PARENTS,
    TargetLayout { block_size: 1024, ..NO_PARENTS },
    TargetLayout { block_size: 1024, dir_block_size: Some(4096), ..NO_PARENTS },
    TargetLayout { dir_block_size: Some(65536), ..NO_PARENTS },
    TargetLayout { block_size: 2048, dir_block_size: Some(8192), inode_size: 1024, ..NO_PARENTS },
    TargetLayout { buffering: Some(TINY_BUFFERS), ..NO_PARENTS },
];

const STRATEGIES: [FreeIndexStrategy; 5] = [
    FreeIndexStrategy::ForwardDecode,
    FreeIndexStrategy::Forward,
    FreeIndexStrategy::Reverse,
    FreeIndexStrategy::BlockSkip,
    FreeIndexStrategy::Tree,
];

#[test]
fn directories_grow_through_all_forms_and_shrink_to_nothing() {
    require!(Tool("xfs_repair"));
    for (shape, seed) in SHAPES.into_iter().zip(1..) {
        let mut trial = Trial::new(shape, FreeIndexStrategy::Tree, seed, 255);
        let full = if shape.dir_block_size == Some(65536) { 9_000 } else { 3_000 };
        for step in [1, 3, 20, 100, 300, 600, full - 1_000] {
            trial.add_some(step);
            trial.check_stage();
        }
        while trial.names.len() > 20 {
            trial.remove_some(trial.names.len() / 2);
            trial.check_stage();
        }
        trial.remove_some(20);
        trial.check();
        trial.judge();
        let size = trial.fs.attributes(trial.dir).unwrap().size;
        assert_eq!(size, 6, "an empty directory is in its inode");
    }
}

#[test]
fn random_changes_with_every_search_strategy() {
    require!(Tool("xfs_repair"));
    for (strategy, seed) in STRATEGIES.into_iter().zip(100..) {
        for shape in [NO_PARENTS, SHAPES[1], SHAPES[5]] {
            let mut trial = Trial::new(shape, strategy, seed, 200);
            trial.add_some(1_500);
            for _ in 0..20 {
                let (remove, add) = (trial.rng.usize(..400), trial.rng.usize(..400));
                trial.remove_some(remove);
                trial.add_some(add);
            }
            trial.check();
            trial.judge();
        }
    }
}

#[test]
fn listings_go_on_where_they_were() {
    for count in [0, 1, 5, 40, 200, 2_000] {
        let mut trial = Trial::new(SHAPES[1], FreeIndexStrategy::Tree, count, 60);
        trial.add_some(count as usize);
        let whole = trial.list(usize::MAX);
        for piece in [1, 7] {
            assert!(trial.list(piece) == whole);
        }
    }
}

/// Returns one of many names with one hash: differences in two adjacent bytes cancel out.
fn collide(prefix: &[u8], bits: u16) -> Vec<u8> {
    // Bit 0 of a byte is shifted by 7 and meets bit 7 of the next byte, so (a ^ 1, b ^ 0x80) has the same hash as (a,
    // b).
    let mut name = prefix.to_vec();
    for i in 0..12 {
        let flip = bits >> i & 1 != 0;
        name.extend(if flip { [b'p' ^ 1, b'A' ^ 0x80] } else { [b'p', b'A'] });
    }
    name
}

#[test]
fn names_with_one_hash_spread_over_leaves() {
    require!(Tool("xfs_repair"));
    // Leaves of small blocks have few entries, so names with one hash fill several.
    for shape in [SHAPES[1], SHAPES[0]].into_iter().take(testkit::effort(1, 2, 2)) {
        let mut trial = Trial::new(shape, FreeIndexStrategy::Tree, 7, 30);
        trial.add_some(400);
        let hash = xfs::format::hash::name_hash;
        for bits in 0..500 {
            let name = collide(b"same", bits);
            assert_eq!(hash(&name), hash(&collide(b"same", 0)));
            trial.add(name);
        }
        trial.add_some(400);
        trial.check();
        trial.judge();
        let mut order: Vec<u16> = (0..500).collect();
        trial.rng.shuffle(&mut order);
        for (round, bits) in order.into_iter().enumerate() {
            trial.remove(&collide(b"same", bits));
            if round % 125 == 0 {
                trial.check_stage();
            }
        }
        trial.check();
        trial.judge();
    }
}

#[test]
fn an_index_of_several_levels_grows_and_shrinks() {
    require!(Tool("xfs_repair"));
    let mut trial = Trial::new(SHAPES[1], FreeIndexStrategy::Tree, 11, 12);
    trial.add_some(30_000);
    trial.check();
    trial.judge();
    for left in [12_000, 3_000, 500, 0] {
        trial.remove_some(trial.names.len() - left.min(trial.names.len()));
        trial.check();
        trial.judge();
    }
}

/// Compares the number of data blocks with first fit by scanning, as in kernels up to 5.3.
#[test]
fn the_tree_wastes_no_space() {
    for seed in 0..testkit::effort(1, 3, 50) {
        let blocks = [FreeIndexStrategy::Forward, FreeIndexStrategy::Tree].map(|strategy| {
            let mut trial = Trial::new(NO_PARENTS, strategy, seed, 200);
            trial.add_some(6_000);
            let grown = trial.blocks();
            for _ in 0..10 {
                trial.remove_some(1_000);
                trial.add_some(1_000);
            }
            (grown, trial.blocks())
        });
        let [(grown, changed), (grown_tree, changed_tree)] = blocks;
        assert!(grown_tree * 100 <= grown * 105, "{grown_tree} blocks instead of {grown}");
        assert!(changed_tree * 100 <= changed * 105, "{changed_tree} instead of {changed}");
    }
}

/// Directories made by mkfs.xfs: in all forms, and with names that differ only in case.
#[test]
fn foreign_directories_are_found_with_and_without_case() {
    require!(Tool("mkfs.xfs"));
    let folder = testkit::scratch();
    let (tree, image) = (folder.path().join("tree"), folder.path().join("image"));
    let counts = [0, 1, 30, 300, 2_000];
    for count in counts {
        let dir = tree.join(count.to_string());
        std::fs::create_dir_all(&dir).unwrap();
        for i in 0..count {
            std::fs::write(dir.join(format!("A File with Name {i}")), "").unwrap();
        }
    }
    for (options, folds) in
        [("", false), ("-n version=ci", true), ("-b size=1024 -n size=8192,version=ci", true)]
    {
        testkit::MkfsXfs::default().options(options).prototype(&tree).create(&image, 400 << 20);
        let device = disk::FileDevice::new(std::fs::File::open(&image).unwrap()).unwrap();
        let fs = Xfs::open(Arc::new(device), &xfs::OpenOptions::default()).unwrap();
        for count in counts {
            let dir = fs.lookup(fs.root(), count.to_string().as_bytes()).unwrap();
            let mut listed = 0;
            fs.readdir(dir, Cookie(0), &mut |_| {
                listed += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
            assert_eq!(listed, count + 2);
            for i in 0..count {
                let name = format!("A File with Name {i}");
                let ino = fs.lookup(dir, name.as_bytes()).unwrap();
                let folded = fs.lookup(dir, name.to_ascii_uppercase().as_bytes());
                assert_eq!(folded.ok(), folds.then_some(ino), "{options}");
            }
            assert!(matches!(fs.lookup(dir, b"a fil"), Err(Error::NotFound)));
        }
    }
}

/// An entry that fails for lack of space leaves no trace in the image or in memory.
#[test]
fn entries_without_space_leave_no_trace() {
    require!(Tool("xfs_repair"));
    let strategies = [FreeIndexStrategy::Tree, FreeIndexStrategy::BlockSkip];
    for strategy in strategies.into_iter().take(testkit::effort(1, 2, 2)) {
        let size_mib = testkit::effort(32, 32, 64);
        let layout = TargetLayout { size: size_mib << 20, ..NO_PARENTS };
        let mut trial = Trial::new(layout, strategy, 5, 250);
        let (mut refused, mut taken) = (0, 0);
        while refused < 200 {
            let len = if refused == 0 { 250 } else { trial.rng.usize(8..250) };
            let name: Vec<u8> = (0..len).map(|_| trial.rng.alphanumeric() as u8).collect();
            match trial.fs.link(trial.files[0], trial.dir, &name, None) {
                Ok(()) => drop(trial.names.insert(name, trial.files[0])),
                Err(Error::NoSpace) => refused += 1,
                Err(Error::Exists) => {}
                Err(other) => panic!("{other}"),
            }
            taken += 1;
        }
        assert!(taken > 300 * size_mib, "space ran out after {taken} entries");
        trial.check();
        trial.judge();
        trial.remove_some(5_000);
        trial.add_some(2_000);
        trial.check();
        trial.judge();
    }
}
