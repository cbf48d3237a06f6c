//! Repair: images are damaged, and the results of repairs are compared with the own check, `xfs_repair -n` and the
//! contents before.

mod cost;
mod devices;
mod failing;
mod files;
mod first_sectors;
mod guest;
mod kept;
mod logs;
mod nameless;
mod old_version;
mod padding;
pub(crate) mod quota_files;
mod quotas;
mod rich;
mod rule;
mod run;
pub(crate) mod subject;
mod symlinks;
mod version_4;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use disk::{BlockDevice, MemoryDevice};
use parking_lot::Mutex;
use vfs::check::Finding;

use crate::check_damage::{DamageCase, IMAGES, Kinds, is_explained, place};
use crate::common::image::{GOLDEN, device, golden, unpack};
use crate::common::layout::Layout;
use kept::Kept;
use run::{Outcome, RepairRun};
use subject::{Repaired, repaired};
use xfs::format::address::AgBlock;

/// Maximum time for the repair of a small image, on a busy machine.
const TIME_MAX: Duration = Duration::from_secs(120);

/// An image with its structures.
struct RepairSample {
    name: &'static str,
    bytes: Vec<u8>,
    layout: Layout,
    base: MemoryDevice,
}

impl RepairSample {
    fn new(name: &'static str, bytes: Vec<u8>) -> Self {
        let (layout, base) = (Layout::of(&bytes), device(&bytes));
        Self { name, bytes, layout, base }
    }

    /// Returns all images whose repair is tested.
    fn all() -> Vec<Self> {
        let only = std::env::var("REPAIR_IMAGE").ok();
        let names = IMAGES.iter().filter(|name| only.as_deref().is_none_or(|only| only == **name));
        names.map(|name| Self::new(name, golden(name))).collect()
    }
}

/// Formats the first findings.
fn shown(findings: &[Finding]) -> String {
    let one = |finding: &Finding| {
        let Finding { code, place, detail, expected, found, .. } = finding;
        let place = [("group", place.group), ("block", place.block), ("inode", place.inode)];
        let place: Vec<String> =
            place.iter().filter_map(|(name, at)| at.map(|at| format!("{name} {at}"))).collect();
        let said = [detail, expected, found].map(|text| text.as_deref().unwrap_or_default());
        format!("{} {} {:?} {said:?}", code.name, place.join(" "), finding.place.field)
    };
    let first: Vec<String> = findings.iter().take(6).map(one).collect();
    format!("{} findings\n    {}", findings.len(), first.join("\n    "))
}

/// Returns the complaint of `xfs_repair`.
fn complaint(device: &MemoryDevice) -> Option<String> {
    // The own check has already run.
    let complaint = testkit::show_image(device, testkit::xfs_repair_alone).err()?;
    let lines: Vec<&str> = complaint.lines().take(6).collect();
    (!is_explained(&complaint)).then(|| format!("xfs_repair: {}", lines.join("\n    ")))
}

/// Returns whether any superblock has a magic number.
fn has_superblock(image: &RepairSample, damaged: &MemoryDevice) -> bool {
    let geometry = &image.layout.geometry;
    let is_one = |ag| {
        let mut magic = [0; 4];
        let byte = geometry.byte_of(geometry.block_of(ag, AgBlock(0)));
        damaged.read_at(byte, &mut magic).unwrap();
        &magic == b"XFSB"
    };
    geometry.ags().any(is_one)
}

/// Returns the error in the result of a repair, which is optionally checked by `xfs_repair`; `None` if it is right.
fn fault(
    image: &RepairSample,
    kept: &Kept,
    damaged: MemoryDevice,
    (spoilt, is_judged): (&[Range<usize>], bool),
) -> Option<String> {
    let has_superblock = has_superblock(image, &damaged);
    let begun = Instant::now();
    // A panic fails one case, and does not end a run.
    let outcome = catch_unwind(AssertUnwindSafe(|| repaired(damaged)));
    let outcome = outcome.unwrap_or_else(|_| Err("it panicked".to_owned()));
    let took = begun.elapsed();
    if took > TIME_MAX {
        return Some(format!("it took {took:?}"));
    }
    let Repaired { device, codes, left, is_complete } = match outcome {
        Ok(outcome) => outcome,
        Err(error) => return Some(error),
    };
    let mut faults = Vec::new();
    if !has_superblock && left.iter().all(|finding| finding.code.name == "xfs-superblock") {
        // Without a superblock the layout is unknown, and nothing is changed.
        return None;
    }
    if !left.is_empty() || !is_complete {
        faults.push(format!("left (complete: {is_complete}): {}", shown(&left)));
    }
    if is_judged && left.is_empty() {
        faults.extend(complaint(&device));
    }
    if left.is_empty()
        && let Err(lost) = kept.check(image, device, spoilt)
    {
        faults.push(format!("lost: {lost}"));
    }
    (!faults.is_empty()).then(|| format!("found {codes:?}\n  {}", faults.join("\n  ")))
}

