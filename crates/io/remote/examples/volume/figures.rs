//! Measures the cost of synced work on a volume: puts per fsync, and synced creates per second by 16 threads. The
//! bucket is in memory and takes 20 ms per request.

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../tests/volume/bucket.rs"]
mod bucket;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../tests/volume/file_system.rs"]
mod file_system;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bucket::{Bucket, options};
use diskwright_remote::volume::Volume;
use file_system::{Fs, OpenedFs, put};

const THREADS: u64 = 16;
const DELAY_MS: u64 = 20;
const TIME: Duration = Duration::from_secs(10);
const FSYNCS: u64 = 100;
const LEN: u64 = 1 << 30;

fn open(fs: Fs, bucket: &Bucket) -> OpenedFs {
    fs.make_of(bucket, LEN);
    fs.open(Arc::new(Volume::open(&bucket.at("v"), &options()).unwrap())).unwrap()
}

/// Returns the puts per file of 1 KiB created with fsync, by one thread.
fn puts_per_fsync(fs: Fs) -> f64 {
    let bucket = Bucket::new();
    let open = open(fs, &bucket);
    let before = bucket.puts();
    for number in 0..FSYNCS {
        let ino = put(open.fs(), &format!("{number}"), &[1; 1024]).unwrap();
        open.fs().fsync(ino).unwrap();
    }
    (bucket.puts() - before) as f64 / FSYNCS as f64
}

/// Returns the files of 1 KiB created with fsync per second by all threads, and the puts per file.
fn synced_creates(fs: Fs) -> (f64, f64) {
    let bucket = Bucket::new();
    let open = open(fs, &bucket);
    bucket.conduct.delay_ms.store(DELAY_MS, Ordering::Relaxed);
    let (before, begun) = (bucket.puts(), Instant::now());
    let made = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (open, made) = (&open, &made);
            scope.spawn(move || {
                for number in 0_u64.. {
                    if begun.elapsed() > TIME {
                        break;
                    }
                    let ino = put(open.fs(), &format!("{thread}-{number}"), &[1; 1024]).unwrap();
                    open.fs().fsync(ino).unwrap();
                    made.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let made = made.into_inner() as f64;
    let figures = (made / begun.elapsed().as_secs_f64(), (bucket.puts() - before) as f64 / made);
    bucket.conduct.delay_ms.store(0, Ordering::Relaxed);
    figures
}

fn main() {
    for fs in [Fs::Ext4, Fs::Xfs] {
        println!("{fs:?}: {:.2} puts for each fsync of one thread", puts_per_fsync(fs));
        let (creates, puts) = synced_creates(fs);
        println!(
            "{fs:?}: {creates:.0} synced creates a second from {THREADS} threads with {DELAY_MS} ms a request, {puts:.2} \
             puts for each"
        );
    }
}
