//! Damage of all kinds in images with many structures. A repaired image is sound, and at least as many files survive as
//! with e2fsck.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk::{BlockDevice, FileDevice, MemoryDevice};
use ext4::format::features::{Incompat, RoCompat};
use ext4::{Ext4, OpenOptions};
use operations::repair::{Plan, fits, write_in_place, write_through_log};
use testkit::{Batches, KernelMount, MountOptions, Survivors, effort, harm, require, scratch};

use super::bases::{self, Base};
use super::{describe, plan};
use crate::check::victim::{is_explained, judge};
use crate::common::image::device;

/// Maximum number of damaged structures per case.
pub(super) const PLACES_MAX: usize = 4;
/// Maximum duration of a repair, on a busy machine.
pub(super) const TIME_MAX: Duration = Duration::from_secs(120);
/// The kernel mounts one case in this many.
pub(super) const MOUNTED_ONE_IN: u64 = 20;

/// Returns the files of an image, after a replay of its journal.
pub(super) fn survivors(image: &[u8]) -> Survivors {
    survivors_on(device(image))
}

pub(super) fn survivors_on(device: Arc<dyn BlockDevice>) -> Survivors {
    let options = OpenOptions::default();
    Ext4::open(device, &options).map_or_else(|_| Survivors::default(), |fs| Survivors::of(&fs))
}

/// Applies a plan as the program does: through the journal if it is usable.
pub(super) fn carried_out(image: &[u8], made: &Plan) -> vfs::Result<Vec<u8>> {
    let target = Arc::new(MemoryDevice::from_bytes(image));
    let log = ext4::repair::open_log(Arc::new(target.fork()))?;
    if log.is_some_and(|log| fits(&*log, &made.steps)) {
        let log = ext4::repair::open_log(target.clone() as _)?.expect("the log that was there");
        write_through_log(target.clone() as _, log, &made.steps, &mut |_, _| true)?;
    } else {
        write_in_place(&*target, &made.steps, &mut |_, _| true)?;
    }
    let mut bytes = vec![0; image.len()];
    target.read_at(0, &mut bytes).map_err(vfs::Error::Device)?;
    Ok(bytes)
}

/// Returns the files that remain after a repair by e2fsck, and whether it succeeded.
pub(super) fn with_e2fsck(image: &[u8], file: &Path) -> (Survivors, bool) {
    std::fs::write(file, image).unwrap();
    let e2fsck = testkit::program("e2fsck").expect("e2fsck");
    let mut code = None;
    // After a restart of e2fsck, damage may remain for a second run.
    for _ in 0..2 {
        let mut command = Command::new("timeout");
        command.args(["-k", "1", "60"]).arg(&e2fsck).arg("-fy").arg(file);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        code = command.status().expect("e2fsck").code();
        if code == Some(0) {
            break;
        }
    }
    // e2fsck may make the file larger than memory, with holes.
    let repaired = FileDevice::new(File::open(file).unwrap()).unwrap();
    (survivors_on(Arc::new(repaired)), matches!(code, Some(0 | 1)))
}

/// Returns the first fault of a repaired image.
pub(super) fn fault_of_repaired(made: &Plan, after: &[u8]) -> Option<String> {
    if let Some(first) = made.left.first() {
        return Some(format!("left {}", first.code.name));
    }
    if !made.summary.is_complete {
        return Some("not complete".to_owned());
    }
    match plan(after) {
        Ok(again) if again.steps.is_empty() && again.findings.is_empty() => {}
        Ok(again) => return Some(format!("a second repair finds\n{}", describe(&again))),
        Err(error) => return Some(format!("a second repair: {error}")),
    }
    let remarks = judge(after).filter(|text| !is_explained(text) && !is_of_names(text))?;
    let remarks: Vec<&str> = remarks.lines().filter(|line| !line.is_empty()).take(12).collect();
    Some(format!("e2fsck finds\n{}", remarks.join("\n")))
}

/// Checks whether e2fsck reports only the index of a case-insensitive directory. Version 1.47.0 cannot hash all names.
fn is_of_names(text: &str) -> bool {
    let words = ["has bad min hash", "has bad max hash", "Invalid HTREE directory", "Clear HTree"];
    let is_other = |line: &&str| !words.iter().any(|words| line.contains(words));
    is_explained(&text.lines().filter(is_other).collect::<Vec<_>>().join("\n"))
}

/// Returns the kernel's objection to an image, if there is one.
pub(super) fn fault_of_mount(image: &[u8], file: &Path) -> Option<String> {
    std::fs::write(file, image).unwrap();
    let mount = match KernelMount::attempt(file, &MountOptions::read_only("ext4")) {
        Ok(mount) => mount,
        Err(error) => return Some(format!("the kernel does not mount it: {error}")),
    };
    // tar does not read files if its output is /dev/null. It skips holes, because a wrong extent may be far away.
    let mut read = Command::new("sh");
    read.args(["-c", "tar -cSf - -C \"$0\" . | cat >/dev/null"]);
    let read = read.arg(mount.path()).output().expect("sh");
    (!read.stderr.is_empty())
        .then(|| format!("the kernel does not read all: {}", String::from_utf8_lossy(&read.stderr)))
}

