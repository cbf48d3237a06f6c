//! Changing an image in place: the same operations here and in the kernel's ext4.
//!
//! Both work on images of the same kind in files on the same memory-backed file system; the kernel
//! through a loop device, this project in process. A round makes new images and lets each
//! contestant do its work once; contestants take turns.

mod names;
mod report;
mod target;
mod truncates;

use std::path::PathBuf;
use std::time::Duration;

use ext4::OrphanPolicy;

use crate::EditOptions;
use report::{Report, Row};
use target::{Contestant, Image};

/// What one run of one contestant took.
pub(crate) struct Timing {
    /// Until all operations had returned.
    pub(crate) operations: Duration,
    /// Until all of it was durable.
    pub(crate) durable: Duration,
}

/// Something to do to an image.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) threads: u32,
    pub(crate) operations: u64,
    pub(crate) contestants: Vec<Contestant>,
    pub(crate) work: Work,
}

/// The operations of a case.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// Each thread makes files in a directory of its own, and then removes them: two timings.
    CreateAndUnlink { files: u32 },
    /// Each thread truncates a file of its own, byte by byte.
    Truncate { rounds: u64 },
}

/// Runs all cases that were asked for.
pub(crate) fn run(options: &EditOptions) -> Result<Report, String> {
    if cfg!(debug_assertions) {
        eprintln!("bench: this is no release build, its figures mean little");
    }
    let mut rows = Vec::new();
    for case in cases(options) {
        if options.only.as_ref().is_some_and(|only| !case.name.contains(only.as_str()))
            || options.threads.is_some_and(|threads| case.threads != threads)
        {
            continue;
        }
        eprintln!("bench: {} ({} threads)", case.name, case.threads);
        rows.extend(run_case(&case, options)?);
    }
    Ok(Report { rows })
}

fn cases(options: &EditOptions) -> Vec<Case> {
    let files = options.files;
    let names = [1, 2].map(|threads| Case {
        name: "create, unlink".to_owned(),
        threads,
        operations: u64::from(files) * u64::from(threads),
        contestants: vec![Contestant::Ours(OrphanPolicy::WhenNeeded), Contestant::Kernel],
        work: Work::CreateAndUnlink { files },
    });
    let truncates = [1, 2, 4, 8, 16, 32, 64, 128].map(|threads| {
        let rounds = truncates::rounds(threads, options.truncates);
        Case {
            name: "stress-orphan".to_owned(),
            threads,
            operations: u64::from(threads) * rounds * truncates::FILE_BYTES,
            contestants: vec![
                Contestant::Ours(OrphanPolicy::Always),
                Contestant::Ours(OrphanPolicy::ListOnly),
                Contestant::Ours(OrphanPolicy::Off),
                Contestant::Ours(OrphanPolicy::WhenNeeded),
                Contestant::Kernel,
                Contestant::KernelWithList,
            ],
            work: Work::Truncate { rounds },
        }
    });
    names.into_iter().chain(truncates).collect()
}

/// All rounds of a case; the first, which also warms memory up, does not count.
fn run_case(case: &Case, options: &EditOptions) -> Result<Vec<Row>, String> {
    let mut rows: Vec<Row> = Vec::new();
    for round in 0..=options.rounds {
        for &contestant in &case.contestants {
            if options.alone && !matches!(contestant, Contestant::Ours(_)) {
                continue;
            }
            let path: PathBuf =
                options.scratch.join(format!("diskwright-bench-edit-{}.img", std::process::id()));
            let image = Image::make(path, contestant)?;
            let timings = run_once(case, contestant, &image)?;
            image.check()?;
            for (step, timing) in timings {
                if round > 0 {
                    report::add(&mut rows, case, contestant, step, &timing);
                }
            }
        }
    }
    Ok(rows)
}

fn run_once(
    case: &Case,
    contestant: Contestant,
    image: &Image,
) -> Result<Vec<(&'static str, Timing)>, String> {
    match case.work {
        Work::CreateAndUnlink { files } => names::run(contestant, image, case.threads, files),
        Work::Truncate { rounds } => truncates::run(contestant, image, case.threads, rounds),
    }
}
