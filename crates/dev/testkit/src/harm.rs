//! Random damage to the structures of an image, for any format.
//!
//! A format's tests supply the locations of structures ([`HarmTarget`]) and a function that makes checksums valid
//! again. The same seed causes the same damage.

use std::ops::Range;

/// Bytes near the start of a structure, where most fields are.
const HEAD_BYTES: usize = 160;
/// Bytes of a sector, the unit of a torn write.
const SECTOR_BYTES: usize = 512;

/// A structure of an image that can be damaged.
#[derive(Clone, Debug)]
pub struct HarmTarget {
    /// Its name in messages.
    pub name: String,
    /// Its bytes in the image.
    pub range: Range<usize>,
}

/// Damages between one and `places_max` of `targets`. Makes checksums valid again by `seal` in three of four cases.
/// Returns a description of the damage.
///
/// # Panics
/// If the list of targets or one of them is empty.
pub fn harm(
    image: &mut [u8],
    targets: &[HarmTarget],
    places_max: usize,
    seal: &dyn Fn(&mut [u8]),
    random: &mut fastrand::Rng,
) -> String {
    let places = random.usize(1..=places_max);
    let what: Vec<String> = (0..places).map(|_| harm_one(image, targets, random)).collect();
    let is_sealed = random.u8(..4) != 0;
    if is_sealed {
        seal(image);
    }
    let sums = if is_sealed { "valid" } else { "invalid" };
    format!("{}; checksums {sums}", what.join(", "))
}

fn harm_one(image: &mut [u8], targets: &[HarmTarget], random: &mut fastrand::Rng) -> String {
    let target = &targets[random.usize(..targets.len())];
    let HarmTarget { name, range } = target;
    match random.u8(..16) {
        0 => {
            image[range.clone()].fill(0);
            format!("{name} zeroed")
        }
        1 => {
            image[range.clone()].fill_with(|| random.u8(..));
            format!("{name} random")
        }
        2 => {
            let other = &targets[random.usize(..targets.len())];
            let len = range.len().min(other.range.len());
            image.copy_within(other.range.start..other.range.start + len, range.start);
            format!("{name} overwritten with {}", other.name)
        }
        3 => {
            let sectors = range.len().div_ceil(SECTOR_BYTES);
            let start = range.start + random.usize(..sectors) * SECTOR_BYTES;
            let end = (start + SECTOR_BYTES).min(range.end);
            image[start..end].fill(0);
            format!("{name} sector at {:#x} zeroed", start - range.start)
        }
        _ => harm_field(image, target, random),
    }
}

/// Changes one field of one, two or four bytes.
fn harm_field(image: &mut [u8], target: &HarmTarget, random: &mut fastrand::Rng) -> String {
    let range = &target.range;
    let head = range.len().min(HEAD_BYTES);
    let len = if random.bool() { head } else { range.len() };
    let width = [1, 2, 4][random.usize(..3)].min(len);
    let at = range.start + random.usize(..len / width) * width;
    let mut word = [0; 4];
    word[..width].copy_from_slice(&image[at..at + width]);
    let old = u32::from_le_bytes(word);
    let new = match random.u8(..6) {
        0 => 0,
        1 => u32::MAX,
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        4 => old ^ 1 << random.usize(..width * 8),
        _ => random.u32(..),
    };
    image[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
    format!("{} byte {:#x}: {old:#x} to {new:#x}", target.name, at - range.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_damage_and_only_within_targets() {
        let targets = [100..300, 5_000..6_024].map(|range| HarmTarget { name: "t".into(), range });
        for seed in 0..200 {
            let damaged = || {
                let mut image = vec![7; 8192];
                let what =
                    harm(&mut image, &targets, 3, &|_| {}, &mut fastrand::Rng::with_seed(seed));
                (image, what)
            };
            let (image, what) = damaged();
            assert_eq!((&image, &what), (&damaged().0, &damaged().1));
            let is_inside = |at: &usize| targets.iter().any(|target| target.range.contains(at));
            assert!(
                (0..image.len()).filter(|at| image[*at] != 7).all(|at| is_inside(&at)),
                "{what}"
            );
        }
    }
}
