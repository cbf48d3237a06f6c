//! The seed of 2025: what parent pointers add to the making and the removing of files. The run is the
//! seed's fs_mark: one directory and one thread per allocation group, 10,000 subdirectories in each,
//! of which the time of the run chooses one; then all of it is removed.

use std::fmt::Write;
use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use vfs::{FileSystem, FileType, Ino};
use workload::report::Summary;
use xfs::{FreeIndexStrategy, Xfs};

use super::image::{NEW, Names, Ours, TIME, judge};
use super::text;
use crate::ParentsOptions;

/// What one run took: of the clock and of all processors.
#[derive(Clone, Copy)]
struct Cost {
    wall: Duration,
    cpu: Duration,
}

/// Measures both in turns; a table of times and overheads.
pub(crate) fn run(options: &ParentsOptions) -> Result<String, String> {
    // By step, then by whether parent pointers are on.
    let mut costs = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    for round in 0..=options.rounds {
        for parent in [round % 2 == 0, round % 2 != 0] {
            eprintln!("bench: parent={}, round {round}", u8::from(parent));
            let measured = measure(parent, options)?;
            // The first also warms memory up.
            for (step, cost) in measured.into_iter().enumerate().filter(|_| round > 0) {
                costs[step][usize::from(parent)].push(cost);
            }
        }
    }
    let mut table = String::from(
        "| step | parent | runs | wall s | CPU s | spread of CPU | CPU overhead | wall overhead |\n",
    );
    table.push_str("|---|--:|--:|--:|--:|--:|--:|--:|\n");
    for (step, costs) in ["create", "remove"].iter().zip(&costs) {
        let off = summaries(&costs[0])?;
        for (parent, costs) in costs.iter().enumerate() {
            let (wall, cpu) = summaries(costs)?;
            let more = |a: &Summary, b: &Summary| (a.median_s / b.median_s - 1.0) * 100.0;
            let (cpu_more, wall_more) = (more(&cpu, &off.1), more(&wall, &off.0));
            let (runs, spread) = (cpu.runs, cpu.spread * 100.0);
            let _ = writeln!(
                table,
                "| {step} | {parent} | {runs} | {:.3} | {:.3} | {spread:.0} % | {cpu_more:.1} % | {wall_more:.1} % |",
                wall.median_s, cpu.median_s,
            );
        }
    }
    Ok(table)
}

fn summaries(costs: &[Cost]) -> Result<(Summary, Summary), String> {
    let of = |pick: fn(&Cost) -> Duration| {
        Summary::of(&costs.iter().map(pick).collect::<Vec<_>>()).ok_or("no rounds")
    };
    Ok((of(|c| c.wall)?, of(|c| c.cpu)?))
}

/// Processor time of this process so far.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn costs<R>(work: impl FnOnce() -> Result<R, String>) -> Result<(R, Cost), String> {
    let (start, cpu) = (Instant::now(), cpu_time());
    let result = work()?;
    Ok((result, Cost { wall: start.elapsed(), cpu: cpu_time() - cpu }))
}

fn measure(parent: bool, options: &ParentsOptions) -> Result<[Cost; 2], String> {
    let all = u64::from(options.threads) * u64::from(options.files + options.directories);
    let bytes = (all * 2400 + (4 << 30)).next_multiple_of(1 << 20);
    let (fs, device) = Ours { bytes, parent, strategy: FreeIndexStrategy::Tree }.make()?;
    let tops: Vec<Ino> = (0..options.threads)
        .map(|number| fs.mkdir(fs.root(), format!("{number}").as_bytes(), &NEW).map_err(text))
        .collect::<Result<_, _>>()?;
    let ((), create) = costs(|| on_all(&tops, |at, top| fill(&fs, top, at as u64 + 1, options)))?;
    let ((), remove) = costs(|| on_all(&tops, |_, top| empty(&fs, top)))?;
    let path = options.scratch.join(format!("diskwright-bench-parents-{}.img", std::process::id()));
    judge(fs, &device, &path)?;
    Ok([create, remove])
}

/// Runs `work` on each directory in a thread of its own.
fn on_all(
    tops: &[Ino],
    work: impl Fn(usize, Ino) -> Result<(), String> + Sync,
) -> Result<(), String> {
    thread::scope(|scope| {
        let start = |(at, &top)| {
            let work = &work;
            scope.spawn(move || work(at, top))
        };
        let threads: Vec<_> = tops.iter().enumerate().map(start).collect();
        threads.into_iter().try_for_each(|t| t.join().map_err(|_| "a thread died".to_owned())?)
    })
}

fn fill(fs: &Xfs, top: Ino, seed: u64, options: &ParentsOptions) -> Result<(), String> {
    let mut current = top;
    for number in 0..options.directories {
        current = fs.mkdir(top, format!("{number:x}").as_bytes(), &NEW).map_err(text)?;
    }
    let mut names = Names::new(seed);
    let mut left = options.files as usize;
    while left > 0 {
        let batch = names.batch(left.min(1000));
        for name in batch {
            fs.create(current, name, &NEW).map_err(text)?;
        }
        left -= batch.len();
    }
    Ok(())
}

/// Removes all that is in `top`, as `rm -rf` does: in the order of the directory.
fn empty(fs: &Xfs, top: Ino) -> Result<(), String> {
    for (name, ino, _) in entries(fs, top)? {
        for (name, _, file_type) in entries(fs, ino)? {
            debug_assert_ne!(file_type, Some(FileType::Directory));
            fs.unlink(ino, &name, Some(TIME)).map_err(text)?;
        }
        fs.rmdir(top, &name, Some(TIME)).map_err(text)?;
    }
    Ok(())
}

type Entry = (Vec<u8>, Ino, Option<FileType>);

fn entries(fs: &Xfs, dir: Ino) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    let outcome = fs.for_each_entry(dir, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            entries.push((entry.name.to_vec(), entry.ino, entry.file_type));
        }
        ControlFlow::Continue(())
    });
    outcome.map(|()| entries).map_err(text)
}
