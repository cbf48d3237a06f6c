//! Repairs under difficult conditions: read errors, truncated or full images, and repeated damage.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use ext4::{Ext4, OpenOptions};
use operations::repair::{PAGE_BYTES, Plan, Staging, make_plan, try_out};
use testkit::{effort, require, scratch};
use vfs::FileSystem;

use super::tree::ReachableTree;
use super::{apply, describe, plan, repairer};
use crate::check::victim::{Victim, damage, is_explained, judge, made};
use crate::common::image::{GOLDEN, device, golden};
use vfs::check::Silent;

/// An image with unreadable ranges.
struct Failing {
    image: MemoryDevice,
    bad: Vec<Range<u64>>,
}

impl BlockDevice for Failing {
    fn len(&self) -> u64 {
        self.image.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset + buf.len() as u64;
        let is_bad = self.bad.iter().any(|bad| bad.start < end && offset < bad.end);
        if is_bad { Err(io::Error::other("a bad place")) } else { self.image.read_at(offset, buf) }
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        panic!("a plan writes nothing")
    }

    fn zero_range(&self, _: u64, _: u64) -> io::Result<()> {
        panic!("a plan writes nothing")
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the repair that salvage uses. The plan of a repair that would be written must have no steps after a failed read.
fn plan_of(image: &[u8], bad: &[Range<u64>]) -> vfs::Result<Plan> {
    let image = MemoryDevice::from_bytes(image);
    let failing = Arc::new(Failing { image, bad: bad.to_vec() });
    let staging = || Arc::new(Staging::new(failing.clone()));
    let tried = try_out(&repairer(), &staging(), &Silent)?;
    if tried.reads_failed > 0 {
        let written = make_plan(&repairer(), &staging(), &Silent)?;
        assert!(written.steps.is_empty() && !written.left.is_empty(), "{}", describe(&written));
    }
    Ok(tried)
}

/// Checks whether a plan changes a page that could not be read.
fn writes_into(plan: &Plan, bad: &[Range<u64>]) -> bool {
    let mut pages = plan.steps.iter().flat_map(|step| step.pages.keys());
    pages.any(|page| {
        let (start, end) = (page * PAGE_BYTES, (page + 1) * PAGE_BYTES);
        bad.iter().any(|bad| bad.start < end && start < bad.end)
    })
}

#[test]
fn unreadable_parts_are_reported_and_not_written() {
    require!(Tool("e2fsck"));
    let mut random = fastrand::Rng::with_seed(41);
    let (mut told, mut repaired) = (0, 0);
    for (name, _) in GOLDEN {
        let victim = Victim::new(name);
        let before = ReachableTree::of(&victim.image).expect("a sound image");
        for number in 0..effort(6, 12, 4_000) {
            // The page of one structure cannot be read, and another structure is damaged, or none.
            let bad: Vec<Range<u64>> = (0..random.usize(1..4))
                .map(|_| {
                    let target = &victim.targets[random.usize(1..victim.targets.len())];
                    let start = target.range.start as u64 / 512 * 512;
                    start..start + 512
                })
                .collect();
            let (image, what) = if random.bool() {
                (victim.image.clone(), "nothing".to_owned())
            } else {
                let case = damage(&victim, &mut random);
                (case.image, case.what)
            };
            let what = format!("{name} {number}: {bad:?} and {what}");
            let made = match plan_of(&image, &bad) {
                Ok(made) => made,
                // The superblock's page, or one of a log that must be replayed first.
                Err(
                    vfs::Error::Device(_) | vfs::Error::Corrupt(_) | vfs::Error::Unsupported(_),
                ) => continue,
                Err(error) => panic!("{what}: {error}"),
            };
            assert!(!writes_into(&made, &bad), "{what}: {}", describe(&made));
            let is_told = made.left.iter().any(|finding| finding.code.name == "ext4-io");
            told += u32::from(is_told);
            assert!(is_told || made.summary.is_complete, "{what}: {}", describe(&made));
            // With the unreadable ranges restored, the image can be repaired, and nothing undamaged is lost.
            let after = apply(&image, &made.steps);
            if what.ends_with("nothing") {
                let now = ReachableTree::of(&after)
                    .unwrap_or_else(|e| panic!("{what}: {e}\n{}", describe(&made)));
                let lost = before.lost_in(&now, None, true);
                assert!(
                    lost.inodes.is_empty() && lost.names.is_empty(),
                    "{what}: {lost:?}\n{}",
                    describe(&made)
                );
            }
            let whole = plan(&after).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(whole.left.is_empty(), "{what}: {}\n{}", describe(&made), describe(&whole));
            let after = apply(&after, &whole.steps);
            repaired += 1;
            if number % 3 == 0
                && let Some(text) = judge(&after).filter(|text| !is_explained(text))
            {
                panic!("{what}: {}\n{}{text}", describe(&made), describe(&whole));
            }
        }
    }
    println!("{told} told of, {repaired} repaired with the places back");
    assert!(told > 0);
}

#[test]
fn truncated_images_are_repaired() {
    require!(Tool("e2fsck"), Tool("mke2fs"));
    let work = scratch();
    let mut random = fastrand::Rng::with_seed(43);
    let (mut whole, mut too_little, mut problems) = (0, 0, Vec::new());
    let golden = GOLDEN.iter().map(|(name, _)| (*name, golden(name)));
    for (name, image) in golden.chain(made(work.path())) {
        for number in 0..effort(6, 9, 2_000) {
            let mut len = random.usize(image.len() / 8..image.len());
            if random.bool() {
                len = len / 4096 * 4096;
            }
            let cut = &image[..len];
            let what = format!("{name} {number}: {len} of {} bytes", image.len());
            let made = match plan(cut) {
                Ok(made) => made,
                // Some group descriptors are missing.
                Err(vfs::Error::Corrupt(_)) if len < image.len() / 4 => {
                    too_little += 1;
                    continue;
                }
                Err(error) => {
                    problems.push(format!("{what}: {error}"));
                    continue;
                }
            };
            if !made.left.is_empty() {
                // There is no space, or no inode, for something that must be created. The last cluster may be
                // incomplete.
                let is_full = made.summary.blocks_used + 1 >= made.summary.blocks;
                let is_without_inodes =
                    made.left.iter().any(|finding| finding.code.name == "ext4-group-places");
                too_little += 1;
                if !is_full && !is_without_inodes {
                    problems.push(format!("{what}\n{}", describe(&made)));
                }
                continue;
            }
            whole += 1;
            let after = apply(cut, &made.steps);
            if let Some(text) = judge(&after).filter(|text| !is_explained(text)) {
                problems.push(format!("{what}\n{}{text}", describe(&made)));
            }
        }
    }
    println!("{whole} repaired, of {too_little} too little is left");
    assert!(problems.is_empty(), "{}:\n{}", problems.len(), problems.join("\n"));
    assert!(too_little < whole / 4, "too little is left of {too_little}");
}

#[test]
fn images_whose_start_is_overwritten_are_repaired_by_their_copies() {
    require!(Tool("e2fsck"), Tool("mke2fs"));
    let work = scratch();
    let mut random = fastrand::Rng::with_seed(59);
    let mut problems = Vec::new();
    for (name, image) in made(work.path()) {
        // A copy of the superblock must exist, in groups of the usual size.
        let layout = Victim::of(image.clone()).layout;
        if layout.geometry.groups_count < 2 || layout.sb.blocks_per_group != 8192 {
            continue;
        }
        for number in 0..effort(2, 5, 400) {
            let mut damaged = image.clone();
            let len = random.usize(1 << 10..2 << 20);
            damaged[..len].fill_with(|| random.u8(..));
            let what = format!("{name} {number}: {len} bytes");
            let made = plan(&damaged).unwrap_or_else(|error| panic!("{what}: {error}"));
            let after = apply(&damaged, &made.steps);
            let remarks = judge(&after).filter(|text| !is_explained(text));
            if !made.left.is_empty() || remarks.is_some() {
                problems.push(format!("{what}\n{}{remarks:?}", describe(&made)));
            }
        }
    }
    assert!(problems.is_empty(), "{}:\n{}", problems.len(), problems.join("\n"));
}

/// Fills an image up to the last available block.
fn filled(image: &[u8]) -> Option<Vec<u8>> {
    let memory = device(image);
    let fs = Ext4::open_writable(memory.clone(), &OpenOptions::default()).ok()?;
    let new = vfs::NewInode {
        permissions: 0o644,
        uid: 0,
        gid: 0,
        time: vfs::Timestamp { sec: 1_700_000_000, nsec: 0 },
        parent_time: None,
    };
    let ino = fs.create(fs.root(), b"fills-all", &new).ok()?;
    let mut at = 0;
    for len in [1 << 20, 1 << 16, 4096, 1024] {
        while fs.write(ino, at, &vec![7; len], None).is_ok() {
            at += len as u64;
        }
    }
    fs.close().ok()?;
    let mut bytes = vec![0; memory.len() as usize];
    memory.read_at(0, &mut bytes).ok()?;
    Some(bytes)
}

#[test]
fn full_images_are_repaired() {
    require!(Tool("e2fsck"));
    let mut random = fastrand::Rng::with_seed(47);
    let (mut cases, mut problems) = (0, Vec::new());
    for (name, _) in GOLDEN {
        let Some(image) = filled(&golden(name)) else { continue };
        let victim = Victim::of(image);
        for number in 0..effort(12, 30, 5_000) {
            let case = damage(&victim, &mut random);
            let what = format!("{name} {number}: {}", case.what);
            cases += 1;
            let made = match plan(&case.image) {
                Ok(made) => made,
                Err(vfs::Error::Unsupported(_)) => continue,
                Err(error) => panic!("{what}: {error}"),
            };
            // A directory needs a block, and there is none.
            if made.left.iter().any(|finding| finding.code.name != "ext4-directory-lost-found") {
                problems.push(format!("{what}\n{}", describe(&made)));
                continue;
            }
            let after = apply(&case.image, &made.steps);
            let remarks = judge(&after).filter(|text| made.left.is_empty() && !is_explained(text));
            if let Some(text) = remarks {
                problems.push(format!("{what}\n{}{text}", describe(&made)));
            }
        }
    }
    println!("{cases} cases");
    assert!(problems.is_empty(), "{}:\n{}", problems.len(), problems.join("\n"));
}

/// Returns the number of blocks in use, as counted by the check.
fn used(image: &[u8]) -> u64 {
    let made = plan(image).expect("a sound image");
    assert!(made.steps.is_empty() && made.findings.is_empty(), "{}", describe(&made));
    made.summary.blocks_used
}

#[test]
fn repeated_damage_and_repair_leaks_no_memory() {
    require!(Tool("e2fsck"));
    for name in ["ext4", "groups", "meta-bg"] {
        let mut image = golden(name);
        let start = used(&image);
        let mut random = fastrand::Rng::with_seed(53);
        let rounds = effort(30, 100, 3_000);
        for round in 0..rounds {
            let case = damage(&Victim::of(image), &mut random);
            let what = format!("{name} {round}: {}", case.what);
            image = case.image;
            match plan(&image) {
                Ok(made) => {
                    assert!(made.left.is_empty(), "{what}: {}", describe(&made));
                    image = apply(&image, &made.steps);
                    if round % 20 == 0
                        && let Some(text) = judge(&image).filter(|text| !is_explained(text))
                    {
                        panic!("{what}: {}{text}", describe(&made));
                    }
                }
                Err(vfs::Error::Unsupported(_)) => image = golden(name),
                Err(error) => panic!("{what}: {error}"),
            }
        }
        let end = used(&image);
        println!("{name}: {rounds} rounds, {start} blocks in use, {end} in the end");
        // Files lose blocks. `lost+found` and recreated directories may take a few.
        assert!(end <= start + 32, "{name}: {start} blocks in use, {end} in the end");
    }
}
