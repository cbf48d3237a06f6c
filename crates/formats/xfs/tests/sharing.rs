//! Files that share blocks on request, in images in progress and in others, compared with bytes in memory and checked
//! by xfs_repair.

use std::sync::Arc;

use disk::MemoryDevice;
use fastrand::Rng;
use testkit::require;
use vfs::{FileSystem, Ino, NewInode};
use xfs::Xfs;

use crate::changing::{MIB, TargetLayout, assert_clean};
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
        for seed in 0..testkit::effort(2, 5, 60) {
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
    let error = model.fs.share_blocks((one, 0), (two, 0), 10).unwrap_err().to_string();
    assert!(error.contains("over existing ones"), "{error}");
    model.compare();
    let plain = SharingModel::new(open(TargetLayout::PLAIN), 1);
    let error = plain.fs.share_blocks((one, 0), (two, 1 << 20), 10).unwrap_err().to_string();
    assert!(error.contains("reflink"), "{error}");
}
