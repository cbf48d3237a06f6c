//! Freed space and crashes, with a log in memory.

use std::collections::BTreeMap;

use fastrand::Rng;
use vfs::{AllocateMode, Error, FileSystem, Ino, NewInode};

use crate::mkfs::Options;
use crate::stub::Logged;

const BLOCK: u64 = 4096;

fn small() -> Logged {
    Logged::new(&Options { allow_small: true, ..Options::new(32 << 20) }, 4000)
}

fn create(image: &Logged, name: &str) -> Ino {
    let root = image.fs.root_ino();
    image.fs.create(root, name.as_bytes(), &NewInode::default()).unwrap()
}

fn contents(image: &Logged, ino: Ino) -> Vec<u8> {
    let size = image.fs.attributes(ino).unwrap().size;
    let mut bytes = vec![0; size as usize];
    assert_eq!(image.fs.read(ino, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Writes to a file until no space is left. Returns the number of bytes written.
fn fill(image: &Logged, ino: Ino, byte: u8) -> u64 {
    let mut at = 0;
    let mut len = 1 << 20;
    while len >= BLOCK {
        match image.fs.write(ino, at, &vec![byte; len as usize], None) {
            Ok(()) => at += len,
            Err(Error::NoSpace) => len /= 2,
            Err(error) => panic!("{error}"),
        }
    }
    image.fs.truncate(ino, at, None).unwrap();
    at
}

#[test]
fn freed_space_is_not_written_to_before_a_crash_can_bring_its_file_back() {
    testkit::require!(Tool("xfs_repair"));
    let image = small();
    let root = image.fs.root_ino();
    let (old, new) = (create(&image, "old"), create(&image, "new"));
    image.fs.write(old, 0, &[7; 2 << 20], None).unwrap();
    image.fs.sync().unwrap();
    let before = image.checkpoints();
    image.fs.unlink(root, b"old", None).unwrap();
    image.fs.write(new, 0, &[8; 3 << 20], None).unwrap();
    assert_eq!(image.checkpoints(), before, "there is room elsewhere");
    let crashed = image.crash();
    assert_eq!(contents(&crashed, old), [7; 2 << 20]);
    // Once the checkpoint is durable, the space is reused.
    image.fs.sync().unwrap();
    assert!(!image.fs.volume.ags.has_busy());
    image.judge();
}

#[test]
fn a_full_file_system_writes_a_checkpoint_to_use_what_was_freed() {
    testkit::require!(Tool("xfs_repair"));
    let image = small();
    let (old, new) = (create(&image, "old"), create(&image, "new"));
    image.fs.write(old, 0, &[7; 1 << 20], None).unwrap();
    fill(&image, new, 1);
    image.fs.sync().unwrap();
    let last = create(&image, "last");
    assert!(matches!(image.fs.write(last, 0, &[9; 1 << 20], None), Err(Error::NoSpace)));
    image.fs.truncate(last, 0, None).unwrap();
    image.fs.sync().unwrap();
    image.fs.truncate(old, 0, None).unwrap();
    let before = image.checkpoints();
    image.fs.write(last, 0, &[9; 1 << 20], None).unwrap();
    assert!(image.checkpoints() > before);
    assert!(contents(&image.crash(), old).is_empty());
    assert_eq!(contents(&image, last), [9; 1 << 20]);
    image.judge();
}

/// Files by name. `synced` has the contents at the last sync, if known and not overwritten since.
#[derive(Default)]
struct BusyModel {
    files: BTreeMap<Ino, FileModel>,
}

#[derive(Default)]
struct FileModel {
    now: Vec<u8>,
    synced: Option<Vec<u8>>,
}

impl BusyModel {
    fn step(&mut self, image: &Logged, rng: &mut Rng, serial: &mut u32) {
        let fs = &image.fs;
        let picked = self.files.keys().nth(rng.usize(..self.files.len().max(1))).copied();
        let Some(ino) = picked.filter(|_| self.files.len() > 12 || rng.u8(..4) > 0) else {
            *serial += 1;
            let ino = create(image, &format!("f{serial}"));
            self.files.insert(ino, FileModel::default());
            return;
        };
        let file = self.files.get_mut(&ino).unwrap();
        let at = rng.u64(..64) * BLOCK;
        match rng.u8(..8) {
            0 => {
                let len = (at as usize).min(file.now.len());
                fs.truncate(ino, len as u64, None).unwrap();
                file.now.truncate(len);
            }
            1 | 2 => {
                let len = rng.u64(1..32) * BLOCK;
                fs.allocate(ino, at, len, AllocateMode::PunchHole).unwrap();
                let (start, end) = (at as usize, (at + len) as usize);
                let end = end.min(file.now.len());
                if start < end {
                    file.now[start..end].fill(0);
                }
            }
            _ => {
                let bytes = vec![rng.u8(1..); rng.usize(1..40) * BLOCK as usize];
                let start = file.now.len().next_multiple_of(BLOCK as usize);
                match fs.write(ino, start as u64, &bytes, None) {
                    Ok(()) => {
                        file.now.resize(start, 0);
                        file.now.extend(bytes);
                    }
                    Err(Error::NoSpace) => {
                        // The part that was written is kept.
                        fs.truncate(ino, file.now.len() as u64, None).unwrap();
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    /// Syncs; everything is durable afterwards.
    fn sync(&mut self, image: &Logged) {
        image.fs.sync().unwrap();
        self.files.values_mut().for_each(|file| file.synced = Some(file.now.clone()));
    }

    /// Checks after a crash that files have their contents of the last sync.
    fn check_crash(&self, image: &Logged) {
        let crashed = image.crash();
        for (ino, file) in &self.files {
            if let Some(synced) = &file.synced {
                assert!(contents(&crashed, *ino) == *synced, "inode {ino}");
            }
        }
        crashed.judge();
    }
}

#[test]
fn durable_data_survives_later_frees_and_writes() {
    testkit::require!(Tool("xfs_repair"));
    for seed in 0..3 {
        let mut rng = Rng::with_seed(seed);
        let image = small();
        // Little free space, so that freed space is reused soon.
        let ballast = create(&image, "ballast");
        let filled = fill(&image, ballast, 3);
        image.fs.truncate(ballast, filled - (4 << 20), None).unwrap();
        let mut model = BusyModel::default();
        let mut serial = 0;
        for round in 0..12 {
            model.sync(&image);
            let checkpoints = image.checkpoints();
            for _ in 0..rng.usize(1..25) {
                model.step(&image, &mut rng, &mut serial);
                if image.checkpoints() != checkpoints {
                    // Space ran out, so a checkpoint was written in between.
                    break;
                }
            }
            if image.checkpoints() == checkpoints && round % 3 == 0 {
                model.check_crash(&image);
            }
        }
        for (ino, file) in &model.files {
            assert!(contents(&image, *ino) == file.now);
        }
        image.judge();
    }
}
