//! Progress bar of workloads.

use std::fmt::Display;

use cli::terminal::{message, tick};
use diskwright::text;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::run::Observer;

/// Shows the progress of workloads: one bar over all operations, with the name of the current one.
pub(super) struct ProgressLine {
    bar: ProgressBar,
}

impl ProgressLine {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
        let template = "{spinner} {bar:20} {percent:>3}% {wide_msg} {elapsed}, {eta} to go";
        let style = ProgressStyle::with_template(template);
        let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        tick(&bar);
        Self { bar }
    }

    fn tell(&self, contestant: &str, what: &dyn Display) {
        let contestant = text::escaped(contestant.as_bytes());
        self.bar.suspend(|| message(&format_args!("{contestant}: {what}")));
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for ProgressLine {
    fn total(&self, operations: u64) {
        self.bar.set_length(operations);
    }

    fn begin(&self, workload: &str, contestant: &str, x: u64, round: u32, _: u64) {
        let contestant = text::escaped(contestant.as_bytes());
        self.bar.set_message(format!("{workload} {x}, {contestant}, round {round}"));
    }

    fn advance(&self, operations: u64) {
        self.bar.inc(operations);
    }

    fn skipped(&self, contestant: &str, why: &str) {
        self.tell(contestant, &format_args!("skipped: {why}"));
    }

    fn failed(&self, workload: &str, contestant: &str, x: u64, why: &str) {
        self.tell(contestant, &format_args!("{workload} {x} failed: {why}"));
    }
}
