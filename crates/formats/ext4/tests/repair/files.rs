//! Damage to inodes and their blocks, and the effect on files.

use std::collections::BTreeMap;

use testkit::{effort, require, scratch};

use super::tree::ReachableTree;
use super::{apply, describe, plan};
use crate::check::victim::{DamagedImage, Victim, damage, is_explained, judge, made};
use crate::common::image::GOLDEN;

/// Keeps only the targets that belong to files.
fn only_files(mut victim: Victim) -> Victim {
    let raw = &victim.layout.sb.raw;
    let own = [
        raw.journal_inum,
        raw.usr_quota_inum,
        raw.grp_quota_inum,
        raw.prj_quota_inum,
        raw.orphan_file_inum,
    ];
    let own = own.map(|ino| ino.get());
    let first = victim.layout.sb.first_ino;
    let is_file = |ino: u32| ino == 2 || ino >= first && !own.contains(&ino);
    victim.targets.retain(|target| target.ino.is_some_and(is_file));
    victim
}

/// Damages and repairs each victim `count` times, with damage at `at_once` places of one image.
fn assert_repaired(
    victims: impl Iterator<Item = (&'static str, Victim)>,
    count: usize,
    at_once: usize,
) {
    assert_repaired_of(victims, count, at_once, damage);
}

/// Like `assert_repaired`, with another kind of damage.
fn assert_repaired_of(
    victims: impl Iterator<Item = (&'static str, Victim)>,
    count: usize,
    at_once: usize,
    damage: fn(&Victim, &mut fastrand::Rng) -> DamagedImage,
) {
    let mut problems: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut cases = 0;
    for (name, victim) in victims {
        let mut victim = only_files(victim);
        let sound = victim.image.clone();
        let before = ReachableTree::of(&sound).expect("a sound image");
        let mut random = fastrand::Rng::with_seed(name.bytes().map(u64::from).sum::<u64>() + 7);
        for _ in 0..count {
            cases += 1;
            victim.image.clone_from(&sound);
            let (mut touched, mut what) = (Vec::new(), name.to_owned());
            for _ in 0..at_once {
                let case = damage(&victim, &mut random);
                victim.image = case.image;
                touched.extend(case.ino.map(u64::from));
                what = format!("{what}: {}", case.what);
            }
            let judged = repair_one(&victim).and_then(|(text, now)| match touched[..] {
                [one] => compare((&before, &now), one, &what)
                    .map_err(|(kind, lost)| (kind, format!("{text}{lost}"))),
                _ => Ok(()),
            });
            if let Err((kind, text)) = judged {
                problems.entry(kind).or_default().push(format!("{what}\n{text}"));
            }
        }
    }
    println!("{cases} cases");
    let shown = problems.iter().map(|(kind, list)| {
        println!("{} times {kind}", list.len());
        let some: Vec<_> = list.iter().take(6).cloned().collect();
        format!("=== {kind}: {} times\n{}", list.len(), some.join("\n"))
    });
    let shown: Vec<String> = shown.collect();
    assert!(shown.is_empty(), "{}", shown.join("\n"));
}

/// Kind of a problem, and its details.
type Problem = (String, String);

/// Repairs an image. Returns a description of the repair, and the repaired image's tree.
fn repair_one(victim: &Victim) -> Result<(String, ReachableTree), Problem> {
    let made = plan(&victim.image).map_err(|error| ("refused".to_owned(), error.to_string()))?;
    let text = describe(&made);
    if let Some(first) = made.left.first() {
        return Err((format!("left {}", first.code.name), text));
    }
    let after = apply(&victim.image, &made.steps);
    if let Some(remarks) = judge(&after).filter(|text| !is_explained(text)) {
        return Err(("e2fsck finds more".to_owned(), format!("{text}{remarks}")));
    }
    match ReachableTree::of(&after) {
        Ok(now) => Ok((text, now)),
        Err(error) => Err(("cannot be read".to_owned(), format!("{text}{error}"))),
    }
}

/// Checks whether anything is lost except the damaged parts.
fn compare(
    (before, now): (&ReachableTree, &ReachableTree),
    touched: u64,
    what: &str,
) -> Result<(), Problem> {
    // The damaged structure may contain attributes of other inodes.
    let is_value = !before.inodes.contains_key(&touched);
    let with_xattrs = !is_value && !what.contains("Attributes");
    let lost = before.lost_in(now, Some(touched), with_xattrs);
    let is_lost = !lost.inodes.is_empty() || !lost.names.is_empty();
    if is_lost { Err(("lost".to_owned(), format!("{lost:?}"))) } else { Ok(()) }
}

#[test]
fn files_of_golden_images_are_repaired() {
    require!(Tool("e2fsck"));
    let victims = GOLDEN.iter().map(|(name, _)| (*name, Victim::new(name)));
    assert_repaired(victims, effort(30, 35, 10_000), 1);
}

#[test]
fn files_with_several_damages_are_repaired() {
    require!(Tool("e2fsck"));
    let victims = GOLDEN.iter().map(|(name, _)| (*name, Victim::new(name)));
    assert_repaired(victims, effort(15, 18, 5_000), 4);
}

#[test]
fn files_of_images_of_mke2fs_are_repaired() {
    require!(Tool("e2fsck"), Tool("mke2fs"));
    let work = scratch();
    let victims = made(work.path()).into_iter().map(|(name, image)| (name, Victim::of(image)));
    assert_repaired(victims, effort(20, 30, 5_000), 1);
}

/// Damages a whole structure: it becomes zeros, random bytes, or a copy of another structure.
fn damage_whole(victim: &Victim, random: &mut fastrand::Rng) -> DamagedImage {
    let targets = &victim.targets;
    let target = &targets[random.usize(..targets.len())];
    let other = &targets[random.usize(..targets.len())];
    let mut image = victim.image.clone();
    let len = target.range.len().min(other.range.len());
    let start = target.range.start;
    let kind = random.u8(..4);
    match kind {
        0 => image[target.range.clone()].fill(0),
        1 => image[target.range.clone()].fill_with(|| random.u8(..)),
        _ => image.copy_within(other.range.start..other.range.start + len, start),
    }
    let is_repaired = random.bool();
    if is_repaired {
        victim.layout.seal(&mut image);
    }
    let kind = ["zeros", "random", &other.name, &other.name][usize::from(kind)];
    DamagedImage {
        image,
        what: format!("{} is {kind}, {is_repaired}", target.name),
        ino: target.ino,
    }
}

#[test]
fn lost_and_exchanged_structures_of_files_are_repaired() {
    require!(Tool("e2fsck"));
    let victims = GOLDEN.iter().map(|(name, _)| (*name, Victim::new(name)));
    assert_repaired_of(victims, effort(20, 25, 5_000), 1, damage_whole);
}

#[test]
fn several_lost_and_exchanged_structures_of_files_are_repaired() {
    require!(Tool("e2fsck"));
    let victims = GOLDEN.iter().map(|(name, _)| (*name, Victim::new(name)));
    assert_repaired_of(victims, effort(15, 18, 5_000), 5, damage_whole);
}

#[test]
fn files_with_very_many_damages_are_repaired() {
    require!(Tool("e2fsck"));
    let victims = GOLDEN.iter().map(|(name, _)| (*name, Victim::new(name)));
    assert_repaired(victims, effort(4, 6, 2_000), 40);
    let victims = GOLDEN.iter().map(|(name, _)| (*name, Victim::new(name)));
    assert_repaired_of(victims, effort(4, 6, 2_000), 20, damage_whole);
}
