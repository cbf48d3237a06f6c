//! Random changes of files compared with a model in memory, xfs_repair and the kernel.

use crate::support;

use std::path::Path;
use std::sync::Arc;

use disk::FileDevice;
use fastrand::Rng;
use support::files::{Contents, mapped, note_tree};
use support::image::kernel_image;
use testkit::xfs_repair;
use vfs::{AllocateMode, Error, ExtentPlace, FileSystem, Ino};
use xfs::Xfs;

const FILES: usize = 4;

struct ChangedFile {
    ino: Ino,
    bytes: Vec<u8>,
}

/// Range of the random changes, in bytes.
struct Reach {
    block: u64,
    blocks: u64,
}

impl Reach {
    fn place(&self, rng: &mut Rng) -> u64 {
        let block = rng.u64(..self.blocks) * self.block;
        block + if rng.bool() { 0 } else { rng.u64(..self.block) }
    }

    fn len(&self, rng: &mut Rng) -> u64 {
        match rng.u8(..8) {
            0 => rng.u64(1..100),
            1..=4 => self.block,
            5..=6 => rng.u64(1..self.block * 3),
            _ => rng.u64(1..self.block * 30),
        }
    }
}

/// Returns random bytes without long runs of zeros.
fn random_bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

fn change(fs: &Xfs, file: &mut ChangedFile, reach: &Reach, rng: &mut Rng) {
    let (at, len) = (reach.place(rng), reach.len(rng));
    let end = (at + len) as usize;
    match rng.u8(..16) {
        0..=6 => {
            let data = random_bytes(rng, len as usize);
            fs.write(file.ino, at, &data, None).unwrap();
            file.bytes.resize(file.bytes.len().max(end), 0);
            file.bytes[at as usize..end].copy_from_slice(&data);
        }
        7..=10 => {
            fs.allocate(file.ino, at, len, AllocateMode::PunchHole).unwrap();
            zero(file, at as usize, end);
        }
        11 => {
            fs.allocate(file.ino, at, len, AllocateMode::Unwritten).unwrap();
            file.bytes.resize(file.bytes.len().max(end), 0);
        }
        12 => fs.allocate(file.ino, at, len, AllocateMode::UnwrittenKeepSize).unwrap(),
        13 => {
            fs.allocate(file.ino, at, len, AllocateMode::Zero).unwrap();
            file.bytes.resize(file.bytes.len().max(end), 0);
            zero(file, at as usize, end);
        }
        14 => {
            fs.allocate(file.ino, at, len, AllocateMode::ZeroKeepSize).unwrap();
            zero(file, at as usize, end);
        }
        _ => {
            let size = if rng.u8(..4) == 0 { at } else { file.bytes.len() as u64 + len };
            let size = size.min(reach.blocks * reach.block);
            fs.truncate(file.ino, size, None).unwrap();
            file.bytes.resize(size as usize, 0);
        }
    }
    assert_eq!(fs.attributes(file.ino).unwrap().size, file.bytes.len() as u64);
}

fn zero(file: &mut ChangedFile, from: usize, to: usize) {
    let to = to.min(file.bytes.len());
    if from < to {
        file.bytes[from..to].fill(0);
    }
}

fn assert_reads(fs: &Xfs, file: &ChangedFile) {
    let mut found = vec![0xee; file.bytes.len() + 10];
    assert_eq!(fs.read(file.ino, 0, &mut found).unwrap(), file.bytes.len());
    found.truncate(file.bytes.len());
    assert_same(&found, &file.bytes);
}

fn assert_same(found: &[u8], expected: &[u8]) {
    let differs = || found.iter().zip(expected).position(|(a, b)| a != b);
    assert!(
        found == expected,
        "{} of {} bytes, differs at {:?}",
        found.len(),
        expected.len(),
        differs()
    );
}

fn make_empty(root: &Path) {
    for index in 0..FILES {
        std::fs::File::create(root.join(format!("file-{index}"))).unwrap();
    }
}

fn open_in_progress(path: &Path) -> Xfs {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    Xfs::open_in_progress(Arc::new(FileDevice::new(file).unwrap()), 64 << 20).unwrap()
}

