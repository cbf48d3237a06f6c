//! Repairs of all kinds of damage: afterwards neither the check nor e2fsck finds anything, and all undamaged files are
//! unchanged.

use std::collections::BTreeMap;
use std::path::Path;

use testkit::{effort, require, scratch};

use super::tree::ReachableTree;
use super::{apply, describe, plan};
use crate::check::victim::{DamagedImage, Victim, damage, damage_block, is_explained, judge, made};
use crate::common::image::GOLDEN;

/// Results of repairs.
#[derive(Default)]
struct RepairOutcomes {
    cases: u32,
    repaired: u32,
    refused: u32,
    /// Number of inodes and names that were lost although they were not damaged.
    lost: u32,
    /// Failures, grouped by their first line.
    problems: BTreeMap<String, Vec<String>>,
}

impl RepairOutcomes {
    fn problem(&mut self, kind: impl Into<String>, detail: String) {
        self.problems.entry(kind.into()).or_default().push(detail);
    }
}

/// Repairs a damaged image and checks the result. Returns the repaired image.
fn repair(name: &str, case: &DamagedImage, outcome: &mut RepairOutcomes) -> Option<Vec<u8>> {
    outcome.cases += 1;
    let made = match plan(&case.image) {
        Ok(made) => made,
        Err(vfs::Error::Unsupported(_)) => {
            outcome.refused += 1;
            return None;
        }
        Err(error) => {
            outcome.problem("refused", format!("{name}: {}: {error}", case.what));
            return None;
        }
    };
    let what = format!("{name}: {}\n{}", case.what, describe(&made));
    if let Some(first) = made.left.first() {
        outcome.problem(format!("left {}", first.code.name), what);
        return None;
    }
    if !made.summary.is_complete {
        outcome.problem("not complete", what);
        return None;
    }
    let after = apply(&case.image, &made.steps);
    if let Some(text) = judge(&after).filter(|text| !is_explained(text)) {
        outcome.problem("e2fsck finds more", format!("{what}{text}"));
        return None;
    }
    match plan(&after) {
        Ok(again) if again.steps.is_empty() && again.findings.is_empty() => {}
        Ok(again) => outcome.problem("a second repair", format!("{what}{}", describe(&again))),
        Err(error) => outcome.problem("a second repair", format!("{what}{error}")),
    }
    outcome.repaired += 1;
    Some(after)
}

/// Damages and repairs an image `count` times.
fn repair_all(name: &str, victim: &Victim, count: usize, outcome: &mut RepairOutcomes) {
    let mut random = fastrand::Rng::with_seed(name.bytes().map(u64::from).sum::<u64>() + 1);
    let before = ReachableTree::of(&victim.image).expect("a sound image");
    for _ in 0..count {
        let case = damage(victim, &mut random);
        let Some(after) = repair(name, &case, outcome) else { continue };
        let now = match ReachableTree::of(&after) {
            Ok(now) => now,
            Err(error) => {
                outcome.problem("cannot be read", format!("{name}: {}: {error}", case.what));
                continue;
            }
        };
        // Attributes are in blocks that inodes share, and in inodes without names.
        let is_of_attributes = case.what.starts_with("Attributes")
            || case.ino.is_some_and(|ino| !before.inodes.contains_key(&ino.into()));
        let lost = before.lost_in(&now, case.ino.map(u64::from), !is_of_attributes);
        if !lost.inodes.is_empty() || !lost.names.is_empty() {
            outcome.lost += (lost.inodes.len() + lost.names.len()) as u32;
            let done = plan(&case.image).map(|plan| describe(&plan)).unwrap_or_default();
            outcome.problem("lost", format!("{name}: {}: {lost:?}\n{done}", case.what));
        }
    }
}

/// Asserts that there were no failures.
fn settle(outcome: &RepairOutcomes) {
    let RepairOutcomes { cases, repaired, refused, lost, problems } = outcome;
    println!("{cases} cases, {repaired} repaired, {refused} refused, {lost} lost");
    for (kind, list) in problems {
        println!("{} times {kind}", list.len());
    }
    /// Maximum number of failures of each kind that are shown.
    const SHOWN: usize = 4;
    let shown: Vec<String> = problems
        .iter()
        .map(|(kind, list)| {
            let some: Vec<_> = list.iter().take(SHOWN).cloned().collect();
            format!("=== {kind}: {} times\n{}", list.len(), some.join("\n"))
        })
        .collect();
    assert!(problems.is_empty(), "{}", shown.join("\n"));
}

/// Returns the images to damage: golden ones, and those of mke2fs.
fn victims(work: &Path) -> Vec<(&'static str, Victim)> {
    let golden = GOLDEN.iter().map(|(name, _)| (*name, Victim::new(name)));
    let made = made(work).into_iter().map(|(name, image)| (name, Victim::of(image)));
    golden.chain(made).collect()
}

#[test]
fn volumes_are_repaired_and_nothing_is_lost() {
    require!(Tool("e2fsck"), Tool("mke2fs"));
    let work = scratch();
    let mut outcome = RepairOutcomes::default();
    for (name, mut victim) in victims(work.path()) {
        victim.targets.retain(|target| target.ino.is_none());
        let count = effort(15, 20, 5_000);
        repair_all(name, &victim, count, &mut outcome);
    }
    settle(&outcome);
}

#[test]
fn files_are_repaired_and_others_keep_what_they_hold() {
    require!(Tool("e2fsck"), Tool("mke2fs"));
    let work = scratch();
    let mut outcome = RepairOutcomes::default();
    for (name, mut victim) in victims(work.path()) {
        victim.targets.retain(|target| target.ino.is_some());
        let count = effort(15, 20, 5_000);
        repair_all(name, &victim, count, &mut outcome);
    }
    settle(&outcome);
}

#[test]
fn lost_swapped_and_random_blocks_are_survived() {
    require!(Tool("e2fsck"));
    let mut random = fastrand::Rng::with_seed(23);
    let (mut whole, mut wrong) = (0, Vec::new());
    for (name, _) in GOLDEN {
        let victim = Victim::new(name);
        let size = victim.layout.geometry.block_size() as usize;
        for number in 0..effort(4, 10, 3_000) {
            let mut image = victim.image.clone();
            for _ in 0..random.usize(1..6) {
                damage_block(&mut image, size, &mut random);
            }
            victim.layout.seal(&mut image);
            if random.u8(..4) == 0 {
                image.truncate(random.usize(2048..image.len()));
            }
            let Ok(made) = plan(&image) else { continue };
            if !made.left.is_empty() || !made.summary.is_complete {
                continue;
            }
            whole += 1;
            let after = apply(&image, &made.steps);
            if let Some(text) = judge(&after).filter(|text| !is_explained(text)) {
                wrong.push(format!("{name} {number}:\n{}{text}", describe(&made)));
            }
        }
    }
    println!("{whole} repaired");
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
