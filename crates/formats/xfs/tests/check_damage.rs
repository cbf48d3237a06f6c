//! Compares the check with `xfs_repair -n`: damages images field by field, with valid checksums. The check must find
//! something whenever xfs_repair does.

use crate::common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::checking::findings;
use common::image::{GOLDEN, device, golden, unpack};
use common::layout::{Layout, Structure};
use disk::{BlockDevice, MemoryDevice};
use parking_lot::Mutex;

/// Golden images to be damaged: all of version 5.
pub(crate) const IMAGES: [&str; 6] =
    ["default", "small-blocks", "plain", "large-directory-blocks", "shared", "metadir-quota"];
/// Bytes at the start of a structure that get half of the damage: headers.
const HEADER: usize = 192;

/// Maximum time for a check of a small image, on a busy machine.
const TIME_MAX: Duration = Duration::from_secs(30);

/// A change of a field.
#[derive(Clone, Copy, Debug)]
enum DamageKind {
    Zero,
    Ones,
    Up,
    Down,
    Bit,
}

/// The structures of an image by kind, so that each kind is damaged equally often.
pub(crate) struct Kinds(Vec<Vec<Structure>>);

impl Kinds {
    pub(crate) fn new(image: &[u8], layout: &Layout) -> Self {
        let mut kinds: BTreeMap<Vec<u8>, Vec<Structure>> = BTreeMap::new();
        for structure in &layout.structures {
            let bytes = &image[structure.start..structure.start + structure.len];
            let kind = match bytes {
                // Inodes by whether they are in use, and by the formats of their forks.
                [b'I', b'N', mode, rest @ ..] => {
                    vec![b'I', b'N', mode & 0xf0, rest[2], rest[80], u8::from(rest[79] > 0)]
                }
                [b'A'..=b'Z', ..] => bytes[..4].to_vec(),
                _ => bytes[8..10].to_vec(),
            };
            kinds.entry(kind).or_default().push(*structure);
        }
        Self(kinds.into_values().collect())
    }

    /// Keeps the kinds whose first structure is accepted by `keep`.
    pub(crate) fn filter(mut self, image: &[u8], keep: impl Fn(&[u8]) -> bool) -> Self {
        self.0.retain(|kind| keep(&image[kind[0].start..kind[0].start + kind[0].len]));
        self
    }

    /// Returns one structure of each kind.
    pub(crate) fn firsts(&self) -> Vec<Structure> {
        self.0.iter().map(|kind| kind[0]).collect()
    }

    pub(crate) fn random(&self, random: &mut fastrand::Rng) -> Structure {
        let kind = &self.0[random.usize(..self.0.len())];
        kind[random.usize(..kind.len())]
    }
}

/// A field and its change.
#[derive(Clone, Debug)]
pub(crate) struct DamageCase {
    pub(crate) structure: Structure,
    at: usize,
    width: usize,
    harm: DamageKind,
    bit: u32,
}

impl DamageCase {
    pub(crate) fn random(kinds: &Kinds, random: &mut fastrand::Rng) -> Self {
        let structure = kinds.random(random);
        let width = 1 << random.usize(0..4);
        let within = if random.bool() { structure.len.min(HEADER) } else { structure.len };
        let at = random.usize(..within / width) * width;
        let harm =
            [DamageKind::Zero, DamageKind::Ones, DamageKind::Up, DamageKind::Down, DamageKind::Bit]
                [random.usize(..5)];
        Self { structure, at, width, harm, bit: random.u32(..width as u32 * 8) }
    }

    /// Damages the field. Returns false if that changes nothing, or only the checksum.
    pub(crate) fn apply(&self, device: &MemoryDevice, layout: &Layout) -> bool {
        let start = self.structure.start + self.at;
        let mut bytes = [0; 8];
        let field = &mut bytes[8 - self.width..];
        device.read_at(start as u64, field).unwrap();
        let old = u64::from_be_bytes(bytes);
        let new = match self.harm {
            DamageKind::Zero => 0,
            DamageKind::Ones => u64::MAX,
            DamageKind::Up => old.wrapping_add(1),
            DamageKind::Down => old.wrapping_sub(1),
            DamageKind::Bit => old ^ 1 << self.bit,
        };
        let new = new.to_be_bytes();
        let crc = self.structure.crc_at;
        let is_checksum = crc.is_some_and(|crc| self.at < crc + 4 && crc < self.at + self.width);
        let field = &new[8 - self.width..];
        if is_checksum || field == &bytes[8 - self.width..] {
            return false;
        }
        device.write_at(start as u64, field).unwrap();
        layout.seal(device, start..start + self.width);
        true
    }
}

