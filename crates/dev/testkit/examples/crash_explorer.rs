//! Crashes ext4 or XFS at many points of random runs and checks the state after recovery. The rules are in
//! `testkit::crash`.
//!
//! `cargo run --release -p diskwright-testkit --all-features --example crash_explorer -- --states 50000 --seed 1`
//! `cargo run --release -p diskwright-testkit --all-features --example crash_explorer -- --fs xfs --states 50000`
//!
//! The exit status is 1 if a state is wrong. Each such state is printed with the command that reproduces it, and its
//! image is kept.

extern crate diskwright_testkit as testkit;

#[path = "../../../formats/ext4/tests/changing/mod.rs"]
mod of_ext4;
#[path = "../../../formats/xfs/tests/changing/mod.rs"]
mod of_xfs;

use std::fs;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use of_ext4::crashing::Ext4Target;
use of_ext4::judges::CheckRecovers;
use of_xfs::XfsTarget;
use testkit::crash::{
    CrashTarget, Exploration, Explorer, InvalidState, Judge, Options, write_image,
};
use testkit::operation::Mix;

/// Maximum number of failures before an exploration ends.
const FAILURES_MAX: usize = 20;

/// Crashes ext4 or XFS at many moments of random runs and judges what recovery finds.
#[derive(Parser)]
struct Arguments {
    /// The format
    #[arg(long, value_enum, default_value_t = Fs::Ext4)]
    fs: Fs,
    /// Crash states to examine, shared between the layouts
    #[arg(long, default_value_t = 2_000)]
    states: u64,
    /// Seed of the first run; the others follow it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Only this kind of image; a name that is none lists them
    #[arg(long)]
    layout: Option<String>,
    /// Examine only this state of the run with the given seed
    #[arg(long)]
    state: Option<usize>,
    /// States to examine of each run
    #[arg(long, default_value_t = Options::default().states_per_run)]
    states_per_run: usize,
    /// Let e2fsck or xfs_repair look at one in N states (0: none)
    #[arg(long, default_value_t = 1)]
    check_one_in: u64,
    /// Let e2fsck recover one in N states of ext4 itself (0: none)
    #[arg(long, default_value_t = 10)]
    recover_one_in: u64,
    /// Let the kernel recover one in N states; needs root (0: none)
    #[arg(long, default_value_t = 0)]
    kernel_one_in: u64,
    /// Threads of each checkpoint. A seed may then repeat a run with another order of writes
    #[arg(long)]
    checkpoint_threads: Option<NonZeroUsize>,
    /// Directory for images of failures
    #[arg(long, default_value = "crash-images")]
    keep: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Fs {
    Ext4,
    Xfs,
}

/// Number of threads of each checkpoint, if it does not depend on the checkpoint.
type Threads = Option<NonZeroUsize>;

/// A kind of image.
struct ImageKind {
    name: &'static str,
    make: fn(Threads) -> Box<dyn CrashTarget>,
    mixes: Vec<Mix>,
    warm_steps_max: usize,
    /// Other programs can open such images.
    is_common: bool,
}

impl ImageKind {
    fn new(name: &'static str, make: fn(Threads) -> Box<dyn CrashTarget>) -> Self {
        let mixes = vec![Mix::METADATA, Mix::ALL];
        Self { name, make, mixes, warm_steps_max: 0, is_common: true }
    }

