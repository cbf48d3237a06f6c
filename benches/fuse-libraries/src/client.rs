//! What uses a mount, and takes the time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, OFlags, fadvise};

/// Files of each thread.
const FILES: usize = 10_000;
/// Bytes of one call.
const PIECE: usize = 1 << 20;
/// Calls for each thread's file.
const PIECES: usize = 512;

/// What is measured, in this order, and its unit.
pub const MEASURES: [(&str, &str); 7] = [
    ("create", "files/s"),
    ("stat", "files/s"),
    ("stat of what is not there", "calls/s"),
    ("unlink", "files/s"),
    ("write and fsync", "MiB/s"),
    ("read", "MiB/s"),
    ("read, O_DIRECT", "MiB/s"),
];

/// Figures of one run, in the order and units of [`MEASURES`].
pub type Figures = [f64; MEASURES.len()];

/// Uses the empty mount at `directory` with as many threads, each in a directory and with a file of its
/// own. Leaves it empty.
pub fn run(directory: &Path, threads: usize) -> io::Result<Figures> {
    let workers: Vec<_> = (0..threads).map(|number| Worker::new(directory, number)).collect();
    for worker in &workers {
        fs::create_dir(&worker.directory)?;
        // So that what is written over has its memory already, as the device of a file system would.
        worker.write()?;
    }
    let count = (FILES * threads) as f64;
    let mebibytes = (PIECE * PIECES * threads) as f64 / f64::from(1 << 20);
    let figures = [
        count / timed(&workers, Worker::create)?,
        count / timed(&workers, Worker::stat)?,
        count / timed(&workers, Worker::stat_nothing)?,
        count / timed(&workers, Worker::unlink)?,
        mebibytes / timed(&workers, Worker::write)?,
        mebibytes / timed(&workers, |worker| worker.read(OFlags::empty()))?,
        mebibytes / timed(&workers, |worker| worker.read(OFlags::DIRECT))?,
    ];
    for worker in &workers {
        fs::remove_file(&worker.data)?;
        fs::remove_dir(&worker.directory)?;
    }
    Ok(figures)
}

/// Seconds until all threads are through.
fn timed(workers: &[Worker], task: impl Fn(&Worker) -> io::Result<()> + Sync) -> io::Result<f64> {
    let (start, task) = (&Barrier::new(workers.len() + 1), &task);
    let taken: Duration = thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter()
            .map(|worker| {
                scope.spawn(move || {
                    start.wait();
                    task(worker)
                })
            })
            .collect();
        start.wait();
        let started = Instant::now();
        for thread in threads {
            thread.join().map_err(|_| io::Error::other("a thread panicked"))??;
        }
        Ok::<_, io::Error>(started.elapsed())
    })?;
    Ok(taken.as_secs_f64())
}

struct Worker {
    directory: PathBuf,
    data: PathBuf,
}

impl Worker {
    fn new(parent: &Path, number: usize) -> Self {
        let directory = parent.join(format!("directory-{number}"));
        Self { data: parent.join(format!("data-{number}")), directory }
    }

    fn names(&self, kind: &str) -> impl Iterator<Item = PathBuf> {
        (0..FILES).map(move |number| self.directory.join(format!("{kind}-{number:05}")))
    }

    fn create(&self) -> io::Result<()> {
        self.names("file").try_for_each(|name| File::create_new(name).map(drop))
    }

    fn stat(&self) -> io::Result<()> {
        self.names("file").try_for_each(|name| fs::metadata(name).map(drop))
    }

    fn stat_nothing(&self) -> io::Result<()> {
        match self.names("nothing").find(|name| fs::metadata(name).is_ok()) {
            Some(name) => Err(io::Error::other(format!("{}: exists", name.display()))),
            None => Ok(()),
        }
    }

    fn unlink(&self) -> io::Result<()> {
        self.names("file").try_for_each(fs::remove_file)
    }

    fn write(&self) -> io::Result<()> {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(false).open(&self.data)?;
        let piece = vec![0xA5; PIECE];
        for _ in 0..PIECES {
            file.write_all(&piece)?;
        }
        file.sync_all()?;
        // The whole file: what is read afterwards comes from the mount's process.
        fadvise(&file, 0, None::<NonZeroU64>, Advice::DontNeed)?;
        Ok(())
    }

    fn read(&self, flags: OFlags) -> io::Result<()> {
        let flags = flags.bits() as i32;
        let mut file = OpenOptions::new().read(true).custom_flags(flags).open(&self.data)?;
        let mut piece = vec![0; PIECE];
        for _ in 0..PIECES {
            file.read_exact(&mut piece)?;
            if piece[0] != 0xA5 || piece[PIECE - 1] != 0xA5 {
                return Err(io::Error::other("read something else than was written"));
            }
        }
        fadvise(&file, 0, None::<NonZeroU64>, Advice::DontNeed)?;
        Ok(())
    }
}
