//! Expansion of targets. If a target does not set the option that a workload compares, it is
//! expanded into one contestant per value.

use crate::environments::{FsSpec, TargetSpec};
use diskwright::build::{FeatureChange, Format};
use ext4::OrphanPolicy;
use xfs::FreeIndexStrategy;

/// Target of a contestant, and the name of the contestant that it is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rival {
    pub(super) target: TargetSpec,
    pub(super) base: Option<String>,
}

/// Subject of a workload's comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question<'a> {
    /// These strategies for finding free space in a directory.
    FreeIndex(&'a [FreeIndexStrategy]),
    /// The cost of parent pointers.
    Parents,
    /// The cost of recording orphans.
    Orphans,
    /// Nothing that can be switched on and off.
    None,
}

/// Returns the contestants of these targets in order, without duplicates.
pub(super) fn rivals(question: Question<'_>, targets: &[TargetSpec]) -> Vec<Rival> {
    let mut rivals: Vec<Rival> = Vec::new();
    for rival in targets.iter().flat_map(|target| variants(question, target)) {
        if !rivals.iter().any(|earlier| earlier.target == rival.target) {
            rivals.push(rival);
        }
    }
    // Without its base, a contestant is compared with none.
    let names: Vec<String> = rivals.iter().map(|rival| rival.target.to_string()).collect();
    for rival in &mut rivals {
        rival.base.take_if(|base| !names.contains(base));
    }
    rivals
}

/// Returns whether a target supports strategies for finding free space.
pub(super) fn has_free_index(target: &TargetSpec) -> bool {
    matches!(target, TargetSpec::Memory(fs) if fs.format == Format::Xfs)
}

fn variants(question: Question<'_>, target: &TargetSpec) -> Vec<Rival> {
    let several = match (question, target) {
        (Question::FreeIndex(ways), TargetSpec::Memory(fs)) => free_index(fs, ways),
        (Question::Parents, TargetSpec::Memory(fs)) => {
            with_and_without("parent", Format::Xfs, fs, TargetSpec::Memory)
        }
        (Question::Parents, TargetSpec::Kernel(fs)) => {
            with_and_without("parent", Format::Xfs, fs, TargetSpec::Kernel)
        }
        (Question::Orphans, TargetSpec::Memory(fs)) => orphans(fs),
        (Question::Orphans, TargetSpec::Kernel(fs)) if journaled(fs) => {
            with_and_without("orphan_file", Format::Ext4, fs, TargetSpec::Kernel)
        }
        _ => Vec::new(),
    };
    if several.is_empty() { vec![Rival { target: target.clone(), base: None }] } else { several }
}

/// Creates contestants that are all compared with the first.
fn against_first(targets: Vec<TargetSpec>) -> Vec<Rival> {
    let first = targets.first().map(ToString::to_string);
    let rival = |(at, target)| Rival { target, base: first.clone().filter(|_| at > 0) };
    targets.into_iter().enumerate().map(rival).collect()
}

fn free_index(fs: &FsSpec, ways: &[FreeIndexStrategy]) -> Vec<Rival> {
    if fs.format != Format::Xfs || fs.free_index.is_some() {
        return Vec::new();
    }
    // From the oldest strategy, with which the mailing-list thread began, to the newest.
    let chosen = FreeIndexStrategy::ALL.into_iter().rev().filter(|way| ways.contains(way));
    let target = |way| TargetSpec::Memory(FsSpec { free_index: Some(way), ..fs.clone() });
    against_first(chosen.map(target).collect())
}

fn orphans(fs: &FsSpec) -> Vec<Rival> {
    if fs.format != Format::Ext4 || fs.orphans.is_some() || !journaled(fs) {
        return Vec::new();
    }
    let has_file = change(fs, "orphan_file") != Some(false);
    let policies = [
        // The upper limit: no real file system can do without recording orphans.
        OrphanPolicy::Off,
        OrphanPolicy::ListOnly,
        OrphanPolicy::Always,
        OrphanPolicy::WhenNeeded,
    ];
    // Without the orphan file, all orphans are recorded in the list anyway.
    let differs = |policy: &OrphanPolicy| has_file || *policy != OrphanPolicy::Always;
    let target = |policy| TargetSpec::Memory(FsSpec { orphans: Some(policy), ..fs.clone() });
    against_first(policies.into_iter().filter(differs).map(target).collect())
}

fn with_and_without(
    feature: &str,
    format: Format,
    fs: &FsSpec,
    target: fn(FsSpec) -> TargetSpec,
) -> Vec<Rival> {
    if fs.format != format || change(fs, feature).is_some() {
        return Vec::new();
    }
    let with = |is_on| {
        let mut fs = fs.clone();
        fs.features.push(FeatureChange { name: feature.into(), is_on });
        target(fs)
    };
    against_first(vec![with(false), with(true)])
}

fn journaled(fs: &FsSpec) -> bool {
    change(fs, "has_journal") != Some(false)
}

