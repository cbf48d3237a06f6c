//! A load on a mounted directory similar to fsstress: several threads use all system calls endlessly, and record which
//! files they made durable.
//!
//! The results of calls are ignored, because threads interfere with each other. Durable files are checked: see
//! [`Promise`].

mod calls;
mod promise;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use fastrand::Rng;

use calls::Worker;
use promise::Keeper;
pub use promise::{Promise, Promises};

/// The load, which runs until it is stopped.
#[derive(Debug)]
pub struct Stress {
    is_over: Arc<AtomicBool>,
    promises: Arc<Promises>,
    workers: Vec<JoinHandle<u64>>,
}

impl Stress {
    /// Starts in directories that it creates. The actions of each thread follow from the seed, as far as the other
    /// threads permit.
    ///
    /// # Panics
    /// If the directories cannot be created.
    pub fn start(root: &Path, threads: u64, seed: u64) -> Self {
        for name in ["shared", "kept"] {
            std::fs::create_dir(root.join(name)).expect("a new directory");
        }
        let (is_over, promises) = (Arc::new(AtomicBool::new(false)), Arc::new(Promises::default()));
        let start = |number: u64| {
            let own = root.join(format!("own-{number}"));
            std::fs::create_dir(&own).expect("a new directory");
            let rng = Rng::with_seed(seed * 1_000 + number);
            let keeper = Keeper::new(root.join("kept"), number, promises.clone());
            let worker = Worker::new(vec![own, root.join("shared")], rng, keeper);
            let is_over = is_over.clone();
            thread::spawn(move || work(worker, &is_over))
        };
        Self { workers: (0..threads).map(start).collect(), is_over, promises }
    }

    /// Returns the files that are durable now.
    pub fn promises(&self) -> Vec<Promise> {
        self.promises.all()
    }

    /// Stops, and returns the number of calls. Errors caused by a shutdown of the file system are ignored.
    ///
    /// # Panics
    /// If a thread panicked.
    pub fn stop(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.workers.into_iter().map(|worker| worker.join().expect("a thread to end")).sum()
    }
}

fn work(mut worker: Worker, is_over: &AtomicBool) -> u64 {
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        worker.step();
        count += 1;
    }
    count
}

/// Returns the bytes that belong to a number.
fn bytes_of(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

fn sync_dir(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()
}

/// Returns a path below another one.
fn below(dir: &Path, name: impl AsRef<Path>) -> PathBuf {
    dir.join(name)
}
