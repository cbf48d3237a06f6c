//! Many concurrent threads in separate directories: detects whether queues form.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use engine::lock_counts::recording::{self, ThreadRecords};
use vfs::FileSystem;

use super::cases::{Worker, prepare};
use super::shared::name_of;
use crate::measurements::options::{BuildFormat, ScalabilityOptions};
use crate::measurements::table::Table;

/// Work of a thread.
struct Done {
    operations: u64,
    longest: Duration,
    record: ThreadRecords,
}

/// Measures files created and removed by one thread, by two, and by the requested number.
pub(super) fn run(
    format: BuildFormat,
    options: &ScalabilityOptions,
    table: &mut Table,
) -> Result<(), String> {
    let most = options.workers.iter().copied().max().unwrap_or(1);
    let time = Duration::from_secs_f64(options.seconds);
    for threads in [1, 2, most] {
        let (fs, workers) = prepare(format, threads).map_err(|error| error.to_string())?;
        let began = Instant::now();
        let done = all_at_once(&*fs, workers, time).map_err(|error| error.to_string())?;
        add(table, format, &done, began.elapsed());
    }
    Ok(())
}

fn add(table: &mut Table, format: BuildFormat, done: &[Done], took: Duration) {
    let operations: u64 = done.iter().map(|done| done.operations).sum();
    let each = || done.iter().map(|done| done.operations);
    let (least, most) = (each().min().unwrap_or(0), each().max().unwrap_or(0));
    let longest = done.iter().map(|done| done.longest).max().unwrap_or_default();
    let uses = || done.iter().flat_map(|done| done.record.uses.values());
    let taken: u64 =
        uses().filter(|used| !used.is_counter).map(|used| used.exclusive + used.shared).sum();
    let waits: u64 = uses().map(|used| used.waits).sum();
    let waited: u64 = uses().map(|used| used.waited_ns).sum();
    let worst = uses().max_by_key(|used| used.waited_ns).filter(|used| used.waited_ns > 0);
    let threads_ns = took.as_nanos() as f64 * done.len() as f64;
    table.row(vec![
        format.name().into(),
        done.len().to_string(),
        format!("{:.0}", operations as f64 / took.as_secs_f64()),
        format!("{:.2}", least as f64 / most.max(1) as f64),
        format!("{:.1}", longest.as_secs_f64() * 1e3),
        format!("{:.3} %", waits as f64 / taken.max(1) as f64 * 100.0),
        format!("{:.2} %", waited as f64 / threads_ns * 100.0),
        worst.map_or("", |used| name_of(used.file, used.is_counter)).into(),
    ]);
}

/// Lets threads create and remove files until the time limit.
fn all_at_once(
    fs: &dyn FileSystem,
    workers: Vec<Worker>,
    time: Duration,
) -> vfs::Result<Vec<Done>> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_over = &is_over;
        let threads: Vec<_> = workers
            .into_iter()
            .map(|worker| scope.spawn(move || until(fs, worker, is_over)))
            .collect();
        thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
        let ended = threads.into_iter().map(|thread| thread.join().expect("a thread ended"));
        ended.collect::<Vec<_>>().into_iter().collect()
    })
}

/// At least two operations.
fn until(fs: &dyn FileSystem, mut worker: Worker, is_over: &AtomicBool) -> vfs::Result<Done> {
    recording::start(ThreadRecords::default(), None);
    let (mut operations, mut longest) = (0, Duration::ZERO);
    let mut outcome = Ok(());
    while outcome.is_ok() && (operations == 0 || !is_over.load(Ordering::Relaxed)) {
        let began = Instant::now();
        outcome = worker.make_and_remove(fs, (operations / 2) as u32);
        longest = longest.max(began.elapsed());
        operations += 2;
    }
    let record = recording::stop();
    outcome.map(|()| Done { operations, longest, record })
}
