//! Random damage in images whose journal is on another device, and in the journal. A repaired image is sound, and at
//! least as many files survive as with e2fsck.

use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use ext4::{Ext4, OpenOptions};
use operations::repair::{Plan, Staging, make_plan, write_in_place};
use testkit::crash::{PairedImage, joined, read_image, write_image};
use testkit::{Batches, HarmTarget, Survivors, effort, harm, require, scratch};
use vfs::check::Silent;
use vfs::{FileSystem, NewInode};

use super::against::{MOUNTED_ONE_IN, PLACES_MAX, fault_of_plan, fewer, survivors_on};
use super::bases::{self, Base};
use super::describe;
use crate::check::victim::is_explained;
use crate::external_journal::support::{in_folder, made, write};

/// Size of the images in bytes.
const BYTES: u64 = 16 << 20;
/// Size of the journals in bytes.
const JOURNAL_BYTES: u64 = 5 << 20;
/// Number of blocks at the start of a journal device that are damaged: superblocks, and the first transactions.
const JOURNAL_BLOCKS: usize = 24;

/// An image and its journal device.
struct Pair {
    base: Base,
    journal: Vec<u8>,
    before: Survivors,
}

type Devices = [Arc<MemoryDevice>; 2];

fn device([image, journal]: &Devices) -> Arc<dyn BlockDevice> {
    joined(image.clone(), journal.clone())
}

fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

impl Pair {
    fn new(name: &'static str, parts: &Devices, block_size: usize) -> Self {
        let before = survivors_on(device(parts));
        assert!(before.len() > 100, "{name}: {}", before.len());
        let mut base = Base::new(name, bytes_of(&parts[0]));
        let end = base.image.len();
        let mut add = |name: String, start: usize, len: usize| {
            let range = end + start..end + start + len;
            base.targets.push(HarmTarget { name, range });
        };
        // The targets of the image are many.
        for _ in 0..4 {
            add("superblock of the journal device".into(), 1024, 1024);
            for block in 1..JOURNAL_BLOCKS {
                add(format!("journal block {block}"), block * block_size, block_size);
            }
        }
        Self { base, journal: bytes_of(&parts[1]), before }
    }

    /// Damages, repairs and checks the image. Returns the first fault.
    fn fault(&self, seed: u64, folder: &Path) -> Option<String> {
        let mut random = fastrand::Rng::with_seed(seed);
        let (base, len) = (&self.base, self.base.image.len());
        let mut both = [&base.image[..], &self.journal].concat();
        let seal = |both: &mut [u8]| base.layout.seal(&mut both[..len]);
        let what = harm(&mut both, &base.targets, PLACES_MAX, &seal, &mut random);
        let damaged = [&both[..len], &both[len..]];
        let parts = damaged.map(|bytes| Arc::new(MemoryDevice::from_bytes(bytes)));
        let found = fault_of_plan(
            || plan(&parts),
            || with_e2fsck(&parts, folder).1,
            |made| {
                let before = parts.clone().map(|part| Arc::new(part.fork()));
                write_in_place(&*device(&parts), &made.steps, &mut |_, _| true).unwrap();
                let is_mounted = seed.is_multiple_of(MOUNTED_ONE_IN);
                self.fault_of_repaired(made, &parts, folder, is_mounted).or_else(|| {
                    let ours = survivors_on(device(&parts));
                    fewer(&self.before, &ours, with_e2fsck(&before, folder))
                })
            },
        );
        found.map(|found| format!("{}: {what}: {found}", base.name))
    }

    fn fault_of_repaired(
        &self,
        made: &Plan,
        parts: &Devices,
        folder: &Path,
        is_mounted: bool,
    ) -> Option<String> {
        if let Some(first) = made.left.first() {
            return Some(format!("left {}", first.code.name));
        }
        if !made.summary.is_complete {
            return Some("not complete".to_owned());
        }
        match plan(parts) {
            Ok(again) if again.steps.is_empty() && again.findings.is_empty() => {}
            Ok(again) => return Some(format!("a second repair finds\n{}", describe(&again))),
            Err(error) => return Some(format!("a second repair: {error}")),
        }
        let pair = write(folder, "repaired", [&parts[0], &parts[1]]);
        if let Some(remarks) = remarks(&pair) {
            return Some(format!("e2fsck finds\n{remarks}"));
        }
        let mounted = is_mounted.then(|| pair.mounted(true, |_| ()));
        mounted?.err().map(|error| format!("the kernel does not mount it: {error}"))
    }
}

fn plan(parts: &Devices) -> vfs::Result<Plan> {
    make_plan(&super::repairer(), &Arc::new(Staging::new(device(parts))), &Silent)
}

/// Returns what e2fsck finds, except known remarks.
fn remarks(pair: &PairedImage) -> Option<String> {
    let output = pair.checker(&["-fn", "-j"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() || is_explained(&text) {
        return None;
    }
    Some(text.lines().filter(|line| !line.is_empty()).take(12).collect::<Vec<_>>().join("\n"))
}

/// Returns the files that remain after a repair by e2fsck, and whether it succeeded.
fn with_e2fsck(parts: &Devices, folder: &Path) -> (Survivors, bool) {
    let pair = in_folder(folder, "theirs");
    write_image(&parts[0], &pair.image).unwrap();
    write_image(&parts[1], &pair.log).unwrap();
    let mut code = None;
    for _ in 0..2 {
        code = pair.checker(&["-fy", "-j"]).status.code();
        if code == Some(0) {
            break;
        }
    }
    (survivors_on(pair.device()), matches!(code, Some(0 | 1)))
}

/// Makes an image that the kernel fills, clean or with transactions in its journal.
fn filled(folder: &Path, name: &'static str, block_size: u32, is_dirty: bool) -> Pair {
    let parts = made(BYTES, JOURNAL_BYTES, block_size);
    let pair = write(folder, name, [&parts[0], &parts[1]]);
    pair.mounted(false, |root| bases::fill(root, name)).unwrap();
    let parts = [&pair.image, &pair.log].map(|path| Arc::new(read_image(path).unwrap()));
    let fs = Ext4::open_writable(device(&parts), &OpenOptions::default()).unwrap();
    for nth in 0..60_u8 {
        let name = format!("late {nth}");
        let file = fs.create(fs.root(), name.as_bytes(), &NewInode::default()).unwrap();
        fs.write(file, 0, &vec![nth; 700], None).unwrap();
    }
    fs.sync().unwrap();
    if is_dirty {
        drop(fs);
    } else {
        fs.close().unwrap();
    }
    Pair::new(name, &parts, block_size as usize)
}

#[test]
fn as_much_survives_with_an_external_journal_as_with_e2fsck() {
    require!(Root, Tool("e2fsck"), Mount("ext4"), Loop);
    let folder = scratch();
    let folder = folder.path();
    let pairs = [
        filled(folder, "external-journal", 1024, false),
        filled(folder, "external-journal-dirty", 1024, true),
        filled(folder, "external-journal-4k", 4096, false),
        filled(folder, "external-journal-4k-dirty", 4096, true),
    ];
    Batches::asked("ext4-external-journal", effort(8, 20, 1000))
        .run(|seed| pairs[(seed % pairs.len() as u64) as usize].fault(seed, folder));
}
