//! Threads that take turns, so that only one runs at a time. The locks and counters of an operation are then recorded
//! as if every thread had a processor, and no time is spent waiting.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Instant;

use engine::lock_counts::recording::{self, ThreadRecords};
use vfs::FileSystem;

use super::cases::{CASES, CHECKPOINT_THREADS, OperationCase, Worker, prepare};
use crate::measurements::options::BuildFormat;

/// Result of one case.
pub(super) struct Measured {
    pub(super) case: &'static OperationCase,
    /// Number of operations of all threads.
    pub(super) operations: u64,
    /// Their total time in nanoseconds, without the time of recording.
    pub(super) ns: f64,
    /// The checkpoint that makes all of it durable.
    pub(super) checkpoint: CheckpointTime,
    /// Record of each thread.
    pub(super) records: Vec<ThreadRecords>,
}

/// Processor time of a checkpoint, in nanoseconds.
#[derive(Clone, Copy, Default)]
pub(super) struct CheckpointTime {
    /// Time of all threads.
    pub(super) all_ns: f64,
    /// Time of the thread that leads it, without its share of the work that other threads do at the same time.
    pub(super) alone_ns: f64,
}

/// Time that the leading thread spent in work shared with others, in nanoseconds. Negative between beginning and end.
static SHARED_NS: AtomicI64 = AtomicI64::new(0);

fn thread_ns() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

impl CheckpointTime {
    fn now() -> Self {
        engine::lock_counts::observe_shared_work(|begins| {
            let now = thread_ns();
            SHARED_NS.fetch_add(if begins { -now } else { now }, Ordering::Relaxed);
        });
        let all = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Self {
            all_ns: all.tv_sec as f64 * 1e9 + all.tv_nsec as f64,
            alone_ns: (thread_ns() - SHARED_NS.load(Ordering::Relaxed)) as f64,
        }
    }

    /// Returns the time for each of `count` operations.
    pub(super) fn for_each_of(self, count: u64) -> Self {
        let count = count.max(1) as f64;
        Self { all_ns: self.all_ns / count, alone_ns: self.alone_ns / count }
    }

    /// Returns the time with a processor for each of the threads.
    pub(super) fn with_processors(self) -> f64 {
        let threads = CHECKPOINT_THREADS.map_or(1.0, |threads| threads.get() as f64);
        self.alone_ns + (self.all_ns - self.alone_ns) / threads
    }

    fn since(self, before: Self) -> Self {
        Self { all_ns: self.all_ns - before.all_ns, alone_ns: self.alone_ns - before.alone_ns }
    }
}

/// Settings of the turns.
#[derive(Clone, Copy)]
pub(super) struct TurnSettings {
    pub(super) format: BuildFormat,
    pub(super) workers: u32,
    /// Number of files of each thread.
    pub(super) files: u32,
    /// Number of operations of a turn.
    pub(super) turn: u32,
    /// Time of a record that it does not measure itself, in nanoseconds.
    pub(super) unseen_ns: f64,
}

/// The thread whose turn it is.
struct Baton {
    turn: AtomicUsize,
    is_stopped: AtomicBool,
}

/// Work of a worker in one case.
#[derive(Default)]
struct WorkerShare {
    operations: u64,
    ns: u64,
    record: ThreadRecords,
}

/// Runs all cases. Returns the records of each.
pub(super) fn run(plan: &TurnSettings) -> Result<Vec<Measured>, String> {
    let (fs, workers) = prepare(plan.format, plan.workers).map_err(|error| error.to_string())?;
    let mut measured = Vec::new();
    let mut workers = workers;
    for case in &CASES {
        let parts = run_case(&*fs, &mut workers, (case, plan))
            .map_err(|error| format!("{}: {error}", case.name))?;
        // Writes pending changes first, so that they do not affect the next case.
        let before = CheckpointTime::now();
        fs.sync().map_err(|error| error.to_string())?;
        if !case.is_between {
            let checkpoint = CheckpointTime::now().since(before);
            measured.push(Measured { checkpoint, ..sum(case, parts, plan.unseen_ns) });
        }
    }
    Ok(measured)
}

