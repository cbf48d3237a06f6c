//! A report of all workloads with realistic figures.

use bench::Result;
use bench::jobs::{Case, Create, FsMark, Job, Published, StressOrphan, TimedStep};
use bench::report::Report;

use super::{Asked, Fake, FakeJob, Notes, case, entry, extra, run_with, step};

const COUNTS: [u64; 7] = [10_000, 20_000, 100_000, 200_000, 1_000_000, 2_000_000, 10_000_000];
const THREADS: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const TASKS: [u64; 9] = [1, 25, 49, 73, 97, 121, 145, 169, 193];

/// Returns a variation of some per cent, the same in each run of a test.
fn wobble(asked: &Asked<'_>) -> f64 {
    let name: u64 = asked.contestant.bytes().map(u64::from).sum();
    1.0 + ((name * 31 + asked.x * 17 + u64::from(asked.run) * 57) % 13) as f64 / 100.0
}

/// Returns a step of `operations` with the given wall-clock time per operation in microseconds, and twice that in
/// processor time.
fn timed(name: &'static str, operations: u64, micros: f64, kernel_share: f64) -> TimedStep {
    let millis = |share: f64| (operations as f64 * micros * share / 1000.0).ceil() as u64;
    step(name, operations, [millis(1.0), millis(1.0 - kernel_share), millis(kernel_share)])
}

fn fakes(names: &[&str]) -> Vec<Fake> {
    let fake = |name: &&str| {
        let mut fake = Fake::new(name);
        fake.description.features = "bigtime=1 finobt=1 nrext64=1 parent=1".to_owned();
        let remark = if name.starts_with("kernel") {
            "each operation is a system call; the page cache holds what was read"
        } else {
            "no system calls, and a cache of its own"
        };
        fake.description.remarks.push(remark.to_owned());
        fake.description.base =
            name.strip_suffix("^parent").is_none().then(|| format!("{name},^parent"));
        fake
    };
    names.iter().map(fake).collect()
}

fn create(asked: &Asked<'_>) -> Result<Vec<TimedStep>> {
    let files = asked.x as f64;
    let growth = |from: f64| 1.0 + (files / from).powf(1.1);
    let micros = wobble(asked)
        * match asked.contestant {
            "memory:xfs,free-index=hoisted" => 2.4 * growth(2e6),
            "memory:xfs,free-index=linear" => 2.4 * growth(3e5),
            "memory:xfs,free-index=reverse" => 2.5,
            "memory:xfs,free-index=skip" => 2.45,
            "memory:ext4" => 2.3,
            "kernel:xfs" => 11.0 * growth(4e7),
            _ => 2.4,
        };
    Ok(vec![
        timed("create", asked.x, micros, 0.1),
        timed("remove", asked.x, micros * 0.8, 0.1),
        timed("remove, cold cache", asked.x, micros * 1.7, 0.3),
    ])
}

fn orphans(asked: &Asked<'_>) -> Result<Vec<TimedStep>> {
    let threads = asked.x as f64;
    let micros = wobble(asked)
        * match asked.contestant {
            name if name.ends_with("orphans=list") => 2.0 + threads.min(16.0) * 0.4,
            "kernel:ext4" => 5.4 / threads.min(2.0),
            "kernel:ext4,^orphan_file" => 6.7 / threads.min(2.0) + threads.sqrt() * 0.1,
            name if name.starts_with("mount") => 20.0,
            _ => 1.5,
        };
    Ok(vec![timed("truncate", 262_144, micros, 0.05)])
}

fn fs_mark(asked: &Asked<'_>) -> Result<Vec<TimedStep>> {
    let parent = if asked.contestant.ends_with("^parent") { 1.0 } else { 1.07 };
    let (micros, share) =
        if asked.contestant.starts_with("kernel") { (14.0, 0.8) } else { (3.1, 0.2) };
    let micros = micros * parent * wobble(asked);
    Ok(vec![timed("create", asked.x, micros, share), timed("remove", asked.x, micros * 0.9, share)])
}

