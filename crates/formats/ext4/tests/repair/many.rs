//! Very many damaged images, with several faults in each. Our check verifies every repair, e2fsck some.

use std::collections::BTreeMap;

use ext4::format::features::Incompat;
use ext4::format::superblock::RawSuperblock;
use testkit::{effort, require};
use zerocopy::FromBytes;

use super::tree::ReachableTree;
use super::{apply, describe, plan};
use crate::check::victim::{Victim, damage, is_explained, judge};
use crate::common::image::{GOLDEN, golden};

/// e2fsck checks one case in this many. The test also repairs these a second time and reads all their contents.
const JUDGED_ONE_IN: usize = 20;

/// Number of cases between two progress reports.
const REPORT_CASES: usize = 10_000;

#[derive(Debug, Default)]
struct Tally {
    cases: usize,
    refused: usize,
    judged: usize,
    /// Problems by kind: their number, and the first ones.
    problems: BTreeMap<String, (usize, Vec<String>)>,
}

impl Tally {
    fn problem(&mut self, kind: &str, detail: String) {
        /// Maximum number of problems kept per kind.
        const KEPT: usize = 5;
        let (count, list) = self.problems.entry(kind.to_owned()).or_default();
        *count += 1;
        if list.len() < KEPT {
            // Print problems at once: a run takes hours, and a user may stop it early.
            println!("=== {kind}\n{detail}");
            list.push(detail);
        }
    }

    fn report(&self) {
        let Self { cases, refused, judged, problems } = self;
        let kinds: Vec<_> = problems.iter().map(|(kind, (count, _))| (kind, count)).collect();
        println!("{cases} cases, {refused} refused, {judged} judged, problems: {kinds:?}");
    }

    /// Reports, and panics if there were problems.
    fn end(&self) {
        self.report();
        let kinds = self.problems.iter();
        let shown: Vec<_> =
            kinds.map(|(kind, (_, list))| format!("=== {kind}\n{}", list.join("\n"))).collect();
        assert!(shown.is_empty(), "{}", shown.join("\n"));
    }
}

/// Damages an image at one to four places, each with a probability of one eighth a whole block.
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

/// Repairs an image, and runs the checkers on it.
fn repair_one(image: &[u8], what: &str, is_judged: bool, tally: &mut Tally) {
    let made = match plan(image) {
        Ok(made) => made,
        // An unsupported feature, which the damage may have set.
        Err(vfs::Error::Unsupported(_)) => {
            tally.refused += 1;
            return;
        }
        // The same in a superblock with other damage that has no intact copy.
        Err(vfs::Error::Corrupt(_)) if has_unknown_features(image) => {
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
    let after = apply(image, &made.steps);
    let is_known = |text: &String| is_explained(text) || is_of_names(text, &after);
    if let Some(remarks) = judge(&after).filter(|text| !is_known(text)) {
        return tally.problem("e2fsck finds more", format!("{}{remarks}", text()));
    }
    match plan(&after) {
        Ok(again) if again.steps.is_empty() && again.findings.is_empty() => {}
        Ok(again) => tally.problem("a second repair", format!("{}{}", text(), describe(&again))),
        Err(error) => tally.problem("a second repair", format!("{}{error}", text())),
    }
    if let Err(error) = ReachableTree::of(&after) {
        tally.problem("cannot be read", format!("{}{error}", text()));
    }
}

/// Checks whether a superblock has unsupported features, whatever else is wrong with it.
fn has_unknown_features(image: &[u8]) -> bool {
    let raw = RawSuperblock::read_from_bytes(&image[1024..2048]).unwrap();
    !raw.features().unreadable().is_empty()
}

/// Checks whether e2fsck reports only a name that is not UTF-8 in the index of a case-insensitive directory. Version
/// 1.47.0 cannot hash it, although debugfs of that version computes its stored hash.
fn is_of_names(text: &str, image: &[u8]) -> bool {
    let is_of_index = |line: &str| {
        let words = ["has bad min hash", "has bad max hash", "Invalid HTREE directory"];
        words.iter().any(|words| line.contains(words))
    };
    let rest: Vec<&str> = text.lines().filter(|line| !is_of_index(line)).collect();
    let raw = RawSuperblock::read_from_bytes(&image[1024..2048]).unwrap();
    let ignores_case = raw.features().incompat(Incompat::CASEFOLD);
    let has_such = || {
        let tree = ReachableTree::of(image).unwrap_or_default();
        tree.names.keys().any(|(_, name)| std::str::from_utf8(name).is_err())
    };
    ignores_case
        && is_explained(&rest.join("\n").replace("Clear HTree index? no", ""))
        && has_such()
}

/// Returns the case numbers in `DISKWRIGHT_REPAIR_CASES`. If there are any, only these cases are run.
fn chosen() -> Vec<usize> {
    let text = std::env::var("DISKWRIGHT_REPAIR_CASES").unwrap_or_default();
    let numbers = text.split(',').filter(|number| !number.is_empty());
    numbers.map(|number| number.parse().expect("numbers of cases, with commas")).collect()
}

/// Repairs the `chosen` ones of `count` cases, or all if none is chosen. All cases are generated, because each depends
/// on those before it.
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
            repair_one(&victim.image, &what, is_judged || !all, &mut tally);
        }
        victim.image = sound;
        if all && tally.cases.is_multiple_of(REPORT_CASES) {
            tally.report();
        }
    }
    tally.end();
}
#[test]
fn very_many_cases_of_damage_are_repaired() {
    require!(Tool("e2fsck"));
    let chosen = chosen();
    let last = chosen.iter().max();
    run(last.map_or(effort(300, 500, 1_000_000), |last| last + 1), &chosen);
}

