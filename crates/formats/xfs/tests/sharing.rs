//! Files that share blocks on request, in images in progress and in others, compared with bytes in memory and checked
//! by xfs_repair.

use std::sync::Arc;

use disk::MemoryDevice;
use fastrand::Rng;
use testkit::operation::Mix;
use testkit::trial::one_thread;
use testkit::{require, scratch};
use vfs::{FileSystem, Ino, NewInode};
use xfs::Xfs;

use crate::changing::kernel::assert_kernel_agrees;
use crate::changing::{MIB, TargetLayout, XfsTarget, assert_clean};
use crate::resize::options;

const STEPS: usize = 60;
const BLOCKS_MAX: usize = 60;

/// Files and their contents.
struct SharingModel {
    fs: Xfs,
    block: usize,
    files: Vec<(Ino, Vec<u8>)>,
    random: Rng,
}

impl SharingModel {
    fn new(fs: Xfs, seed: u64) -> Self {
        let block = fs.superblock().raw.blocksize.get() as usize;
        let mut model = Self { fs, block, files: Vec::new(), random: Rng::with_seed(seed) };
        (0..4).for_each(|_| model.make());
        model
    }

    fn create(&mut self) -> Ino {
        let new = NewInode { permissions: 0o644, ..NewInode::default() };
        let name = self.files.len().to_string();
        self.fs.create(self.fs.root(), name.as_bytes(), &new).unwrap()
    }

    /// Makes a file with its own contents.
    fn make(&mut self) {
        let ino = self.create();
        let len = self.random.usize(1..BLOCKS_MAX * self.block);
        let bytes: Vec<u8> = (0..len).map(|_| self.random.u8(..)).collect();
        self.fs.write(ino, 0, &bytes, None).unwrap();
        self.files.push((ino, bytes));
    }

    /// Returns a part of a random file: the file, the start, and the length; up to its end, or whole blocks.
    fn part(&mut self) -> (usize, usize, usize) {
        let file = self.random.usize(..self.files.len());
        let len = self.files[file].1.len();
        let start = self.random.usize(..len.div_ceil(self.block)) * self.block;
        let blocks = self.random.usize(1..=BLOCKS_MAX);
        (file, start, (blocks * self.block).min(len - start))
    }

    /// Makes a file that shares a part of another one.
    fn share(&mut self) {
        let (file, start, len) = self.part();
        let (from, bytes) = (self.files[file].0, self.files[file].1[start..start + len].to_vec());
        let ino = self.create();
        self.fs.share_blocks((from, start as u64), (ino, 0), len as u64).unwrap();
        self.files.push((ino, bytes));
    }

    /// Appends shared blocks of the same or another file.
    fn append(&mut self) {
        let target = self.random.usize(..self.files.len());
        let (file, start, len) = self.part();
        let at = self.files[target].1.len().next_multiple_of(self.block);
        let bytes = self.files[file].1[start..start + len].to_vec();
        let (from, to) = (self.files[file].0, self.files[target].0);
        self.fs.share_blocks((from, start as u64), (to, at as u64), len as u64).unwrap();
        let contents = &mut self.files[target].1;
        contents.resize(at, 0);
        contents.extend(bytes);
    }

    /// Overwrites a part of a file, which gets its own blocks.
    fn write(&mut self) {
        let (file, start, len) = self.part();
        let skip = self.random.usize(..len);
        let bytes: Vec<u8> = (skip..len).map(|_| self.random.u8(..)).collect();
        let (ino, contents) = &mut self.files[file];
        self.fs.write(*ino, (start + skip) as u64, &bytes, None).unwrap();
        contents[start + skip..start + len].copy_from_slice(&bytes);
    }

    fn step(&mut self) {
        match self.random.u8(..8) {
            0 => self.make(),
            1..4 => self.share(),
            4..6 => self.append(),
            _ => self.write(),
        }
    }

    fn compare(&self) {
        compare(&self.fs, &self.files);
    }
}

fn compare(fs: &Xfs, files: &[(Ino, Vec<u8>)]) {
    for (ino, bytes) in files {
        assert_eq!(fs.attributes(*ino).unwrap().size, bytes.len() as u64);
        let mut found = vec![0; bytes.len()];
        fs.read(*ino, 0, &mut found).unwrap();
        assert!(found == *bytes, "inode {ino}");
    }
}

