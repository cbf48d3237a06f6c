//! The contestants of a report, grouped by common properties.

use super::make::distinct;
use super::number::bytes;
use super::{Report, Workload};
use crate::contestant::Description;

/// A property, and the names of the contestants that have it, in the order of the report.
pub(super) struct CommonProperty<'r> {
    pub(super) what: &'r str,
    pub(super) names: Vec<&'r str>,
}

/// Returns all contestants, each once.
pub(super) fn contestants(report: &Report) -> Vec<&Description> {
    let all = || report.workloads.iter().flat_map(|workload| &workload.contestants);
    let names = distinct(all().map(|one| &one.name));
    names.into_iter().filter_map(|name| all().find(|one| one.name == *name)).collect()
}

/// Returns each distinct non-empty property with its contestants.
pub(super) fn shared<'r>(
    all: &[&'r Description],
    things: impl Fn(&'r Description) -> Vec<&'r str>,
) -> Vec<CommonProperty<'r>> {
    let of = |what: &'r str| {
        let true_of = all.iter().filter(|one| things(one).contains(&what));
        CommonProperty { what, names: true_of.map(|one| one.name.as_str()).collect() }
    };
    let whats = distinct(all.iter().flat_map(|one| things(one)));
    whats.into_iter().filter(|what| !what.is_empty()).map(of).collect()
}

/// Returns the descriptions.
pub(super) fn kinds<'r>(all: &[&'r Description]) -> Vec<CommonProperty<'r>> {
    shared(all, |one| vec![&one.what])
}

/// Returns the remarks about comparability.
pub(super) fn remarks<'r>(all: &[&'r Description]) -> Vec<CommonProperty<'r>> {
    shared(all, |one| one.remarks.iter().map(String::as_str).collect())
}

/// Returns the features of the file systems.
pub(super) fn features<'r>(all: &[&'r Description]) -> Vec<CommonProperty<'r>> {
    shared(all, |one| vec![&one.features])
}

/// Formats names. A group of all contestants that differ only in settings is abbreviated.
pub(super) fn names(names: &[&str], all: &[&Description]) -> String {
    if names.len() == all.len() && names.len() > 1 {
        return "all".to_owned();
    }
    let family = |head: &str| all.iter().filter(move |one| head_of(&one.name) == head).count();
    let short = |head: &str| {
        let mine: Vec<&str> = names.iter().copied().filter(|name| head_of(name) == head).collect();
        match mine.len() {
            1 => mine.concat(),
            count if count == family(head) => format!("{head}… (all {count})"),
            _ => mine.join(", "),
        }
    };
    let heads = distinct(names.iter().map(|name| head_of(name)));
    heads.into_iter().map(short).collect::<Vec<_>>().join(", ")
}

fn head_of(name: &str) -> &str {
    name.split(',').next().unwrap_or(name)
}

/// Returns the sizes of the file systems of a workload, with their contestants.
pub(super) fn sizes(workload: &Workload) -> Vec<String> {
    let all: Vec<&Description> = workload.contestants.iter().collect();
    let of = |one: &Description| size(workload, &one.name);
    let sizes = distinct(all.iter().filter_map(|one| of(one)));
    let line = |size: String| {
        let mine = all.iter().filter(|one| of(one).as_ref() == Some(&size));
        let mine: Vec<&str> = mine.map(|one| one.name.as_str()).collect();
        format!("{size} ({})", names(&mine, &all))
    };
    sizes.into_iter().map(line).collect()
}

/// Returns the sizes of a contestant's file systems.
fn size(workload: &Workload, contestant: &str) -> Option<String> {
    let rows = workload.rows.iter().filter(|row| row.contestant == contestant);
    let sizes: Vec<u64> = rows.map(|row| row.size_bytes).filter(|size| *size > 0).collect();
    let (least, most) = (*sizes.iter().min()?, *sizes.iter().max()?);
    let range = if least == most { String::new() } else { format!(" to {}", bytes(most)) };
    Some(bytes(least) + &range)
}