fn sum(case: &'static OperationCase, parts: Vec<WorkerShare>, unseen_ns: f64) -> Measured {
    let operations = parts.iter().map(|part| part.operations).sum();
    let ns = parts.iter().map(|part| {
        let noting = part.record.noting_ns as f64 + part.record.notes as f64 * unseen_ns;
        part.ns as f64 - noting
    });
    let ns = ns.sum::<f64>().max(0.0);
    let records = parts.into_iter().map(|part| part.record).collect();
    Measured { case, operations, ns, checkpoint: CheckpointTime::default(), records }
}

fn run_case(
    fs: &dyn FileSystem,
    workers: &mut [Worker],
    (case, plan): (&OperationCase, &TurnSettings),
) -> vfs::Result<Vec<WorkerShare>> {
    let count = workers.len();
    let baton = Baton { turn: AtomicUsize::new(usize::MAX), is_stopped: AtomicBool::new(false) };
    thread::scope(|scope| {
        let baton = &baton;
        let (send, receive): (Vec<_>, Vec<_>) =
            (0..count).map(|_| std::sync::mpsc::channel::<Thread>()).unzip();
        let threads: Vec<_> = workers
            .iter_mut()
            .zip(receive)
            .enumerate()
            .map(|(number, (worker, next))| {
                scope.spawn(move || {
                    let next = next.recv().unwrap_or_else(|_| thread::current());
                    take_turns(fs, worker, (case, plan), (baton, number, count, &next))
                })
            })
            .collect();
        for (number, send) in send.into_iter().enumerate() {
            let next = threads[(number + 1) % count].thread().clone();
            send.send(next).expect("a thread waits for the one after it");
        }
        baton.turn.store(0, Ordering::Release);
        threads[0].thread().unpark();
        let ended = threads.into_iter().map(|thread| thread.join().expect("a thread ended"));
        ended.collect::<Vec<_>>().into_iter().collect()
    })
}

/// Executes a thread's operations, each turn after those of all preceding threads.
fn take_turns(
    fs: &dyn FileSystem,
    worker: &mut Worker,
    (case, plan): (&OperationCase, &TurnSettings),
    (baton, number, count, next): (&Baton, usize, usize, &Thread),
) -> vfs::Result<WorkerShare> {
    let mut part = WorkerShare::default();
    let (operations, mut at) = (plan.files / case.one_in, 0);
    let mut round = 0;
    let mut outcome = Ok(());
    while at < operations {
        let mine = round * count + number;
        while baton.turn.load(Ordering::Acquire) != mine {
            thread::park();
        }
        if !baton.is_stopped.load(Ordering::Relaxed) {
            let end = (at + plan.turn).min(operations);
            recording::start(std::mem::take(&mut part.record), Some(mine as u32));
            let began = Instant::now();
            outcome = (at..end).try_for_each(|at| (case.run)(fs, worker, at));
            part.ns += began.elapsed().as_nanos() as u64;
            part.record = recording::stop();
            part.operations += u64::from(end - at);
            if outcome.is_err() {
                baton.is_stopped.store(true, Ordering::Relaxed);
            }
        }
        at += plan.turn;
        round += 1;
        baton.turn.store(mine + 1, Ordering::Release);
        next.unpark();
    }
    outcome.map(|()| part)
}

/// Returns the unmeasured part of a record's time in nanoseconds: about one reading of the clock.
pub(super) fn unseen_ns() -> f64 {
    const TIMES: u32 = 100_000;
    let (plain, counted) = (std::sync::Mutex::new(0_u32), engine::lock_counts::Mutex::new(0_u32));
    let time = |each: &dyn Fn()| {
        let began = Instant::now();
        (0..TIMES).for_each(|_| each());
        began.elapsed().as_nanos() as f64
    };
    let without = time(&|| *plain.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += 1);
    recording::start(ThreadRecords::default(), Some(0));
    let with = time(&|| *counted.lock() += 1);
    let record = recording::stop();
    ((with - without - record.noting_ns as f64) / record.notes as f64).max(0.0)
}
