//! Damage field by field, with valid and invalid checksums: if e2fsck finds something, the check must too. Neither may
//! panic or hang.

use std::collections::BTreeMap;

use testkit::{effort, require, scratch};

use super::victim::{Victim, damage, damage_block, is_explained, judge, made};
use super::{check, show};
use crate::common::image::{GOLDEN, device};

#[derive(Default)]
struct DamageCounts {
    both: u32,
    neither: u32,
    /// First code of each case in which only the check found something.
    only_ours: BTreeMap<&'static str, u32>,
    explained: u32,
}

/// Damages an image `count` times. Returns what e2fsck finds and the check does not.
fn compare(
    (name, victim): (&str, &Victim),
    count: usize,
    counts: &mut DamageCounts,
) -> Vec<String> {
    let mut random = fastrand::Rng::with_seed(name.bytes().map(u64::from).sum());
    let mut missed = Vec::new();
    for _ in 0..count {
        let case = damage(victim, &mut random);
        let theirs = judge(&case.image);
        // Rejecting an unsupported image is a valid result too.
        let ours = check(device(&case.image));
        let codes = ours.map_or(vec!["unsupported"], |(findings, _)| {
            findings.iter().map(|finding| finding.code.name).collect()
        });
        match (codes.len(), theirs) {
            (0, None) => counts.neither += 1,
            (0, Some(text)) if is_explained(&text) => counts.explained += 1,
            (0, Some(text)) => missed.push(format!("{name}: {}\n{text}", case.what)),
            (_, None) => *counts.only_ours.entry(codes[0]).or_default() += 1,
            (_, Some(_)) => counts.both += 1,
        }
    }
    missed
}

/// Damages each image `count` times, and asserts that the check finds something whenever e2fsck does.
fn assert_found(victims: impl Iterator<Item = (&'static str, Victim)>, count: usize) {
    let mut counts = DamageCounts::default();
    let mut missed = Vec::new();
    for (name, victim) in victims {
        missed.extend(compare((name, &victim), count, &mut counts));
    }
    let DamageCounts { both, neither, only_ours, explained } = counts;
    println!("both {both}, neither {neither}, explained {explained}, only ours {only_ours:?}");
    assert!(missed.is_empty(), "{} missed:\n{}", missed.len(), missed.join("\n\n"));
    // Large parts of an image are unused or have no meaning.
    assert!(both > neither / 4, "much of the damage must be seen");
}

#[test]
fn all_findings_of_e2fsck_in_golden_images_are_found() {
    require!(Tool("e2fsck"));
    let victims = GOLDEN.iter().map(|(name, _)| (*name, Victim::new(name)));
    assert_found(victims, effort(30, 40, 20_000));
}

#[test]
fn all_findings_of_e2fsck_in_images_of_mke2fs_are_found() {
    require!(Tool("e2fsck"), Tool("mke2fs"));
    let work = scratch();
    let victims = made(work.path()).into_iter().map(|(name, image)| (name, Victim::of(image)));
    assert_found(victims, effort(25, 40, 20_000));
}

#[test]
fn blocks_that_are_lost_swapped_or_random_are_survived() {
    let mut random = fastrand::Rng::with_seed(17);
    for (name, _) in GOLDEN {
        let victim = Victim::new(name);
        let size = victim.layout.geometry.block_size() as usize;
        for _ in 0..effort(15, 30, 5_000) {
            let mut image = victim.image.clone();
            for _ in 0..random.usize(1..4) {
                damage_block(&mut image, size, &mut random);
            }
            victim.layout.seal(&mut image);
            if random.bool() {
                image.truncate(random.usize(2048..image.len()));
            }
            let _ = check(device(&image));
        }
    }
}

#[test]
fn damage_is_found_where_it_is() {
    let mut by_code: BTreeMap<&str, u32> = BTreeMap::new();
    for (name, _) in GOLDEN {
        let victim = Victim::new(name);
        let mut random = fastrand::Rng::with_seed(4);
        for _ in 0..effort(100, 150, 20_000) {
            let case = damage(&victim, &mut random);
            let Ok((findings, _)) = check(device(&case.image)) else { continue };
            for finding in &findings {
                *by_code.entry(finding.code.name).or_default() += 1;
                assert!(ext4::check::CODES.contains(&finding.code), "{}", show(finding));
            }
        }
    }
    assert!(by_code.len() >= 35, "few kinds of damage were met: {by_code:?}");
}
