//! Series of random damage in images with several devices: realtime sections with and without groups, and logs on another
//! device.
//!
//! `DISKWRIGHT_DAMAGE_RUN=FILE,CASES[,FIRST]` requests a run, as in [`testkit::Batches`]. `DISKWRIGHT_DAMAGE_EACH=EACH` lets
//! `xfs_repair` judge one case in this many (default 1).

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use disk::{BlockDevice, JoinedDevice, MemoryDevice};
use operations::repair::{Staging, make_plan, write_in_place};
use testkit::crash::write_image;
use testkit::{Batches, effort, require};
use vfs::check::Silent;
use vfs::{FileSystem, NewInode, Timestamp};
use xfs::format::checksum;
use xfs::format::log::dquot::{CRC_OFFSET, DQUOT_BLOCK_SIZE, MAGIC};
use xfs::repair::Repair;
use xfs::tune::{Quotas, add_quotas};
use xfs::{OpenOptions, Xfs};

use super::{RepairSample, TIME_MAX, has_superblock, much, shown};
use crate::checking::findings;
use crate::common::image::unpack;

/// Size of the image with an external log, and of the log, in bytes.
const IMAGE_BYTES: u64 = 64 << 20;
const LOG_BYTES: u64 = 16 << 20;

/// The second device of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Log,
    Realtime,
}

/// An image with two devices, which is damaged repeatedly.
struct Pair {
    sample: RepairSample,
    other: MemoryDevice,
    part: Part,
    /// Byte offsets of quota records. Each case also damages one.
    records: Vec<u64>,
    repaired: Cell<u64>,
}

type Devices = [Arc<MemoryDevice>; 2];

impl Pair {
    fn new(name: &'static str, image: Vec<u8>, other: MemoryDevice, part: Part) -> Self {
        let sample = RepairSample::new(name, image);
        Self { sample, other, part, records: Vec::new(), repaired: Cell::default() }
    }

    fn realtime(name: &'static str, image: &[u8], other: &[u8]) -> Self {
        let other = MemoryDevice::from_bytes(&unpack(other));
        Self::new(name, unpack(image), other, Part::Realtime)
    }

    /// Adds quotas, whose records are damaged with other structures.
    fn with_quotas(self, name: &'static str) -> Self {
        let devices = [Arc::new(self.sample.base.fork()), Arc::new(self.other.fork())];
        let time = Timestamp { sec: 1_790_000_000, nsec: 0 };
        add_quotas(&self.joined(&devices), Quotas::ALL, time).unwrap();
        let mut image = vec![0; self.sample.bytes.len()];
        devices[0].read_at(0, &mut image).unwrap();
        let log = crate::changing::TargetLayout::log_of(&devices[0]);
        let is_block =
            |at: &usize| image[*at..*at + 2] == MAGIC.to_be_bytes() && !log.contains(&(*at as u64));
        let blocks = (0..image.len()).step_by(4096).filter(is_block);
        // The owners have small numbers.
        let records =
            blocks.flat_map(|at| (0..4).map(move |nth| (at + nth * DQUOT_BLOCK_SIZE) as u64));
        let records: Vec<u64> = records.collect();
        assert!(records.len() >= 12, "{}", records.len());
        Self { records, ..Self::new(name, image, devices[1].fork(), self.part) }
    }

    /// Damages a quota record, mostly with a valid checksum.
    fn damage_record(&self, damaged: &MemoryDevice, random: &mut fastrand::Rng) -> String {
        let at = self.records[random.usize(..self.records.len())];
        let mut record = vec![0; DQUOT_BLOCK_SIZE];
        damaged.read_at(at, &mut record).unwrap();
        let byte = [0, 2, 3, 7, 15, 23, 47, 55, 63, 87, 95, 99, 125][random.usize(..13)];
        record[byte] ^= random.u8(1..);
        if random.u8(..4) != 0 {
            checksum::seal(&mut record, CRC_OFFSET);
        }
        damaged.write_at(at, &record).unwrap();
        format!("\n  and byte {byte} of the quota record at {at:#x}")
    }

