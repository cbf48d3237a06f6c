//! Crashes and random changes of images whose files are on a realtime device. Judges are xfs_repair and our own check.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::{BlockDevice, JoinedDevice, MemoryDevice, WindowDevice};
use testkit::crash::{
    CrashCase, CrashTarget, Judge, OpenFileSystem, Options, read_image, write_image,
};
use testkit::operation::Mix;
use testkit::{MkfsXfs, require};
use xfs::{OpenOptions, Xfs};

use crate::changing::target::{Open, Way};
use crate::changing::{MIB, SMALL_CACHE_BYTES, SYNCING};
use crate::checking::findings;

const SIZE: u64 = 64 * MIB;
const REALTIME_SIZE: u64 = 24 * MIB;

/// An image and its realtime device, as files.
pub(crate) struct Pair {
    pub(crate) image: PathBuf,
    pub(crate) realtime: PathBuf,
}

impl Pair {
    pub(crate) fn in_folder(folder: &Path, name: &str) -> Self {
        Self { image: folder.join(name), realtime: folder.join(format!("{name}.rt")) }
    }

    /// Makes an image whose new files are on the realtime device.
    pub(crate) fn make(folder: &Path, name: &str, options: &str) -> Self {
        Self::make_with(folder, name, "metadir=0", options)
    }

    /// Like [`Self::make`], with realtime groups. The last of four is small.
    pub(crate) fn make_groups(folder: &Path, name: &str, options: &str) -> Self {
        Self::make_with(folder, name, "metadir=1", &format!(",rgsize=8064k{options}"))
    }

    fn make_with(folder: &Path, name: &str, features: &str, options: &str) -> Self {
        let pair = Self::in_folder(folder, name);
        std::fs::File::create(&pair.realtime).unwrap().set_len(REALTIME_SIZE).unwrap();
        let realtime = pair.realtime.display();
        let options = format!("-d rtinherit=1 -m {features} -r rtdev={realtime}{options}");
        MkfsXfs::default().options(&options).create(&pair.image, SIZE);
        pair
    }

    /// Writes the device of the explorer into files.
    pub(crate) fn write(folder: &Path, name: &str, device: &MemoryDevice) -> Self {
        let pair = Self::in_folder(folder, name);
        let parts = parts(Arc::new(device.fork()));
        for (part, path) in parts.iter().zip([&pair.image, &pair.realtime]) {
            let copy = MemoryDevice::new(part.len());
            let mut bytes = vec![0; 1 << 20];
            for at in (0..part.len()).step_by(bytes.len()) {
                part.read_at(at, &mut bytes).unwrap();
                if !disk::is_zero(&bytes) {
                    copy.write_at(at, &bytes).unwrap();
                }
            }
            write_image(&copy, path).unwrap();
        }
        pair
    }

    /// Returns the verdict of `xfs_repair -n -r`.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        let mut command = testkit::command("xfs_repair");
        command.args(["-n", "-f", "-P", "-r"]).arg(&self.realtime).arg(&self.image);
        let output = command.output().unwrap();
        if output.status.success() { Ok(()) } else { Err(format!("{output:?}")) }
    }

    fn remove(&self) {
        for path in [&self.image, &self.realtime] {
            std::fs::remove_file(path).unwrap();
        }
    }
}

fn part(device: &Arc<dyn BlockDevice>, start: u64, len: u64) -> Arc<dyn BlockDevice> {
    Arc::new(WindowDevice::new(Arc::clone(device), start, len).unwrap())
}

fn parts(device: Arc<dyn BlockDevice>) -> [Arc<dyn BlockDevice>; 2] {
    [part(&device, 0, SIZE), part(&device, SIZE, REALTIME_SIZE)]
}

pub(crate) fn joined(device: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    let [data, realtime] = parts(device);
    Arc::new(JoinedDevice::new(data, None, Some(realtime)).unwrap())
}

/// Images in one device of the explorer: the data first, then the realtime section.
struct OnRealtime(Vec<MemoryDevice>);

impl OnRealtime {
    fn new(make: fn(&Path, &str, &str) -> Pair) -> Self {
        let folder = testkit::scratch();
        let made = ["", ",extsize=16k", ",extsize=12k"].into_iter().enumerate();
        let made = made.map(|(nth, options)| {
            let pair = make(folder.path(), &nth.to_string(), options);
            let both = MemoryDevice::new(SIZE + REALTIME_SIZE);
            for (path, offset) in [(&pair.image, 0), (&pair.realtime, SIZE)] {
                let part = read_image(path).unwrap();
                part.for_each_part(|at, bytes| both.write_at(offset + at, bytes)).unwrap();
            }
            both
        });
        Self(made.collect())
    }
}

impl CrashTarget for OnRealtime {
    fn make(&self, seed: u64) -> Result<MemoryDevice, String> {
        Ok(self.0[seed as usize % self.0.len()].fork())
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn OpenFileSystem>> {
        let options = OpenOptions { cache_bytes: SMALL_CACHE_BYTES, ..OpenOptions::default() };
        let fs = Xfs::open_writable(joined(device), &options)?;
        Ok(Box::new(Open(fs, Way::InPlace)))
    }
}

/// Our own check, of the image as a crash leaves it and of the recovered one.
struct Sound;

impl Judge for Sound {
    fn name(&self) -> &str {
        "our own check"
    }

    fn one_in(&self) -> u64 {
        1
    }

    fn judge(&self, case: &CrashCase<'_>) -> Result<(), String> {
        for (what, device) in [("crashed", case.crashed), ("recovered", case.recovered)] {
            let found = findings(joined(Arc::new(device.fork())));
            let found = found.map_err(|error| format!("{what}: {error}"))?;
            if !found.is_empty() {
                return Err(format!("{what}: {found:#?}"));
            }
        }
        Ok(())
    }
}

/// `xfs_repair -n -r` on the recovered image.
struct Repairable {
    folder: tempfile::TempDir,
    next: AtomicU64,
}

impl Judge for Repairable {
    fn name(&self) -> &str {
        "xfs_repair after our recovery"
    }

    fn one_in(&self) -> u64 {
        3
    }

    fn judge(&self, case: &CrashCase<'_>) -> Result<(), String> {
        let name = self.next.fetch_add(1, Ordering::Relaxed).to_string();
        let pair = Pair::write(self.folder.path(), &name, case.recovered);
        let verdict = pair.verdict();
        pair.remove();
        verdict
    }
}

#[test]
fn realtime_files_survive_a_crash_anywhere() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let options = Options { mixes: vec![SYNCING, Mix::ALL], ..Options::default() };
    let repairable = Repairable { folder: testkit::scratch(), next: AtomicU64::new(0) };
    testkit::assert_survives(&OnRealtime::new(Pair::make), &[&Sound, &repairable], options, 200);
}

#[test]
fn files_of_realtime_groups_survive_a_crash_anywhere() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let options = Options { mixes: vec![SYNCING, Mix::ALL], ..Options::default() };
    let repairable = Repairable { folder: testkit::scratch(), next: AtomicU64::new(0) };
    let target = OnRealtime::new(Pair::make_groups);
    testkit::assert_survives(&target, &[&Sound, &repairable], options, 200);
}