#[test]
fn cases_that_went_wrong_once_are_repaired() {
    require!(Tool("e2fsck"));
    let wrong = [6_688, 10_951, 19_204, 31_439, 72_727];
    run(effort(20_000, 20_000, 80_000), &wrong);
}

/// Damage that caused a failure in a run of a million cases: an image, and bytes at offsets of it.
type FormerFailure = (&'static str, &'static str, &'static [(usize, u64, usize)]);

/// Offset of inode 15 in `ext4-plain`.
const INODE_15: usize = 38 * 1024 + 0x200;

/// The bytes of each entry are an offset, a big-endian number, and its length in bytes.
const KNOWN: &[FormerFailure] = &[
    (
        "a map covers nodes of others, and MMP wants a block",
        "ext4-plain",
        &[(1121, 0x61, 1), (INODE_15 + 0x38, 0xff, 1)],
    ),
    (
        "a name that ignores case is no text",
        "casefold",
        &[(52241, 0xe9, 1), (53244, 0x1279_6e7a, 4)],
    ),
    (
        "two fields of a superblock",
        "ext4",
        &[(1024, 0x587a, 2), (1110, 2, 1), (2044, 0xd62a_d7ee, 4)],
    ),
    ("a short inline symbolic link", "inline", &[(40961, 0xa1, 1)]),
    (
        "a value in the file system's own blocks",
        "ea-inode",
        &[(42044, 0x28, 1), (42108, 0x20a0, 2), (42114, 0x786d, 2)],
    ),
    ("a node of an index with a name", "deep-index-plain", &[(223_238, 1, 1)]),
    (
        "numbers and sizes of blocks",
        "inline",
        &[(1028, 0xffff_ffff, 4), (1048, 0x555e_f24c, 4), (2044, 0xf84f_7d9e, 4)],
    ),
    (
        "a map that is said to be data",
        "inline",
        &[(41760, 0x4297_a5d3, 4), (41852, 0x8adf, 2), (41858, 0xb6ca, 2)],
    ),
    ("inodes of a group", "groups", &[(1065, 4, 1)]),
    ("an orphan file that there is not", "groups", &[(1664, 1, 1)]),
    ("a directory that is a device", "ext3", &[(8192, 0x8463_4ccb, 4)]),
    ("a node of extents that is empty", "ext4-plain", &[(57 * 1024 + 2, 0, 1)]),
];

#[test]
fn failures_of_the_long_run_are_repaired() {
    require!(Tool("e2fsck"));
    let mut tally = Tally::default();
    for (what, name, bytes) in KNOWN {
        let mut image = golden(name);
        for &(at, number, count) in *bytes {
            image[at..at + count].copy_from_slice(&number.to_be_bytes()[8 - count..]);
        }
        tally.cases += 1;
        repair_one(&image, what, true, &mut tally);
    }
    assert_eq!(tally.refused, 0);
    tally.end();
}