/// Calls `harm` with many seeds for each image. It damages a fork of the image, and returns the ranges and a
/// description. Panics with all wrong results.
#[track_caller]
fn judge(
    seeds: u64,
    harm: impl Fn(
        &RepairSample,
        &MemoryDevice,
        &mut fastrand::Rng,
    ) -> Option<(Vec<Range<usize>>, String)>
    + Sync,
) {
    let images = RepairSample::all();
    let run = RepairRun::asked(seeds, images.len() as u64);
    let outcome = Outcome::new(run);
    let only: Option<(String, u64)> = std::env::var("REPAIR_CASE").ok().and_then(|case| {
        let (name, seed) = case.split_once(',')?;
        Some((name.to_owned(), seed.parse().ok()?))
    });
    std::thread::scope(|scope| {
        for image in &images {
            let (outcome, harm, only) = (&outcome, &harm, &only);
            scope.spawn(move || {
                let kept = Kept::of(&image.base);
                let seeds = match only {
                    Some((name, seed)) if name == image.name => *seed..*seed + 1,
                    Some(_) => 0..0,
                    None => run.first..run.first + run.seeds,
                };
                for seed in seeds {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let damaged = image.base.fork();
                    let Some((spoilt, place)) = harm(image, &damaged, &mut random) else {
                        continue;
                    };
                    let fault = fault(image, &kept, damaged, (&spoilt, run.is_judged(seed)));
                    let fault =
                        fault.map(|fault| format!("{},{seed}: {place}: {fault}", image.name));
                    outcome.add(fault);
                }
            });
        }
    });
    outcome.assert_right();
}

/// The structures to damage.
#[derive(Clone, Copy, Debug)]
enum Of {
    /// Superblocks, and headers and trees of groups: nothing may be lost.
    Groups,
    /// Inodes and everything that they own.
    Files,
    All,
}

impl Of {
    fn kinds(self, image: &RepairSample) -> Kinds {
        let kinds = Kinds::new(&image.bytes, &image.layout);
        kinds.filter(&image.bytes, |bytes| match self {
            Self::Groups => kept::is_of_group(bytes),
            Self::Files => !kept::is_of_group(bytes),
            Self::All => true,
        })
    }
}

/// Damaged ranges, and a description.
type Harm = (Vec<Range<usize>>, String);

/// Damages one field of one structure.
fn field(
    of: Of,
    image: &RepairSample,
    damaged: &MemoryDevice,
    random: &mut fastrand::Rng,
) -> Option<Harm> {
    let case = DamageCase::random(&of.kinds(image), random);
    let spoilt = case.structure.start..case.structure.start + case.structure.len;
    case.apply(damaged, &image.layout)
        .then(|| (vec![spoilt], place(&image.bytes, &image.layout, &case)))
}

/// Replaces a whole structure by zeros, random bytes, or another structure.
fn whole(
    of: Of,
    image: &RepairSample,
    damaged: &MemoryDevice,
    random: &mut fastrand::Rng,
) -> Option<Harm> {
    let kinds = of.kinds(image);
    let (a, b) = (kinds.random(random), kinds.random(random));
    let (to, from) = (a.start..a.start + a.len, b.start..b.start + a.len.min(b.len));
    let how = random.u8(..3);
    match how {
        0 => damaged.zero_range(a.start as u64, a.len as u64).unwrap(),
        1 => {
            let noise: Vec<u8> = (0..a.len).map(|_| random.u8(..)).collect();
            damaged.write_at(a.start as u64, &noise).unwrap();
        }
        _ => damaged.write_at(a.start as u64, &image.bytes[from]).unwrap(),
    }
    let block = a.start as u64 >> image.layout.geometry.block_log;
    let magic = image.bytes[a.start..a.start + 16].escape_ascii().to_string();
    let how = ["zeroed", "noise", "another's"][usize::from(how)];
    Some((vec![to], format!("{how}: {magic} in block {block} ({:#x})", a.start)))
}

#[test]
fn fields_of_groups_are_repaired() {
    testkit::require!(Tool("xfs_repair"));
    judge(testkit::effort(15, 20, 20_000), |image, damaged, random| {
        field(Of::Groups, image, damaged, random)
    });
}

#[test]
fn blocks_of_groups_are_repaired() {
    testkit::require!(Tool("xfs_repair"));
    judge(testkit::effort(8, 10, 10_000), |image, damaged, random| {
        whole(Of::Groups, image, damaged, random)
    });
}

#[test]
fn fields_of_files_are_repaired() {
    testkit::require!(Tool("xfs_repair"));
    judge(testkit::effort(15, 20, 20_000), |image, damaged, random| {
        field(Of::Files, image, damaged, random)
    });
}

#[test]
fn blocks_of_files_are_repaired() {
    testkit::require!(Tool("xfs_repair"));
    judge(testkit::effort(8, 10, 10_000), |image, damaged, random| {
        whole(Of::Files, image, damaged, random)
    });
}

