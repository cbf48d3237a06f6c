//! The load on a mount, with time measurement.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, OFlags, fadvise};
use rustix::time::{ClockId, clock_gettime};

/// Default number of files per thread.
pub const FILES: usize = 10_000;
/// Size of a call in bytes.
const PIECE: usize = 1 << 20;
/// Number of calls for each thread's file.
const PIECES: usize = 512;

/// Measured operations in their order, with units.
pub const MEASURES: [(&str, &str); 7] = [
    ("create", "files/s"),
    ("stat", "files/s"),
    ("stat of what is not there", "calls/s"),
    ("unlink", "files/s"),
    ("write and fsync", "MiB/s"),
    ("read", "MiB/s"),
    ("read, O_DIRECT", "MiB/s"),
];

/// One figure of a run.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Rate in the unit of its measure.
    pub rate: f64,
    /// Processor time for one file, call or MiB in microseconds, as far as it is known. The kernel's write-back
    /// threads are not included.
    pub work: f64,
}

/// Figures of one run, in the order of [`MEASURES`].
pub type Figures = [Figure; MEASURES.len()];

/// Uses the empty mount at `directory` with `threads` threads. Each has a directory with `files` files, and one file
/// for contents. Leaves the mount empty. `worked` returns the processor time of all processes involved.
pub fn run(
    directory: &Path,
    threads: usize,
    files: usize,
    worked: &dyn Fn() -> io::Result<Duration>,
) -> io::Result<Figures> {
    let workers: Vec<_> =
        (0..threads).map(|number| Worker::new(directory, number, files)).collect();
    for worker in &workers {
        fs::create_dir(&worker.directory)?;
        // Allocates the memory of overwritten data first, like the device of a file system.
        worker.write()?;
    }
    let measure = |units: usize, task: &(dyn Fn(&Worker) -> io::Result<()> + Sync)| {
        let (units, before) = ((units * threads) as f64, worked()?);
        let rate = units / timed(&workers, task)?;
        Ok::<_, io::Error>(Figure { rate, work: (worked()? - before).as_secs_f64() * 1e6 / units })
    };
    let mebibytes = (PIECE * PIECES) >> 20;
    let figures = [
        measure(files, &Worker::create)?,
        measure(files, &Worker::stat)?,
        measure(files, &Worker::stat_nothing)?,
        measure(files, &Worker::unlink)?,
        measure(mebibytes, &Worker::write)?,
        measure(mebibytes, &|worker| worker.read(OFlags::empty()))?,
        measure(mebibytes, &|worker| worker.read(OFlags::DIRECT))?,
    ];
    for worker in &workers {
        fs::remove_file(&worker.data)?;
        fs::remove_dir(&worker.directory)?;
    }
    Ok(figures)
}

/// Returns the seconds until all threads are finished.
fn timed(workers: &[Worker], task: &(dyn Fn(&Worker) -> io::Result<()> + Sync)) -> io::Result<f64> {
    let start = &Barrier::new(workers.len() + 1);
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
        // Starts the clock before the barrier opens: afterwards this thread may have to wait for a processor.
        let started = Instant::now();
        start.wait();
        for thread in threads {
            thread.join().map_err(|_| io::Error::other("a thread panicked"))??;
        }
        Ok::<_, io::Error>(started.elapsed())
    })?;
    Ok(taken.as_secs_f64())
}

/// Returns the processor time of this process.
pub fn own_work() -> io::Result<Duration> {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

struct Worker {
    files: usize,
    directory: PathBuf,
    data: PathBuf,
}

impl Worker {
    fn new(parent: &Path, number: usize, files: usize) -> Self {
        let directory = parent.join(format!("directory-{number}"));
        Self { files, data: parent.join(format!("data-{number}")), directory }
    }

    fn names(&self, kind: &str) -> impl Iterator<Item = PathBuf> {
        (0..self.files).map(move |number| self.directory.join(format!("{kind}-{number:05}")))
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
        // Invalidates the whole file, so that later reads reach the server of the mount.
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
