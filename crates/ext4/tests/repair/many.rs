//! Very many cases of damage, a few at once in each image: our own check judges every repair, e2fsck some.

use std::collections::BTreeMap;

use ext4::format::features::Incompat;
use ext4::format::superblock::RawSuperblock;
use oracle::{effort, require};
use zerocopy::FromBytes;

use super::tree::Tree;
use super::{apply, describe, plan};
use crate::check::victim::{Victim, damage, is_explained, judge};
use crate::common::image::GOLDEN;

/// One case in so many is shown to e2fsck, repaired again, and read as a whole.
const JUDGED_ONE_IN: usize = 20;

/// Cases between two reports of how it goes.
const REPORT_CASES: usize = 10_000;

#[derive(Debug, Default)]
struct Tally {
    cases: usize,
    refused: usize,
    judged: usize,
    /// By kind: how many there were, and what the first ones were.
    problems: BTreeMap<String, (usize, Vec<String>)>,
}

impl Tally {
    fn problem(&mut self, kind: &str, detail: String) {
        /// Most of each kind that are kept.
        const KEPT: usize = 5;
        let (count, list) = self.problems.entry(kind.to_owned()).or_default();
        *count += 1;
        if list.len() < KEPT {
            // Who ends a run that takes hours wants to know, too.
            println!("=== {kind}\n{detail}");
            list.push(detail);
        }
    }

    fn report(&self) {
        let Self { cases, refused, judged, problems } = self;
        let kinds: Vec<_> = problems.iter().map(|(kind, (count, _))| (kind, count)).collect();
        println!("{cases} cases, {refused} refused, {judged} judged, problems: {kinds:?}");
    }
}

/// Damages an image in one to four places, one in eight times a whole block.
fn damaged(victim: &mut Victim, random: &mut fastrand::Rng) -> String {
    let mut what = String::new();
    for _ in 0..random.usize(1..5) {
        if random.u8(..8) == 0 {
            let target = &victim.targets[random.usize(1..victim.targets.len())];
            let range = target.range.clone();
            what.push_str(&format!("; all of {}", target.name));
            victim.image[range].fill_with(|| random.u8(..));
            continue;
        }
        let case = damage(victim, random);
        what.push_str(&format!("; {}", case.what));
        victim.image = case.image;
    }
    what
}

/// Repairs an image, and lets the judges see it.
fn repair_one(victim: &Victim, what: &str, is_judged: bool, tally: &mut Tally) {
    let made = match plan(&victim.image) {
        Ok(made) => made,
        // A feature that is not known, which somebody may have put there.
        Err(vfs::Error::Unsupported(_)) => {
            tally.refused += 1;
            return;
        }
        // The same, in a superblock that is damaged otherwise, too, and of which there is no copy.
        Err(vfs::Error::Corrupt(_)) if has_unknown_features(&victim.image) => {
            tally.refused += 1;
            return;
        }
        Err(error) => return tally.problem("refused", format!("{what}: {error}")),
    };
    let text = || format!("{what}\n{}", describe(&made));
    if let Some(first) = made.left.first() {
        return tally.problem(&format!("left {}", first.code.name), text());
    }
    if !made.summary.is_complete {
        return tally.problem("not complete", text());
    }
    if !is_judged {
        return;
    }
    tally.judged += 1;
    let after = apply(&victim.image, &made.steps);
    let is_known = |text: &String| is_explained(text) || is_of_names(text, &after);
    if let Some(remarks) = judge(&after).filter(|text| !is_known(text)) {
        return tally.problem("e2fsck finds more", format!("{}{remarks}", text()));
    }
    match plan(&after) {
        Ok(again) if again.steps.is_empty() && again.findings.is_empty() => {}
        Ok(again) => tally.problem("a second repair", format!("{}{}", text(), describe(&again))),
        Err(error) => tally.problem("a second repair", format!("{}{error}", text())),
    }
    if let Err(error) = Tree::of(&after) {
        tally.problem("cannot be read", format!("{}{error}", text()));
    }
}

/// Whether a superblock has features that nobody knows, whatever else is wrong with it.
fn has_unknown_features(image: &[u8]) -> bool {
    let raw = RawSuperblock::read_from_bytes(&image[1024..2048]).unwrap();
    !raw.features().unreadable().is_empty()
}

/// Whether all that e2fsck finds is a name that is not UTF-8 in the index of a directory that ignores case: version 1.47.0
/// cannot hash it, although debugfs of that version gives it the hash that it has.
fn is_of_names(text: &str, image: &[u8]) -> bool {
    let is_of_index = |line: &str| {
        line.contains("has bad min hash") || line.starts_with("Invalid HTREE directory")
    };
    let rest: Vec<&str> = text.lines().filter(|line| !is_of_index(line)).collect();
    let raw = RawSuperblock::read_from_bytes(&image[1024..2048]).unwrap();
    let ignores_case = raw.features().incompat(Incompat::CASEFOLD);
    let has_such = || {
        let tree = Tree::of(image).unwrap_or_default();
        tree.names.keys().any(|(_, name)| std::str::from_utf8(name).is_err())
    };
    ignores_case
        && is_explained(&rest.join("\n").replace("Clear HTree index? no", ""))
        && has_such()
}

/// The cases that `DISKWRIGHT_REPAIR_CASES` names, by their numbers: these are done again, and no others.
fn chosen() -> Vec<usize> {
    let text = std::env::var("DISKWRIGHT_REPAIR_CASES").unwrap_or_default();
    let numbers = text.split(',').filter(|number| !number.is_empty());
    numbers.map(|number| number.parse().expect("numbers of cases, with commas")).collect()
}

/// Repairs the `chosen` ones of `count` cases, or all if none is chosen. Each depends on those before it, which
/// are made all the same.
fn run(count: usize, chosen: &[usize]) {
    let mut victims: Vec<_> = GOLDEN.iter().map(|(name, _)| (*name, Victim::new(name))).collect();
    let mut random = fastrand::Rng::with_seed(61);
    let mut tally = Tally::default();
    let all = chosen.is_empty();
    for number in 0..count {
        let which = number % victims.len();
        let (name, victim) = &mut victims[which];
        let sound = victim.image.clone();
        let what = format!("{name} {number}{}", damaged(victim, &mut random));
        let is_judged = random.usize(..JUDGED_ONE_IN) == 0;
        if all || chosen.contains(&number) {
            tally.cases += 1;
            repair_one(victim, &what, is_judged || !all, &mut tally);
        }
        victim.image = sound;
        if all && tally.cases.is_multiple_of(REPORT_CASES) {
            tally.report();
        }
    }
    tally.report();
    let kinds = tally.problems.iter();
    let shown: Vec<_> =
        kinds.map(|(kind, (_, list))| format!("=== {kind}\n{}", list.join("\n"))).collect();
    assert!(shown.is_empty(), "{}", shown.join("\n"));
}

#[test]
fn very_many_cases_of_damage_are_repaired() {
    require!(Tool("e2fsck"));
    let chosen = chosen();
    let last = chosen.iter().max();
    run(last.map_or(effort(300, 5_000, 1_000_000), |last| last + 1), &chosen);
}

#[test]
fn cases_that_went_wrong_once_are_repaired() {
    require!(Tool("e2fsck"));
    let wrong = [
        6_688, 10_951, 19_204, 31_439, 72_727, 121_107, 246_738, 271_470, 297_458, 324_328,
        335_729, 348_238, 367_672, 387_604, 397_841, 435_211, 458_563, 484_806, 606_689, 619_510,
        871_494,
    ];
    run(effort(20_000, 80_000, 900_000), &wrong);
}
