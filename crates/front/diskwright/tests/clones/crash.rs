//! Crashes of the host while a clone is changed. The explorer records the writes to the overlay file. In each state, the
//! clone contains everything synced, and the base and the snapshots have not been written.

use std::ops::Range;
use std::sync::Arc;

use disk::overlay_file::{About, OverlayError};
use disk::{BlockDevice, MemoryDevice, OverlayFile, RecordingDevice};
use diskwright::fs::ImageOptions;
use testkit::crash::{CarelessDevice, CrashCase, CrashTarget, Judge, OpenFileSystem, Options};
use testkit::operation::Mix;
use vfs::FileSystem;

use crate::images::{FORMATS, options};

/// Size of the base and of the longer clones, sufficient for both formats.
const BASE_BYTES: u64 = 300 << 20;
const LONGER_BYTES: u64 = 320 << 20;

/// Cache of the file systems, small enough to write blocks in the middle of a run.
const CACHE_BYTES: usize = 1 << 20;

/// Names in headers, which select the device below a clone.
const BASE: &str = "base";
const SNAPSHOT: &str = "snapshot";

/// Clones of an empty file system, and clones of a snapshot of such a clone.
struct CloneTarget {
    format: &'static str,
    base: Arc<RecordingDevice>,
    /// Storage of the snapshot, and its contents.
    storage: Arc<RecordingDevice>,
    snapshot: Arc<OverlayFile>,
    /// New clones, to be chosen by the seed.
    made: [MemoryDevice; 3],
    /// Contents of these clones.
    flat: [MemoryDevice; 3],
    swallows_flushes: bool,
}

fn about(base: &str, longer: Option<u64>) -> About {
    About { base: base.into(), identity: base.into(), longer }
}

/// Returns memory for an overlay of `len` bytes.
fn storage(len: u64) -> MemoryDevice {
    MemoryDevice::new(OverlayFile::file_bytes(len).unwrap())
}

/// Returns the storage of a new clone.
fn new_clone(below: Arc<dyn BlockDevice>, about: &About) -> MemoryDevice {
    let made = Arc::new(storage(about.longer.unwrap_or(below.len())));
    drop(OverlayFile::create(made.clone(), below, about).unwrap());
    made.fork()
}

/// Returns memory of `len` bytes that starts with the contents of a device.
fn copy(device: &dyn BlockDevice, len: u64) -> MemoryDevice {
    let (copy, mut piece) = (MemoryDevice::new(len), vec![0; 1 << 20]);
    for at in (0..device.len()).step_by(piece.len()) {
        device.read_at(at, &mut piece).unwrap();
        if !disk::is_zero(&piece) {
            copy.write_at(at, &piece).unwrap();
        }
    }
    copy
}

impl CloneTarget {
    fn new(format: &'static str) -> Self {
        let memory = Arc::new(MemoryDevice::new(BASE_BYTES));
        options(format).write(&*memory, true).unwrap();
        let base = Arc::new(RecordingDevice::new(memory));
        let snapshot = Arc::new(storage(BASE_BYTES));
        let overlay = OverlayFile::create(snapshot.clone(), base.clone(), &about(BASE, None));
        // The snapshot contains blocks, and is an empty file system for the model.
        let image = ImageOptions::new().write(true).open_device(Arc::new(overlay.unwrap()));
        let image = image.unwrap();
        image.set_label("snapshot").unwrap();
        image.close().unwrap();
        let storage = Arc::new(RecordingDevice::new(snapshot));
        let snapshot = OverlayFile::open(storage.clone(), base.clone(), BASE).unwrap();
        assert!(!snapshot.written().is_empty(), "{format}: the snapshot is like its base");
        let snapshot = Arc::new(snapshot);
        let made = [
            new_clone(base.clone(), &about(BASE, None)),
            new_clone(snapshot.clone(), &about(SNAPSHOT, None)),
            new_clone(base.clone(), &about(BASE, Some(LONGER_BYTES))),
        ];
        let flat =
            [copy(&*base, BASE_BYTES), copy(&*snapshot, BASE_BYTES), copy(&*base, LONGER_BYTES)];
        Self { format, base, storage, snapshot, made, flat, swallows_flushes: false }
    }

    /// Opens a clone on the device that its header names.
    fn overlay(&self, device: Arc<dyn BlockDevice>) -> Result<OverlayFile, OverlayError> {
        let (about, _) = About::read(&*device)?;
        let below: Arc<dyn BlockDevice> = match &*about.base {
            BASE => self.base.clone(),
            _ => self.snapshot.clone(),
        };
        OverlayFile::open(device, below, &about.base)
    }

