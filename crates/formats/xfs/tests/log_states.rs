//! The end of the log after a crash at any of its writes, as found by other programs.
//!
//! The load has large checkpoints, so that many records are written between two flushes, and the log wraps around.

use crate::changing::{self, MIB, TargetLayout};
use crate::common::image::unpack_device;

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice, RecordingDevice};
use testkit::crash::{Bulk, Desk, LogState, LogStates, Loss, Tearing, change_in_bulk};
use testkit::fs_tree::FsTree;
use testkit::{KernelMount, MountOptions, require, show_image, xfs_repair_verdict};
use xfs::format::log::build::RECORD_BLOCKS_MAX;
use xfs::format::superblock::Superblock;
use xfs::{OpenOptions, Xfs, log_end, recover_log};

/// The kernel mounts one state in this number, before and after recovery by this implementation.
const MOUNT_ONE_IN: u32 = 9;
const FAILURES_SHOWN: usize = 5;
/// Room for all metadata, so that only checkpoints write.
const CACHE_BYTES: usize = 128 << 20;

/// A kind of log, and a load that makes it wrap around.
struct LogShape {
    layout: TargetLayout,
    bulk: Bulk,
    laps_min: u64,
}

/// A log of 16 MiB with records of full length.
const LARGE_RECORDS: LogShape = LogShape {
    layout: TargetLayout { size: 320 * MIB, mkfs: Some("-l size=16m"), ..TargetLayout::DEFAULT },
    bulk: Bulk { files: 24_000, changes: 30_000, sync_one_in: 10_000 },
    laps_min: 2,
};

/// The smallest log of the current defaults, which wraps around many times.
const SMALL_LOG: LogShape = LogShape {
    layout: TargetLayout::DEFAULT,
    bulk: Bulk { files: 8_000, changes: 30_000, sync_one_in: 3_000 },
    laps_min: 4,
};

fn shapes() -> Vec<LogShape> {
    let with_options = |options| TargetLayout { mkfs: Some(options), ..LARGE_RECORDS.layout };
    let mut shapes = vec![LARGE_RECORDS, SMALL_LOG];
    if testkit::effort(false, true, true) {
        let options = [
            "-l size=16m,su=32k",
            "-l size=16m,su=256k",
            "-s size=4096 -l size=16m",
            "-b size=1024 -l size=16m -n size=8192",
        ];
        for (options, block_size) in options.into_iter().zip([4096, 4096, 4096, 1024]) {
            let layout = TargetLayout { block_size, ..with_options(options) };
            shapes.push(LogShape { layout, ..LARGE_RECORDS });
        }
        let bulk = Bulk { files: 3_000, changes: 30_000, sync_one_in: 1_500 };
        shapes.push(LogShape { layout: TargetLayout::SMALL_LOG, bulk, laps_min: 4 });
    }
    shapes
}

fn superblock(device: &MemoryDevice) -> Superblock {
    let mut sector = [0; 4096];
    device.read_at(0, &mut sector).unwrap();
    Superblock::parse(&sector, device.len()).unwrap()
}

/// Returns the head of the log according to xfs_logprint.
fn printed_head(image: &Path) -> Result<u32, String> {
    let output = testkit::command("xfs_logprint").arg("-t").arg(image).output();
    let output = output.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let head = text.lines().find_map(|line| {
        let (_, rest) = line.trim().split_once(" head: ")?;
        rest.split_once(" state: ")?.0.parse().ok()
    });
    match head {
        Some(head) if output.status.success() => Ok(head),
        _ => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let start: String = text.chars().take(500).collect();
            Err(format!("xfs_logprint, {}: {errors}{start}", output.status))
        }
    }
}

/// Checks that the kernel mounts an image, and leaves nothing to repair.
fn kernel_mounts(image: &Path) -> Result<(), String> {
    let options = MountOptions::read_write("xfs");
    KernelMount::attempt(image, &options)
        .map_err(|error| format!("the kernel: {error}"))?
        .unmount();
    xfs_repair_verdict(image)
}

/// Counts of states, and errors.
#[derive(Default)]
struct Judge {
    desk: Desk,
    states: u32,
    mounted: u32,
    refused: Vec<String>,
}

impl Judge {
    fn judge(&mut self, state: &LogState) {
        let is_mounted = self.states.is_multiple_of(MOUNT_ONE_IN);
        self.states += 1;
        if let Err(what) = self.verdict(state, is_mounted) {
            self.refused.push(format!("{:?} after {} events: {what}", state.loss, state.end));
        }
    }