/// Describes the location of a case in its image, so that a reader can identify the field.
pub(crate) fn place(image: &[u8], layout: &Layout, case: &DamageCase) -> String {
    let start = case.structure.start;
    let magic = String::from_utf8_lossy(&image[start..start + 4]).escape_debug().to_string();
    let block = start as u64 >> layout.geometry.block_log;
    format!("{magic:?} in block {block} ({start:#x}), byte {}: {case:?}", case.at)
}

/// Returns whether all remarks of xfs_repair, which exits with status 0, are known not to be damage. These are
/// attributes that a crash left incomplete, which the kernel also accepts, and a bit in keys of the reverse map that
/// older kernels set and no reader uses.
pub(crate) fn is_explained(complaint: &str) -> bool {
    let remarks =
        complaint.split_once("remarks:\n").and_then(|(_, rest)| rest.split_once("\nall:"));
    complaint.starts_with("exit status Some(0)")
        && remarks.is_some_and(|(remarks, _)| {
            let is_of_keys =
                |line: &str| line.starts_with("would clear unwritten flag on rmapbt key");
            remarks.lines().all(|line| line.ends_with(" is INCOMPLETE") || is_of_keys(line))
        })
}

#[test]
fn all_findings_of_the_checker_are_found() {
    testkit::require!(Tool("xfs_repair"));
    compare(IMAGES.map(|name| (name, golden(name))).into(), testkit::effort(60, 100, 50_000));
}

