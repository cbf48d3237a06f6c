//! Crashes ext4 at many moments of random runs and judges what recovery finds. The rules are in
//! `workload::crash`.
//!
//! `cargo run --release -p diskwright-workload --example crash_explorer -- --states 50000 --seed 1`
//!
//! Exit status 1 if any state is not as it must be: each is printed with the command that shows it
//! again, and its image is kept.

#[path = "../../ext4/tests/changing/mod.rs"]
mod changing;

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use changing::crashing::Ext4Target;
use changing::judges::{CheckRecovers, check_recovered, kernel_recovers};
use changing::{Layout, write_image};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use workload::crash::{Explorer, Failure, Judge, Options, Report};
use workload::operation::Mix;

/// Failures after which an exploration ends.
const FAILURES_MAX: usize = 20;

/// Crashes ext4 at many moments of random runs and judges what recovery finds.
#[derive(Parser)]
struct Arguments {
    /// Crash states to examine, shared between the layouts
    #[arg(long, default_value_t = 2_000)]
    states: u64,
    /// Seed of the first run; the others follow it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Only this kind of image: default, small-blocks, plain or block-maps
    #[arg(long)]
    layout: Option<String>,
    /// Examine only this state of the run with the given seed
    #[arg(long)]
    state: Option<usize>,
    /// Let e2fsck look at one in so many states (0: none)
    #[arg(long, default_value_t = 1)]
    check_one_in: u64,
    /// Let e2fsck recover one in so many states itself (0: none)
    #[arg(long, default_value_t = 10)]
    recover_one_in: u64,
    /// Let the kernel recover one in so many states; needs root (0: none)
    #[arg(long, default_value_t = 0)]
    kernel_one_in: u64,
    /// Where images of failures are kept
    #[arg(long, default_value = "crash-images")]
    keep: PathBuf,
}

/// Names, kinds of images, and whether space may be provided ahead in them.
const LAYOUTS: [(&str, Layout, bool); 4] = [
    ("default", Layout::DEFAULT, true),
    ("small-blocks", Layout::SMALL_BLOCKS, true),
    ("plain", Layout::PLAIN, true),
    ("block-maps", Layout::BLOCK_MAPS, false),
];

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let is_wanted = |name: &str| arguments.layout.as_ref().is_none_or(|only| only == name);
    let layouts: Vec<_> = LAYOUTS.iter().filter(|(name, ..)| is_wanted(name)).collect();
    if layouts.is_empty() {
        eprintln!("there is no such layout");
        return ExitCode::from(2);
    }
    let states = arguments.states.div_ceil(layouts.len() as u64);
    let mut failures = 0;
    for &&(name, layout, preallocates) in &layouts {
        let started = Instant::now();
        let report = explore(&arguments, layout, preallocates, states);
        print_summary(name, &report, started.elapsed().as_secs_f64());
        for failure in &report.failures {
            print_failure(name, failure, &arguments.keep);
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

fn explore(arguments: &Arguments, layout: Layout, preallocates: bool, states: u64) -> Report {
    let target = Ext4Target::new(layout);
    let check = check_recovered(arguments.check_one_in);
    let recovers = CheckRecovers::new(arguments.recover_one_in);
    let kernel = kernel_recovers(arguments.kernel_one_in);
    let judges: [&dyn Judge; 3] = [&check, &recovers, &kernel];
    let judges: Vec<_> = judges.into_iter().filter(|judge| judge.one_in() > 0).collect();
    let mixes = [Mix::METADATA, Mix::ALL].map(|mix| Mix { preallocates, ..mix });
    let options = Options { mixes: mixes.to_vec(), ..Options::default() };
    let explorer = Explorer::new(&target, &judges, options);
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

fn print_summary(name: &str, report: &Report, seconds: f64) {
    let Report { runs, states, boundaries, recrashed, verdicts, failures } = report;
    println!("{name}: {states} crash states of {runs} runs in {seconds:.1} s");
    println!("  each recovered and compared with the model; {boundaries} with all writes present");
    println!("  {recrashed} with recovery stopped and done again");
    for (judge, count) in verdicts {
        println!("  {count} judged: {judge}");
    }
    println!("  {} failures", failures.len());
}

fn print_failure(layout: &str, failure: &Failure, keep: &Path) {
    let Failure { seed, state, what, image } = failure;
    let state = state.map_or(String::new(), |number| format!(" --state {number}"));
    println!("\nFAILED: --layout {layout} --seed {seed}{state}\n{what}");
    let Some(image) = image else { return };
    let path = keep.join(format!("{layout}-{seed}{}.img", state.replace(" --state ", "-")));
    match fs::create_dir_all(keep).and_then(|()| write_image(image, &path)) {
        Ok(()) => println!("image: {}", path.display()),
        Err(error) => println!("the image could not be kept: {error}"),
    }
}