    #[track_caller]
    fn assert_unchanged(&self) {
        assert_eq!(self.base.event_count(), 0, "{}: the base is written", self.format);
        assert_eq!(self.storage.event_count(), 0, "{}: the snapshot is written", self.format);
    }
}

fn open(format: &str, device: Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn OpenFileSystem>> {
    Ok(match format {
        "ext4" => {
            let options = ext4::OpenOptions { cache_bytes: CACHE_BYTES, ..Default::default() };
            Box::new(Open::Ext4(Box::new(ext4::Ext4::open_writable(device, &options)?)))
        }
        _ => {
            let options = xfs::OpenOptions { cache_bytes: CACHE_BYTES, ..Default::default() };
            Box::new(Open::Xfs(Box::new(xfs::Xfs::open_writable(device, &options)?)))
        }
    })
}

enum Open {
    Ext4(Box<ext4::Ext4>),
    Xfs(Box<xfs::Xfs>),
}

impl OpenFileSystem for Open {
    fn file_system(&self) -> &dyn FileSystem {
        match self {
            Self::Ext4(fs) => &**fs,
            Self::Xfs(fs) => &**fs,
        }
    }

    fn close(self: Box<Self>) -> vfs::Result<()> {
        match *self {
            Self::Ext4(fs) => fs.close(),
            Self::Xfs(fs) => fs.close(),
        }
    }
}

impl CrashTarget for CloneTarget {
    fn make(&self, seed: u64) -> Result<MemoryDevice, String> {
        // The lowest bit of the seed selects the mix of operations.
        Ok(self.made[(seed / 2 % 3) as usize].fork())
    }

    /// The superblock of ext4 must be written atomically, also in the data of an overlay. See the target in ext4.
    fn indivisible(&self) -> Vec<Range<u64>> {
        let starts =
            [BASE_BYTES, LONGER_BYTES].map(|len| OverlayFile::file_bytes(len).unwrap() - len);
        let ranges = starts.map(|start| start + 1024..start + 2048);
        if self.format == "ext4" { ranges.to_vec() } else { Vec::new() }
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn OpenFileSystem>> {
        let device: Arc<dyn BlockDevice> =
            if self.swallows_flushes { Arc::new(CarelessDevice(device)) } else { device };
        let opened = self.overlay(device);
        let advice = "an overlay survives a crash";
        let overlay = opened.map_err(|e| vfs::Error::unsupported(e.to_string(), advice))?;
        open(self.format, Arc::new(overlay))
    }
}

/// Commits the recovered clone in memory and lets the checker of the format judge it.
struct Committed<'t>(&'t CloneTarget);

impl Judge for Committed<'_> {
    fn name(&self) -> &str {
        "the checker of the committed clone"
    }

    fn one_in(&self) -> u64 {
        3
    }

    fn judge(&self, case: &CrashCase<'_>) -> Result<(), String> {
        let clone = self.0.overlay(Arc::new(case.recovered.fork())).map_err(|e| e.to_string())?;
        let (about, _) = About::read(case.recovered).map_err(|e| e.to_string())?;
        let below = if about.base == BASE { &self.0.flat[0] } else { &self.0.flat[1] };
        let committed = if about.longer.is_some() { &self.0.flat[2] } else { below }.fork();
        for range in clone.written() {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            let copied = clone.read_at(range.start, &mut bytes);
            copied.and_then(|()| committed.write_at(range.start, &bytes)).expect("memory");
        }
        testkit::show_image(&committed, testkit::verdict)
    }
}

fn exploring(mixes: Vec<Mix>) -> Options {
    Options { mixes, ..Options::default() }
}

#[test]
fn synced_changes_of_clones_survive_a_crash_anywhere_and_nothing_below_is_written() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for format in FORMATS {
        let target = CloneTarget::new(format);
        let options = exploring(vec![Mix::METADATA, Mix::ALL]);
        testkit::assert_survives(&target, &[&Committed(&target)], options, 600);
        target.assert_unchanged();
    }
}

#[test]
fn a_clone_that_does_not_flush_is_found_out() {
    for format in FORMATS {
        let target = CloneTarget { swallows_flushes: true, ..CloneTarget::new(format) };
        let report = testkit::explore(&target, &[], exploring(vec![Mix::ALL]), 200);
        assert!(report.failures.len() >= 5, "{format}: {} failures", report.failures.len());
    }
}