/// Returns the setting of a feature, if given.
fn change(fs: &FsSpec, feature: &str) -> Option<bool> {
    fs.features.iter().rev().find(|change| change.name == feature).map(|change| change.is_on)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(question: Question<'_>, targets: &[&str]) -> Vec<(String, Option<String>)> {
        let targets: Vec<TargetSpec> = targets.iter().map(|text| text.parse().unwrap()).collect();
        let rivals = rivals(question, &targets);
        // Each name can be parsed as a target.
        for rival in &rivals {
            assert_eq!(rival.target.to_string().parse().as_ref(), Ok(&rival.target));
        }
        rivals.into_iter().map(|rival| (rival.target.to_string(), rival.base)).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, Option<String>)> {
        let base = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        expected.iter().map(|&(name, of)| (name.to_owned(), base(of))).collect()
    }

    #[test]
    fn xfs_runs_with_and_without_parent_pointers() {
        for place in ["memory", "kernel"] {
            let (with, without) = (format!("{place}:xfs,+parent"), format!("{place}:xfs,^parent"));
            assert_eq!(
                expanded(Question::Parents, &[&format!("{place}:xfs")]),
                pairs(&[(&without, ""), (&with, &without)])
            );
        }
        assert_eq!(
            expanded(Question::Parents, &["memory:xfs,^reflink,size=8G"]),
            pairs(&[
                ("memory:xfs,^reflink,^parent,size=8G", ""),
                ("memory:xfs,^reflink,+parent,size=8G", "memory:xfs,^reflink,^parent,size=8G"),
            ])
        );
    }

    #[test]
    fn fully_specified_targets_stay_unchanged() {
        for (question, targets) in [
            (Question::Parents, &["memory:xfs,^parent", "kernel:xfs,+parent", "/tmp"][..]),
            (Question::Parents, &["memory:ext4", "kernel:ext4"]),
            (Question::Orphans, &["memory:ext4,orphans=list", "kernel:ext4,^orphan_file"]),
            (Question::Orphans, &["memory:xfs", "kernel:xfs", "memory:ext4,^has_journal"]),
            (Question::Orphans, &["kernel:ext4,^has_journal"]),
            (Question::FreeIndex(&FreeIndexStrategy::ALL), &["memory:xfs,free-index=reverse"]),
            (Question::FreeIndex(&FreeIndexStrategy::ALL), &["memory:ext4", "kernel:xfs", "/"]),
            (Question::FreeIndex(&[]), &["memory:xfs"]),
            (Question::None, &["memory:xfs", "memory:ext4", "kernel:xfs", "kernel:ext4"]),
        ] {
            let same: Vec<_> = targets.iter().map(|&target| (target, "")).collect();
            assert_eq!(expanded(question, targets), pairs(&same), "{question:?}");
        }
    }

    #[test]
    fn orphans_are_measured_against_the_limit() {
        let limit = "memory:ext4,orphans=off";
        assert_eq!(
            expanded(Question::Orphans, &["memory:ext4", "kernel:ext4"]),
            pairs(&[
                (limit, ""),
                ("memory:ext4,orphans=list", limit),
                ("memory:ext4,orphans=always", limit),
                ("memory:ext4,orphans=when-needed", limit),
                ("kernel:ext4,^orphan_file", ""),
                ("kernel:ext4,+orphan_file", "kernel:ext4,^orphan_file"),
            ])
        );
        let limit = "memory:ext4,^orphan_file,orphans=off";
        assert_eq!(
            expanded(Question::Orphans, &["memory:ext4,^orphan_file"]),
            pairs(&[
                (limit, ""),
                ("memory:ext4,^orphan_file,orphans=list", limit),
                ("memory:ext4,^orphan_file,orphans=when-needed", limit),
            ])
        );
    }

    #[test]
    fn each_chosen_way_of_finding_room_takes_part() {
        let ways = [FreeIndexStrategy::Forward, FreeIndexStrategy::Tree];
        assert_eq!(
            expanded(Question::FreeIndex(&ways), &["memory:xfs", "memory:ext4"]),
            pairs(&[
                ("memory:xfs,free-index=forward", ""),
                ("memory:xfs,free-index=tree", "memory:xfs,free-index=forward"),
                ("memory:ext4", ""),
            ])
        );
        assert_eq!(
            expanded(Question::FreeIndex(&ways[1..]), &["memory:xfs"]),
            pairs(&[("memory:xfs,free-index=tree", "")])
        );
    }

    #[test]
    fn each_thread_takes_part_once() {
        assert_eq!(
            expanded(Question::Parents, &["memory:xfs,^parent", "memory:xfs", "memory:xfs"]),
            pairs(&[("memory:xfs,^parent", ""), ("memory:xfs,+parent", "memory:xfs,^parent"),])
        );
        assert_eq!(expanded(Question::None, &["/tmp", "/tmp"]), pairs(&[("/tmp", "")]));
    }
}