    fn joined(&self, [image, other]: &Devices) -> Arc<dyn BlockDevice> {
        let (log, realtime) = match self.part {
            Part::Log => (Some(other.clone() as Arc<dyn BlockDevice>), None),
            Part::Realtime => (None, Some(other.clone() as Arc<dyn BlockDevice>)),
        };
        Arc::new(JoinedDevice::new(image.clone(), log, realtime).unwrap())
    }

    /// Damages the image, repairs it, and returns the first fault. An image without a readable superblock may be refused.
    fn fault(&self, seed: u64, folder: &Path, is_judged: bool) -> Option<String> {
        let mut random = fastrand::Rng::with_seed(seed);
        let damaged = self.sample.base.fork();
        let (_, mut place) = much(&self.sample, &damaged, &mut random)?;
        if !self.records.is_empty() {
            place += &self.damage_record(&damaged, &mut random);
        }
        let has_superblock = has_superblock(&self.sample, &damaged);
        let devices = [Arc::new(damaged), Arc::new(self.other.fork())];
        let begun = Instant::now();
        let tried = catch_unwind(AssertUnwindSafe(|| self.repair(&devices)));
        let took = begun.elapsed();
        let found = match tried {
            Err(_) => Some("it panicked".to_owned()),
            Ok(_) if took > TIME_MAX => Some(format!("it took {took:?}")),
            Ok(Err(_)) if !has_superblock => None,
            Ok(Err(fault)) => Some(fault),
            Ok(Ok(())) => {
                self.repaired.set(self.repaired.get() + 1);
                is_judged.then(|| self.complaint(&devices, folder)).flatten()
            }
        };
        found.map(|found| format!("{place}\n  {found}"))
    }

    /// Repairs the image. Nothing may be left, and a second repair must find nothing.
    fn repair(&self, devices: &Devices) -> Result<(), String> {
        let joined = self.joined(devices);
        // A check of the damaged image ends without a panic, too.
        let _ = findings(joined.clone());
        let plan = || {
            let staging = Arc::new(Staging::new(joined.clone()));
            make_plan(&Repair::default(), &staging, &Silent)
        };
        let first = plan().map_err(|error| format!("refused: {error}"))?;
        if !first.left.is_empty() || !first.summary.is_complete {
            return Err(format!("left: {}", shown(&first.left)));
        }
        write_in_place(&*joined, &first.steps, &mut |_, _| true).map_err(|e| e.to_string())?;
        let again = plan().map_err(|error| format!("a second repair: {error}"))?;
        match again.steps.first() {
            None => Ok(()),
            Some(step) => Err(format!("a second repair does something: {:?}", step.actions)),
        }
    }

    /// Returns the complaint of `xfs_repair -n`.
    fn complaint(&self, [image, other]: &Devices, folder: &Path) -> Option<String> {
        let [image_path, other_path] = ["image", "other"].map(|name| folder.join(name));
        write_image(image, &image_path).unwrap();
        write_image(other, &other_path).unwrap();
        let mut command: Command = testkit::command("xfs_repair");
        let option = if self.part == Part::Log { "-l" } else { "-r" };
        command.args(["-n", "-f", "-P", option]).args([&other_path, &image_path]);
        let output = command.output().unwrap();
        let said = || String::from_utf8_lossy(&output.stderr).into_owned();
        (!output.status.success()).then(|| format!("xfs_repair: {}", said()))
    }