/// Damages each image with this number of seeds, and compares the findings with those of `xfs_repair -n`.
///
/// # Panics
/// With all cases in which only `xfs_repair` found damage.
#[track_caller]
pub(crate) fn compare(images: Vec<(&'static str, Vec<u8>)>, cases: u64) {
    let missed = Mutex::new(Vec::new());
    let tried = AtomicU64::new(0);
    // The first code of findings that only the check has.
    let only_ours = Mutex::new(BTreeMap::<&str, u32>::new());
    std::thread::scope(|scope| {
        for (name, image) in images {
            let (missed, tried, only_ours) = (&missed, &tried, &only_ours);
            scope.spawn(move || {
                let layout = Layout::of(&image);
                let kinds = Kinds::new(&image, &layout);
                let base = device(&image);
                for seed in 0..cases {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let damaged = base.fork();
                    let case = DamageCase::random(&kinds, &mut random);
                    if !case.apply(&damaged, &layout) {
                        continue;
                    }
                    tried.fetch_add(1, Ordering::Relaxed);
                    let verdict = testkit::show_image(&damaged, testkit::xfs_repair_alone);
                    let found = findings(Arc::new(damaged));
                    if let (Ok(()), Ok([first, ..])) = (&verdict, found.as_deref()) {
                        *only_ours.lock().entry(first.code.name).or_default() += 1;
                    }
                    if let (Err(complaint), Ok(found)) = (verdict, found)
                        && found.is_empty()
                        && !is_explained(&complaint)
                    {
                        let place = place(&image, &layout, &case);
                        let complaint: Vec<&str> = complaint.lines().take(4).collect();
                        missed.lock().push(format!(
                            "{name}, seed {seed}: {place}\n  {}",
                            complaint.join("\n  ")
                        ));
                    }
                }
            });
        }
    });
    let missed = missed.into_inner();
    let tried = tried.into_inner();
    println!("tried {tried}, only ours {:?}", only_ours.into_inner());
    assert!(missed.is_empty(), "{} of {tried} missed:\n{}", missed.len(), missed.join("\n"));
}

/// A wrong reference count is reported with its blocks and the expected count.
#[test]
fn references_are_compared_by_extent() {
    let image = golden("shared");
    let layout = Layout::of(&image);
    let magic = |structure: &&Structure| image[structure.start..].starts_with(b"R3FC");
    let number = |at: usize| u32::from_be_bytes(image[at..at + 4].try_into().unwrap());
    // Leaves with at least two records: after a header of 56 bytes, each is start, length and count.
    let record = |leaf: &Structure, nth: usize| leaf.start + 56 + nth * 12;
    let leaves: Vec<&Structure> = (layout.structures.iter().filter(magic))
        .filter(|leaf| image[leaf.start + 4..leaf.start + 6] == [0, 0])
        .filter(|leaf| image[leaf.start + 7] >= 2)
        .collect();
    assert!(!leaves.is_empty());
    for leaf in leaves {
        let damaged = device(&image);
        let mut expected = Vec::new();
        for (nth, change) in [(0, 1), (1, 2)] {
            let at = record(leaf, nth);
            let (start, len, count) = (number(at), number(at + 4), number(at + 8));
            let wrong = count.wrapping_add_signed(change);
            damaged.write_at(at as u64 + 8, &wrong.to_be_bytes()).unwrap();
            layout.seal(&damaged, at + 8..at + 12);
            let group = leaf.start as u64 >> layout.geometry.block_log;
            let group = group / u64::from(layout.geometry.ag_blocks);
            let block = group * u64::from(layout.geometry.ag_blocks) + u64::from(start);
            expected.push((block, len, count, wrong));
        }
        let found = findings(Arc::new(damaged)).unwrap();
        let shown = |finding: &vfs::check::Finding| {
            let number = |text: &Option<String>| {
                text.as_deref().and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0)
            };
            assert_eq!(finding.code.name, "xfs-refcount-differs", "{finding:?}");
            let counts = (number(&finding.expected), number(&finding.found));
            (finding.place.block.unwrap(), number(&finding.detail), counts.0, counts.1)
        };
        assert_eq!(found.iter().map(shown).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn links_are_counted_whatever_an_inode_says() {
    const NLINK: usize = 16;
    let sound = golden("default");
    let layout = Layout::of(&sound);
    let is_file = |structure: &&Structure| {
        let inode = &sound[structure.start..structure.start + structure.len];
        // Regular files with one name.
        inode.starts_with(b"IN")
            && inode[2] & 0xf0 == 0x80
            && inode[NLINK..NLINK + 4] == [0, 0, 0, 1]
    };
    let structure = *layout.structures.iter().find(is_file).unwrap();
    for nlink in [u32::MAX, 1 << 31, 1 << 31 | 1] {
        let device = Arc::new(device(&sound));
        let at = structure.start + NLINK;
        device.write_at(at as u64, &nlink.to_be_bytes()).unwrap();
        layout.seal(&*device, at..at + 4);
        let found = findings(device).unwrap();
        let links = found.iter().find(|finding| finding.code.name == "xfs-inode-links");
        let counted = links.and_then(|finding| finding.expected.as_deref());
        assert_eq!(counted, Some("1"), "{found:#?}");
    }
}

/// `xfs_scrub` refuses such an AGI; kernels and `xfs_repair` do not.
#[test]
fn an_agi_names_inodes_of_its_group_only() {
    const NEWINO: usize = 32;
    const DIRINO: usize = 36;
    let sound = golden("default");
    let layout = Layout::of(&sound);
    let is_agi = |structure: &&Structure| sound[structure.start..].starts_with(b"XAGI");
    let start = layout.structures.iter().find(is_agi).unwrap().start;
    for (field, at) in [("agi_newino", start + NEWINO), ("agi_dirino", start + DIRINO)] {
        let device = Arc::new(device(&sound));
        device.write_at(at as u64, &0x7fff_ffff_u32.to_be_bytes()).unwrap();
        layout.seal(&*device, at..at + 4);
        let found = findings(device).unwrap();
        let [finding] = &found[..] else { panic!("{field}: {found:#?}") };
        assert_eq!(finding.code.name, "xfs-agi-counts");
        assert_eq!(finding.place.field, Some(field));
    }
}

/// After damage in many places at once, also without valid checksums, a check ends soon and without a panic.
#[test]
fn any_damage_is_survived() {
    std::thread::scope(|scope| {
        for (name, packed) in GOLDEN {
            scope.spawn(move || {
                let image = unpack(packed);
                let layout = Layout::of(&image);
                let kinds = Kinds::new(&image, &layout);
                let has_checksums = layout.geometry.features.crc();
                let base = device(&image);
                for seed in 0..testkit::effort(40, 150, 20_000) {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let damaged = base.fork();
                    for _ in 0..random.usize(1..40) {
                        if has_checksums || random.bool() {
                            DamageCase::random(&kinds, &mut random).apply(&damaged, &layout);
                            continue;
                        }
                        // Version 4 has structures without a magic number, so any bytes are damaged, too.
                        let at = random.u64(..image.len() as u64 / 8) * 8;
                        damaged.write_at(at, &random.u64(..).to_be_bytes()).unwrap();
                    }
                    let begun = Instant::now();
                    let _ = findings(Arc::new(damaged));
                    let took = begun.elapsed();
                    assert!(took < TIME_MAX, "{name}, seed {seed}: {took:?}");
                }
            });
        }
    });
}