const LAYOUTS: [TargetLayout; 5] = [
    TargetLayout::DEFAULT,
    TargetLayout::SMALL_BLOCKS,
    TargetLayout::LARGE_BLOCKS,
    TargetLayout { size: 128 * MIB, ..TargetLayout::MANY_GROUPS },
    TargetLayout { features: "-rmapbt,-parent", ..TargetLayout::DEFAULT },
];

#[test]
fn files_share_the_requested_blocks() {
    require!(Tool("xfs_repair"));
    for layout in LAYOUTS {
        for seed in 0..testkit::effort(2, 3, 60) {
            let device: Arc<MemoryDevice> = Arc::new(layout.make());
            let is_new = seed % 2 == 0;
            let fs = match is_new {
                true => layout.open(device.clone(), 16 << 20).unwrap(),
                false => Xfs::open_writable(device.clone(), &options()).unwrap(),
            };
            let mut model = SharingModel::new(fs, seed);
            (0..STEPS).for_each(|_| model.step());
            model.compare();
            let SharingModel { fs, files, .. } = model;
            if is_new {
                fs.finish(None).unwrap();
            } else {
                fs.close().unwrap();
            }
            assert_clean(&device.fork());
            compare(&Xfs::open(device, &options()).unwrap(), &files);
        }
    }
}

#[test]
fn invalid_sharing_is_refused() {
    let open =
        |layout: TargetLayout| Xfs::open_writable(Arc::new(layout.make()), &options()).unwrap();
    let model = SharingModel::new(open(TargetLayout::DEFAULT), 1);
    let [one, two] = [model.files[0].0, model.files[1].0];
    let error = model.fs.share_blocks((one, 100), (two, 1 << 20), 10).unwrap_err().to_string();
    assert!(error.contains("start at a block boundary"), "{error}");
    let refused = |from, to, len, part: &str| {
        let error = model.fs.clone_range(from, to, len, None).unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
    };
    let size = model.files[0].1.len() as u64;
    refused((one, 0), (two, 10), 4096, "start at a block boundary");
    refused((one, 0), (two, 0), 10, "only at the end of the source");
    refused((one, 0), (one, 0), 4096, "overlap");
    refused((one, 0), (two, 0), size + 1, "past the end of the source");
    refused((one, 0), (two, (1 << 63) - 4096), 8192, "too large");
    refused((model.fs.root(), 0), (two, 0), 0, "directory");
    model.compare();
    let plain = SharingModel::new(open(TargetLayout::PLAIN), 1);
    let error = plain.fs.share_blocks((one, 0), (two, 1 << 20), 10).unwrap_err().to_string();
    assert!(error.contains("reflink"), "{error}");
}

/// Clones of ranges over any contents, with writes, punched holes, truncations and removals, in images with and without
/// a reverse map and with a small log, whose operations share few runs each.
#[test]
fn ranges_are_cloned_as_in_the_model() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    for layout in LAYOUTS {
        for seed in 0..testkit::effort(1, 3, 40) {
            for way in [XfsTarget::in_place, XfsTarget::unlogged] {
                let device = one_thread(&way(layout).trial(), Mix::CLONES, seed, 1_000);
                assert_kernel_agrees(&device);
            }
        }
    }
}

/// Fragments a file, so that each of its blocks is shared a different number of times.
fn fragmented(fs: &Xfs, blocks: u64) -> Ino {
    let create = |name: &str| fs.create(fs.root(), name.as_bytes(), &NewInode::default()).unwrap();
    let (file, other) = (create("fragments"), create("others"));
    fs.write(file, 0, &vec![3; (blocks * 4096) as usize], None).unwrap();
    for block in (0..blocks).step_by(2) {
        fs.clone_range((file, block * 4096), (other, block * 4096), 4096, None).unwrap();
    }
    file
}

/// One extent with a thousand runs of reference counts is cloned in bounded operations, over another such extent.
#[test]
fn a_clone_of_many_reference_counts_is_several_operations() {
    require!(Tool("xfs_repair"));
    const BLOCKS: u64 = 2000;
    let device: Arc<MemoryDevice> = Arc::new(TargetLayout::DEFAULT.make());
    let fs = Xfs::open_writable(device.clone(), &options()).unwrap();
    let file = fragmented(&fs, BLOCKS);
    let free = fs.statfs().unwrap().blocks_free;
    let target = fs.create(fs.root(), b"target", &NewInode::default()).unwrap();
    for _ in 0..2 {
        fs.clone_range((file, 0), (target, 0), 0, None).unwrap();
        assert_eq!(fs.attributes(target).unwrap().size, BLOCKS * 4096);
        fs.clone_range((file, 4096), (target, 0), (BLOCKS - 1) * 4096, None).unwrap();
    }
    let taken = free - fs.statfs().unwrap().blocks_free;
    assert!(taken < 40, "{taken} blocks for the trees");
    fs.unlink(fs.root(), b"fragments", None).unwrap();
    let mut found = vec![0; (BLOCKS * 4096) as usize];
    assert_eq!(fs.read(target, 0, &mut found).unwrap(), found.len());
    assert!(found.iter().all(|&byte| byte == 3));
    fs.close().unwrap();
    assert_clean(&device.fork());
}