fn find(asked: &Asked<'_>) -> Result<Vec<TimedStep>> {
    let micros = if asked.contestant.starts_with("kernel") { 0.4 } else { 0.14 } * wobble(asked);
    let mut step = timed("walk", asked.x * 100, micros, 0.6);
    step.extras.push(extra("per entry", "ns", micros * 1000.0));
    step.extras.push(extra("allocations", "per entry", 0.0));
    Ok(vec![step])
}

fn fserver(asked: &Asked<'_>) -> Result<Vec<TimedStep>> {
    let jobs = asked.x * 100;
    let each = if asked.contestant.starts_with("kernel") { 240.0 } else { 95.0 };
    Ok(vec![timed("jobs", jobs, each * wobble(asked) / (asked.x as f64).min(2.0), 0.4)])
}

fn job(
    name: &'static str,
    [axis, unit]: [&'static str; 2],
    sizes: &[u64],
    answer: fn(&Asked<'_>) -> Result<Vec<TimedStep>>,
) -> FakeJob {
    let cases: Vec<Case> =
        sizes.iter().map(|&x| case(x, if x > 1_000_000 { 1 } else { 3 })).collect();
    let mut job = FakeJob::new(cases, answer);
    (job.name, job.axis, job.unit) = (name, axis, unit);
    job.what =
        format!("What {name} does, in a sentence of some length, and whose workload it was.");
    job.headlines = match name {
        "create" => Create { files: COUNTS.to_vec(), threads: 1, fsync: false }.headlines(),
        "fs-mark" => FsMark::SEED.headlines(),
        "stress-orphan" => StressOrphan::default().headlines(),
        _ => Vec::new(),
    };
    job
}

/// Seven contestants over seven counts, eight numbers of threads, nine of tasks, and single sizes.
pub(crate) fn everything() -> Report {
    let mut creating = job("create", ["files", "files/s"], &COUNTS, create);
    creating.published.push(Published {
        source: "Dave Chinner, linux-xfs, 2018: ramdisk, seconds to make so many files",
        columns: vec!["files", "before", "hoisted", "reverse"],
        rows: vec![
            vec![1e4, 0.54, 0.53, 0.52],
            vec![1e6, 86.61, 48.26, 38.33],
            vec![1e7, 2843.57, 1817.39, 591.78],
        ],
    });
    let mut creators = fakes(&[
        "memory:xfs",
        "memory:xfs,free-index=reverse",
        "memory:xfs,free-index=skip",
        "memory:xfs,free-index=hoisted",
        "memory:xfs,free-index=linear",
        "memory:ext4",
        "kernel:xfs",
    ]);
    creators[6].unsupported = Some((5_000_000, "an image of that size does not fit".to_owned()));
    let mut absent = fakes(&["kernel:ext4"]);
    absent[0].unsupported = Some((0, "it needs root".to_owned()));
    creators.extend(absent);
    let entries = [
        entry(creating, creators),
        entry(
            job("stress-orphan", ["threads", "truncates/s"], &THREADS, orphans),
            fakes(&[
                "memory:ext4",
                "memory:ext4,orphans=always",
                "memory:ext4,orphans=list",
                "memory:ext4,orphans=off",
                "mount:ext4",
                "kernel:ext4",
                "kernel:ext4,^orphan_file",
            ]),
        ),
        entry(
            job("fs-mark", ["files", "files/s"], &[3_200_000], fs_mark),
            fakes(&["memory:xfs", "memory:xfs,^parent", "kernel:xfs", "kernel:xfs,^parent"]),
        ),
        entry(
            job("find", ["entries", "entries/s"], &[92_000], find),
            fakes(&["memory:ext4", "kernel:ext4"]),
        ),
        entry(
            job("fserver", ["tasks", "jobs/s"], &TASKS, fserver),
            fakes(&["memory:ext4", "memory:xfs", "kernel:ext4", "kernel:xfs"]),
        ),
    ];
    run_with(&entries, 3, &Notes::default())
}
