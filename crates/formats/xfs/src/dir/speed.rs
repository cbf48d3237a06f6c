//! Measures how long adding and removing an entry takes:
//! `cargo test -p diskwright-xfs --lib dir::speed -- --ignored --nocapture`.

use operations::RunOperations;
use std::sync::Arc;
use std::time::Duration;

use disk::MemoryDevice;
use vfs::{FileSystem, FileType, Ino, NewInode, Timestamp};

use super::{Entry, FreeIndexStrategy};
use crate::inode::Handle;
use crate::mkfs::{self, Options, PreviousContents};
use crate::{CACHE_BYTES_DEFAULT, Xfs};

/// Returns the CPU time of this thread, which does not depend on the load of the machine.
fn clock() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

struct Bench {
    fs: Xfs,
    dir: Handle,
    file: Ino,
}

impl Bench {
    fn new(strategy: FreeIndexStrategy, size: u64) -> Self {
        let options = Options {
            uuid: [1; 16],
            time: Timestamp { sec: 1_600_000_000, nsec: 0 },
            ..Options::new(size)
        };
        let device = Arc::new(MemoryDevice::new(size));
        mkfs::format(&*device, &mkfs::plan(&options).unwrap(), PreviousContents::Zeros).unwrap();
        let mut fs = Xfs::open_in_progress(device, CACHE_BYTES_DEFAULT * 4).unwrap();
        fs.set_free_index(strategy);
        let new = NewInode { permissions: 0o755, ..NewInode::default() };
        let dir = fs.mkdir(fs.root(), b"dir", &new).unwrap();
        let file = fs.create(fs.root(), b"file", &new).unwrap();
        let dir = fs.load(dir).unwrap();
        Self { fs, dir, file }
    }

    fn add(&mut self, name: &[u8]) {
        let entry = Entry { name, ino: self.file, file_type: FileType::Regular };
        let before = &self.dir;
        let after = self.fs.atomically(|op| {
            let mut dir = before.clone();
            op.add_entry(&mut dir, entry)?;
            op.stage_if_changed(dir.clone(), before);
            Ok(dir)
        });
        self.dir = after.unwrap();
    }

    fn remove(&mut self, name: &[u8]) {
        let before = &self.dir;
        let after = self.fs.atomically(|op| {
            let mut dir = before.clone();
            op.remove_entry(&mut dir, name, None)?;
            op.stage_if_changed(dir.clone(), before);
            Ok(dir)
        });
        self.dir = after.unwrap();
    }
}

fn count_max() -> u64 {
    std::env::var("ENTRIES").ok().and_then(|text| text.parse().ok()).unwrap_or(200_000)
}

/// Returns a name of 40 bytes as fs_mark makes them: 16 digits that count up, then random characters.
fn mark_name(number: u64, rng: &mut fastrand::Rng) -> [u8; 40] {
    let mut name = [b'0'; 40];
    let digits = format!("{number:016}");
    name[..16].copy_from_slice(digits.as_bytes());
    name[16..].fill_with(|| rng.alphanumeric() as u8);
    name
}

#[test]
#[ignore = "a measurement"]
fn growing() {
    let all = [
        FreeIndexStrategy::ForwardDecode,
        FreeIndexStrategy::Forward,
        FreeIndexStrategy::Reverse,
        FreeIndexStrategy::BlockSkip,
        FreeIndexStrategy::Tree,
    ];
    let only = std::env::var("STRATEGY").unwrap_or_default();
    for strategy in all.into_iter().filter(|s| format!("{s:?}").contains(&only)) {
        let mut run = Bench::new(strategy, 4 << 30);
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut start, mut done) = (clock(), 0_u64);
        let mut next = 10_000;
        for number in 0..count_max() {
            run.add(&mark_name(number, &mut rng));
            if number + 1 == next {
                let ns = (clock() - start).as_nanos() as u64 / (next - done);
                println!("{strategy:?}: {ns} ns per entry up to {next}");
                (start, done) = (clock(), next);
                next = if next.to_string().starts_with('1') { next * 2 } else { next * 5 };
            }
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn random() {
    for strategy in
        [FreeIndexStrategy::Reverse, FreeIndexStrategy::BlockSkip, FreeIndexStrategy::Tree]
    {
        let mut run = Bench::new(strategy, 4 << 30);
        let mut rng = fastrand::Rng::with_seed(1);
        let mut name = || {
            let len = rng.usize(8..=200);
            (0..len).map(|_| rng.alphanumeric() as u8).collect::<Vec<_>>()
        };
        let mut names: Vec<_> = (0..count_max()).map(|_| name()).collect();
        names.sort();
        names.dedup();
        fastrand::Rng::with_seed(2).shuffle(&mut names);
        names.iter().for_each(|name| run.add(name));
        let gone = names.split_off(names.len() / 2);
        let start = clock();
        gone.iter().for_each(|name| run.remove(name));
        let ns = (clock() - start).as_nanos() / gone.len() as u128;
        println!("{strategy:?}: {ns} ns per removal down to {}", names.len());
        let start = clock();
        let mut rng = fastrand::Rng::with_seed(3);
        let steps = 50_000;
        for step in 0..steps {
            let new = name();
            run.add(&new);
            let at = rng.usize(..names.len());
            let old = std::mem::replace(&mut names[at], new);
            run.remove(&old);
            if step == 2_000 && (clock() - start).as_secs() > 20 {
                println!("{strategy:?}: {:?} for {step} pairs", (clock() - start));
                return;
            }
        }
        println!(
            "{strategy:?}: {} ns per removal and insert, {} blocks",
            (clock() - start).as_nanos() / steps,
            run.dir.inode.nblocks()
        );
    }
}