    fn verdict(&mut self, state: &LogState, is_mounted: bool) -> Result<(), String> {
        let theirs = show_image(&state.device, printed_head)?;
        let sb = superblock(&state.device);
        let ours = log_end(&state.device, &sb).map_err(|error| error.to_string())?;
        let ours = ours.ok_or("we do not find the end of the log")?.head;
        // xfs_logprint does not verify checksums, so it does not detect torn records.
        if theirs != ours && state.loss != Loss::Any {
            return Err(format!("the log ends at block {theirs} for xfs_logprint, {ours} for us"));
        }
        if !is_mounted {
            return Ok(());
        }
        self.mounted += 1;
        kernel_mounts(&self.desk.put(&state.device)?.0)?;
        // After a crash right after recovery here, others must be able to read the log.
        let recovered = state.device.fork();
        recover_log(&recovered, &sb).map_err(|error| format!("our recovery: {error}"))?;
        show_image(&recovered, printed_head)
            .map_err(|what| format!("after our recovery: {what}"))?;
        kernel_mounts(&self.desk.put(&recovered)?.0)
            .map_err(|what| format!("after our recovery: {what}"))
    }
}

/// Tests the rules for log writes in `docs/xfs.md` ("Ends").
#[test]
fn others_find_the_end_of_the_log_after_a_crash_at_any_write_to_it() {
    require!(Tool("mkfs.xfs"), Tool("xfs_logprint"), Tool("xfs_repair"), Mount("xfs"));
    let writes = testkit::effort(8, 8, 600);
    for (seed, LogShape { layout, bulk, laps_min }) in (0..).zip(shapes()) {
        let start = layout.make();
        let recording = Arc::new(RecordingDevice::new(Arc::new(start.fork())));
        let options = OpenOptions {
            cache_bytes: CACHE_BYTES,
            checkpoint_threads: NonZeroUsize::new(4),
            ..OpenOptions::default()
        };
        let fs = layout.open_in_place(recording.clone(), &options).unwrap();
        change_in_bulk(&fs, bulk, seed).unwrap();
        let events = recording.take();
        drop(fs);
        // The device has the sector size that the file system was made for.
        let sector = usize::from(superblock(&start).raw.sectsize.get());
        let states = LogStates::new(&start, &events, &[TargetLayout::log_of(&start)])
            .with_tearing(Tearing { sector, ..Tearing::default() });
        let laps = states.laps();
        assert!(laps >= laps_min, "{layout:?}: the log went round {laps} times");
        let mut judge = Judge::default();
        states.for_each(writes, seed, |state| judge.judge(state));
        let Judge { states, mounted, refused, .. } = judge;
        let what = format!("{layout:?}: {} of {states} states refused", refused.len());
        eprintln!("{what}; {laps} laps, {mounted} mounted");
        let shown = &refused[..refused.len().min(FAILURES_SHOWN)];
        assert!(refused.is_empty(), "{what}\n{}", shown.join("\n"));
    }
}

/// Earlier versions wrote records of 256 KiB plus headers. Kernels refuse a log whose last complete record is that
/// long.
#[test]
fn a_log_of_records_longer_than_kernels_search_is_recovered() {
    require!(Tool("xfs_logprint"), Tool("xfs_repair"), Mount("xfs"));
    let device = unpack_device(include_bytes!("golden/log-of-long-records.img.gz.gz"));
    let sb = superblock(&device);
    let last = log_end(&device, &sb).unwrap().unwrap().last.unwrap();
    assert!(last.blocks() > RECORD_BLOCKS_MAX);
    show_image(&device, printed_head).expect_err("it has what others do not find");
    let desk = Desk::default();
    // A crash right after recovery, and a completed recovery.
    let crashed = device.fork();
    let report = recover_log(&crashed, &sb).unwrap().report;
    assert_eq!((report.transactions, report.items_replayed), (1, 131));
    kernel_mounts(&desk.put(&crashed).unwrap().0).unwrap();
    let again = Arc::new(crashed.fork());
    let closed = Arc::new(device);
    for device in [&again, &closed] {
        Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap().close().unwrap();
        changing::assert_clean(device);
        kernel_mounts(&desk.put(device).unwrap().0).unwrap();
        let fs = Xfs::open(device.clone(), &OpenOptions::default()).unwrap();
        let files = FsTree::of(&fs).unwrap();
        let is_replayed = |number: u32| {
            let path = format!("d/f{number:05}");
            files.get(path.as_bytes()).is_some_and(|file| file.attributes.permissions == 0o755)
        };
        assert!((0..2100).all(is_replayed));
    }
}