    fn of(fs: Fs) -> Vec<Self> {
        match fs {
            Fs::Ext4 => of_ext4_kinds(),
            Fs::Xfs => of_xfs_kinds(),
        }
    }
}

fn of_ext4_kinds() -> Vec<ImageKind> {
    use of_ext4::ImageParameters;
    vec![
        ImageKind::new("default", |threads| {
            Box::new(Ext4Target::new(ImageParameters::DEFAULT).by_threads(threads))
        }),
        ImageKind::new("small-blocks", |threads| {
            Box::new(Ext4Target::new(ImageParameters::SMALL_BLOCKS).by_threads(threads))
        }),
        ImageKind::new("plain", |threads| {
            Box::new(Ext4Target::new(ImageParameters::PLAIN).by_threads(threads))
        }),
        ImageKind::new("block-maps", |threads| {
            Box::new(Ext4Target::new(ImageParameters::BLOCK_MAPS).by_threads(threads))
        }),
    ]
}

fn of_xfs_kinds() -> Vec<ImageKind> {
    use of_xfs::{FILLING, SYNCING, TargetLayout};
    let worn = |name, make| {
        let mixes = vec![Mix::METADATA, Mix::ALL, SYNCING];
        ImageKind { mixes, ..ImageKind::new(name, make) }
    };
    vec![
        worn("default", |threads| {
            Box::new(XfsTarget::worn(TargetLayout::DEFAULT).by_threads(threads))
        }),
        worn("small-blocks", |threads| {
            Box::new(XfsTarget::worn(TargetLayout::SMALL_BLOCKS).by_threads(threads))
        }),
        worn("plain", |threads| Box::new(XfsTarget::worn(TargetLayout::PLAIN).by_threads(threads))),
        worn("large-dir-blocks", |threads| {
            Box::new(XfsTarget::worn(TargetLayout::LARGE_DIR_BLOCKS).by_threads(threads))
        }),
        worn("buffered", |threads| {
            Box::new(XfsTarget::worn(TargetLayout::BUFFERED).by_threads(threads))
        }),
        worn("mkfs", |threads| Box::new(XfsTarget::worn(TargetLayout::MKFS).by_threads(threads))),
        worn("mkfs-small-blocks", |threads| {
            Box::new(XfsTarget::worn(TargetLayout::MKFS_SMALL_BLOCKS).by_threads(threads))
        }),
        worn("mkfs-plain", |threads| {
            Box::new(XfsTarget::worn(TargetLayout::MKFS_PLAIN).by_threads(threads))
        }),
        ImageKind {
            mixes: vec![FILLING],
            warm_steps_max: 1_500,
            ..ImageKind::new("small-log", |threads| {
                Box::new(XfsTarget::unhurried(TargetLayout::SMALL_LOG).by_threads(threads))
            })
        },
        ImageKind {
            mixes: vec![SYNCING, Mix::ALL],
            is_common: false,
            ..ImageKind::new("tiny-log", |threads| {
                Box::new(XfsTarget::in_place(TargetLayout::TINY_LOG).by_threads(threads))
            })
        },
    ]
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut kinds = ImageKind::of(arguments.fs);
    if let Some(only) = &arguments.layout {
        let names: Vec<_> = kinds.iter().map(|kind| kind.name).collect();
        kinds.retain(|kind| kind.name == only);
        if kinds.is_empty() {
            eprintln!("there is no such layout, but {}", names.join(", "));
            return ExitCode::from(2);
        }
    }
    let states = arguments.states.div_ceil(kinds.len() as u64);
    let mut failures = 0;
    for kind in &kinds {
        let started = Instant::now();
        let report = explore(&arguments, kind, states);
        print_summary(kind.name, &report, started.elapsed().as_secs_f64());
        for failure in &report.failures {
            print_failure(&arguments, kind.name, failure);
        }
        failures += report.failures.len();
    }
    if failures == 0 {
        println!("no failures");
        return ExitCode::SUCCESS;
    }
    println!("{failures} failures");
    ExitCode::from(1)
}

/// Returns the judges for this kind of image, without those that are requested for no state.
fn judges(arguments: &Arguments, kind: &ImageKind) -> Vec<Box<dyn Judge>> {
    let &Arguments { check_one_in, recover_one_in, kernel_one_in, .. } = arguments;
    let all: Vec<Box<dyn Judge>> = match arguments.fs {
        _ if !kind.is_common => Vec::new(),
        Fs::Ext4 => vec![
            Box::new(of_ext4::judges::check_recovered(check_one_in)),
            Box::new(CheckRecovers::new(recover_one_in)),
            Box::new(of_ext4::judges::kernel_recovers(kernel_one_in)),
        ],
        Fs::Xfs => vec![
            Box::new(of_xfs::judges::check_recovered(check_one_in)),
            Box::new(of_xfs::judges::kernel_recovers(kernel_one_in)),
        ],
    };
    all.into_iter().filter(|judge| judge.one_in() > 0).collect()
}

fn explore(arguments: &Arguments, kind: &ImageKind, states: u64) -> Exploration {
    let target = (kind.make)(arguments.checkpoint_threads);
    let judges = judges(arguments, kind);
    let judges: Vec<&dyn Judge> = judges.iter().map(|judge| &**judge).collect();
    let (mixes, warm_steps_max) = (kind.mixes.clone(), kind.warm_steps_max);
    let states_per_run = arguments.states_per_run;
    let options = Options { mixes, warm_steps_max, states_per_run, ..Options::default() };
    let explorer = Explorer::new(&*target, &judges, options);
    if let Some(state) = arguments.state {
        return explorer.reproduce(arguments.seed, state);
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} states, {msg}, {eta} left");
    let bar = ProgressBar::new(states).with_style(style.expect("a valid template"));
    let report = explorer.explore(arguments.seed, states, arguments.threads, &|done, failures| {
        bar.set_position(done);
        bar.set_message(format!("{failures} failures"));
        if failures < FAILURES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    bar.finish_and_clear();
    report
}

fn print_summary(name: &str, report: &Exploration, seconds: f64) {
    let Exploration { runs, states, boundaries, recrashed, verdicts, failures } = report;
    println!("{name}: {states} crash states of {runs} runs in {seconds:.1} s");
    println!("  each recovered and compared with the model; {boundaries} with all writes present");
    println!("  {recrashed} with recovery stopped and done again");
    for (judge, count) in verdicts {
        println!("  {count} judged: {judge}");
    }
    println!("  {} failures", failures.len());
}

fn print_failure(arguments: &Arguments, layout: &str, failure: &InvalidState) {
    let InvalidState { seed, state, what, image } = failure;
    let fs = match arguments.fs {
        Fs::Ext4 => "ext4",
        Fs::Xfs => "xfs",
    };
    let state = state.map_or(String::new(), |number| format!(" --state {number}"));
    let of = arguments.states_per_run;
    println!(
        "\nFAILED: --fs {fs} --layout {layout} --seed {seed}{state} --states-per-run {of}\n{what}"
    );
    let Some(image) = image else { return };
    let number = state.replace(" --state ", "-");
    let path = arguments.keep.join(format!("{fs}-{layout}-{seed}{number}.img"));
    match fs::create_dir_all(&arguments.keep).and_then(|()| write_image(image, &path)) {
        Ok(()) => println!("image: {}", path.display()),
        Err(error) => println!("the image could not be kept: {error}"),
    }
}
