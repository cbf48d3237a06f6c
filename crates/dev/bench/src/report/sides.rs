//! The summary of a report: our figures next to the kernel's.

use super::make::distinct;
use super::{Flatness, Measured, Ratio, Report, Row, Workload};
use crate::contestant::Origin;

/// One of ours and one of the kernel's with the same format at one step, in the largest case that both ran: on each
/// side the contestant closest to the defaults, and the fastest of several such ones.
pub(super) struct Sides<'r> {
    pub(super) workload: &'r Workload,
    pub(super) step: &'r str,
    /// Size of the case.
    pub(super) x: u64,
    pub(super) ours: Option<&'r Row>,
    pub(super) kernel: Option<&'r Row>,
}

impl Sides<'_> {
    /// Returns the ratio of our rate to the kernel's.
    pub(super) fn times(&self) -> Option<Ratio> {
        let (ours, kernel) = (self.ours?, self.kernel?);
        Ratio::paired(ours, kernel, Measured::rate, ours.rate_by(kernel))
    }

    /// Returns the ratio of the rate at the largest case to that at the smallest.
    pub(super) fn flatness(&self, row: Option<&Row>) -> Option<&Flatness> {
        let is_it = |name: &str, step: &str| {
            row.is_some_and(|row| row.contestant == name && row.step == step)
        };
        let mut all = self.workload.flatness.iter();
        all.find(|flatness| is_it(&flatness.contestant, &flatness.step))
    }
}

/// Returns one for each step of each workload and each format with figures of ours or the kernel's.
pub(super) fn sides(report: &Report) -> Vec<Sides<'_>> {
    report.workloads.iter().flat_map(of_workload).collect()
}

fn of_workload(workload: &Workload) -> Vec<Sides<'_>> {
    let steps = distinct(workload.rows.iter().map(|row| row.step.as_str()));
    let formats = distinct(workload.contestants.iter().map(|one| one.format.as_str()));
    let of_step = |step| formats.iter().filter_map(move |format| of_format(workload, step, format));
    steps.into_iter().flat_map(of_step).collect()
}

fn of_format<'r>(workload: &'r Workload, step: &'r str, format: &str) -> Option<Sides<'r>> {
    let all = |side| rows(workload, step, side, format);
    let sizes = |side| all(side).map(|row| row.x).collect::<Vec<_>>();
    let (ours, kernel) = (sizes(Origin::Ours), sizes(Origin::Kernel));
    let both = ours.iter().filter(|x| kernel.contains(x)).max();
    let x = *both.or(ours.iter().max()).or(kernel.iter().max())?;
    let first = |side| {
        all(side).filter(|row| row.x == x).max_by(|a, b| {
            let less_usual = deviations(workload, b).cmp(&deviations(workload, a));
            less_usual.then(a.rate.unwrap_or(0.0).total_cmp(&b.rate.unwrap_or(0.0)))
        })
    };
    Some(Sides { workload, step, x, ours: first(Origin::Ours), kernel: first(Origin::Kernel) })
}

fn rows<'r>(
    workload: &'r Workload,
    step: &str,
    side: Origin,
    format: &str,
) -> impl Iterator<Item = &'r Row> {
    let is_on = move |row: &&Row| {
        let mut all = workload.contestants.iter();
        all.any(|one| one.side == side && one.format == format && one.name == row.contestant)
    };
    workload.rows.iter().filter(move |row| row.step == step).filter(is_on)
}

fn deviations(workload: &Workload, row: &Row) -> u32 {
    let mut all = workload.contestants.iter();
    all.find(|one| one.name == row.contestant).map_or(u32::MAX, |one| one.deviations)
}