/// Damages, repairs and checks one image. Returns the first fault.
fn fault(base: &Base, before: &Survivors, seed: u64, file: &Path) -> Option<String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut image = base.image.clone();
    let seal = |image: &mut [u8]| base.layout.seal(image);
    let what = harm(&mut image, &base.targets, PLACES_MAX, &seal, &mut random);
    let features = &base.layout.sb.features;
    // Not every kernel supports case folding, quotas or large blocks.
    let is_for_all = !features.incompat(Incompat::CASEFOLD)
        && !features.ro_compat(RoCompat::QUOTA)
        && base.layout.geometry.block_size() <= 4096;
    let is_mounted = is_for_all && seed.is_multiple_of(MOUNTED_ONE_IN);
    let found = fault_of_plan(
        || plan(&image),
        || with_e2fsck(&image, file).1,
        |made| {
            carried_out(&image, made).map_or_else(
                |error| Some(format!("not carried out: {error}")),
                |after| {
                    fault_of_repaired(made, &after)
                        .or_else(|| is_mounted.then(|| fault_of_mount(&after, file)).flatten())
                        .or_else(|| fewer(before, &survivors(&after), with_e2fsck(&image, file)))
                },
            )
        },
    );
    found.map(|found| format!("{}: {what}: {found}", base.name))
}

/// Makes a plan, and returns its first fault. `is_repaired` tells whether e2fsck repairs an image that is refused, and
/// `fault` judges the result.
pub(super) fn fault_of_plan(
    make: impl FnOnce() -> vfs::Result<Plan>,
    is_repaired: impl FnOnce() -> bool,
    fault: impl FnOnce(&Plan) -> Option<String>,
) -> Option<String> {
    let begun = Instant::now();
    // A panic is recorded as the result of the case, so that the run continues.
    let made = catch_unwind(AssertUnwindSafe(make));
    let took = begun.elapsed();
    match made {
        Err(_) => Some("it panicked".to_owned()),
        Ok(_) if took > TIME_MAX => Some(format!("it took {took:?}")),
        // An unsupported feature, which the damage has set, or a device that does not belong to the image any more.
        Ok(Err(vfs::Error::Unsupported(_))) => None,
        Ok(Err(error)) => is_repaired().then(|| format!("refused, and e2fsck repairs it: {error}")),
        Ok(Ok(made)) => fault(&made).map(|found| format!("{found}\n{}", describe(&made))),
    }
}

/// Compares the files that survive with those that e2fsck keeps, and whether it succeeded. Returns a message if there are
/// fewer.
pub(super) fn fewer(
    before: &Survivors,
    ours: &Survivors,
    (theirs, is_repaired): (Survivors, bool),
) -> Option<String> {
    let (kept, kept_by_e2fsck) = (before.files_kept(ours), before.files_kept(&theirs));
    if !is_repaired || kept.len() >= kept_by_e2fsck.len() {
        return None;
    }
    let missing =
        kept_by_e2fsck.difference(&kept).take(5).map(|path| path.escape_ascii().to_string());
    let missing: Vec<String> = missing.collect();
    let counts =
        format!("{} of {} files, e2fsck {}", kept.len(), before.len(), kept_by_e2fsck.len());
    Some(format!("fewer survive: {counts}; {missing:?}"))
}

#[test]
fn as_much_survives_as_with_e2fsck() {
    require!(Root, Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"), Mount("ext4"));
    compare("ext4", &bases::all(), effort(44, 66, 20_000));
}

/// Blocks that are larger than pages of most kernels.
#[test]
fn as_much_survives_in_large_blocks_as_with_e2fsck() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"));
    compare("ext4-large-blocks", &bases::newer(), effort(6, 12, 2000));
}

/// Images with multiple mount protection, whose block is checked and repaired, too. e2fsck waits about 20 seconds for each.
#[test]
fn as_much_survives_with_mmp_as_with_e2fsck() {
    require!(Root, Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"), Mount("ext4"));
    let bases = bases::protected();
    let before: Vec<Survivors> = bases.iter().map(|base| survivors(&base.image)).collect();
    let folder = scratch();
    // Nearly all of the time is spent waiting.
    Batches::asked("ext4-mmp", effort(1, 4, 1000)).run_on(effort(1, 4, 48), |seed| {
        let at = (seed % bases.len() as u64) as usize;
        let file = folder.path().join(seed.to_string());
        let found = fault(&bases[at], &before[at], seed, &file);
        std::fs::remove_file(file).ok();
        found
    });
}

fn compare(name: &'static str, bases: &[Base], cases: u64) {
    let before: Vec<Survivors> = bases.iter().map(|base| survivors(&base.image)).collect();
    let folder = scratch();
    let file = folder.path().join("image");
    Batches::asked(name, cases).run(|seed| {
        let at = (seed % bases.len() as u64) as usize;
        fault(&bases[at], &before[at], seed, &file)
    });
}