/// Damages several structures at once.
fn much(image: &RepairSample, damaged: &MemoryDevice, random: &mut fastrand::Rng) -> Option<Harm> {
    let count = random.usize(2..8);
    let one = |random: &mut fastrand::Rng| match random.u8(..4) {
        0 => whole(Of::All, image, damaged, random),
        _ => field(Of::All, image, damaged, random),
    };
    let all: Vec<Harm> = (0..count).filter_map(|_| one(random)).collect();
    let places: Vec<&str> = all.iter().map(|(_, place)| &place[..]).collect();
    let places = places.join("\n  and ");
    Some((all.into_iter().flat_map(|(spoilt, _)| spoilt).collect(), places))
}

#[test]
fn much_is_repaired() {
    testkit::require!(Tool("xfs_repair"));
    judge(testkit::effort(6, 15, 10_000), much);
}

/// Cases of [`much_is_repaired`] that once failed, at least one of each kind of error.
const MENDED: &[(&str, &[u64])] = &[
    (
        "default",
        &[
            1093, 1118, 1211, 3149, 3503, 3608, 3636, 3738, 3762, 10_303, 10_466, 10_786, 400_127,
            400_159, 2_010_171, 2_010_360, 2_010_759, 2_031_491, 3_001_942, 5_000_235, 5_000_484,
            5_100_134, 5_100_381,
        ],
    ),
    (
        "small-blocks",
        &[
            1164, 3503, 10_291, 10_762, 20_729, 20_752, 300_113, 400_019, 400_159, 2_010_091,
            2_010_171, 2_010_759, 3_000_155, 5_100_580,
        ],
    ),
    ("large-directory-blocks", &[1118, 3503, 10_454, 20_240, 400_019, 400_159, 2_010_759]),
    (
        "plain",
        &[
            1082, 1083, 1118, 1164, 3504, 3737, 10_146, 10_744, 20_205, 20_240, 20_632, 20_729,
            20_985, 200_075, 200_375, 400_019, 400_159, 1_000_622, 2_000_130, 2_010_357, 2_010_559,
            2_030_554, 2_031_372, 5_000_380,
        ],
    ),
    ("shared", &[2_010_669, 3_002_820, 3_003_936, 5_000_380]),
    // A damaged root of the metadata directory in a group whose inode tree is rebuilt; flags of quotas of another version.
    (
        "metadir-quota",
        &[
            700_395, 700_634, 700_999, 701_087, 701_360, 701_984, 702_205, 702_765, 704_093,
            704_199, 6_007_330,
        ],
    ),
];

#[test]
fn former_failures_are_repaired() {
    testkit::require!(Tool("xfs_repair"));
    let mut wrong = Vec::new();
    for (name, seeds) in MENDED {
        let image = RepairSample::new(name, golden(name));
        let kept = Kept::of(&image.base);
        for seed in *seeds {
            let damaged = image.base.fork();
            let mut random = fastrand::Rng::with_seed(*seed);
            let (spoilt, _) = much(&image, &damaged, &mut random).unwrap();
            let fault = fault(&image, &kept, damaged, (&spoilt, true));
            wrong.extend(fault.map(|fault| format!("{name},{seed}: {fault}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns whether `xfs_repair` only remarks that the root directory does not follow a log in the first group. An image
/// truncated there has no other place for a log.
fn is_about_log_of_first_group(complaint: &str) -> bool {
    let remarks =
        complaint.split_once("remarks:\n").and_then(|(_, rest)| rest.split_once("\nall:"));
    remarks.is_some_and(|(remarks, _)| {
        remarks.lines().all(|line| {
            line.contains("valid but in unaligned location")
                || line.contains("Could not estimate a plausible sb_unit value")
        })
    })
}

/// A repair of any damage ends, and if it reports nothing left, `xfs_repair` agrees.
#[test]
fn any_damage_is_survived() {
    testkit::require!(Tool("xfs_repair"));
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (name, packed) in GOLDEN {
            let wrong = &wrong;
            scope.spawn(move || {
                let bytes = unpack(packed);
                let base = device(&bytes);
                for seed in 0..testkit::effort(4, 20, 10_000) {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let mut damaged = base.fork();
                    if seed % 4 == 3 {
                        damaged = device(&bytes[..random.usize(..bytes.len())]);
                    }
                    for _ in 0..random.usize(1..40) {
                        let at = random.u64(..damaged.len().max(8) / 8) * 8;
                        if at + 8 <= damaged.len() {
                            damaged.write_at(at, &random.u64(..).to_be_bytes()).unwrap();
                        }
                    }
                    let begun = Instant::now();
                    let outcome = repaired(damaged);
                    if begun.elapsed() > TIME_MAX {
                        wrong.lock().push(format!("{name}, {seed}: it took {:?}", begun.elapsed()));
                    }
                    let Ok(outcome) = outcome else { continue };
                    if !outcome.left.is_empty() || !outcome.is_complete {
                        continue;
                    }
                    let verdict = testkit::show_image(&outcome.device, testkit::xfs_repair_verdict);
                    // The check of version 4 is less strict than xfs_repair.
                    if let Err(complaint) = verdict
                        && !is_explained(&complaint)
                        && !is_about_log_of_first_group(&complaint)
                        && !name.starts_with("v4")
                    {
                        wrong.lock().push(format!("{name}, {seed}: {complaint}"));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner();
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