/// Only equal ranges are deduplicated, and a deduplicated file keeps its times and its bytes.
#[test]
fn equal_ranges_are_deduplicated() {
    require!(Tool("xfs_repair"));
    let device: Arc<MemoryDevice> = Arc::new(TargetLayout::DEFAULT.make());
    let fs = Xfs::open_writable(device.clone(), &options()).unwrap();
    let create = |name: &str| fs.create(fs.root(), name.as_bytes(), &NewInode::default()).unwrap();
    let (one, two) = (create("one"), create("two"));
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|at| (at / 7 % 251) as u8).collect();
    fs.write(one, 0, &bytes, None).unwrap();
    fs.write(two, 0, &bytes, None).unwrap();
    fs.write(two, 500_000, &[0], None).unwrap();
    let before = fs.attributes(two).unwrap();
    let free = || fs.statfs().unwrap().blocks_free;
    let at_first = free();
    assert!(!fs.dedupe_range((one, 0), (two, 0), 0).unwrap());
    assert_eq!(free(), at_first);
    assert!(fs.dedupe_range((one, 0), (two, 0), 100 * 4096).unwrap());
    assert!(fs.dedupe_range((one, 200 * 4096), (two, 200 * 4096), 0).unwrap());
    let error = fs.dedupe_range((one, 0), (two, 1 << 20), 4096).unwrap_err().to_string();
    assert!(error.contains("past the end"), "{error}");
    fs.sync().unwrap();
    assert!(free() >= at_first + 140, "{} of {at_first} blocks", free());
    assert_eq!(fs.attributes(two).unwrap().mtime, before.mtime);
    let mut expected = bytes.clone();
    expected[500_000] = 0;
    compare(&fs, &[(one, bytes), (two, expected)]);
    fs.close().unwrap();
    assert_clean(&device.fork());
}

/// Threads clone between the same files in both directions, while others write to them.
#[test]
fn clones_in_both_directions_do_not_block_each_other() {
    require!(Tool("xfs_repair"));
    let device: Arc<MemoryDevice> = Arc::new(TargetLayout::DEFAULT.make());
    let fs = Xfs::open_writable(device.clone(), &options()).unwrap();
    let create = |name: &str| fs.create(fs.root(), name.as_bytes(), &NewInode::default()).unwrap();
    let files = [create("one"), create("two")];
    for ino in files {
        fs.write(ino, 0, &[7; 40 * 4096], None).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let fs = &fs;
            scope.spawn(move || {
                let mut random = Rng::with_seed(thread);
                let (from, to) = (files[thread as usize % 2], files[1 - thread as usize % 2]);
                for _ in 0..testkit::effort(100, 300, 3000) {
                    let (at, len) = (random.u64(..30) * 4096, random.u64(1..10) * 4096);
                    fs.clone_range((from, at), (to, random.u64(..30) * 4096), len, None).unwrap();
                    fs.write(to, random.u64(..100_000), &[7; 5000], None).unwrap();
                }
            });
        }
    });
    let mut found = vec![0; 40 * 4096];
    for ino in files {
        fs.read(ino, 0, &mut found).unwrap();
        assert!(found.iter().all(|&byte| byte == 7));
    }
    fs.close().unwrap();
    assert_clean(&device.fork());
}