/// Makes `steps` random changes within `blocks` blocks. Afterwards a file must have more than `extents_min` extents.
fn run(options: &str, seed: u64, steps: usize, blocks: u64, extents_min: usize) {
    let (image, expected) = kernel_image(options, |root, _| make_empty(root), note_tree);
    let fs = open_in_progress(image.path());
    let mut files: Vec<ChangedFile> =
        expected.iter().map(|e| ChangedFile { ino: Ino(e.ino), bytes: Vec::new() }).collect();
    assert_eq!(files.len(), FILES);
    let block = fs.superblock().raw.blocksize.get().into();
    let reach = Reach { block, blocks };
    let mut rng = Rng::with_seed(seed);
    for step in 0..steps {
        let file = &mut files[rng.usize(..FILES)];
        change(&fs, file, &reach, &mut rng);
        if step % 64 == 0 {
            assert_reads(&fs, file);
        }
    }
    let maps: Vec<_> = files.iter().map(|file| mapped(&fs, file.ino)).collect();
    for file in &files {
        assert_reads(&fs, file);
    }
    let longest = maps.iter().map(Vec::len).max().unwrap();
    assert!(longest > extents_min, "only {longest} extents");
    fs.finish(None).unwrap();
    drop(fs);
    xfs_repair(image.path());
    image.assert_read_by_kernel(|root| {
        for (one, (file, map)) in note_tree(root).iter().zip(files.iter().zip(&maps)) {
            assert_eq!(one.size, file.bytes.len() as u64);
            let Contents::File(parts) = &one.contents else { panic!("{} is a file", one.name) };
            let runs: Vec<_> = parts.iter().map(|(run, _)| *run).collect();
            assert_eq!(runs, *map, "map of {}", one.name);
            let bytes = std::fs::read(root.join(&one.name)).unwrap();
            assert_same(&bytes, &file.bytes);
        }
    });
    // Remove everything again.
    let fs = open_in_progress(image.path());
    for file in &files {
        fs.truncate(file.ino, 0, None).unwrap();
        fs.allocate(file.ino, 0, u64::MAX / 4, AllocateMode::PunchHole).unwrap();
        assert_eq!(fs.attributes(file.ino).unwrap().blocks_512, 0);
    }
    fs.finish(None).unwrap();
    xfs_repair(image.path());
}

#[test]
fn changes_in_small_blocks() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Tool("filefrag"), Mount("xfs"));
    run("-b size=1024 -m rmapbt=0,reflink=0", 1, 4000, 6000, 150);
}

#[test]
fn changes_in_usual_blocks() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Tool("filefrag"), Mount("xfs"));
    run("-m rmapbt=0", 2, 3000, 900, 100);
}

#[test]
fn changes_in_large_blocks() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Tool("filefrag"), Mount("xfs"));
    run("-b size=65536", 3, 800, 90, 22);
}

#[test]
fn changes_without_recent_features() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Tool("filefrag"), Mount("xfs"));
    run("-m rmapbt=0,reflink=0,bigtime=0 -i nrext64=0 -n parent=0 -b size=2048", 4, 3000, 900, 100);
}

#[test]
fn changes_with_the_reverse_map() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Tool("filefrag"), Mount("xfs"));
    run("", 5, 3000, 900, 100);
    run("-b size=1024", 7, 4000, 6000, 150);
}

/// An extent map grows to three levels and shrinks in random order.
fn grow_and_shrink(options: &str) {
    let (image, expected) = kernel_image(options, |root, _| make_empty(root), note_tree);
    let fs = open_in_progress(image.path());
    let ino = Ino(expected[0].ino);
    let count = 4000;
    let mut order: Vec<u64> = (0..count).collect();
    let mut rng = Rng::with_seed(7);
    rng.shuffle(&mut order);
    let block_of = |index: u64| index.to_be_bytes().repeat(128);
    for &index in &order {
        fs.write(ino, index * 2048, &block_of(index), None).unwrap();
    }
    assert!(mapped(&fs, ino).len() as u64 == count);
    fs.finish(None).unwrap();
    drop(fs);
    xfs_repair(image.path());
    let (fs, mut found) = (open_in_progress(image.path()), vec![0; 1024]);
    rng.shuffle(&mut order);
    for (step, &index) in order.iter().enumerate() {
        fs.read(ino, index * 2048, &mut found).unwrap();
        assert_same(&found, &block_of(index));
        fs.allocate(ino, index * 2048, 1024, AllocateMode::PunchHole).unwrap();
        fs.read(ino, index * 2048, &mut found).unwrap();
        assert_same(&found, &[0; 1024]);
        if step as u64 == count - 25 || step as u64 == count - 18 {
            fs.finish(None).unwrap();
            xfs_repair(image.path());
        }
    }
    assert_eq!(fs.attributes(ino).unwrap().blocks_512, 0);
    fs.finish(None).unwrap();
    xfs_repair(image.path());
}

#[test]
fn maps_of_several_levels_grow_and_shrink() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Tool("filefrag"), Mount("xfs"));
    grow_and_shrink("-b size=1024 -m rmapbt=0");
    grow_and_shrink("-b size=1024");
}

