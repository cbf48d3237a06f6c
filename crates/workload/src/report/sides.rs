//! The summary of a report: ours beside the kernel's.

use super::make::distinct;
use super::{Report, Row, Workload};
use crate::contestant::Side;

/// One of ours and one of the kernel's at one step, in the largest case that both have been through: of
/// each side the one that is most like the default, and of several such ones the fastest.
pub(super) struct Sides<'r> {
    pub(super) workload: &'r Workload,
    pub(super) step: &'r str,
    /// The size of the case.
    pub(super) x: u64,
    pub(super) ours: Option<&'r Row>,
    pub(super) kernel: Option<&'r Row>,
}

impl Sides<'_> {
    /// How many times the kernel's rate ours is.
    pub(super) fn times(&self) -> Option<f64> {
        Some(self.ours?.rate? / self.kernel?.rate?)
    }

    /// The rate at the largest case by the rate at the smallest.
    pub(super) fn flatness(&self, row: Option<&Row>) -> Option<f64> {
        let is_it = |name: &str, step: &str| {
            row.is_some_and(|row| row.contestant == name && row.step == step)
        };
        let mut all = self.workload.flatness.iter();
        all.find(|flatness| is_it(&flatness.contestant, &flatness.step))?.ratio
    }
}

/// One for each step of each workload that has figures of ours or the kernel's.
pub(super) fn sides(report: &Report) -> Vec<Sides<'_>> {
    report.workloads.iter().flat_map(of_workload).collect()
}

fn of_workload(workload: &Workload) -> Vec<Sides<'_>> {
    let steps = distinct(workload.rows.iter().map(|row| row.step.as_str()));
    steps.into_iter().filter_map(|step| of_step(workload, step)).collect()
}

fn of_step<'r>(workload: &'r Workload, step: &'r str) -> Option<Sides<'r>> {
    let sizes = |side| {
        let rows = rows(workload, step, side);
        rows.map(|row| row.x).collect::<Vec<_>>()
    };
    let (ours, kernel) = (sizes(Side::Ours), sizes(Side::Kernel));
    let both = ours.iter().filter(|x| kernel.contains(x)).max();
    let x = *both.or(ours.iter().max()).or(kernel.iter().max())?;
    let first = |side| {
        let rows = rows(workload, step, side).filter(|row| row.x == x);
        rows.max_by(|a, b| {
            let less_usual = deviations(workload, b).cmp(&deviations(workload, a));
            less_usual.then(a.rate.unwrap_or(0.0).total_cmp(&b.rate.unwrap_or(0.0)))
        })
    };
    Some(Sides { workload, step, x, ours: first(Side::Ours), kernel: first(Side::Kernel) })
}

fn rows<'r>(workload: &'r Workload, step: &str, side: Side) -> impl Iterator<Item = &'r Row> {
    let is_on = move |row: &&Row| {
        workload.contestants.iter().any(|one| one.side == side && one.name == row.contestant)
    };
    workload.rows.iter().filter(move |row| row.step == step).filter(is_on)
}

fn deviations(workload: &Workload, row: &Row) -> u32 {
    let mut all = workload.contestants.iter();
    all.find(|one| one.name == row.contestant).map_or(u32::MAX, |one| one.deviations)
}
