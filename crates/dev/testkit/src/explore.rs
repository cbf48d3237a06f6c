//! Crash explorations for the tests of both formats.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::crash::{CrashTarget, Exploration, Explorer, Judge, Options};
use crate::trial::Watchdog;

use crate::effort;

const THREADS: usize = 2;

/// Maximum number of failures before an exploration ends.
const FAILURES_MAX: usize = 5;

/// Explores crashes of a target, up to this number of states or some failures.
///
/// # Panics
/// If it hangs.
pub fn explore(
    target: &dyn CrashTarget,
    judges: &[&dyn Judge],
    options: Options,
    states: u64,
) -> Exploration {
    let limit = Duration::from_secs(effort(1_800, 1_800, 12 * 3_600));
    let _watchdog = Watchdog::new(limit, format!("{states} crash states"));
    Explorer::new(target, judges, options).explore(1, states, THREADS, &|_, failures| {
        if failures < FAILURES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
}

/// Asserts that a target survives crashes. *full*, the level of CI, examines a third of `states` states, but half of
/// them up to fifty. *quick* examines a fifth with shorter runs, and *long* fifteen times as many.
///
/// # Panics
/// With the failures, and instructions to reproduce them.
#[track_caller]
pub fn assert_survives(
    target: &dyn CrashTarget,
    judges: &[&dyn Judge],
    options: Options,
    states: u64,
) {
    let states = effort(states / 5, (states / 3).max((states / 2).min(50)), states * 15);
    // Otherwise the few states of a quick exploration would all be at the beginning of the first runs.
    let per_run_max = effort((states / 4).max(10), u64::MAX, u64::MAX);
    let states_per_run =
        options.states_per_run.min(usize::try_from(per_run_max).unwrap_or(usize::MAX));
    let report = explore(target, judges, Options { states_per_run, ..options }, states);
    for failure in &report.failures {
        let at = failure.state.map_or("in the run itself".into(), |n| format!("state {n}"));
        let seed = failure.seed;
        eprintln!("seed {seed}, {at} of {states_per_run} of a run: {}\n", failure.what);
    }
    assert!(report.failures.is_empty(), "{} of {} states", report.failures.len(), report.states);
    assert!(report.states >= states && report.recrashed > 0, "{} states", report.states);
    let is_silent = |(_, count): &&(String, u64)| *count == 0;
    let silent = report.verdicts.iter().find(is_silent);
    assert!(silent.is_none(), "never asked: {silent:?}");
}