    /// Repairs the images of these seeds. `xfs_repair` judges each one.
    fn judge(&self, seeds: &[u64]) {
        let folder = testkit::scratch();
        let fault = |seed: &u64| self.fault(*seed, folder.path(), true);
        let faults: Vec<String> = seeds.iter().filter_map(fault).collect();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    /// Runs a series.
    fn run(&self, cases: u64) {
        let each = std::env::var("DISKWRIGHT_DAMAGE_EACH").map_or(1, |each| each.parse().unwrap());
        let folder = testkit::scratch();
        Batches::asked(self.sample.name, cases)
            .run(|seed| self.fault(seed, folder.path(), seed.is_multiple_of(each)));
        println!("{}: {} repaired", self.sample.name, self.repaired.get());
        assert!(self.repaired.get() > 0);
    }
}

macro_rules! golden_pair {
    ($name:literal, $file:literal) => {
        Pair::realtime(
            $name,
            include_bytes!(concat!("../golden/", $file, ".img.gz.gz")),
            include_bytes!(concat!("../golden/", $file, ".rt.gz.gz")),
        )
    };
}

#[test]
fn damaged_images_with_realtime_groups_are_repaired() {
    require!(Tool("xfs_repair"));
    golden_pair!("xfs-rtgroups", "realtime-shared").run(effort(12, 24, 10_000));
}

/// Seeds that once failed.
#[test]
fn former_failures_with_a_realtime_section_are_repaired() {
    require!(Tool("xfs_repair"));
    let pair = golden_pair!("xfs-rtgroups", "realtime-shared");
    // A name of a group that does not exist.
    pair.judge(&[1_006_020]);
    // A name in the root directory that leads to the metadata directory.
    pair.judge(&[1_008_557]);
    // A file that gets the type of its place, and one with two names.
    pair.judge(&[1_009_195, 1_009_459]);
    // A file that gets the type of its place. Damaged records of quotas that a restored superblock does not count.
    pair.with_quotas("xfs-quotas-rtgroups").judge(&[1_000_217, 1_005_080, 1_005_370, 1_009_390]);
    // Sizes of quota files.
    let classic = golden_pair!("", "realtime-classic").with_quotas("xfs-quotas-realtime");
    classic.judge(&[2_003_190, 2_003_540, 2_005_000, 2_006_880]);
}

#[test]
fn damaged_images_with_a_realtime_section_are_repaired() {
    require!(Tool("xfs_repair"));
    golden_pair!("xfs-realtime", "realtime-classic").run(effort(12, 24, 10_000));
}

/// The usage of both sections is counted again.
#[test]
fn damaged_images_with_quotas_and_a_realtime_section_are_repaired() {
    require!(Tool("xfs_repair"));
    let groups = golden_pair!("", "realtime-shared").with_quotas("xfs-quotas-rtgroups");
    let classic = golden_pair!("", "realtime-classic").with_quotas("xfs-quotas-realtime");
    for pair in [groups, classic] {
        pair.run(effort(6, 12, 1000));
    }
}

/// An image with a log on another device.
#[test]
fn damaged_images_with_an_external_log_are_repaired() {
    require!(Tool("xfs_repair"));
    let parts = crate::external_log::made(IMAGE_BYTES, LOG_BYTES);
    let device = testkit::crash::joined(parts[0].clone(), parts[1].clone());
    let fs = Xfs::open_writable(device, &OpenOptions::default()).unwrap();
    let dir = fs.mkdir(fs.root(), b"dir", &NewInode::default()).unwrap();
    for nth in 0..600_usize {
        let parent = if nth % 3 == 0 { fs.root() } else { dir };
        let name = format!("file number {nth}");
        let ino = fs.create(parent, name.as_bytes(), &NewInode::default()).unwrap();
        fs.write(ino, (nth as u64 % 7) * 9000, &vec![nth as u8; nth * 13], None).unwrap();
    }
    Xfs::close(fs).unwrap();
    let mut image = vec![0; IMAGE_BYTES as usize];
    parts[0].read_at(0, &mut image).unwrap();
    Pair::new("xfs-external-log", image, parts[1].fork(), Part::Log).run(effort(12, 24, 10_000));
}