#[test]
fn space_of_a_builder_lies_in_one_piece() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Tool("filefrag"), Mount("xfs"));
    let (image, expected) = kernel_image("", |root, _| make_empty(root), note_tree);
    let fs = open_in_progress(image.path());
    let len = 20 << 20;
    let mut end = None;
    for one in &expected {
        fs.allocate(Ino(one.ino), 0, len, AllocateMode::Exposed).unwrap();
        let runs = mapped(&fs, Ino(one.ino));
        assert_eq!(runs.len(), 1, "{runs:?}");
        let ExtentPlace::Device(at) = runs[0].place else { panic!("{runs:?}") };
        assert!(end.is_none_or(|end| end == at), "files lie apart: {end:?}, {at}");
        end = Some(at + runs[0].len);
    }
}

/// Returns the contents of all regular files.
fn snapshot(fs: &Xfs, inos: &[Ino]) -> Vec<(Vec<u8>, u64)> {
    let read = |&ino: &Ino| {
        let attributes = fs.attributes(ino).unwrap();
        let mut bytes = vec![0; attributes.size as usize];
        fs.read(ino, 0, &mut bytes).unwrap();
        (bytes, attributes.blocks_512)
    };
    inos.iter().map(read).collect()
}

#[test]
fn a_full_image_refuses_and_keeps_what_it_has() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Tool("filefrag"), Mount("xfs"));
    let (image, expected) = kernel_image("", |root, _| make_empty(root), note_tree);
    let fs = open_in_progress(image.path());
    let inos: Vec<Ino> = expected.iter().map(|e| Ino(e.ino)).collect();
    for (index, &ino) in inos.iter().enumerate() {
        fs.write(ino, 0, &vec![index as u8 + 1; 100_000], None).unwrap();
    }
    let mut room: u64 = 1 << 30;
    let mut at = 1 << 20;
    while room > 2048 {
        match fs.allocate(inos[0], at, room, AllocateMode::UnwrittenKeepSize) {
            Ok(()) => at += room,
            Err(error) => {
                assert!(matches!(error, Error::NoSpace), "{error}");
                room /= 2;
            }
        }
    }
    let before = snapshot(&fs, &inos);
    for &ino in &inos {
        let refused = fs.write(ino, 90_000, &vec![9; 4 << 20], None);
        assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
    }
    // A failed operation did not even overwrite existing data.
    assert!(snapshot(&fs, &inos) == before);
    for &ino in &inos {
        fs.truncate(ino, 10, None).unwrap();
        fs.truncate(ino, 20, None).unwrap();
    }
    for (one, (ino, (bytes, _))) in expected.iter().zip(inos.iter().zip(&before)) {
        let mut found = [0xee; 20];
        fs.read(*ino, 0, &mut found).unwrap();
        assert_eq!((&found[..10], &found[10..]), (&bytes[..10], &[0; 10][..]), "{}", one.name);
    }
    fs.finish(None).unwrap();
    xfs_repair(image.path());
}

#[test]
fn changes_of_shared_data_affect_only_one_file() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Tool("filefrag"), Mount("xfs"));
    let share = |root: &Path, _| {
        std::fs::write(root.join("a"), vec![7; 100_000]).unwrap();
        let (a, b) = (std::fs::File::open(root.join("a")), std::fs::File::create(root.join("b")));
        rustix::fs::ioctl_ficlone(b.unwrap(), a.unwrap()).unwrap();
    };
    let (image, expected) = kernel_image("", share, note_tree);
    let fs = open_in_progress(image.path());
    let (changed, kept) = expected.split_first().unwrap();
    let ino = Ino(changed.ino);
    fs.write(ino, 50, &[1], None).unwrap();
    fs.allocate(ino, 5000, 10, AllocateMode::PunchHole).unwrap();
    fs.allocate(ino, 9000, 10, AllocateMode::Zero).unwrap();
    // The rest of a block is zeroed.
    fs.truncate(ino, 50_001, None).unwrap();
    fs.truncate(ino, 60_000, None).unwrap();
    kept.iter().for_each(|one| support::files::assert_contents(&fs, one));
    let mut found = vec![0; 60_000];
    assert_eq!(fs.read(ino, 0, &mut found).unwrap(), found.len());
    let mut bytes = [vec![7; 50_001], vec![0; 9_999]].concat();
    bytes[50] = 1;
    bytes[5000..5010].fill(0);
    bytes[9000..9010].fill(0);
    assert!(found == bytes);
    // One of two files frees its shared blocks; the other keeps them.
    fs.truncate(ino, 0, None).unwrap();
    fs.finish(None).unwrap();
    drop(fs);
    xfs_repair(image.path());
    let fs = support::image::open(image.path());
    assert_eq!(fs.attributes(ino).unwrap().blocks_512, 0);
    kept.iter().for_each(|one| support::files::assert_contents(&fs, one));
}