/// On a full image a clone needs no blocks for contents. One that finds no room for the trees leaves no trace.
#[test]
fn a_full_image_can_share_until_the_trees_have_no_room() {
    require!(Tool("xfs_repair"));
    let device: Arc<MemoryDevice> = Arc::new(TargetLayout::DEFAULT.make());
    let fs = Xfs::open_writable(device.clone(), &options()).unwrap();
    let file = fragmented(&fs, 1000);
    let target = fs.create(fs.root(), b"target", &NewInode::default()).unwrap();
    let filler = fs.create(fs.root(), b"filler", &NewInode::default()).unwrap();
    let mut step = 1 << 20;
    while step >= 4096 {
        let size = fs.attributes(filler).unwrap().size;
        if fs.write(filler, size, &vec![1; step], None).is_err() {
            step /= 2;
        }
    }
    // Each block at another place, so that nothing joins.
    let mut random = Rng::with_seed(5);
    let (mut bytes, mut refused) = (Vec::new(), 0);
    for at in 0..4000_u64 {
        let from = random.u64(..1000) * 4096;
        match fs.clone_range((file, from), (target, 2 * at * 4096), 4096, None) {
            Ok(()) => bytes.resize(((2 * at + 1) * 4096) as usize, 0),
            Err(vfs::Error::NoSpace) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        assert_eq!(fs.attributes(target).unwrap().size, bytes.len() as u64);
    }
    assert!(refused > 0 && bytes.len() > 4096, "{refused} refused");
    fs.close().unwrap();
    assert_clean(&device.fork());
}

/// Like the clones, with exchanges of ranges and of whole files.
#[test]
fn ranges_are_exchanged_as_in_the_model() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let mix = Mix { exchanges: true, ..Mix::CLONES };
    for layout in [LAYOUTS[0], LAYOUTS[1], LAYOUTS[4]] {
        for seed in 0..testkit::effort(1, 3, 40) {
            let target = XfsTarget::in_place(layout);
            let device = one_thread(&target.trial(), mix, seed, 1_000);
            assert_kernel_agrees(&device);
        }
    }
}

/// An exchange that is too large for one transaction leaves no trace. Files of a thousand extents are not.
#[test]
fn fragmented_files_are_exchanged_as_a_whole_or_not_at_all() {
    require!(Tool("xfs_repair"));
    let layout = TargetLayout { size: 256 * MIB, ..TargetLayout::DEFAULT };
    let device: Arc<MemoryDevice> = Arc::new(layout.make());
    let fs = Xfs::open_writable(device.clone(), &options()).unwrap();
    let create = |name: &str| fs.create(fs.root(), name.as_bytes(), &NewInode::default()).unwrap();
    let files = [create("one"), create("two")];
    let mut contents = [Vec::new(), Vec::new()];
    let (mut done, mut refused) = (0, 0);
    for at in 0..4_000_u64 {
        for (ino, contents) in files.iter().zip(&mut contents) {
            let byte = fastrand::u8(1..);
            fs.write(*ino, 2 * at * 4096, &[byte; 4096], None).unwrap();
            contents.resize((2 * at * 4096) as usize, 0);
            contents.resize(contents.len() + 4096, byte);
        }
        if at % 500 == 99 {
            match fs.exchange_range((files[0], 0), (files[1], 0), 0, None) {
                Ok(()) => {
                    contents.swap(0, 1);
                    done += 1;
                }
                Err(vfs::Error::Unsupported(_)) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            compare(&fs, &[(files[0], contents[0].clone()), (files[1], contents[1].clone())]);
        }
    }
    assert!(done > 1 && refused > 1, "{done} done, {refused} refused");
    fs.close().unwrap();
    assert_clean(&device.fork());
}

/// The newest kernel replays the log of a crashed image with shared ranges, and its online check accepts it and an
/// image with clones and exchanges that was closed.
#[test]
fn scrub_accepts_images_with_shared_blocks() {
    require!(Guest("XFS_ONLINE_SCRUB"));
    let home = scratch();
    let image = home.path().join("image");
    let accepted = |device: &MemoryDevice| {
        testkit::crash::write_image(device, &image).unwrap();
        assert!(testkit::scrub(&image));
    };
    let mix = Mix { exchanges: true, ..Mix::CLONES };
    accepted(&one_thread(&XfsTarget::in_place(LAYOUTS[0]).trial(), mix, 77, 1_000));
    let device: Arc<MemoryDevice> = Arc::new(LAYOUTS[0].make());
    let mut model = SharingModel::new(Xfs::open_writable(device.clone(), &options()).unwrap(), 77);
    (0..STEPS).for_each(|_| model.step());
    let (from, to) = (model.files[0].0, model.create());
    model.fs.clone_range((from, 0), (to, 0), 0, None).unwrap();
    assert!(model.fs.dedupe_range((from, 0), (to, 0), 0).unwrap());
    model.fs.sync().unwrap();
    accepted(&device.fork());
}
