//! Remembered positions of chunks do not affect results: images are the same without them.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use fastrand::Rng;
use operations::RunOperations;
use vfs::{Error, FileSystem, FileType, Ino};

use super::KnownChunks;
use crate::Xfs;
use crate::inode::Handle;
use crate::mkfs::{self, Options, PreviousContents};

const SIZE: u64 = 48 << 20;

/// Small blocks, so that the trees of inodes have several leaves.
fn make() -> (Arc<MemoryDevice>, Xfs) {
    let options = Options { allow_small: true, block_size: 1024, ..Options::new(SIZE) };
    let device = Arc::new(MemoryDevice::new(SIZE));
    mkfs::format(&*device, &mkfs::plan(&options).unwrap(), PreviousContents::Zeros).unwrap();
    let fs = Xfs::open_writable(device.clone(), &Default::default()).unwrap();
    (device, fs)
}

fn forget(fs: &Xfs) {
    for ag in fs.volume.geometry.ags() {
        fs.atomically(|op| {
            op.ag(ag)?.guard.known_chunks = KnownChunks::default();
            Ok(())
        })
        .unwrap();
    }
}

/// Allocates an inode. If `fails`, fails the operation after the allocation.
fn take(fs: &Xfs, parent: &Handle, is_dir: bool, fails: bool) -> Option<Ino> {
    let taken = fs.atomically(|op| {
        let mut handle = op.allocate_inode(parent, is_dir)?;
        if fails {
            return Err(Error::Invalid("on purpose").into());
        }
        handle.inode.set_mode(FileType::Regular, 0o644);
        handle.inode.set_nlink(1);
        let ino = handle.ino();
        op.stage(handle);
        Ok(ino)
    });
    taken.ok()
}

/// Allocates and frees inodes near several others, in long runs and at random. Returns how often a chunk was
/// remembered, and all bytes of the image.
fn run(seed: u64, forgets: bool) -> (usize, Vec<u8>) {
    let (device, fs) = make();
    let mut rng = Rng::with_seed(seed);
    let parents: Vec<Handle> = (0..4)
        .map(|_| {
            let root = fs.load(fs.root_ino()).unwrap();
            fs.load(take(&fs, &root, true, false).unwrap()).unwrap()
        })
        .collect();
    let (mut used, mut known) = (Vec::new(), 0);
    for round in 0..60 {
        let (grows, parent) = (rng.u32(..100) < 65, rng.usize(..parents.len()));
        let is_random = round % 3 == 0;
        for _ in 0..rng.usize(1..250) {
            if forgets {
                forget(&fs);
            }
            let parent = if is_random { rng.usize(..parents.len()) } else { parent };
            if grows || used.is_empty() {
                let fails = rng.u32(..20) == 0;
                used.extend(take(&fs, &parents[parent], false, fails));
            } else {
                let at = if is_random { rng.usize(..used.len()) } else { used.len() - 1 };
                let ino = if rng.bool() { used.swap_remove(at) } else { used.remove(at / 2) };
                let handle = fs.load(ino).unwrap();
                fs.atomically(|op| {
                    op.free_inode(handle.clone());
                    Ok(())
                })
                .unwrap();
            }
            let states = fs.volume.ags.states();
            known += states.filter(|(_, s)| s.known_chunks != KnownChunks::default()).count();
        }
        if round % 7 == 0 {
            fs.sync().unwrap();
        }
    }
    assert!(used.len() > 1000, "the trees have several leaves");
    fs.sync().unwrap();
    drop(fs);
    let mut image = vec![0; SIZE as usize];
    device.read_at(0, &mut image).unwrap();
    (known, image)
}

#[test]
fn an_image_does_not_depend_on_cached_data() {
    for seed in 0..3 {
        let (known, image) = run(seed, false);
        assert!(known > 1000);
        let (_, other) = run(seed, true);
        let differs = image.iter().zip(&other).position(|(byte, other)| byte != other);
        assert_eq!(differs, None, "seed {seed}");
    }
}
